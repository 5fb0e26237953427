import type { Fence, Run } from '@reindeer/protocol';
import { newToken } from '@reindeer/protocol';
import { retry } from '../common/retry.ts';
import type { Admissions } from './admission.ts';
import type { RunParts } from './ports.ts';

/** Threads that one sweep looks at. */
const THREADS = 64;

/**
 * Gives queued runs their turn (strategy `enqueue`): on the instance that ended what had the thread, at once; on any instance, at the
 * next sweep, when that one died in between or has no room. Of several that try, the store lets one have the run.
 */
export class Queues {
  readonly #parts: Pick<RunParts, 'stores' | 'surroundings' | 'settings'>;
  readonly #admissions: Admissions;
  readonly #hasRoom: () => boolean;
  readonly #attach: (run: Run, fence: Fence, grantedAt: number) => void;

  constructor(
    parts: Pick<RunParts, 'stores' | 'surroundings' | 'settings'> & {
      admissions: Admissions;
      /** Can this process hold one more run? */
      hasRoom: () => boolean;
      /** Attaches the worker, in the same turn. */
      attach: (run: Run, fence: Fence, grantedAt: number) => void;
    },
  ) {
    this.#parts = parts;
    this.#admissions = parts.admissions;
    this.#hasRoom = parts.hasRoom;
    this.#attach = parts.attach;
  }

  /** Starts the first queued run of a thread, if nothing has the thread. Answers whether it did; never rejects. */
  async advance(threadId: string): Promise<boolean> {
    if (this.#admissions.refusing || !this.#hasRoom()) return false;
    try {
      return await this.#admissions.track(this.#admissions.inTurn(threadId, () => this.#take(threadId)));
    } catch (error) {
      if (!this.#admissions.refusing)
        this.#parts.surroundings.logger.warn('a queued run was not started; the next sweep tries again', {
          threadId,
          error: String(error),
        });
      return false;
    }
  }

  /** Looks for queues that can go on and that nobody moved. Answers how many runs were started. Never rejects. */
  async sweep(): Promise<number> {
    if (this.#admissions.refusing || !this.#hasRoom()) return 0;
    try {
      let started = 0;
      for (const threadId of await this.#parts.stores.runs.freeQueues(THREADS))
        if (await this.advance(threadId)) started += 1;
      return started;
    } catch (error) {
      this.#parts.surroundings.logger.warn('queued runs could not be looked for; the next sweep tries again', {
        error: String(error),
      });
      return 0;
    }
  }

  async #take(threadId: string): Promise<boolean> {
    const { stores, surroundings, settings } = this.#parts;
    const { clock, random } = surroundings;
    const grantedAt = clock.monotonic();
    const now = clock.now();
    const token = newToken(random);
    const input = { threadId, owner: settings.instanceId, token, leaseExpiresAt: now + settings.leaseMs, now };
    const plan = { tries: settings.writeTries, backoffMs: settings.writeBackoffMs };
    // Safe to repeat: under the same token it is the same turn.
    const run = await retry(clock, plan, () => stores.runs.takeQueued(input));
    if (run === null) return false;
    const fence = { runId: run.runId, token };
    if (this.#admissions.refusing) {
      // Taken while the stop began: another process may have it at once.
      await stores.runs.relinquish(fence);
      return false;
    }
    this.#attach(run, fence, grantedAt);
    return true;
  }
}
