import type { Clock, Stores, Surroundings } from '@reindeer/protocol';
import { NO_LOG, NO_PROBE, ReindeerError } from '@reindeer/protocol';
import type { SeededRandom } from '@reindeer/testkit';
import { TEST_EPOCH } from '@reindeer/testkit';
import type { Scheduled, Scheduler } from './scheduler.ts';

/** What the network does with one call to the store. */
export interface Fate {
  /** Milliseconds until the request is at the store, and until the answer is back. */
  readonly there: number;
  readonly back: number;
  /** `before`: the request is lost; `after`: the answer is. The caller learns `store_unavailable` in both cases. */
  readonly lost: 'before' | 'after' | null;
  /** A request on its way when the caller dies arrives all the same. */
  readonly outlivesCaller: boolean;
}

export interface StoreRequest {
  readonly incarnation: Incarnation;
  readonly port: keyof Omit<Stores, 'close'>;
  readonly method: string;
  readonly input: unknown;
  /** World time at which the process sent it. */
  readonly sentAt: number;
}

/** The other side of the network: performs a request on the shared database. */
export type Serve = (request: StoreRequest) => Promise<unknown>;

/** Over how many milliseconds what piled up during a pause comes in, in any order. */
const PILED_UP_MS = 3;

const PORTS = ['threads', 'runs', 'log', 'journal', 'checkpoints'] as const;

/**
 * One life of a simulated process: its clock, and stores that are behind a network.
 *
 * States: alive ⇄ paused → dead. A paused process does nothing, while what it sent is on its way and may arrive; a dead one
 * never does anything again: its timers and answers are dropped. Both differ from the product being told: it is not.
 */
export class Incarnation {
  readonly name: string;
  readonly stores: Stores;
  readonly surroundings: Surroundings;
  /** Difference of this process's wall clock to the world's, in milliseconds. */
  wallOffset = 0;
  readonly #scheduler: Scheduler;
  readonly #random: SeededRandom;
  readonly #fate: (request: StoreRequest) => Fate;
  readonly #serve: Serve;
  readonly #heard: (request: StoreRequest, answer: unknown) => void;
  readonly #died = Promise.withResolvers<never>();
  #pausedUntil = 0;
  readonly #piledUp: (() => void)[] = [];
  #resumedAt: number | null = null;
  #alive = true;
  readonly #sleepers = new Set<{ readonly begun: number }>();
  #beats = 0;

  constructor(parts: {
    name: string;
    scheduler: Scheduler;
    random: SeededRandom;
    fate: (request: StoreRequest) => Fate;
    serve: Serve;
    /** Hints of the shared database about new facts. */
    onAppend: Stores['log']['onAppend'];
    wallOffset: number;
    /** Called when an answer reaches this process, right before the product learns it. */
    heard: (request: StoreRequest, answer: unknown) => void;
  }) {
    this.name = parts.name;
    this.wallOffset = parts.wallOffset;
    this.#scheduler = parts.scheduler;
    this.#random = parts.random;
    this.#fate = parts.fate;
    this.#serve = parts.serve;
    this.#heard = parts.heard;
    this.#died.promise.catch(() => {});
    this.surroundings = { clock: this.#clock(), random: parts.random, probe: NO_PROBE, logger: NO_LOG };
    this.stores = this.#gatedStores(parts.onAppend);
  }

  get alive(): boolean {
    return this.#alive;
  }
  get paused(): boolean {
    return this.#scheduler.now < this.#pausedUntil;
  }
  /** Was it paused at some time after `time`? */
  pausedSince(time: number): boolean {
    return this.paused || (this.#resumedAt !== null && this.#resumedAt >= time);
  }
  /** Timers that wait right now: none after a clean stop. */
  get sleeping(): number {
    return this.#sleepers.size;
  }
  /** Of these, the ones that were begun before `time`. */
  sleepingSince(time: number): number {
    return [...this.#sleepers].filter((sleeper) => sleeper.begun < time).length;
  }
  /** Renewals and claims so far: what the loops of the product send. */
  get beats(): number {
    return this.#beats;
  }

  pause(milliseconds: number): void {
    const until = this.#scheduler.now + milliseconds;
    if (until <= this.#pausedUntil) return;
    this.#pausedUntil = until;
    this.#scheduler.after(milliseconds, () => {
      if (this.#pausedUntil === until) this.resume();
    });
  }

  /** What piled up during the pause comes now, in any order. */
  resume(): void {
    if (this.#pausedUntil > 0) this.#resumedAt = this.#scheduler.now;
    this.#pausedUntil = this.#scheduler.now;
    for (const run of this.#piledUp.splice(0)) this.#scheduler.after(this.#random.below(PILED_UP_MS), run);
  }
  die(): void {
    this.#alive = false;
    this.#died.reject(new ReindeerError('internal', 'The connection was reset.'));
  }

  /** A client's request to this process: rejects when the process dies or when it takes longer than `patience` milliseconds. */
  async request<T>(work: () => Promise<T>, patience: number): Promise<T> {
    if (!this.#alive) throw new ReindeerError('internal', 'The connection was refused.');
    await new Promise<void>((resolve) => this.#whenAwake(this.#latency(), resolve));
    const late = Promise.withResolvers<never>();
    const timer = this.#scheduler.after(patience, () =>
      late.reject(new ReindeerError('internal', 'The request took too long.')),
    );
    try {
      return await Promise.race([work(), this.#died.promise, late.promise]);
    } finally {
      timer.cancel();
    }
  }

  /** Happens after `delay` in this process: later while it is paused, never once it is dead. */
  #whenAwake(delay: number, run: () => void): Scheduled {
    let cancelled = false;
    const attempt = (): void => {
      if (!this.#alive || cancelled) return;
      if (this.paused) this.#piledUp.push(attempt);
      else run();
    };
    const event = this.#scheduler.after(delay, attempt);
    return {
      cancel: () => {
        cancelled = true;
        event.cancel();
      },
    };
  }

  /** What a tool does: nothing of the product waits for this timer, so it does not count as one. */
  work(milliseconds: number): Promise<void> {
    return new Promise((resolve) => {
      this.#whenAwake(milliseconds, resolve);
    });
  }

  #latency(): number {
    return 1 + this.#random.below(8);
  }

  #clock(): Clock {
    const scheduler = this.#scheduler;
    return {
      now: () => TEST_EPOCH + scheduler.now + this.wallOffset,
      monotonic: () => scheduler.now,
      sleep: (milliseconds, signal) => {
        if (signal?.aborted === true) return Promise.reject(signal.reason);
        return new Promise<void>((resolve, reject) => {
          const sleeper = { begun: scheduler.now };
          this.#sleepers.add(sleeper);
          const leave = (): void => {
            this.#sleepers.delete(sleeper);
            signal?.removeEventListener('abort', aborted);
          };
          const timer = this.#whenAwake(milliseconds, () => {
            leave();
            resolve();
          });
          const aborted = (): void => {
            timer.cancel();
            leave();
            reject(signal?.reason);
          };
          signal?.addEventListener('abort', aborted, { once: true });
        });
      },
    };
  }

  #gatedStores(onAppend: Stores['log']['onAppend']): Stores {
    const port = (name: (typeof PORTS)[number]): object =>
      new Proxy(
        {},
        {
          get: (_target, method) => {
            if (typeof method !== 'string' || method === 'then') return undefined;
            if (method === 'onAppend')
              return (listener: Parameters<typeof onAppend>[0]) => this.#hear(onAppend, listener);
            return (input: unknown) =>
              this.#call({ incarnation: this, port: name, method, input, sentAt: this.#scheduler.now });
          },
        },
      );
    const ports = Object.fromEntries(PORTS.map((name) => [name, port(name)])) as unknown as Omit<Stores, 'close'>;
    return { ...ports, close: () => Promise.resolve() };
  }

  #hear(onAppend: Stores['log']['onAppend'], listener: (threadId: string, head: number) => void): () => void {
    return onAppend((threadId, head) => {
      if (this.#random.chance(0.9)) this.#whenAwake(this.#latency(), () => listener(threadId, head));
    });
  }

  #call(request: StoreRequest): Promise<unknown> {
    if (!this.#alive) return new Promise(() => {});
    if (request.method === 'renew' || request.method === 'claimOrphans') this.#beats += 1;
    const fate = this.#fate(request);
    return new Promise((resolve, reject) => {
      const answer = (settle: () => void): void => void this.#whenAwake(fate.back, settle);
      const fail = (what: string): void =>
        answer(() => reject(new ReindeerError('store_unavailable', `The store ${what}.`, { retryable: true })));
      this.#scheduler.after(fate.there, () => {
        if (!this.#alive && !fate.outlivesCaller) return;
        if (fate.lost === 'before') fail('was not reached');
        else
          this.#serve(request).then(
            (result) =>
              fate.lost === 'after'
                ? fail('did not answer')
                : answer(() => {
                    this.#heard(request, result);
                    resolve(result);
                  }),
            (error: unknown) => answer(() => reject(error)),
          );
      });
    });
  }
}
