import { randomUUID } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import type { Clock, Logger, Probe, Random, Surroundings } from '@reindeer/protocol';
import { NO_LOG, NO_PROBE } from '@reindeer/protocol';

/** Longest delay that a timer takes; Node fires longer ones at once. */
const LONGEST_DELAY = 2_147_483_647;

const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  sleep(milliseconds, signal) {
    if (signal?.aborted) return Promise.reject(signal.reason);
    return new Promise<void>((resolve, reject) => {
      const onAbort = () => {
        clearTimeout(timer);
        reject(signal?.reason);
      };
      const timer = setTimeout(
        () => {
          signal?.removeEventListener('abort', onAbort);
          resolve();
        },
        Math.min(Math.max(milliseconds, 0), LONGEST_DELAY),
      );
      signal?.addEventListener('abort', onAbort, { once: true });
    });
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
