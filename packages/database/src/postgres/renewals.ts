import type { LeaseHolder, RenewOutcome, RunStore } from '@reindeer/protocol';
import { renewAtOnce } from '../runs/at-once.ts';
import type { Call } from '../scripts.ts';
import type { PostgresClient } from './client.ts';
import { isLockTimeout } from './errors.ts';

/** Rows of one renewal that are tried again one by one; each waits at most as long as `runs.renewOne` says. */
const MAX_ALONE = 8;

/**
 * All leases of an instance in one statement that waits for nobody: rows that others hold are left out, so that one stopped
 * peer with a lock in its hand stops no heartbeat. Those are then tried one by one, each under a lock timeout, and what is held even
 * then is reported as `busy`.
 */
export function renewAll(client: Pick<PostgresClient, 'run'>, call: Call): RunStore['renew'] {
  return async ({ holders }) => {
    const outcomes = new Map<string, RenewOutcome>(await client.run(renewAtOnce, { holders }, true));
    const busy = holders.filter((holder) => outcomes.get(holder.runId)?.outcome === 'busy');
    for (const holder of busy.slice(0, MAX_ALONE)) outcomes.set(holder.runId, await renewAlone(call, holder));
    return outcomes;
  };
}

async function renewAlone(call: Call, holder: LeaseHolder): Promise<RenewOutcome> {
  try {
    return await call('runs.renewOne', { holder });
  } catch (error) {
    if (isLockTimeout(error)) return { outcome: 'busy' };
    throw error;
  }
}
