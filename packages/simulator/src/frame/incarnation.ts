import type { Clock, Surroundings } from '@reindeer/protocol';
import { NO_LOG, NO_PROBE, type Probe, ReindeerError } from '@reindeer/protocol';
import type { SeededRandom } from '@reindeer/testkit';
import { TEST_EPOCH } from '@reindeer/testkit';
import type { Scheduled, Scheduler } from './scheduler.ts';

/** What the network does with one call to a store or an engine. */
export interface Fate {
  /** Milliseconds until the request is at the store, and until the answer is back. */
  readonly there: number;
  readonly back: number;
  /** `before`: the request is lost; `after`: the answer is. The caller learns that nobody can tell in both cases. */
  readonly lost: 'before' | 'after' | null;
  /** A request on its way when the caller dies arrives all the same. */
  readonly outlivesCaller: boolean;
  /** The caller waits so many milliseconds; the request may arrive later all the same. Without it: for ever. */
  readonly patience?: number;
}

/** One call of a process to something that all processes share. */
export interface Request {
  readonly incarnation: Incarnation;
  /** Name of the link: a port of the database, a store, an engine. */
  readonly port: string;
  readonly method: string;
  readonly args: readonly unknown[];
  /** The first of them. */
  readonly input: unknown;
  /** World time at which the process sent it. */
  readonly sentAt: number;
  /** What the network does with it: known to the world from the beginning. */
  readonly fate: Fate;
}

/** The other side of the network: performs a request on what is shared. It may take its time. */
export type Serve = (request: Request) => Promise<unknown>;

/** Over how many milliseconds what piled up during a pause comes in, in any order. */
const PILED_UP_MS = 3;

/**
 * One life of a simulated process: its clock, and links to what it shares with others, which are behind a network.
 *
 * States: alive ⇄ paused → dead. A paused process does nothing, while what it sent is on its way and may arrive; a dead one
 * never does anything again: its timers and answers are dropped. Both differ from the product being told: it is not.
 */
export class Incarnation {
  readonly name: string;
  readonly surroundings: Surroundings;
  /** Difference of this process's wall clock to the world's, in milliseconds. */
  wallOffset = 0;
  readonly #scheduler: Scheduler;
  readonly #random: SeededRandom;
  readonly #fate: (request: Omit<Request, 'fate'>) => Fate;
  readonly #serve: Serve;
  readonly #heard: (request: Request, answer: unknown) => void;
  readonly #failed: (request: Request) => void;
  readonly #isBeat: (method: string) => boolean;
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
    fate: (request: Omit<Request, 'fate'>) => Fate;
    serve: Serve;
    wallOffset: number;
    /** Where the product may be held up; nowhere by default. */
    probe?: Probe;
    /** Calls that only loops of the product make: none may follow its stop. */
    isBeat?: (method: string) => boolean;
    /** Called when an answer reaches this process, right before the product learns it. */
    heard?: (request: Request, answer: unknown) => void;
    /** Called when it reaches this process that a call failed, or that nobody can tell. */
    failed?: (request: Request) => void;
  }) {
    this.name = parts.name;
    this.wallOffset = parts.wallOffset;
    this.#scheduler = parts.scheduler;
    this.#random = parts.random;
    this.#fate = parts.fate;
    this.#serve = parts.serve;
    this.#heard = parts.heard ?? (() => {});
    this.#failed = parts.failed ?? (() => {});
    this.#isBeat = parts.isBeat ?? (() => false);
    this.#died.promise.catch(() => {});
    this.surroundings = { clock: this.#clock(), random: parts.random, probe: parts.probe ?? NO_PROBE, logger: NO_LOG };
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
  /** Calls so far that only the loops of the product make. */
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
    const late = Promise.withResolvers<never>();
    const timer = this.#scheduler.after(patience, () =>
      late.reject(new ReindeerError('internal', 'The request took too long.')),
    );
    const awake = new Promise<void>((resolve) => this.#whenAwake(this.#latency(), resolve));
    try {
      await Promise.race([awake, this.#died.promise, late.promise]);
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

  /** What all share, as this process reaches it: each method of the result is a call over the network. */
  link<P extends object>(port: string, own: Partial<P> = {}): P {
    return new Proxy(own, {
      get: (target, method) => {
        if (typeof method !== 'string' || method === 'then') return undefined;
        if (method in target) return target[method as keyof P];
        return (...args: unknown[]) => this.#call(port, method, args);
      },
    }) as P;
  }

  /** A hint on its way to this process; some never arrive. */
  hint(run: () => void): void {
    if (this.#random.chance(0.9)) this.#whenAwake(this.#latency(), run);
  }

  #call(port: string, method: string, args: readonly unknown[]): Promise<unknown> {
    if (!this.#alive) return new Promise(() => {});
    if (this.#isBeat(method)) this.#beats += 1;
    const sent = { incarnation: this, port, method, args, input: args[0], sentAt: this.#scheduler.now };
    const fate = this.#fate(sent);
    // One object from the beginning to the end, so that a watcher knows it again.
    const request: Request = Object.assign(sent, { fate });
    return new Promise((resolve, reject) => {
      let open = true;
      const answer = (delay: number, settle: () => void): void =>
        void this.#whenAwake(delay, () => {
          if (open) settle();
          open = false;
        });
      const refuse = (delay: number, error: unknown): void =>
        answer(delay, () => {
          this.#failed(request);
          reject(error);
        });
      const fail = (delay: number, what: string): void => refuse(delay, cannotTell(what));
      if (fate.patience !== undefined) fail(fate.patience, 'did not answer in time');
      this.#scheduler.after(fate.there, () => {
        if (!this.#alive && !fate.outlivesCaller) return;
        if (fate.lost === 'before') fail(fate.back, 'was not reached');
        else
          this.#serve(request).then(
            (result) =>
              fate.lost === 'after'
                ? fail(fate.back, 'did not answer')
                : answer(fate.back, () => {
                    this.#heard(request, result);
                    resolve(result);
                  }),
            (error: unknown) => refuse(fate.back, error),
          );
      });
    });
  }
}

const cannotTell = (what: string): ReindeerError =>
  new ReindeerError('store_unavailable', `The store ${what}.`, { retryable: true });
