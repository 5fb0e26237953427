import type { Clock, Effects } from '@reindeer/protocol';
import { ReindeerError } from '@reindeer/protocol';
import { Bell, settledWithin } from '../common/waiting.ts';

/**
 * The registry of what one attempt still does to the world (D6). LangGraph gives up its stream milliseconds after an abort while
 * tool bodies run on; a run has *stopped* when nothing is registered here any more.
 *
 * States: open → closed. Closed is final: `track` refuses, so that no effect starts after a cancel. Work that was registered
 * before stays registered until its own promise settles, whatever the abort did to those who waited for it.
 */
export class EffectsRegistry implements Effects {
  readonly #clock: Clock;
  readonly #check: () => void;
  readonly #live = new Map<number, string>();
  /** Rings when nothing is alive any more, and when nobody is to wait any longer. */
  readonly #news = new Bell();
  #abandoned = false;
  #next = 1;
  #closed = false;

  /** @param check looks whether the right still stands, and closes this registry when it does not. Called right before each start. */
  constructor(clock: Clock, check: () => void = () => undefined) {
    this.#clock = clock;
    this.#check = check;
  }

  async track<T>(name: string, work: () => Promise<T>): Promise<T> {
    // After a long pause of the process an answer may arrive before the timer that watches the lease (RL-04).
    if (!this.#closed) this.#check();
    if (this.#closed) throw new ReindeerError('aborted', `Not started, because the run is stopping: ${name}`);
    const id = this.#next;
    this.#next += 1;
    this.#live.set(id, name);
    try {
      return await work();
    } finally {
      this.#live.delete(id);
      if (this.#live.size === 0) this.#news.ring();
    }
  }

  /** From now on nothing starts. Idempotent. */
  close(): void {
    this.#closed = true;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** The process stops: whoever waits for effects to end waits no longer. What runs on is out of our hands. */
  abandon(): void {
    this.close();
    this.#abandoned = true;
    this.#news.ring();
  }

  live(): readonly string[] {
    return [...this.#live.values()];
  }

  async stopped(timeoutMs: number): Promise<readonly string[]> {
    const deadline = this.#clock.monotonic() + timeoutMs;
    while (this.#live.size > 0 && !this.#abandoned) {
      const left = deadline - this.#clock.monotonic();
      if (left <= 0) break;
      await settledWithin(this.#clock, this.#news.next(), left);
    }
    return this.live();
  }
}
