import type { Clock } from '@reindeer/protocol';
import { NOT_NEEDED } from '../common/waiting.ts';

export interface LoopParts {
  readonly clock: Clock;
  readonly beatMs: number;
  /** Between two looks at the deadlines, at most. */
  readonly longestMs: number;
  /** Renews what is held. Never rejects. */
  beat(): Promise<void>;
  /** Tells those whose deadline has passed. */
  expire(): void;
  /** Monotonic times by which confirmations must have arrived. */
  deadlines(): Iterable<number>;
}

/**
 * The two loops of whoever keeps leases: one renews, the other watches the deadlines. They are apart, and a renewal is not waited for, so that one that
 * hangs delays neither the next one nor the moment at which a holder must stop (RL-05, RL-31).
 */
export class LeaseLoops {
  readonly #parts: LoopParts;
  readonly #stopped = new AbortController();
  #loops: Promise<unknown> | null = null;
  #watch: AbortController | null = null;

  constructor(parts: LoopParts) {
    this.#parts = parts;
  }

  /** Fires with the stop. */
  get stopped(): AbortSignal {
    return this.#stopped.signal;
  }

  /** Idempotent. */
  start(): void {
    this.#loops ??= Promise.allSettled([this.#beatLoop(), this.#watchLoop()]);
  }

  /** There is a deadline that may come before the others. */
  changed(): void {
    this.#watch?.abort(NOT_NEEDED);
  }

  /** No beat begins and nothing is told any more; for what must be done before `ended`. Idempotent. */
  stop(): void {
    this.#stopped.abort(NOT_NEEDED);
  }

  /** Resolves when both have ended. Renewals under way are not waited for. */
  async ended(): Promise<void> {
    await this.#loops;
  }

  async #beatLoop(): Promise<void> {
    const { clock, beatMs } = this.#parts;
    while (!this.stopped.aborted) {
      await clock.sleep(beatMs, this.stopped);
      void this.#parts.beat();
    }
  }

  async #watchLoop(): Promise<void> {
    const { clock, longestMs } = this.#parts;
    while (!this.stopped.aborted) {
      const now = clock.monotonic();
      let wait = longestMs;
      for (const deadline of this.#parts.deadlines()) wait = Math.min(wait, deadline - now);
      const watch = new AbortController();
      this.#watch = watch;
      await clock.sleep(Math.max(wait, 1), AbortSignal.any([watch.signal, this.stopped])).catch(() => undefined);
      this.#parts.expire();
    }
  }
}
