import { type AdmissionResult, type AttemptStore, ReindeerError, type RunStore } from '@reindeer/protocol';
import { admitAtOnce, UNEXPECTED } from '../runs/at-once.ts';
import type { Call } from '../scripts.ts';
import type { PostgresClient } from './client.ts';

/**
 * Admissions in two steps: most threads are free, and then one statement is enough. What stands against it is looked at in
 * a transaction that waits for it. When the answer to the first step was lost, the second one finds what it stored.
 *
 * Calls go over several connections, where a later one may overtake an earlier one: `begin` of a run waits for its admission.
 */
export function admissionsOf(
  client: Pick<PostgresClient, 'run'>,
  call: Call,
  attempts: AttemptStore,
): Pick<RunStore, 'admit'> & Pick<AttemptStore, 'begin'> {
  const underWay = new Map<string, Promise<unknown>>();
  const admit: RunStore['admit'] = async (input) => {
    let lost = false;
    if (input.kind === 'run')
      try {
        const answer = await client.run(admitAtOnce, input);
        if (answer !== null) return answer;
      } catch (error) {
        if (!ReindeerError.is(error)) throw error;
        lost = error.code === 'store_unavailable';
        if (!lost && error.detail?.postgres !== UNEXPECTED) throw error;
      }
    const answer = await call('runs.admit', input);
    return lost ? ownOf(answer, input.runId) : answer;
  };
  return {
    admit: async (input) => {
      const admitting = admit(input);
      underWay.set(input.runId, admitting);
      try {
        return await admitting;
      } finally {
        underWay.delete(input.runId);
      }
    },
    begin: async (input) => {
      await underWay.get(input.fence.runId)?.catch(() => undefined);
      return attempts.begin(input);
    },
  };
}

/** What stands against a second admission may be the first one. */
function ownOf(answer: AdmissionResult, runId: string): AdmissionResult {
  const run = answer.outcome === 'reused' ? answer.run : answer.outcome === 'conflict' ? answer.active : null;
  return run?.runId === runId ? { outcome: 'admitted', run, superseded: [] } : answer;
}
