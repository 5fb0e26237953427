import type { BatchItemStatus, BatchStore, FinishItem, ItemLease, RenewedItem } from '@reindeer/protocol';
import { sql } from 'kysely';
import { defineScript, defineStatement, type Tx } from '../executor.ts';
import { greatest, texts } from '../sql.ts';
import { settle } from './settle.ts';

type Input<M extends keyof BatchStore> = Parameters<BatchStore[M]>[0];

const HELD = ['leased', 'running'] as const;
const NOT_CANCELLED = sql<boolean>`not exists (select 1 from batches b
  where b.batch_key = batch_items.batch_key and b.status = 'cancelled')`;

/** All leases of an instance in one statement. A lease is never shortened, and only a holder's is touched (BT-06). */
const renewLeases = defineStatement((db, p: { holders: string; expiresAt: number }, dialect) =>
  db
    .updateTable('batch_items')
    .set({
      lease_expires_at: greatest(dialect, sql<number>`lease_expires_at`, sql<number>`${p.expiresAt}`),
    })
    .where(
      sql<boolean>`(item_id, owner, epoch) in ${
        dialect.name === 'sqlite'
          ? sql`(select value ->> 'i', value ->> 'o', value ->> 'e' from json_each(${p.holders}))`
          : sql`(select i, o, e from jsonb_to_recordset(${p.holders}::jsonb) as x(i text, o text, e bigint))`
      }`,
    )
    .where('status', 'in', HELD)
    .where('cancel_requested_at', 'is', null)
    .where(NOT_CANCELLED)
    .returning('item_id'),
);
const standing = defineStatement((db, p: { itemIds: string }, dialect) =>
  db
    .selectFrom('batch_items')
    .innerJoin('batches', 'batches.batch_key', 'batch_items.batch_key')
    .select([
      'batch_items.item_id',
      'batch_items.owner',
      'batch_items.epoch',
      'batch_items.status',
      'batch_items.cancel_requested_at',
      'batches.status as batch_status',
    ])
    .where('batch_items.item_id', 'in', texts(dialect, p.itemIds)),
);
/** One stopped peer with a row in its hand holds up no heartbeat: its row is left out, and answered as busy. */
const lockFree = defineStatement((db, p: { itemIds: string }, dialect) =>
  db
    .selectFrom('batch_items')
    .select('item_id')
    .where('item_id', 'in', texts(dialect, p.itemIds))
    .orderBy('item_id')
    .forNoKeyUpdate()
    .skipLocked(),
);

async function renewAll(tx: Tx, { leases, leaseMs, now }: Input<'renew'>): Promise<Map<string, RenewedItem>> {
  const itemIds = JSON.stringify(leases.map(({ itemId }) => itemId));
  const free = tx.serial ? null : new Set((await tx.all(lockFree, { itemIds })).map((row) => row.item_id));
  const reached = free === null ? leases : leases.filter(({ itemId }) => free.has(itemId));
  const holders = JSON.stringify(reached.map(({ itemId, owner, epoch }) => ({ i: itemId, o: owner, e: epoch })));
  const renewed = new Set((await tx.all(renewLeases, { holders, expiresAt: now + leaseMs })).map((row) => row.item_id));
  const rows =
    renewed.size === leases.length
      ? new Map()
      : new Map((await tx.all(standing, { itemIds })).map((row) => [row.item_id, row]));
  return new Map(
    leases.map(({ itemId, owner, epoch }): [string, RenewedItem] => {
      if (renewed.has(itemId)) return [itemId, { valid: true, cancelRequested: false, busy: false }];
      const row = rows.get(itemId);
      if (row === undefined) return [itemId, { valid: false, cancelRequested: false, busy: false }];
      const cancelRequested = row.cancel_requested_at !== null || row.batch_status === 'cancelled';
      const stands = row.owner === owner && row.epoch === epoch && !cancelRequested;
      return [itemId, { valid: false, cancelRequested, busy: stands && free !== null && !free.has(itemId) }];
    }),
  );
}

const begin = defineStatement((db, p: ItemLease & { now: number }) =>
  db
    .updateTable('batch_items')
    .set({ status: 'running', updated_at: p.now })
    .where('item_id', '=', p.itemId)
    .where('owner', '=', p.owner)
    .where('epoch', '=', p.epoch)
    .where('status', '=', 'leased')
    .where('cancel_requested_at', 'is', null)
    .where(NOT_CANCELLED),
);
const alreadyBegun = defineStatement((db, p: ItemLease) =>
  db
    .selectFrom('batch_items')
    .select('item_key')
    .where('item_id', '=', p.itemId)
    .where('owner', '=', p.owner)
    .where('epoch', '=', p.epoch)
    .where('status', '=', 'running')
    .where('cancel_requested_at', 'is', null)
    .where(NOT_CANCELLED),
);

/** Who may write an end: the holder, in a batch that was not cancelled (BT-08, BT-13, BT-24). */
const end = defineStatement((db, p: ItemLease & { succeeded: number; notBefore: number; now: number }) =>
  db
    .updateTable('batch_items')
    .set({
      status: sql<string>`case when cancel_requested_at is not null then 'cancelled'
        when ${p.succeeded} = 1 then 'succeeded'
        when attempt < (select b.max_attempts from batches b where b.batch_key = batch_items.batch_key) then 'queued'
        else 'failed' end`,
      owner: null,
      lease_expires_at: null,
      not_before: p.notBefore,
      ended_at: p.now,
      updated_at: p.now,
    })
    .where('item_id', '=', p.itemId)
    .where('owner', '=', p.owner)
    .where('epoch', '=', p.epoch)
    .where('status', 'in', HELD)
    .where(NOT_CANCELLED)
    .returning(['batch_key', 'position', 'status']),
);
const writeResult = defineStatement(
  (
    db,
    p: {
      batchKey: number;
      position: number;
      result: string | null;
      preview: string | null;
      truncated: number;
      file: string | null;
      error: string | null;
      stopReason: string | null;
      modelName: string | null;
      inputTokens: number;
      outputTokens: number;
    },
  ) =>
    db
      .updateTable('batch_item_details')
      .set({
        result: p.result,
        result_preview: p.preview,
        result_truncated: p.truncated,
        result_file: p.file,
        error: p.error,
        stop_reason: p.stopReason,
        model_name: p.modelName,
        input_tokens: sql<number>`input_tokens + ${p.inputTokens}`,
        output_tokens: sql<number>`output_tokens + ${p.outputTokens}`,
      })
      .where('batch_key', '=', p.batchKey)
      .where('position', '=', p.position),
);

async function finish(tx: Tx, input: FinishItem): Promise<BatchItemStatus | null> {
  const { lease, now, succeeded } = input;
  const notBefore = input.succeeded ? 0 : input.notBefore;
  const ended = await tx.first(end, { ...lease, succeeded: succeeded ? 1 : 0, notBefore, now });
  if (ended === undefined) return null;
  const { batch_key: batchKey, position, status } = ended;
  const kept = input.succeeded && status === 'succeeded' ? input : null;
  await tx.run(writeResult, {
    batchKey,
    position,
    result: kept?.result ?? null,
    preview: kept?.resultPreview ?? null,
    truncated: kept?.resultTruncated === true ? 1 : 0,
    file: kept?.resultFile ?? null,
    error: input.succeeded ? null : input.error,
    stopReason: input.stopReason,
    modelName: input.modelName,
    ...input.usage,
  });
  if (status !== 'queued') await settle(tx, batchKey, now);
  return status as BatchItemStatus;
}

const giveBack = defineStatement((db, p: ItemLease & { notBefore: number; now: number }) =>
  db
    .updateTable('batch_items')
    .set({
      status: sql<string>`case when cancel_requested_at is not null then 'cancelled' else 'queued' end`,
      attempt: sql<number>`case when attempt > 0 then attempt - 1 else 0 end`,
      owner: null,
      lease_expires_at: null,
      not_before: p.notBefore,
      ended_at: p.now,
      updated_at: p.now,
    })
    .where('item_id', '=', p.itemId)
    .where('owner', '=', p.owner)
    .where('epoch', '=', p.epoch)
    .where('status', 'in', HELD)
    .where(NOT_CANCELLED)
    .returning(['batch_key', 'position', 'status']),
);
const note = defineStatement((db, p: { batchKey: number; position: number; error: string }) =>
  db
    .updateTable('batch_item_details')
    .set({ error: p.error })
    .where('batch_key', '=', p.batchKey)
    .where('position', '=', p.position),
);

/** Its holder's process has ended: the lease is over now. */
const endLeases = defineStatement((db, p: { prefix: string; now: number }) =>
  db
    .updateTable('batch_items')
    .set({ lease_expires_at: p.now })
    .where('lease_expires_at', '>', p.now)
    .where('status', 'in', HELD)
    .where(sql<boolean>`substr(owner, 1, length(${p.prefix})) = ${p.prefix}`),
);

export const holdScripts = {
  'batches.forfeit': defineScript('batches.forfeit', 'write', (tx, input: Input<'forfeit'>) =>
    tx.run(endLeases, input),
  ),
  'batches.renew': defineScript('batches.renew', 'write', renewAll),
  'batches.start': defineScript('batches.start', 'write', async (tx, { lease, now }: Input<'start'>) => {
    if ((await tx.run(begin, { ...lease, now })) === 1) return true;
    // The answer to an earlier call was lost: one worker per token, so it is the same start.
    return (await tx.first(alreadyBegun, lease)) !== undefined;
  }),
  'batches.finish': defineScript('batches.finish', 'write', finish),
  'batches.release': defineScript('batches.release', 'write', async (tx, input: Input<'release'>) => {
    const { lease, notBefore, error, now } = input;
    const back = await tx.first(giveBack, { ...lease, notBefore, now });
    if (back === undefined) return false;
    await tx.run(note, { batchKey: back.batch_key, position: back.position, error });
    if (back.status === 'cancelled') await settle(tx, back.batch_key, now);
    return true;
  }),
};
