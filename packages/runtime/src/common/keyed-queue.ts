import { ReindeerError } from '@reindeer/protocol';

/**
 * Runs work of one key strictly one after the other, in the order of the calls; different keys do not wait for each other.
 * A key without work leaves no entry behind. At most `limit` callers wait per key; more are refused as `over_capacity`.
 */
export class KeyedQueue {
  readonly #tails = new Map<string, { tail: Promise<void>; size: number }>();
  readonly #limit: number;

  constructor(limit = 128) {
    this.#limit = limit;
  }

  get size(): number {
    return this.#tails.size;
  }

  async run<T>(key: string, work: () => Promise<T>): Promise<T> {
    const entry = this.#tails.get(key) ?? { tail: Promise.resolve(), size: 0 };
    if (entry.size >= this.#limit) {
      throw new ReindeerError('over_capacity', 'Too many requests wait for this thread; try again in a moment.', {
        retryable: true,
      });
    }
    const before = entry.tail;
    const { promise, resolve } = Promise.withResolvers<void>();
    entry.tail = promise;
    entry.size += 1;
    this.#tails.set(key, entry);
    try {
      await before;
      return await work();
    } finally {
      entry.size -= 1;
      if (entry.size === 0) this.#tails.delete(key);
      resolve();
    }
  }
}
