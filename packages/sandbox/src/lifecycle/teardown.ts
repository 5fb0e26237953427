import type { OwnershipStore, SandboxInfo, Surroundings } from '@reindeer/protocol';
import { within } from '../process/supervise.ts';

export interface TeardownParts {
  readonly store: OwnershipStore;
  readonly surroundings: Surroundings;
  readonly renewalIntervalMs: number;
  readonly teardownWaitMs: number;
}

/** Between two tries to get a marker for a stop that runs without one. */
const UNMARKED_MS = 1_000;

/**
 * Holds a teardown marker while a container is being stopped, however long that takes (SB-29).
 *
 * A hold: *beating* (the marker is claimed again each renewal interval; an error is tried again, a refusal ends the beating; a stop
 * without a marker asks for one until it gets it) → the stop
 * has returned → *leaving* (the heartbeat's last act is the release, so a refresh in flight can never bring a released marker back,
 * SB-30) → *gone*. The caller waits for that within a budget; past it the release stays with the heartbeat (SB-31).
 */
export class TeardownLeases {
  readonly #parts: TeardownParts;
  readonly #beats = new Set<Promise<void>>();

  constructor(parts: TeardownParts) {
    this.#parts = parts;
  }

  /** Heartbeats that have not left yet. */
  get size(): number {
    return this.#beats.size;
  }

  /**
   * Runs `stop` under the marker that the caller has claimed. Rejects as `stop` does; the marker is released either way (SB-33).
   *
   * @param marked false: the caller has none, since the store did not answer or somebody else's stands; it is claimed as soon as it can be
   */
  async hold(info: SandboxInfo, stop: () => Promise<void>, marked = true): Promise<void> {
    const over = new AbortController();
    const beat = this.#beat(info.id, over.signal, marked);
    this.#beats.add(beat);
    beat.finally(() => this.#beats.delete(beat)).catch(() => {});
    try {
      await stop();
    } finally {
      over.abort();
      const { surroundings, teardownWaitMs } = this.#parts;
      if (!(await within(surroundings.clock, teardownWaitMs, beat)))
        surroundings.logger.warn('The teardown marker is released later: the store has not answered', {
          sandboxId: info.id,
        });
    }
  }

  /** Resolves when no heartbeat is left. */
  async settled(): Promise<void> {
    while (this.#beats.size > 0) await Promise.all([...this.#beats]);
  }

  async #beat(id: string, over: AbortSignal, marked: boolean): Promise<void> {
    const { store, surroundings, renewalIntervalMs } = this.#parts;
    const { clock, logger } = surroundings;
    let held = marked;
    while (!over.aborted) {
      await clock.sleep(held ? renewalIntervalMs : UNMARKED_MS, over).catch(() => {});
      if (over.aborted) break;
      try {
        if (await store.claim(id, { forDestroy: true })) {
          held = true;
          continue;
        }
        if (!held) continue;
        logger.error('The teardown marker was refused while a container is being stopped', { sandboxId: id });
        await ended(over);
      } catch (error) {
        logger.warn('The teardown marker could not be refreshed', { sandboxId: id, cause: String(error) });
      }
    }
    try {
      await store.release(id);
    } catch (error) {
      // It expires by itself within one time to live (SO-15).
      logger.warn('The teardown marker could not be released', { sandboxId: id, cause: String(error) });
    }
  }
}

function ended(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
}
