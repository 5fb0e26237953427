import { ReindeerError } from '@reindeer/protocol';
import type { HeldProvider, ProviderHolder } from '@reindeer/sandbox';
import type { Step } from './lifecycle.ts';

/** Sessions of a part that runs must be able to use until they have ended: those with MCP servers. */
export interface SessionPool {
  /** Refuses new sessions, aborts those that are being opened, closes the others. Idempotent, bounded by itself. */
  closeAll(): Promise<void>;
}

/** All sessions together; one gets 5 s. */
const SESSIONS_MS = 10_000;

/**
 * Closes the sessions with MCP servers after the runs have ended and before the sandboxes go, in which servers may run (GW-10). A pool
 * that hangs can be left behind; the sandboxes cannot.
 */
export function sessionsStep(pool: () => SessionPool | null): Step {
  return {
    name: 'mcp',
    boundMs: SESSIONS_MS,
    abandonable: true,
    start: async () => {},
    stop: async () => await pool()?.closeAll(),
  };
}

/**
 * Ends the provider that there is when its turn comes: one that was made at the start, or during the drain by the first use of a run.
 * None is made for it. A failure is logged and leaves the provider held, so that another try finds it.
 *
 * @param start makes the provider, or nothing, when the step starts
 */
export function sandboxesStep<P extends HeldProvider>(
  holder: ProviderHolder<P>,
  boundMs: number,
  start: () => Promise<void> = async () => {},
): Step {
  return {
    name: 'sandboxes',
    boundMs,
    start,
    stop: async () => {
      if (await holder.shutdown()) return;
      throw new ReindeerError('sandbox_unavailable', 'The sandboxes could not be stopped; see the log before this.');
    },
  };
}
