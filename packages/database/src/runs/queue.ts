import type { Run, RunStore } from '@reindeer/protocol';
import { sql } from 'kysely';
import { defineScript, defineStatement, type Tx } from '../executor.ts';
import { holdStill } from './locks.ts';
import { findRun } from './rows.ts';

/**
 * Runs that wait for their turn (strategy `enqueue`). A queued run is a row that nobody holds: no owner, no token, no lease; so it
 * outlives every process, and the partial unique index of active runs does not count it. Its turn comes by `takeQueued`, which the
 * instance calls that ended what held the thread, and every sweep, in case that one died in between.
 */

const firstQueued = defineStatement((db, p: { threadId: string }) =>
  db
    .selectFrom('runs')
    .select('run_id')
    .where('thread_id', '=', p.threadId)
    .where('acknowledged', '=', 0)
    .where('status', '=', 'queued')
    .orderBy('admission')
    .limit(1),
);
const holderOf = defineStatement((db, p: { threadId: string }) =>
  db
    .selectFrom('runs')
    .select(['run_id', 'token'])
    .where('thread_id', '=', p.threadId)
    .where('acknowledged', '=', 0)
    .where('status', '!=', 'queued')
    .orderBy('admission')
    .limit(1),
);
const take = defineStatement((db, p: { runId: string; owner: string; token: string; now: number }) =>
  db
    .updateTable('runs')
    .set({ status: 'pending', owner: p.owner, token: p.token, updated_at: p.now })
    .where('run_id', '=', p.runId)
    .where('status', '=', 'queued')
    .where('acknowledged', '=', 0),
);
const insertLease = defineStatement((db, p: { runId: string; expiresAt: number }) =>
  db
    .insertInto('run_leases')
    .values({ run_id: p.runId, expires_at: p.expiresAt })
    .onConflict((c) => c.column('run_id').doUpdateSet({ expires_at: p.expiresAt })),
);
/** Nobody holds it who could end it: whoever cancels or supersedes it writes its end. */
const end = defineStatement((db, p: { runId: string; action: string; error: string; now: number }) =>
  db
    .updateTable('runs')
    .set({
      status: 'interrupted',
      acknowledged: 1,
      cancel_action: p.action,
      cancel_requested_at: p.now,
      error: p.error,
      ended_at: p.now,
      updated_at: p.now,
    })
    .where('run_id', '=', p.runId)
    .where('status', '=', 'queued')
    .where('acknowledged', '=', 0),
);
const free = defineStatement((db, p: { limit: number }) =>
  db
    .selectFrom('runs as queued')
    .select('queued.thread_id')
    .where('queued.acknowledged', '=', 0)
    .where('queued.status', '=', 'queued')
    .where(({ not, exists, selectFrom }) =>
      not(
        exists(
          selectFrom('runs as holder')
            .select('holder.run_id')
            .whereRef('holder.thread_id', '=', 'queued.thread_id')
            .where('holder.acknowledged', '=', 0)
            .where('holder.status', '!=', 'queued'),
        ),
      ),
    )
    .groupBy('queued.thread_id')
    .orderBy(sql`min(queued.admission)`)
    .limit(p.limit),
);

/** Do runs wait for the thread? */
export async function isWaiting(tx: Tx, threadId: string): Promise<boolean> {
  return (await tx.first(firstQueued, { threadId })) !== undefined;
}

/** Ends a run if it is queued; the caller reports it. */
export async function endQueued(
  tx: Tx,
  input: { readonly runId: string; readonly action: string; readonly error: string; readonly now: number },
): Promise<boolean> {
  return (await tx.run(end, input)) === 1;
}

export const takeQueued = defineScript(
  'runs.takeQueued',
  'durable',
  async (tx, input: Parameters<RunStore['takeQueued']>[0]): Promise<Run | null> => {
    const { threadId, owner, token, leaseExpiresAt, now } = input;
    const [, holder, first] = await Promise.all([
      holdStill(tx, threadId),
      tx.first(holderOf, { threadId }),
      tx.first(firstQueued, { threadId }),
    ]);
    // The same call again, because its first answer was lost.
    if (holder !== undefined) return holder.token === token ? findRun(tx, holder.run_id) : null;
    if (first === undefined) return null;
    const { run_id: runId } = first;
    const [taken, , run] = await Promise.all([
      tx.run(take, { runId, owner, token, now }),
      tx.run(insertLease, { runId, expiresAt: leaseExpiresAt }),
      findRun(tx, runId),
    ]);
    return taken === 1 ? run : null;
  },
);

export const freeQueues = defineScript(
  'runs.freeQueues',
  'read',
  async (tx, { limit }: { readonly limit: number }): Promise<string[]> =>
    (await tx.all(free, { limit })).map((row) => row.thread_id),
  'alone',
);
