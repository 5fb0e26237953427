import type { BatchItemStatus, BatchStore, FinishItem, ItemLease, RenewedItem } from '@reindeer/protocol';
import { sql } from 'kysely';
import { type DialectName, defineScript, defineStatement, type Tx } from '../executor.ts';
import { greatest, isOneOf, storable } from '../sql.ts';
import { settle } from './settle.ts';

type Input<M extends keyof BatchStore> = Parameters<BatchStore[M]>[0];

const HELD = ['leased', 'running'] as const;
/** One value for a row that was found by its key, and no join: see `TAKES_WORK`. */
const NOT_CANCELLED = sql<boolean>`coalesce(
  (select b.status from batches b where b.batch_key = batch_items.batch_key), '') <> 'cancelled'`;

/** All leases of an instance in one statement. A lease is never shortened, and only a holder's is touched (BT-06). */
const renewLeases = defineStatement((db, p: { holders: string; expiresAt: number }, dialect) =>
  db
    .updateTable('batch_items')
    .set({
      lease_expires_at: greatest(dialect, sql<number>`lease_expires_at`, sql<number>`${p.expiresAt}`),
    })
    .where(isOneOf(dialect, 'item_id', p.holders, 'text', 'i'))
    .where(sql<boolean>`(item_id, owner, epoch) in ${leasesIn(dialect.name, p.holders)}`)
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
    .where(isOneOf(dialect, 'batch_items.item_id', p.itemIds, 'text')),
);
/** One stopped peer with a row in its hand holds up no heartbeat: its row is left out, and answered as busy. */
const lockFree = defineStatement((db, p: { itemIds: string }, dialect) =>
  db
    .selectFrom('batch_items')
    .select('item_id')
    .where(isOneOf(dialect, 'item_id', p.itemIds, 'text'))
    .orderBy('item_id')
    .forNoKeyUpdate()
    .skipLocked(),
);

async function renewAll(tx: Tx, { leases, leaseMs, now }: Input<'renew'>): Promise<Map<string, RenewedItem>> {
  const itemIds = JSON.stringify(leases.map(({ itemId }) => itemId));
  const free = tx.serial ? null : new Set((await tx.all(lockFree, { itemIds })).map((row) => row.item_id));
  const reached = free === null ? leases : leases.filter(({ itemId }) => free.has(itemId));
  const holders = holdersOf(reached);
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

/** Leases as one JSON parameter: `[{i: item, o: owner, e: epoch}, …]`. */
const leasesIn = (dialect: DialectName, holders: string) =>
  dialect === 'sqlite'
    ? sql`(select value ->> 'i', value ->> 'o', value ->> 'e' from json_each(${holders}))`
    : sql`(select i, o, e from jsonb_to_recordset(${holders}::jsonb) as x(i text, o text, e bigint))`;
const holdersOf = (leases: readonly ItemLease[]): string =>
  JSON.stringify(leases.map(({ itemId, owner, epoch }) => ({ i: itemId, o: owner, e: epoch })));

const begin = defineStatement((db, p: { holders: string; now: number }, dialect) =>
  db
    .updateTable('batch_items')
    .set({ status: 'running', updated_at: p.now })
    .where(isOneOf(dialect, 'item_id', p.holders, 'text', 'i'))
    .where(sql<boolean>`(item_id, owner, epoch) in ${leasesIn(dialect.name, p.holders)}`)
    .where('status', '=', 'leased')
    .where('cancel_requested_at', 'is', null)
    .where(NOT_CANCELLED)
    .returning('item_id'),
);
const alreadyBegun = defineStatement((db, p: { holders: string }, dialect) =>
  db
    .selectFrom('batch_items')
    .select('item_id')
    .where(isOneOf(dialect, 'item_id', p.holders, 'text', 'i'))
    .where(sql<boolean>`(item_id, owner, epoch) in ${leasesIn(dialect.name, p.holders)}`)
    .where('status', '=', 'running')
    .where('cancel_requested_at', 'is', null)
    .where(NOT_CANCELLED),
);
/** Whoever changes several items locks them in one order first. */
const lockItems = defineStatement((db, p: { itemIds: string }, dialect) =>
  db
    .selectFrom('batch_items')
    .select('item_key')
    .where(isOneOf(dialect, 'item_id', p.itemIds, 'text'))
    .orderBy('item_key')
    .forNoKeyUpdate(),
);

async function startAll(tx: Tx, { leases, now }: { readonly leases: readonly ItemLease[]; readonly now: number }) {
  if (!tx.serial && leases.length > 1)
    await tx.all(lockItems, { itemIds: JSON.stringify(leases.map(({ itemId }) => itemId)) });
  const begun = new Set((await tx.all(begin, { holders: holdersOf(leases), now })).map((row) => row.item_id));
  const left = leases.filter(({ itemId }) => !begun.has(itemId));
  // The answer to an earlier call was lost: one worker per token, so it is the same start.
  if (left.length > 0)
    for (const row of await tx.all(alreadyBegun, { holders: holdersOf(left) })) begun.add(row.item_id);
  return leases.map(({ itemId }) => begun.has(itemId));
}

interface EndShape {
  readonly i: string;
  readonly o: string;
  readonly e: number;
  /** 1 = it succeeded. */
  readonly s: number;
  /** Not before. */
  readonly b: number;
}
/** Who may write an end: the holder, in a batch that was not cancelled (BT-08, BT-13, BT-24). */
const end = defineStatement((db, p: { ends: string; now: number }, dialect) =>
  db
    .updateTable('batch_items')
    .from(
      dialect.name === 'sqlite'
        ? sql<EndShape>`(select value ->> 'i' as i, value ->> 'o' as o, value ->> 'e' as e, value ->> 's' as s, value ->> 'b' as b
            from json_each(${p.ends}))`.as('f')
        : sql<EndShape>`(select * from jsonb_to_recordset(${p.ends}::jsonb) as x(i text, o text, e bigint, s bigint, b bigint))`.as(
            'f',
          ),
    )
    .set({
      status: sql<string>`case when cancel_requested_at is not null then 'cancelled'
        when f.s = 1 then 'succeeded'
        when attempt < (select b.max_attempts from batches b where b.batch_key = batch_items.batch_key) then 'queued'
        else 'failed' end`,
      owner: null,
      lease_expires_at: null,
      not_before: sql<number>`f.b`,
      ended_at: p.now,
      updated_at: p.now,
    })
    .where(isOneOf(dialect, 'batch_items.item_id', p.ends, 'text', 'i'))
    .whereRef('batch_items.item_id', '=', 'f.i')
    .whereRef('batch_items.owner', '=', 'f.o')
    .whereRef('batch_items.epoch', '=', 'f.e')
    .where('batch_items.status', 'in', HELD)
    .where(NOT_CANCELLED)
    .returning(['item_id', 'batch_key', 'position', 'status']),
);

interface ResultShape {
  readonly k: number;
  readonly p: number;
  readonly r: string | null;
  readonly v: string | null;
  readonly t: number;
  readonly f: string | null;
  readonly a: number | null;
  readonly d: string | null;
  readonly e: string | null;
  readonly s: string | null;
  readonly m: string | null;
  readonly i: number;
  readonly o: number;
}
const writeResults = defineStatement((db, p: { results: string }, dialect) =>
  db
    .updateTable('batch_item_details')
    .from(
      dialect.name === 'sqlite'
        ? sql<ResultShape>`(select value ->> 'k' as k, value ->> 'p' as p, value ->> 'r' as r, value ->> 'v' as v, value ->> 't' as t,
            value ->> 'f' as f, value ->> 'a' as a, value ->> 'd' as d, value ->> 'e' as e, value ->> 's' as s, value ->> 'm' as m, value ->> 'i' as i, value ->> 'o' as o
            from json_each(${p.results}))`.as('x')
        : sql<ResultShape>`(select * from json_to_recordset(${p.results}::json)
            as y(k bigint, p bigint, r text, v text, t bigint, f text, a bigint, d text, e text, s text, m text, i bigint, o bigint))`.as(
            'x',
          ),
    )
    .set({
      result: sql<string | null>`x.r`,
      result_preview: sql<string | null>`x.v`,
      result_truncated: sql<number>`x.t`,
      result_file: sql<string | null>`x.f`,
      accepted: sql<number | null>`x.a`,
      verdict: sql<string | null>`x.d`,
      error: sql<string | null>`x.e`,
      stop_reason: sql<string | null>`x.s`,
      model_name: sql<string | null>`x.m`,
      input_tokens: sql<number>`input_tokens + x.i`,
      output_tokens: sql<number>`output_tokens + x.o`,
    })
    .where(isOneOf(dialect, 'batch_item_details.batch_key', p.results, 'bigint', 'k'))
    .where(isOneOf(dialect, 'batch_item_details.position', p.results, 'bigint', 'p'))
    .whereRef('batch_item_details.batch_key', '=', 'x.k')
    .whereRef('batch_item_details.position', '=', 'x.p'),
);

/** Ends of several attempts, each for itself: null = not the caller's any more. An item stands in it once. */
async function finishAll(
  tx: Tx,
  { items }: { readonly items: readonly FinishItem[] },
): Promise<(BatchItemStatus | null)[]> {
  if (!tx.serial && items.length > 1)
    await tx.all(lockItems, { itemIds: JSON.stringify(items.map(({ lease }) => lease.itemId)) });
  const now = Math.max(...items.map((item) => item.now));
  const ends = items.map((item): EndShape => {
    const { itemId, owner, epoch } = item.lease;
    return { i: itemId, o: owner, e: epoch, s: item.succeeded ? 1 : 0, b: item.succeeded ? 0 : item.notBefore };
  });
  const rows = new Map(
    (await tx.all(end, { ends: JSON.stringify(ends), now })).map((row) => [row.item_id, row] as const),
  );
  const results: ResultShape[] = [];
  const settled = new Set<number>();
  for (const item of items) {
    const row = rows.get(item.lease.itemId);
    if (row === undefined) continue;
    const kept = item.succeeded && row.status === 'succeeded' ? item : null;
    results.push({
      k: row.batch_key,
      p: row.position,
      r: storable(kept?.result ?? null),
      v: storable(kept?.resultPreview ?? null),
      t: kept?.resultTruncated === true ? 1 : 0,
      f: kept?.resultFile ?? null,
      a: kept?.verdict == null ? null : kept.verdict.accepted ? 1 : 0,
      d: storable(kept?.verdict?.reason ?? null),
      e: item.succeeded ? null : storable(item.error),
      s: item.stopReason,
      m: storable(item.modelName),
      i: item.usage.inputTokens,
      o: item.usage.outputTokens,
    });
    if (row.status !== 'queued') settled.add(row.batch_key);
  }
  if (results.length > 0) await tx.run(writeResults, { results: JSON.stringify(results) });
  for (const batchKey of settled) await settle(tx, batchKey, now);
  return items.map(({ lease }) => (rows.get(lease.itemId)?.status as BatchItemStatus | undefined) ?? null);
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
  'batches.start': defineScript('batches.start', 'write', startAll),
  'batches.finish': defineScript('batches.finish', 'write', finishAll),
  'batches.release': defineScript('batches.release', 'write', async (tx, input: Input<'release'>) => {
    const { lease, notBefore, error, now } = input;
    const back = await tx.first(giveBack, { ...lease, notBefore, now });
    if (back === undefined) return false;
    await tx.run(note, { batchKey: back.batch_key, position: back.position, error });
    if (back.status === 'cancelled') await settle(tx, back.batch_key, now);
    return true;
  }),
};
