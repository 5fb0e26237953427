import { type CheckpointStore, type Fenced, ReindeerError } from '@reindeer/protocol';
import { sql } from 'kysely';
import { defineScript, defineStatement, type Tx } from '../executor.ts';
import { fenceRun } from '../fence.ts';
import { lockThreadKey } from '../keys.ts';
import { idToBytes } from './ids.ts';
import { checkpointAt, findNamespace, findRunKey, namespacesOf } from './statements.ts';
import { sweep } from './sweep.ts';
import { copyThreadContent, deleteCheckpointRows } from './thread.ts';

type Input<M extends 'rollback' | 'prune' | 'copyThread'> = Parameters<CheckpointStore[M]>[0];

interface After {
  readonly nsKey: number;
  readonly checkpointId: Uint8Array;
}
const deleteCheckpointsAfter = defineStatement((db, p: After) =>
  db.deleteFrom('checkpoints').where('ns_key', '=', p.nsKey).where('checkpoint_id', '>', p.checkpointId),
);
const deleteWritesAfter = defineStatement((db, p: After) =>
  db.deleteFrom('checkpoint_writes').where('ns_key', '=', p.nsKey).where('checkpoint_id', '>', p.checkpointId),
);
const deleteWritesOfRun = defineStatement((db, p: { nsKey: number; runKey: number }) =>
  db.deleteFrom('checkpoint_writes').where('ns_key', '=', p.nsKey).where('run_key', '=', p.runKey),
);
/** The newest checkpoint that is not kept. */
const newestBeyond = defineStatement((db, p: { nsKey: number; keep: number }) =>
  db
    .selectFrom('checkpoints')
    .select('checkpoint_id')
    .where('ns_key', '=', p.nsKey)
    .orderBy('checkpoint_id', 'desc')
    .limit(1)
    .offset(sql<number>`${p.keep}`),
);
const deleteCheckpointsUpTo = defineStatement((db, p: After) =>
  db.deleteFrom('checkpoints').where('ns_key', '=', p.nsKey).where('checkpoint_id', '<=', p.checkpointId),
);
const deleteWritesUpTo = defineStatement((db, p: After) =>
  db.deleteFrom('checkpoint_writes').where('ns_key', '=', p.nsKey).where('checkpoint_id', '<=', p.checkpointId),
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
    if (checkpointId !== '' && !(await exists(tx, key, checkpointId))) {
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
    const bytes = checkpointId === '' ? new Uint8Array() : idToBytes(checkpointId);
    for (const { ns_key: nsKey } of await tx.all(namespacesOf, { key })) {
      await tx.run(deleteCheckpointsAfter, { nsKey, checkpointId: bytes });
      await tx.run(deleteWritesAfter, { nsKey, checkpointId: bytes });
      if (runKey !== null) await tx.run(deleteWritesOfRun, { nsKey, runKey });
    }
    await sweep(tx, key);
    return { outcome: 'ok' };
  },
);

async function exists(tx: Tx, key: number | null, checkpointId: string): Promise<boolean> {
  const nsKey = key === null ? null : await findNamespace(tx, key, '');
  if (nsKey === null) return false;
  return (await tx.first(checkpointAt, { nsKey, checkpointId: idToBytes(checkpointId) })) !== undefined;
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
      removed += await tx.run(deleteCheckpointsUpTo, { nsKey, checkpointId: beyond.checkpoint_id });
      await tx.run(deleteWritesUpTo, { nsKey, checkpointId: beyond.checkpoint_id });
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
