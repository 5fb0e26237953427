import { ReindeerError } from '@reindeer/protocol';

interface Waiter {
  readonly grant: () => void;
  readonly refuse: (error: ReindeerError) => void;
}

/** Most callers that may wait for one key. */
const MAX_WAITING = 1_000;

/**
 * One holder per key, in arrival order (SQ-01). An entry exists only while somebody holds or waits (SQ-02).
 *
 * *free* (no entry) → *held* (entry with its waiters) → handed to the first waiter, or *free* again. A waiter that is aborted leaves
 * the queue; when the grant and the abort meet, the grant goes on to the next (SQ-03). After `close` nobody enters any more;
 * who waits is refused, who holds finishes in peace (SQ-04).
 */
export class KeyedLock {
  readonly #waiters = new Map<string, Waiter[]>();
  #closed = false;

  /** Keys that are held now. */
  get size(): number {
    return this.#waiters.size;
  }

  /** Runs `section` as the only one for `key`. Rejects with `aborted`, `shutting_down`, `over_capacity`, or as the section does. */
  async run<T>(key: string, section: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    await this.#enter(key, signal);
    try {
      if (signal?.aborted) throw aborted();
      return await section();
    } finally {
      this.#leave(key);
    }
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const waiters of this.#waiters.values()) for (const waiter of waiters.splice(0)) waiter.refuse(closed());
  }

  async #enter(key: string, signal: AbortSignal | undefined): Promise<void> {
    if (this.#closed) throw closed();
    if (signal?.aborted) throw aborted();
    const waiters = this.#waiters.get(key);
    if (waiters === undefined) {
      this.#waiters.set(key, []);
      return;
    }
    if (waiters.length >= MAX_WAITING) {
      throw new ReindeerError('over_capacity', 'Too many callers wait for this sandbox; try again later.', {
        retryable: true,
      });
    }
    await new Promise<void>((resolve, reject) => {
      const settle = (then: () => void) => {
        signal?.removeEventListener('abort', onAbort);
        then();
      };
      const waiter: Waiter = { grant: () => settle(resolve), refuse: (error) => settle(() => reject(error)) };
      const onAbort = () => {
        const at = waiters.indexOf(waiter);
        if (at >= 0) waiters.splice(at, 1);
        waiter.refuse(aborted());
      };
      signal?.addEventListener('abort', onAbort, { once: true });
      waiters.push(waiter);
    });
  }

  #leave(key: string): void {
    const next = this.#waiters.get(key)?.shift();
    if (next === undefined) this.#waiters.delete(key);
    else next.grant();
  }
}

function aborted(): ReindeerError {
  return new ReindeerError('aborted', 'The wait for the sandbox was cancelled.');
}

function closed(): ReindeerError {
  return new ReindeerError('shutting_down', 'The sandbox provider is closed.');
}
