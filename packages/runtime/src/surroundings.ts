import { randomUUID } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import type { Clock, Logger, Probe, Random, Surroundings } from '@reindeer/protocol';
import { NO_LOG, NO_PROBE } from '@reindeer/protocol';

/** Longest delay that a timer takes; Node fires longer ones at once. */
const LONGEST_DELAY = 2_147_483_647;

const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  async sleep(milliseconds, signal) {
    signal?.throwIfAborted();
    try {
      await delay(
        Math.min(Math.max(milliseconds, 0), LONGEST_DELAY),
        undefined,
        signal === undefined ? {} : { signal },
      );
    } catch (error) {
      // The timer rejects with its own AbortError; callers are promised the reason of the signal.
      signal?.throwIfAborted();
      throw error;
    }
  },
};

const systemRandom: Random = { uuid: () => randomUUID(), next: () => Math.random() };

/** The real clock and randomness, for a process that serves. */
export function systemSurroundings(parts: { logger?: Logger; probe?: Probe } = {}): Surroundings {
  return {
    clock: systemClock,
    random: systemRandom,
    probe: parts.probe ?? NO_PROBE,
    logger: parts.logger ?? NO_LOG,
  };
}
