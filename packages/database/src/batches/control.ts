import {
  type BatchAddress,
  type BatchControl,
  type BatchStatus,
  type BatchStore,
  isBatchOver,
  reduceBatch,
} from '@reindeer/protocol';
import { sql } from 'kysely';
import { defineScript, defineStatement, type Tx } from '../executor.ts';
import { type BatchRecord, findBatch, lockBatch, toBatch } from './rows.ts';
import { OPEN, settle } from './settle.ts';
import { NOTIFY, PHASE } from './tables.ts';

type Input<M extends keyof BatchStore> = Parameters<BatchStore[M]>[0];

/** The status that was read is part of the write. */
const move = defineStatement((db, p: { batchKey: number; from: string; to: string; now: number }) =>
  db
    .updateTable('batches')
    .set({ status: p.to, updated_at: p.now })
    .where('batch_key', '=', p.batchKey)
    .where('status', '=', p.from),
);
const cancelBatch = defineStatement((db, p: { batchKey: number; now: number }) =>
  db
    .updateTable('batches')
    .set({
      status: 'cancelled',
      phase: PHASE.toReport,
      ends: sql<number>`ends + 1`,
      reporter: null,
      reporter_until: null,
      ended_at: p.now,
      updated_at: p.now,
    })
    .where('batch_key', '=', p.batchKey)
    .where('phase', '=', PHASE.open),
);
/** In the order of whoever else changes several items. */
const lockOpen = defineStatement((db, p: { batchKey: number }) =>
  db
    .selectFrom('batch_items')
    .select('item_key')
    .where('batch_key', '=', p.batchKey)
    .where('status', 'in', OPEN)
    .orderBy('item_key')
    .forNoKeyUpdate(),
);
/** With their owners gone, nothing that a worker still sends can match (BT-13). */
const cancelOpen = defineStatement((db, p: { batchKey: number; now: number }) =>
  db
    .updateTable('batch_items')
    .set({
      status: 'cancelled',
      owner: null,
      lease_expires_at: null,
      cancel_requested_at: sql<number>`coalesce(cancel_requested_at, ${p.now})`,
      ended_at: p.now,
      updated_at: p.now,
    })
    .where('batch_key', '=', p.batchKey)
    .where('status', 'in', OPEN),
);
const cancelOne = defineStatement((db, p: { batchKey: number; itemId: string; now: number }) =>
  db
    .updateTable('batch_items')
    .set({
      status: sql<string>`case when status in ('leased', 'running') then status else 'cancelled' end`,
      cancel_requested_at: p.now,
      ended_at: p.now,
      updated_at: p.now,
    })
    .where('item_id', '=', p.itemId)
    .where('batch_key', '=', p.batchKey)
    .where('status', 'in', OPEN)
    .where('cancel_requested_at', 'is', null),
);
const retryOne = defineStatement((db, p: { batchKey: number; itemId: string; now: number }) =>
  db
    .updateTable('batch_items')
    .set({ status: 'pending', attempt: 0, not_before: 0, updated_at: p.now })
    .where('item_id', '=', p.itemId)
    .where('batch_key', '=', p.batchKey)
    .where('status', '=', 'failed'),
);
const reopen = defineStatement((db, p: { batchKey: number; now: number }) =>
  db
    .updateTable('batches')
    .set({
      status: 'queued',
      phase: PHASE.open,
      notify: sql<number>`case when notify = ${sql.lit(NOTIFY.heard)} then ${sql.lit(NOTIFY.yes)} else notify end`,
      reporter: null,
      reporter_until: null,
      ended_at: null,
      updated_at: p.now,
    })
    .where('batch_key', '=', p.batchKey)
    .where('status', 'in', ['completed', 'failed']),
);
const itemOf = defineStatement((db, p: { batchKey: number; itemId: string }) =>
  db.selectFrom('batch_items').select('item_key').where('item_id', '=', p.itemId).where('batch_key', '=', p.batchKey),
);

async function again(tx: Tx, input: BatchAddress, outcome: 'done' | 'unchanged' | 'conflict'): Promise<BatchControl> {
  const row = await findBatch(tx, input);
  return row === undefined ? { outcome: 'not_found' } : { outcome, batch: toBatch(row) };
}

async function moved(tx: Tx, input: Input<'pause'>, kind: 'pause' | 'resume'): Promise<BatchControl> {
  const row = await lockBatch(tx, input);
  if (row === undefined) return { outcome: 'not_found' };
  const to = reduceBatch(row.status as BatchStatus, { kind });
  if (to === null) return { outcome: 'unchanged', batch: toBatch(row) };
  const changed = await tx.run(move, { batchKey: row.batch_key, from: row.status, to, now: input.now });
  return again(tx, input, changed === 1 ? 'done' : 'unchanged');
}

/** Runs `work` for an item of the batch, which nobody else changes meanwhile. */
async function withItem(
  tx: Tx,
  input: BatchAddress & { readonly itemId: string },
  work: (row: BatchRecord) => Promise<BatchControl>,
): Promise<BatchControl> {
  const row = await lockBatch(tx, input);
  if (row === undefined) return { outcome: 'not_found' };
  const item = await tx.first(itemOf, { batchKey: row.batch_key, itemId: input.itemId });
  return item === undefined ? { outcome: 'not_found' } : work(row);
}

export const controlScripts = {
  'batches.pause': defineScript('batches.pause', 'durable', (tx, input: Input<'pause'>) => moved(tx, input, 'pause')),
  'batches.resume': defineScript('batches.resume', 'durable', (tx, input: Input<'resume'>) =>
    moved(tx, input, 'resume'),
  ),
  'batches.cancel': defineScript(
    'batches.cancel',
    'durable',
    async (tx, input: Input<'cancel'>): Promise<BatchControl> => {
      const row = await lockBatch(tx, input);
      if (row === undefined) return { outcome: 'not_found' };
      if ((await tx.run(cancelBatch, { batchKey: row.batch_key, now: input.now })) === 0)
        return again(tx, input, 'unchanged');
      if (!tx.serial) await tx.all(lockOpen, { batchKey: row.batch_key });
      await tx.run(cancelOpen, { batchKey: row.batch_key, now: input.now });
      return again(tx, input, 'done');
    },
  ),
  'batches.cancelItem': defineScript('batches.cancelItem', 'durable', (tx, input: Input<'cancelItem'>) =>
    withItem(tx, input, async ({ batch_key: batchKey }) => {
      const changed = await tx.run(cancelOne, { batchKey, itemId: input.itemId, now: input.now });
      if (changed === 1) await settle(tx, batchKey, input.now);
      return again(tx, input, changed === 1 ? 'done' : 'unchanged');
    }),
  ),
  'batches.retryItem': defineScript('batches.retryItem', 'durable', (tx, input: Input<'retryItem'>) =>
    withItem(tx, input, async (row) => {
      const { batch_key: batchKey, status } = row;
      if (status === 'cancelled') return again(tx, input, 'conflict');
      const changed = await tx.run(retryOne, { batchKey, itemId: input.itemId, now: input.now });
      if (changed === 0) return again(tx, input, 'conflict');
      if (isBatchOver(status as BatchStatus)) await tx.run(reopen, { batchKey, now: input.now });
      return again(tx, input, 'done');
    }),
  ),
};
