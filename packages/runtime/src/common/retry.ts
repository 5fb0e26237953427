import type { Clock } from '@reindeer/protocol';

export interface RetryPlan {
  /** Tries in all, at least 1. */
  readonly tries: number;
  /** Pause before the second try; doubles with each further one. Milliseconds. */
  readonly backoffMs: number;
}

/**
 * Calls `work` until it resolves, at most `plan.tries` times; throws the last error. For operations that are safe to
 * repeat after a lost answer (GW-22). `stop` is asked after each failure: true gives up at once.
 */
export async function retry<T>(
  clock: Clock,
  plan: RetryPlan,
  work: (tryNumber: number) => Promise<T>,
  stop: () => boolean = () => false,
): Promise<T> {
  let pause = plan.backoffMs;
  for (let tryNumber = 1; ; tryNumber += 1) {
    try {
      return await work(tryNumber);
    } catch (error) {
      if (tryNumber >= plan.tries || stop()) throw error;
      await clock.sleep(pause);
      pause *= 2;
    }
  }
}
