import { type Admission, type AdmissionResult, isTerminal, type Run, type RunStatus } from '@reindeer/protocol';
import { sql } from 'kysely';
import { changes, defineScript, defineStatement, Overtaken, sendAll, type Tx } from '../executor.ts';
import { insertThread, ownerOfThread } from '../threads/statements.ts';
import { admittedRun } from './admitted.ts';
import { holdStill } from './locks.ts';
import { endQueued } from './queue.ts';
import { reportRun } from './report.ts';
import { findRun } from './rows.ts';

type Conflict = Extract<AdmissionResult, { outcome: 'conflict' }>;

/** The text of a superseded row until its holder finalizes it. */
const SUPERSEDED = 'Cancelled by newer run';

const byKey = defineStatement((db, p: { userId: string; key: string }) =>
  db
    .selectFrom('runs')
    .innerJoin('run_details', 'run_details.run_id', 'runs.run_id')
    .select(['runs.run_id', 'runs.thread_id', 'run_details.payload_hash'])
    .where('runs.user_id', '=', p.userId)
    .where('runs.idempotency_key', '=', p.key),
);
const holdersOf = defineStatement((db, p: { threadId: string }) =>
  db
    .selectFrom('runs')
    .leftJoin('run_leases', 'run_leases.run_id', 'runs.run_id')
    .select(['runs.run_id', 'runs.kind', 'runs.status', 'runs.owner', 'run_leases.expires_at'])
    .where('runs.thread_id', '=', p.threadId)
    .where('runs.acknowledged', '=', 0)
    .orderBy('runs.admission'),
);
/** A newer run replaces this one. Its holder keeps the token, and with it the right to finalize the row (D2). */
const supersede = defineStatement((db, p: { runId: string; action: string; error: string; now: number }) =>
  db
    .updateTable('runs')
    .set({
      status: 'interrupted',
      cancel_action: sql<string>`coalesce(cancel_action, ${p.action})`,
      cancel_requested_at: sql<number>`coalesce(cancel_requested_at, ${p.now})`,
      error: p.error,
      updated_at: p.now,
    })
    .where('run_id', '=', p.runId)
    .where('status', 'in', ['pending', 'running']),
);
const insertRun = defineStatement(
  (
    db,
    p: Pick<Admission, 'runId' | 'threadId' | 'userId' | 'kind' | 'idempotencyKey' | 'now'> & {
      status: 'pending' | 'queued';
      owner: string | null;
      token: string | null;
    },
  ) =>
    db
      .insertInto('runs')
      .values({
        run_id: p.runId,
        thread_id: p.threadId,
        user_id: p.userId,
        kind: p.kind,
        status: p.status,
        owner: p.owner,
        token: p.token,
        attempt: 0,
        acknowledged: 0,
        input_tokens: 0,
        output_tokens: 0,
        total_tokens: 0,
        model_calls: 0,
        created_at: p.now,
        updated_at: p.now,
        idempotency_key: p.idempotencyKey,
      })
      .onConflict((c) => c.doNothing()),
);
const insertDetails = defineStatement(
  (
    db,
    p: Pick<
      Admission,
      'runId' | 'assistantId' | 'multitaskStrategy' | 'onDisconnect' | 'crashPolicy' | 'payloadHash'
    > & { request: string; metadata: string },
  ) =>
    db
      .insertInto('run_details')
      .values({
        run_id: p.runId,
        assistant_id: p.assistantId,
        multitask_strategy: p.multitaskStrategy,
        on_disconnect: p.onDisconnect,
        crash_policy: p.crashPolicy,
        payload_hash: p.payloadHash,
        request: p.request,
        metadata: p.metadata,
      })
      // A run id that exists is told by the row of the run itself.
      .onConflict((c) => c.doNothing()),
);
const insertLease = defineStatement((db, p: { runId: string; expiresAt: number }) =>
  db
    .insertInto('run_leases')
    .values({ run_id: p.runId, expires_at: p.expiresAt })
    .onConflict((c) => c.doNothing()),
);

const insertRest = changes<Parameters<typeof insertDetails.build>[1] & Parameters<typeof insertLease.build>[1]>(
  insertDetails,
  insertLease,
);

const deleteAll = changes(
  defineStatement((db, p: { runId: string }) => db.deleteFrom('runs').where('run_id', '=', p.runId)),
  defineStatement((db, p: { runId: string }) => db.deleteFrom('run_details').where('run_id', '=', p.runId)),
  defineStatement((db, p: { runId: string }) => db.deleteFrom('run_leases').where('run_id', '=', p.runId)),
);

/** Deletes a run's row with its details and lease; its facts stay. */
export function deleteRun(tx: Tx, runId: string): void {
  sendAll(tx, deleteAll, { runId });
}

/**
 * Admission: everything is decided before anything is changed, so that a refusal leaves every row as it was (RA-04, RA-05). Under
 * all of it lies the partial unique index: a thread cannot have two active rows whatever is decided here (RA-01).
 */
export const admit = defineScript('runs.admit', 'durable', async (tx, input: Admission): Promise<AdmissionResult> => {
  const { runId, threadId, userId, now } = input;
  // Sent together: over a network one wait instead of six.
  const [, known, threadOwner, holders] = await Promise.all([
    holdStill(tx, threadId),
    input.idempotencyKey === null ? undefined : tx.first(byKey, { userId, key: input.idempotencyKey }),
    ownerOfThread(tx, threadId),
    tx.all(holdersOf, { threadId }),
  ]);
  if (known !== undefined) {
    const same = known.thread_id === threadId && known.payload_hash === input.payloadHash;
    const run = same ? await findRun(tx, known.run_id) : null;
    return run === null ? { outcome: 'conflict', reason: 'key_reused', active: null } : { outcome: 'reused', run };
  }
  if (threadOwner === null ? !input.createThread : threadOwner !== userId) return { outcome: 'thread_not_found' };

  const isRun = input.kind === 'run';
  const replaces = isRun && (input.multitaskStrategy === 'interrupt' || input.multitaskStrategy === 'rollback');
  const mayWait = isRun && input.multitaskStrategy === 'enqueue';
  const superseded: string[] = [];
  const reclaimed: string[] = [];
  const queue: string[] = [];
  let held: string | null = null;
  const conflict = async (reason: Conflict['reason'], stands: string): Promise<Conflict> => ({
    outcome: 'conflict',
    reason,
    active: await findRun(tx, stands),
  });
  for (const { run_id, kind, status, owner, expires_at } of holders) {
    const live = expires_at !== null && expires_at > now;
    if (status === 'queued') queue.push(run_id);
    // A thread that is being deleted takes its queue with it.
    else if (mayWait && kind !== 'delete') held ??= run_id;
    else if (kind !== 'run') {
      if (!replaces || live) return conflict('reserved', run_id);
      reclaimed.push(run_id);
    } else if (!replaces) return conflict('busy', run_id);
    // Superseded before and still being finalized: it is not interrupted again (RA-10).
    else if (isTerminal(status as RunStatus)) continue;
    else if (live && owner !== input.owner)
      return { ...(await conflict('live_elsewhere', run_id)), leaseLeftMs: expires_at - now };
    else superseded.push(run_id);
  }
  const [head] = queue;
  if (head !== undefined && !replaces && !mayWait) return conflict('busy', head);
  const queued = mayWait && (held !== null || head !== undefined);
  if (queued && queue.length >= (input.queueLimit ?? 0)) return conflict('queue_full', held ?? head ?? '');

  for (const reservation of reclaimed) deleteRun(tx, reservation);
  const action = input.multitaskStrategy === 'rollback' ? 'rollback' : 'interrupt';
  for (const older of superseded) await tx.run(supersede, { runId: older, action, error: SUPERSEDED, now });
  if (replaces)
    for (const waiting of queue) {
      await endQueued(tx, { runId: waiting, action, error: SUPERSEDED, now });
      const ended = await findRun(tx, waiting);
      if (ended !== null) await reportRun(tx, ended, now);
    }
  const [, inserted] = await Promise.all([
    threadOwner === null ? insertThread(tx, { threadId, userId, metadata: {}, title: null, now }) : true,
    tx.run(
      insertRun,
      queued ? { ...input, status: 'queued', owner: null, token: null } : { ...input, status: 'pending' },
    ),
  ]);
  if (inserted === 0)
    throw new Overtaken(`The run id ${runId}, or its idempotency key, exists already.`, { detail: { runId } });
  const details = { ...input, request: JSON.stringify(input.request), metadata: JSON.stringify(input.metadata) };
  if (queued) tx.send(insertDetails, details);
  else sendAll(tx, insertRest, { ...details, expiresAt: input.leaseExpiresAt });
  const run = admittedRun(input, queued);
  if (isRun) await reportRun(tx, run, now);
  if (queued) return { outcome: 'queued', run, ahead: queue.length, free: held === null };
  const replaced: Run[] = [];
  for (const older of superseded) {
    const row = await findRun(tx, older);
    if (row !== null) replaced.push(row);
  }
  return { outcome: 'admitted', run, superseded: replaced };
});
