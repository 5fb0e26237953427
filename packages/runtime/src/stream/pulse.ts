import type { Clock } from '@reindeer/protocol';
import { NOT_NEEDED } from '../common/waiting.ts';

/** Says when a stream was quiet for `everyMs`; one timer for the life of a reader. */
export class Pulse {
  readonly #clock: Clock;
  readonly #everyMs: number;
  readonly #stopped = new AbortController();
  #quietSince: number;

  constructor(clock: Clock, everyMs: number, wake: () => void) {
    this.#clock = clock;
    this.#everyMs = everyMs;
    this.#quietSince = clock.monotonic();
    this.#beat(wake).catch(() => undefined);
  }

  /** Something was sent. */
  delay(): void {
    this.#quietSince = this.#clock.monotonic();
  }

  /** Is a heartbeat due? Counts it as sent. */
  isDue(): boolean {
    if (this.#clock.monotonic() - this.#quietSince < this.#everyMs) return false;
    this.delay();
    return true;
  }

  stop(): void {
    this.#stopped.abort(NOT_NEEDED);
  }

  async #beat(wake: () => void): Promise<void> {
    for (;;) {
      const left = this.#quietSince + this.#everyMs - this.#clock.monotonic();
      if (left <= 0) wake();
      await this.#clock.sleep(left <= 0 ? this.#everyMs : left, this.#stopped.signal);
    }
  }
}
