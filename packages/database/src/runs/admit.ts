import {
  type Admission,
  type AdmissionResult,
  isTerminal,
  ReindeerError,
  type Run,
  type RunStatus,
} from '@reindeer/protocol';
import { sql } from 'kysely';
import { defineScript, defineStatement, Overtaken, type Tx } from '../executor.ts';
import { insertThread, ownerOfThread } from '../threads/statements.ts';
import { reportRun } from './report.ts';
import { findRun } from './rows.ts';

/** The text of a superseded row until its holder finalizes it. */
const SUPERSEDED = 'Cancelled by newer run';

/** Tells these locks from others of the database. */
const ADMISSION_LOCK = 0x52_41_01;

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
  (db, p: Pick<Admission, 'runId' | 'threadId' | 'userId' | 'kind' | 'owner' | 'token' | 'idempotencyKey' | 'now'>) =>
    db
      .insertInto('runs')
      .values({
        run_id: p.runId,
        thread_id: p.threadId,
        user_id: p.userId,
        kind: p.kind,
        status: 'pending',
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

/** One admission to a thread at a time. Taken first of all locks, by admissions only. */
const lockAdmissions = defineStatement((db, p: { threadId: string }) =>
  db.selectNoFrom(sql`pg_advisory_xact_lock(${sql.lit(ADMISSION_LOCK)}, hashtext(${p.threadId}))`.as('locked')),
);
const lockHolders = defineStatement((db, p: { threadId: string }) =>
  db
    .selectFrom('runs')
    .select('run_id')
    .where('thread_id', '=', p.threadId)
    .where('acknowledged', '=', 0)
    .orderBy('admission')
    .forNoKeyUpdate(),
);
/** The ids as an array, so that each is looked up: as a list the planner may read all leases instead. */
const lockLeases = defineStatement((db, p: { threadId: string }) =>
  db
    .selectFrom('run_leases')
    .select('run_id')
    .where(
      sql<boolean>`run_id = any(array(select runs.run_id from runs where runs.thread_id = ${p.threadId} and runs.acknowledged = 0))`,
    )
    .forNoKeyUpdate(),
);

/**
 * Holds still what the decision of an admission rests on: other admissions to the thread, the rows of its runs, their leases. What
 * is read afterwards stays true until the end of the transaction.
 */
async function holdStill(tx: Tx, threadId: string): Promise<void> {
  if (tx.serial) return;
  const locks = [
    tx.first(lockAdmissions, { threadId }),
    tx.all(lockHolders, { threadId }),
    tx.all(lockLeases, { threadId }),
  ];
  await Promise.all(locks);
}

/** Deletes a run's row with its details and lease; its facts stay. */
export async function deleteRun(tx: Tx, runId: string): Promise<void> {
  await tx.run(deleteRow, { runId });
  await tx.run(deleteDetails, { runId });
  await tx.run(deleteLease, { runId });
}
const deleteRow = defineStatement((db, p: { runId: string }) => db.deleteFrom('runs').where('run_id', '=', p.runId));
const deleteDetails = defineStatement((db, p: { runId: string }) =>
  db.deleteFrom('run_details').where('run_id', '=', p.runId),
);
const deleteLease = defineStatement((db, p: { runId: string }) =>
  db.deleteFrom('run_leases').where('run_id', '=', p.runId),
);

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

  const replaces =
    input.kind === 'run' && (input.multitaskStrategy === 'interrupt' || input.multitaskStrategy === 'rollback');
  const superseded: string[] = [];
  const reclaimed: string[] = [];
  for (const holder of holders) {
    const live = holder.expires_at !== null && holder.expires_at > now;
    const conflict = async (reason: 'busy' | 'reserved' | 'live_elsewhere'): Promise<AdmissionResult> => ({
      outcome: 'conflict',
      reason,
      active: await findRun(tx, holder.run_id),
    });
    if (holder.kind !== 'run') {
      if (!replaces || live) return conflict('reserved');
      reclaimed.push(holder.run_id);
    } else if (!replaces) return conflict('busy');
    // Superseded before and still being finalized: it is not interrupted again (RA-10).
    else if (isTerminal(holder.status as RunStatus)) continue;
    else if (live && holder.owner !== input.owner) return conflict('live_elsewhere');
    else superseded.push(holder.run_id);
  }

  for (const reservation of reclaimed) await deleteRun(tx, reservation);
  const action = input.multitaskStrategy === 'rollback' ? 'rollback' : 'interrupt';
  for (const older of superseded) await tx.run(supersede, { runId: older, action, error: SUPERSEDED, now });
  const [, inserted, , , run] = await Promise.all([
    threadOwner === null ? insertThread(tx, { threadId, userId, metadata: {}, title: null, now }) : true,
    tx.run(insertRun, input),
    tx.run(insertDetails, {
      ...input,
      request: JSON.stringify(input.request),
      metadata: JSON.stringify(input.metadata),
    }),
    tx.run(insertLease, { runId, expiresAt: input.leaseExpiresAt }),
    findRun(tx, runId),
  ]);
  if (inserted === 0)
    throw new Overtaken(`The run id ${runId}, or its idempotency key, exists already.`, { detail: { runId } });
  if (run === null) throw new ReindeerError('internal', 'An admitted run cannot be read back.');
  if (run.kind === 'run') await reportRun(tx, run, now);
  const replaced: Run[] = [];
  for (const older of superseded) {
    const row = await findRun(tx, older);
    if (row !== null) replaced.push(row);
  }
  return { outcome: 'admitted', run, superseded: replaced };
});
