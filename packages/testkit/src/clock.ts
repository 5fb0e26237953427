import type { Clock } from '@reindeer/protocol';
import { flush } from './deferred.ts';

interface Sleeper {
  readonly due: number;
  readonly order: number;
  readonly wake: () => void;
}

/** Tests begin at a fixed instant, so that nothing depends on the day. */
export const TEST_EPOCH = Date.UTC(2030, 0, 1);

/**
 * A clock that stands still until it is told to move. Wall clock and monotonic clock move together under `advance`; `jump`
 * moves the wall clock alone, as an operator or a time server does. Sleepers wake in the order of their deadlines, equal
 * deadlines in the order of their calls, and what each wake causes runs before the next one.
 */
export class VirtualClock implements Clock {
  #wall: number;
  #monotonic = 0;
  #order = 0;
  readonly #sleepers = new Set<Sleeper>();

  constructor(start: number = TEST_EPOCH) {
    this.#wall = start;
  }

  now(): number {
    return this.#wall;
  }

  monotonic(): number {
    return this.#monotonic;
  }

  sleep(milliseconds: number, signal?: AbortSignal): Promise<void> {
    if (signal?.aborted) return Promise.reject(signal.reason);
    return new Promise<void>((resolve, reject) => {
      this.#order += 1;
      const leave = (): void => {
        this.#sleepers.delete(sleeper);
        signal?.removeEventListener('abort', aborted);
      };
      const aborted = (): void => {
        leave();
        reject(signal?.reason);
      };
      const sleeper: Sleeper = {
        due: this.#monotonic + Math.max(0, milliseconds),
        order: this.#order,
        wake: () => {
          leave();
          resolve();
        },
      };
      this.#sleepers.add(sleeper);
      signal?.addEventListener('abort', aborted, { once: true });
    });
  }

  /** How many sleep right now; 0 after a clean stop. */
  get sleeping(): number {
    return this.#sleepers.size;
  }

  /** Milliseconds until the next sleeper is due; null when nobody sleeps. */
  untilNext(): number | null {
    const next = this.#next();
    return next === null ? null : Math.max(0, next.due - this.#monotonic);
  }

  /** Lets `milliseconds` pass, waking everybody who becomes due, also those who go to sleep on the way. */
  async advance(milliseconds: number): Promise<void> {
    const end = this.#monotonic + milliseconds;
    await flush();
    for (;;) {
      const next = this.#next();
      if (next === null || next.due > end) break;
      this.#moveTo(Math.max(this.#monotonic, next.due));
      next.wake();
      await flush();
    }
    this.#moveTo(end);
    await flush();
  }

  /** Lets time pass without waking anybody: a process that is stopped, or one that is starved. */
  skip(milliseconds: number): void {
    this.#moveTo(this.#monotonic + milliseconds);
  }

  /** Moves the wall clock alone, forwards or backwards. */
  jump(milliseconds: number): void {
    this.#wall += milliseconds;
  }

  #moveTo(monotonic: number): void {
    this.#wall += monotonic - this.#monotonic;
    this.#monotonic = monotonic;
  }

  #next(): Sleeper | null {
    let next: Sleeper | null = null;
    for (const sleeper of this.#sleepers)
      if (next === null || sleeper.due < next.due || (sleeper.due === next.due && sleeper.order < next.order))
        next = sleeper;
    return next;
  }
}
