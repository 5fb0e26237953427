import type { AttemptAnswer, AttemptWrite, Clock, Stores } from '@reindeer/protocol';
import { ReindeerError } from '@reindeer/protocol';
import type { RetryPlan } from '../common/retry.ts';
import { NOT_NEEDED } from '../common/waiting.ts';

/** Writes that may be under way before `send` makes its caller wait: about two steps of an agent. */
const LONGEST = 12;
/** Writes of one transaction, at most. */
const GROUP = 64;

interface Entry {
  write: AttemptWrite;
  /** The same write with everything that it only mentions; null = there is no more to tell. */
  whole: (() => AttemptWrite) | null;
  readonly resolve: (answer: AttemptAnswer) => void;
  readonly reject: (error: unknown) => void;
}

export interface WriteQueueParts {
  readonly stores: Pick<Stores, 'attempts' | 'checkpoints' | 'journal'>;
  readonly clock: Clock;
  readonly plan: RetryPlan;
  /** The right of the attempt is lost: a write was answered `fenced`. Called once. */
  readonly onFenced: () => void;
  /** Writes were handed to a store that carries out calls in their order. */
  readonly onSent?: () => void;
  /** Writes up to the `done`-th are stored. */
  readonly onStored: (done: number) => void;
}

/**
 * The writes of one attempt on their way to the stores, strictly in the order of the calls (D1, D3, D7).
 *
 * Only two moments need to know that something is stored: a tool's effect starts behind its journal entry (`settle`), and an attempt
 * ends behind all of its writes (`drained`). Everything else is sent and not waited for: the next model call runs while the step
 * before it is being stored. Since writes are stored in order, one that is stored has all before it stored, too. What a crash costs
 * is therefore the newest writes, as if it had come a moment earlier.
 *
 * States: open → failed. A write that is answered `fenced`, or that the store cannot take after `plan.tries` tries, fails the queue for
 * good: it, everything behind it and every later call is rejected with that error, and nothing is sent any more. So no effect
 * begins behind a write that is missing. `close` fails the queue with `aborted`. A group of writes that fails is tried again
 * write by write, so that one that can never be stored takes only itself and its successors along.
 */
export class WriteQueue {
  readonly #parts: WriteQueueParts;
  readonly #over = new AbortController();
  readonly #waiting: { readonly until: number; readonly wake: () => void }[] = [];
  #entries: Entry[] = [];
  #sent = 0;
  #stored = 0;
  #sending = false;
  #failure: ReindeerError | Error | null = null;

  constructor(parts: WriteQueueParts) {
    this.#parts = parts;
  }

  /** Writes taken so far; `onStored` counts up to it. */
  get sent(): number {
    return this.#sent;
  }

  /** Nothing is under way. */
  get idle(): boolean {
    return this.#stored === this.#sent;
  }

  /**
   * Takes a write and answers when there is room for more. That it is stored is not known then.
   * @param whole makes the write to send when the store misses something that `write` only mentions
   * @throws the failure of this or an earlier write, when it is known already
   */
  async send(write: AttemptWrite, whole: (() => AttemptWrite) | null = null): Promise<void> {
    this.#take(write, whole).catch(() => undefined);
    if (this.#sent - this.#stored > LONGEST) await this.passed(this.#sent - LONGEST);
    if (this.#failure !== null) throw this.#failure;
  }

  /** Takes a write and answers what the store says, which then also has all earlier ones. @throws the failure of this or an earlier write */
  settle(write: AttemptWrite): Promise<AttemptAnswer> {
    return this.#take(write, null);
  }

  /** Waits until everything taken so far is stored. @throws the failure of one of them */
  async drained(): Promise<void> {
    await this.passed(this.#sent);
    if (this.#failure !== null) throw this.#failure;
  }

  /** Waits until the first `count` writes are stored, or the queue has failed. Never rejects. */
  async passed(count: number): Promise<void> {
    if (this.#stored >= count || this.#failure !== null) return;
    await new Promise<void>((wake) => {
      this.#waiting.push({ until: count, wake });
    });
  }

  /** The attempt is over: nothing more is sent. Idempotent. */
  close(): void {
    if (this.#failure === null)
      this.#fail(new ReindeerError('aborted', 'The attempt is over; nothing more is stored.'));
  }

  #take(write: AttemptWrite, whole: (() => AttemptWrite) | null): Promise<AttemptAnswer> {
    if (this.#failure !== null) return Promise.reject(this.#failure);
    this.#sent += 1;
    return new Promise((resolve, reject) => {
      this.#entries.push({ write, whole, resolve, reject });
      if (!this.#sending) {
        this.#sending = true;
        void this.#sendAll();
      }
    });
  }

  async #sendAll(): Promise<void> {
    const { attempts } = this.#parts.stores;
    /** How many of the next writes go alone, after a failure of all of them together. */
    let alone = 0;
    while (this.#entries.length > 0 && this.#failure === null) {
      // A turn of the event loop: what the graph writes next goes along.
      if (attempts !== undefined) await nextTurn();
      const group = this.#entries.slice(0, attempts === undefined || alone > 0 ? 1 : GROUP);
      alone = Math.max(0, alone - 1);
      const error = await this.#store(group);
      if (error !== null && group.length > 1) alone = group.length;
      else if (error !== null && this.#failure === null) this.#fail(error);
    }
    this.#sending = false;
  }

  /** Stores entries from the front of the queue; answers why that is not possible. */
  async #store(group: readonly Entry[]): Promise<Error | null> {
    let answers: readonly AttemptAnswer[];
    try {
      answers = await this.#repeated(group);
    } catch (error) {
      return error instanceof Error ? error : new Error(String(error));
    }
    for (const [index, answer] of answers.entries()) {
      const entry = group[index];
      if (entry === undefined || this.#failure !== null) break;
      if (answer.outcome === 'fenced') {
        this.#fail(new ReindeerError('fenced', 'The run is held by somebody else now; this attempt ends.'));
        this.#parts.onFenced();
      } else if (answer.outcome === 'incomplete') {
        if (entry.whole === null)
          return new ReindeerError('internal', 'The store misses a message although it was sent.');
        entry.write = entry.whole();
        entry.whole = null;
      } else {
        this.#entries.shift();
        this.#stored += 1;
        entry.resolve(answer);
      }
    }
    this.#parts.onStored(this.#stored);
    this.#wake();
    return null;
  }

  /** Everything here is safe to repeat: checkpoints have ids, facts and calls have keys (GW-22). */
  async #repeated(group: readonly Entry[]): Promise<readonly AttemptAnswer[]> {
    const { clock, plan } = this.#parts;
    let pause = plan.backoffMs;
    for (let tryNumber = 1; ; tryNumber += 1) {
      try {
        return await this.#write(group.map(({ write }) => write));
      } catch (error) {
        if (tryNumber >= plan.tries || this.#failure !== null) throw error;
        await clock.sleep(pause, this.#over.signal);
        pause *= 2;
      }
    }
  }

  async #write(writes: readonly AttemptWrite[]): Promise<readonly AttemptAnswer[]> {
    const { attempts, checkpoints, journal } = this.#parts.stores;
    const [first] = writes;
    if (first === undefined) return [];
    if (attempts !== undefined) {
      const answers = attempts.write(writes);
      this.#parts.onSent?.();
      return answers;
    }
    switch (first.kind) {
      case 'put':
        return [await checkpoints.put(first.input)];
      case 'putWrites':
        return [await checkpoints.putWrites(first.input)];
      case 'begin':
        return [await journal.begin(first.input)];
      case 'finish':
        return [await journal.finish(first.input)];
    }
  }

  #fail(error: Error): void {
    this.#failure = error;
    for (const { reject } of this.#entries) reject(error);
    this.#entries = [];
    this.#over.abort(NOT_NEEDED);
    this.#wake();
  }

  #wake(): void {
    for (let index = this.#waiting.length - 1; index >= 0; index -= 1) {
      const waiter = this.#waiting[index];
      if (waiter === undefined || (waiter.until > this.#stored && this.#failure === null)) continue;
      this.#waiting.splice(index, 1);
      waiter.wake();
    }
  }
}

const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
