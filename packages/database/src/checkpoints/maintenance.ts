import { type CheckpointStore, type Fenced, ReindeerError } from '@reindeer/protocol';
import { sql } from 'kysely';
import { defineScript, defineStatement, type Tx } from '../executor.ts';
import { fenceRun } from '../fence.ts';
import { findRunKey, lockThreadKey } from '../keys.ts';
import { idToBytes } from './ids.ts';
import { checkpointAt, namespaceOf, namespacesOf } from './statements.ts';
import { sweep } from './sweep.ts';
import { copyThreadContent, deleteCheckpointRows } from './thread.ts';

type Input<M extends 'rollback' | 'prune' | 'copyThread'> = Parameters<CheckpointStore[M]>[0];

/** A place in the order in which checkpoints were written. */
interface Place {
  readonly nsKey: number;
  readonly position: number;
  readonly checkpointId: Uint8Array;
}
const deleteCheckpointsAfter = defineStatement((db, p: Place) =>
  db
    .deleteFrom('checkpoints')
    .where('ns_key', '=', p.nsKey)
    .where((eb) =>
      eb.or([
        eb('position', '>', p.position),
        eb.and([eb('position', '=', p.position), eb('checkpoint_id', '>', p.checkpointId)]),
      ]),
    ),
);
/** Writes beside checkpoints that are gone. */
const deleteWritesBesideNothing = defineStatement((db, p: { nsKey: number }) =>
  db
    .deleteFrom('checkpoint_writes')
    .where('ns_key', '=', p.nsKey)
    .where('checkpoint_id', 'not in', (eb) =>
      eb.selectFrom('checkpoints').select('checkpoints.checkpoint_id').where('checkpoints.ns_key', '=', p.nsKey),
    ),
);
const deleteWritesOfRun = defineStatement((db, p: { nsKey: number; runKey: number }) =>
  db.deleteFrom('checkpoint_writes').where('ns_key', '=', p.nsKey).where('run_key', '=', p.runKey),
);
/** The newest checkpoint that is not kept. */
const newestBeyond = defineStatement((db, p: { nsKey: number; keep: number }) =>
  db
    .selectFrom('checkpoints')
    .select(['position', 'checkpoint_id'])
    .where('ns_key', '=', p.nsKey)
    .orderBy('position', 'desc')
    .orderBy('checkpoint_id', 'desc')
    .limit(1)
    .offset(sql<number>`${p.keep}`),
);
const deleteCheckpointsUpTo = defineStatement((db, p: Place) =>
  db
    .deleteFrom('checkpoints')
    .where('ns_key', '=', p.nsKey)
    .where((eb) =>
      eb.or([
        eb('position', '<', p.position),
        eb.and([eb('position', '=', p.position), eb('checkpoint_id', '<=', p.checkpointId)]),
      ]),
    ),
);

/**
 * Back to the state before a run: its checkpoints go, and so do the writes that it made beside checkpoints that stay; what earlier
 * runs wrote there lies open again (RB-01). An id that does not exist is refused: following it would delete at random (RB-05).
 */
export const rollback = defineScript(
  'checkpoints.rollback',
  'durable',
  async (tx, { fence, threadId, checkpointId }: Input<'rollback'>): Promise<Fenced<object>> => {
    if (!(await fenceRun(tx, fence, threadId))) return { outcome: 'fenced' };
    const key = await lockThreadKey(tx, threadId);
    const target = checkpointId === '' ? BEFORE_ALL : await placeOf(tx, threadId, checkpointId);
    if (target === null) {
      throw new ReindeerError(
        'precondition_failed',
        'The checkpoint to return to does not exist; nothing was changed.',
        {
          detail: { threadId, checkpointId },
        },
      );
    }
    if (key === null) return { outcome: 'ok' };
    const runKey = await findRunKey(tx, fence.runId);
    for (const { ns_key: nsKey } of await tx.all(namespacesOf, { key })) {
      await tx.run(deleteCheckpointsAfter, { nsKey, ...target });
      await tx.run(deleteWritesBesideNothing, { nsKey });
      if (runKey !== null) await tx.run(deleteWritesOfRun, { nsKey, runKey });
    }
    await sweep(tx, key);
    return { outcome: 'ok' };
  },
);

const BEFORE_ALL: Omit<Place, 'nsKey'> = { position: Number.MIN_SAFE_INTEGER, checkpointId: new Uint8Array() };

async function placeOf(tx: Tx, threadId: string, checkpointId: string): Promise<Omit<Place, 'nsKey'> | null> {
  const nsKey = await namespaceOf(tx, threadId, '');
  if (nsKey === null) return null;
  const bytes = idToBytes(checkpointId);
  const row = await tx.first(checkpointAt, { nsKey, checkpointId: bytes });
  return row === undefined ? null : { position: row.position, checkpointId: bytes };
}

/** Keeps the newest checkpoints of each namespace, with everything that they mention (D4). */
export const prune = defineScript(
  'checkpoints.prune',
  'write',
  async (tx, { threadId, keep }: Input<'prune'>): Promise<number> => {
    if (!Number.isInteger(keep) || keep < 1) {
      throw new ReindeerError('bad_request', 'Pruning must keep at least one checkpoint: pass keep >= 1.', {
        detail: { field: 'keep' },
      });
    }
    const key = await lockThreadKey(tx, threadId);
    if (key === null) return 0;
    let removed = 0;
    for (const { ns_key: nsKey } of await tx.all(namespacesOf, { key })) {
      const beyond = await tx.first(newestBeyond, { nsKey, keep });
      if (beyond === undefined) continue;
      const { position, checkpoint_id: checkpointId } = beyond;
      removed += await tx.run(deleteCheckpointsUpTo, { nsKey, position, checkpointId });
      await tx.run(deleteWritesBesideNothing, { nsKey });
    }
    if (removed > 0) await sweep(tx, key);
    return removed;
  },
);

/** All checkpoints of a thread. Messages that its log or journal mentions stay: the log is not a checkpoint's to take. */
export const remove = defineScript(
  'checkpoints.deleteThread',
  'write',
  async (tx, { threadId }: { readonly threadId: string }): Promise<void> => {
    const key = await lockThreadKey(tx, threadId);
    if (key === null) return;
    await deleteCheckpointRows(tx, key);
    await sweep(tx, key);
  },
);

export const copy = defineScript(
  'checkpoints.copyThread',
  'write',
  (tx, { fromThreadId, toThreadId }: Input<'copyThread'>): Promise<void> =>
    copyThreadContent(tx, fromThreadId, toThreadId),
);
