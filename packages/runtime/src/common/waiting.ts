import type { Clock } from '@reindeer/protocol';

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
  timer.abort();
  return inTime;
}

/** Rejects with the signal's reason when it fires before `promise` settles. The listener is removed in both cases. */
export async function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
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

  next(): Promise<void> {
    return this.#current.promise;
  }

  ring(): void {
    const rung = this.#current;
    this.#current = Promise.withResolvers<void>();
    rung.resolve();
  }
}
