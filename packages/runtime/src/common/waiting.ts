import type { Clock } from '@reindeer/protocol';

/** Reason for ending a timer of our own that nobody waits for any more: an error with a stack for each would cost more than the timer. */
export const NOT_NEEDED = 'no longer needed';

/**
 * Waits for `promise`, at most `milliseconds`; answers whether it settled in time. Leaves no timer behind and never
 * rejects because of `promise`.
 */
export async function settledWithin(clock: Clock, promise: Promise<unknown>, milliseconds: number): Promise<boolean> {
  const timer = new AbortController();
  const settled = promise.then(
    () => true,
    () => true,
  );
  const late = clock.sleep(milliseconds, timer.signal).then(
    () => false,
    () => false,
  );
  const inTime = await Promise.race([settled, late]);
  timer.abort(NOT_NEEDED);
  return inTime;
}

/** Rejects with the signal's reason when it fires before `promise` settles. The listener is removed in both cases. */
export async function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  if (signal.aborted) {
    // Nobody waits for it: its failure is no unhandled one.
    promise.catch(() => undefined);
    throw signal.reason;
  }
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const onAbort = () => reject(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

/** A wake-up shared by any number of waiters: `next()` resolves at the next `ring()`. Take it before looking, then wait. */
export class Bell {
  #current = Promise.withResolvers<void>();
  readonly #listeners = new Set<() => void>();

  next(): Promise<void> {
    return this.#current.promise;
  }

  /** Calls `listener` at every ring until the returned function is called. It must not throw. */
  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  }

  ring(): void {
    const rung = this.#current;
    this.#current = Promise.withResolvers<void>();
    rung.resolve();
    for (const listener of this.#listeners) listener();
  }
}

/**
 * One waiter that is woken from several sides, for its whole life: cheaper than a timer and an abort listener for every wait. A wake
 * that comes while nobody waits counts for the next `wait`.
 */
export class Sleeper {
  #awake = false;
  #resolve: (() => void) | null = null;

  readonly wake = (): void => {
    this.#awake = true;
    this.#resolve?.();
    this.#resolve = null;
  };

  /** Wakes from now on count. */
  doze(): void {
    this.#awake = false;
  }

  wait(): Promise<void> {
    if (this.#awake) return Promise.resolve();
    return new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }
}
