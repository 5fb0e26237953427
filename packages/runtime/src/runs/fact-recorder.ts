import type { FactBody, Fence, Log, NewFact, Surroundings } from '@reindeer/protocol';
import { factKey } from '@reindeer/protocol';
import { settledWithin } from '../common/waiting.ts';
import type { WriteQueue } from '../writes/write-queue.ts';

/** Most facts in one append, and most that wait; more are dropped and counted. */
const BATCH = 200;
const LONGEST_QUEUE = 5_000;

/**
 * Writes the facts that an attempt reports itself (`custom` events, `debug` and `tasks` frames) in order, many per append, one append at
 * a time. A failed append keeps its facts in front and is tried again; keys make a repeat after a lost answer a no-op (RE-08). What the
 * attempt wrote before stands before them in the log.
 *
 * States: idle ⇄ writing → abandoned (fenced, or the attempt is over). An abandoned recorder writes nothing more (RL-08).
 */
export class FactRecorder {
  readonly #log: Log;
  readonly #surroundings: Surroundings;
  readonly #fence: Fence;
  readonly #threadId: string;
  readonly #onFenced: () => void;
  readonly #writes: Pick<WriteQueue, 'sent' | 'passed'>;
  readonly #over = new AbortController();
  #queue: NewFact[] = [];
  #count = 0;
  #dropped = 0;
  #writing: Promise<void> | null = null;

  constructor(parts: {
    log: Log;
    surroundings: Surroundings;
    fence: Fence;
    threadId: string;
    onFenced: () => void;
    writes: Pick<WriteQueue, 'sent' | 'passed'>;
  }) {
    this.#log = parts.log;
    this.#surroundings = parts.surroundings;
    this.#fence = parts.fence;
    this.#threadId = parts.threadId;
    this.#onFenced = parts.onFenced;
    this.#writes = parts.writes;
  }

  get dropped(): number {
    return this.#dropped;
  }

  add(body: FactBody, key?: string): void {
    if (this.#over.signal.aborted) return;
    if (this.#queue.length >= LONGEST_QUEUE) {
      this.#dropped += 1;
      return;
    }
    this.#count += 1;
    this.#queue.push({ key: key ?? factKey.custom(this.#fence.runId, this.#fence.token, this.#count), body });
    this.#writing ??= this.#write();
  }

  /** Waits until everything added so far is written, at most `timeoutMs`; answers whether it is. */
  async drain(timeoutMs: number): Promise<boolean> {
    if (this.#writing !== null) await settledWithin(this.#surroundings.clock, this.#writing, timeoutMs);
    return this.#queue.length === 0;
  }

  /** Stops for good; what is not written is dropped. */
  abandon(): void {
    this.#over.abort();
    this.#queue = [];
  }

  async #write(): Promise<void> {
    const { clock, logger } = this.#surroundings;
    let pause = 100;
    // Everything that the same tick adds goes into one append.
    await Promise.resolve();
    while (this.#queue.length > 0 && !this.#over.signal.aborted) {
      await this.#writes.passed(this.#writes.sent);
      const batch = this.#queue.slice(0, BATCH);
      if (batch.length === 0) break;
      try {
        const answer = await this.#log.append({
          fence: this.#fence,
          threadId: this.#threadId,
          facts: batch,
          now: clock.now(),
        });
        if (answer.outcome === 'fenced') {
          this.abandon();
          this.#onFenced();
          break;
        }
        this.#queue = this.#queue.slice(batch.length);
        pause = 100;
      } catch (error) {
        logger.warn('facts of a run could not be written; trying again', {
          runId: this.#fence.runId,
          facts: this.#queue.length,
          error: String(error),
        });
        await clock.sleep(pause, this.#over.signal).catch(() => undefined);
        pause = Math.min(pause * 2, 2_000);
      }
    }
    this.#writing = null;
  }
}
