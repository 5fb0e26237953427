import { settledWithin, unlessAborted } from '../common/waiting.ts';
import type { LocalRun } from './local-run.ts';
import type { RunParts } from './ports.ts';
import type { RunRegistry } from './registry.ts';

/** Pause between two looks at runs that another process still has to finalize. */
const LOOK_MS = 200;

/**
 * Waits until no earlier run of the thread can still write: superseded ones finish their rollback or acknowledgement first (RA-11). Local
 * ones are awaited, others are looked for in the store; those of dead holders are claimed by `sweep` and become local ones.
 *
 * @returns whether there was anything to wait for.
 * @throws the reason of `local.signal`: its own abort ends the wait.
 */
export async function waitForPriors(
  parts: Pick<RunParts, 'stores' | 'surroundings'>,
  registry: RunRegistry,
  local: LocalRun,
  sweep: () => Promise<number>,
): Promise<boolean> {
  const { clock, logger } = parts.surroundings;
  const { runId, threadId, createdAt } = local.run;
  for (let waited = false; ; waited = true) {
    local.signal.throwIfAborted();
    const earlier = registry.ofThread(threadId).filter((other) => other !== local && other.order < local.order);
    if (earlier.length > 0) {
      await unlessAborted(Promise.all(earlier.map((other) => other.settled)), local.signal);
      continue;
    }
    const foreign = await parts.stores.runs
      .active(threadId)
      .then((rows) => rows.filter((row) => row.runId !== runId && row.createdAt <= createdAt))
      .catch((error: unknown) => {
        logger.warn('earlier runs of a thread could not be looked for; trying again', { runId, error: String(error) });
        return null;
      });
    if (foreign?.length === 0) return waited;
    if (foreign !== null) await settledWithin(clock, sweep(), LOOK_MS);
    await clock.sleep(LOOK_MS, local.signal);
  }
}
