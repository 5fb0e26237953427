import type { Clock } from '@reindeer/protocol';

export interface FreshCacheOptions {
  readonly clock: Clock;
  /** How long what was read holds, in milliseconds. */
  readonly freshMs: number;
  /** The most keys that are kept. */
  readonly most: number;
}

/** What was read a moment ago, by key. A reading that fails is not kept, nor is one that holds no more. */
export class FreshCache<Value> {
  readonly #options: FreshCacheOptions;
  /** The oldest come first. */
  readonly #readings = new Map<string, { readonly at: number; readonly value: Promise<Value> }>();

  constructor(options: FreshCacheOptions) {
    this.#options = options;
  }

  /** @param anew read it, whatever is known */
  get(key: string, read: () => Promise<Value>, anew = false): Promise<Value> {
    const { clock, freshMs, most } = this.#options;
    const now = clock.monotonic();
    const known = this.#readings.get(key);
    if (!anew && known !== undefined && now - known.at < freshMs) return known.value;
    const value = read();
    this.#readings.delete(key);
    this.#readings.set(key, { at: now, value });
    value.catch(() => {
      if (this.#readings.get(key)?.value === value) this.#readings.delete(key);
    });
    for (const [oldest, { at }] of this.#readings) {
      if (now - at < freshMs && this.#readings.size <= most) break;
      this.#readings.delete(oldest);
    }
    return value;
  }

  delete(key: string): void {
    this.#readings.delete(key);
  }

  clear(): void {
    this.#readings.clear();
  }
}
