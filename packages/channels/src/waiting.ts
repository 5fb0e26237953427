import type { Clock } from '@reindeer/protocol';

/** A wake-up: `next()` resolves at the next `ring()`. Take it before looking, then wait. */
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

/** Waits for one of the promises, at most `milliseconds`; ends early and quietly when the signal fires. Leaves no timer behind. */
export async function waitFor(
  clock: Clock,
  milliseconds: number,
  signal: AbortSignal,
  ...others: readonly Promise<unknown>[]
): Promise<void> {
  const timer = new AbortController();
  const late = clock.sleep(milliseconds, AbortSignal.any([signal, timer.signal])).catch(() => {});
  try {
    await Promise.race([late, ...others]);
  } finally {
    timer.abort();
  }
}

/** Waits until a promise settles, at most `milliseconds`. Never rejects. */
export async function settledWithin(clock: Clock, promise: Promise<unknown>, milliseconds: number): Promise<boolean> {
  const timer = new AbortController();
  const inTime = await Promise.race([
    promise.then(
      () => true,
      () => true,
    ),
    clock.sleep(milliseconds, timer.signal).then(
      () => false,
      () => false,
    ),
  ]);
  timer.abort();
  return inTime;
}
