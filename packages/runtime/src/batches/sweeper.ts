import type { BatchStore, Surroundings, ThreadService } from '@reindeer/protocol';
import { settledWithin } from '../common/waiting.ts';

export interface SweeperParts {
  readonly store: Pick<BatchStore, 'leftThreads'>;
  readonly threads: Pick<ThreadService, 'delete'>;
  readonly surroundings: Surroundings;
}

/** Between two looks, give or take a part: several instances look. */
export const SWEEP_MS = 30_000;
/** Threads that something touched a moment ago are somebody's yet. */
export const QUIET_MS = 10_000;
const PAGE = 100;

/**
 * Deletes the threads of items that nobody needs any more. An attempt takes its thread along when it stores its end; what a kill, a cancelled
 * batch or a deleted conversation leaves behind is found here. One that a run still uses is left to the next look: the deletion is refused
 * as long as the thread has an active run.
 */
export class ItemThreadSweeper {
  readonly #parts: SweeperParts;
  readonly #stopping = new AbortController();
  #loop: Promise<void> | null = null;

  constructor(parts: SweeperParts) {
    this.#parts = parts;
  }

  /** Idempotent. */
  start(): void {
    this.#loop ??= this.#run();
  }

  /** Ends after the deletion that is under way. Idempotent. */
  async stop(timeoutMs: number): Promise<void> {
    this.#stopping.abort();
    if (this.#loop !== null) await settledWithin(this.#parts.surroundings.clock, this.#loop, timeoutMs);
  }

  /** One look through all of them. Answers how many were deleted. */
  async pass(): Promise<number> {
    const { store, threads, surroundings } = this.#parts;
    const before = surroundings.clock.now() - QUIET_MS;
    let deleted = 0;
    for (let after = ''; !this.#stopping.signal.aborted; ) {
      const page = await store.leftThreads({ before, after, limit: PAGE });
      for (const thread of page) {
        if (this.#stopping.signal.aborted) break;
        if ((await threads.delete(thread)) === 'deleted') deleted += 1;
      }
      const last = page.at(-1);
      if (last === undefined || page.length < PAGE) break;
      after = last.threadId;
    }
    return deleted;
  }

  async #run(): Promise<void> {
    const { clock, logger, random } = this.#parts.surroundings;
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      try {
        const deleted = await this.pass();
        if (deleted > 0) logger.info('Threads of batch items that nobody needs were deleted', { threads: deleted });
      } catch (error) {
        logger.warn('Threads of batch items could not be swept; the next look tries again', { error: String(error) });
      }
      await clock.sleep(Math.round(SWEEP_MS * (0.5 + random.next())), signal).catch(() => undefined);
    }
  }
}
