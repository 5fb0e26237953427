import { type Batch, type BatchStore, type ClaimedItem, shareSlots } from '@reindeer/protocol';
import { sql } from 'kysely';
import { defineScript, defineStatement, type Tx } from '../executor.ts';
import { isOneOf, texts } from '../sql.ts';
import { LEASE_OVER } from './lease-over.ts';
import { selectBatches, toBatch } from './rows.ts';
import { settle } from './settle.ts';
import { PHASE } from './tables.ts';

type Input = Parameters<BatchStore['claim']>[0];
export interface ClaimAnswer {
  readonly items: readonly ClaimedItem[];
  readonly batches: ReadonlyMap<string, Batch>;
  readonly more: boolean;
}

/** Open batches that one pass looks at: the oldest of each user first. Those beyond get their turn when older ones have ended. */
const MAX_BATCHES = 200;
/** Expired leases that one pass recovers. */
const MAX_EXPIRED = 1_000;

interface Expiry {
  readonly now: number;
  readonly exclude: string;
}
const expired = defineStatement((db, p: Expiry & { limit: number }, dialect) =>
  db
    .selectFrom('batch_items')
    .select('item_key')
    .where('lease_expires_at', '<=', p.now)
    .where('status', 'in', ['leased', 'running'])
    .where('item_id', 'not in', texts(dialect, p.exclude))
    .orderBy('lease_expires_at')
    .limit(p.limit)
    // A holder that renews this moment holds its row: it is no orphan.
    .$if(dialect.name === 'postgres', (query) => query.forNoKeyUpdate().skipLocked()),
);
/** BT-10. The condition stands in the write itself: a renewal that came after the scan is left alone. */
const recover = defineStatement((db, p: { keys: string; now: number }, dialect) =>
  db
    .updateTable('batch_items')
    .set({
      status: sql<string>`case when cancel_requested_at is not null then 'cancelled'
        when attempt < (select b.max_attempts from batches b where b.batch_key = batch_items.batch_key) then 'queued'
        else 'failed' end`,
      owner: null,
      lease_expires_at: null,
      ended_at: p.now,
      updated_at: p.now,
    })
    .where(isOneOf(dialect, 'item_key', p.keys, 'bigint'))
    .where('status', 'in', ['leased', 'running'])
    .where('lease_expires_at', '<=', p.now)
    .returning(['batch_key', 'position', 'status']),
);
const explain = defineStatement((db, p: { batchKey: number; position: number; error: string }) =>
  db
    .updateTable('batch_item_details')
    .set({ error: p.error })
    .where('batch_key', '=', p.batchKey)
    .where('position', '=', p.position),
);

async function recoverExpired(tx: Tx, { now, exclude }: Expiry): Promise<ReadonlySet<number>> {
  const rows = await tx.all(expired, { now, exclude, limit: MAX_EXPIRED });
  if (rows.length === 0) return new Set();
  const recovered = await tx.all(recover, { keys: JSON.stringify(rows.map((row) => row.item_key)), now });
  for (const { batch_key: batchKey, position, status } of recovered)
    if (status === 'failed') await tx.run(explain, { batchKey, position, error: LEASE_OVER });
  return new Set(recovered.filter(({ status }) => status !== 'queued').map((row) => row.batch_key));
}

/** What each open batch wants, oldest first. In the order of an index, where only the first few count: a plan for any few may read all rows. */
const demands = defineStatement((db, p: { limit: number; now: number; slots: number }) =>
  db
    .selectFrom('batches')
    .select(['batch_key', 'user_id', 'max_running', 'max_live'])
    .select([
      sql<number>`(select cast(count(*) as integer) from batch_items i
        where i.batch_key = batches.batch_key and i.status in ('leased', 'running'))`.as('running'),
      sql<number>`(select cast(count(*) as integer) from (select 1 from batch_items i
        where i.batch_key = batches.batch_key and i.status = 'queued' and i.not_before <= ${p.now}
        order by i.position limit ${p.slots}) x)`.as('ready'),
      sql<number>`(select cast(count(*) as integer) from batch_items i
        where i.batch_key = batches.batch_key and i.status = 'queued')`.as('queued'),
      sql<number>`(select cast(count(*) as integer) from (select 1 from batch_items i
        where i.batch_key = batches.batch_key and i.status = 'pending' order by i.position limit ${p.slots}) x)`.as(
        'pending',
      ),
    ])
    .where(
      'batch_key',
      'in',
      sql<number>`(select x.batch_key from (select b.batch_key, row_number() over
        (partition by b.user_id order by b.batch_key) as turn from batches b
        where b.phase = ${sql.lit(PHASE.open)} and b.status in ('queued', 'running')) x
      order by x.turn, x.batch_key limit ${p.limit})`,
    )
    .orderBy('batch_key'),
);
const lockBatch = defineStatement((db, p: { batchKey: number }) =>
  db.selectFrom('batches').select('batch_key').where('batch_key', '=', p.batchKey).forNoKeyUpdate().skipLocked(),
);
const inHand = defineStatement((db, p: { batchKey: number }) =>
  db
    .selectFrom('batch_items')
    .select(['status', sql<number>`cast(count(*) as integer)`.as('items')])
    .where('batch_key', '=', p.batchKey)
    .where('status', 'in', ['queued', 'leased', 'running'])
    .groupBy('status'),
);
/**
 * A batch that takes work: neither paused nor over. Part of every write below, so that a stale pass changes nothing. One value for a row that was found
 * by its key: `exists` would be a join, which Postgres may begin at the batch.
 */
const TAKES_WORK = sql<boolean>`(select b.status from batches b where b.batch_key = batch_items.batch_key)
  in ('queued', 'running')`;

const pendingOf = defineStatement((db, p: { batchKey: number; limit: number }) =>
  db
    .selectFrom('batch_items')
    .select('item_key')
    .where('batch_key', '=', p.batchKey)
    .where('status', '=', 'pending')
    .orderBy('position')
    .limit(p.limit),
);
const promote = defineStatement((db, p: { keys: string; now: number }, dialect) =>
  db
    .updateTable('batch_items')
    .set({ status: 'queued', updated_at: p.now })
    .where(isOneOf(dialect, 'item_key', p.keys, 'bigint'))
    .where('status', '=', 'pending')
    .where(TAKES_WORK),
);
const queuedOf = defineStatement((db, p: { batchKey: number; limit: number; exclude: string; now: number }, dialect) =>
  db
    .selectFrom('batch_items')
    .select('item_key')
    .where('batch_key', '=', p.batchKey)
    .where('status', '=', 'queued')
    .where('not_before', '<=', p.now)
    .where('item_id', 'not in', texts(dialect, p.exclude))
    .orderBy('position')
    .limit(p.limit)
    .$if(dialect.name === 'postgres', (query) => query.forNoKeyUpdate().skipLocked()),
);
/** One item, one owner (BT-03): a peer that was quicker has changed the status. */
const lease = defineStatement((db, p: { keys: string; owner: string; expiresAt: number; now: number }, dialect) =>
  db
    .updateTable('batch_items')
    .set({
      status: 'leased',
      owner: p.owner,
      epoch: sql<number>`epoch + 1`,
      attempt: sql<number>`attempt + 1`,
      lease_expires_at: p.expiresAt,
      started_at: sql<number>`coalesce(started_at, ${p.now})`,
      updated_at: p.now,
    })
    .where(isOneOf(dialect, 'item_key', p.keys, 'bigint'))
    .where('status', '=', 'queued')
    .where('not_before', '<=', p.now)
    .where(TAKES_WORK)
    .returning(['item_id', 'position', 'attempt', 'epoch']),
);
const working = defineStatement((db, p: { batchKey: number; now: number }) =>
  db
    .updateTable('batches')
    .set({ status: 'running', started_at: sql<number>`coalesce(started_at, ${p.now})`, updated_at: p.now })
    .where('batch_key', '=', p.batchKey)
    .where('status', '=', 'queued'),
);
const prompts = defineStatement((db, p: { batchKey: number; positions: string }, dialect) =>
  db
    .selectFrom('batch_item_details')
    .select(['position', 'name', 'prompt', 'acceptance'])
    .where('batch_key', '=', p.batchKey)
    .where(isOneOf(dialect, 'position', p.positions, 'bigint')),
);
const byKey = defineStatement((db, p: { batchKey: number }) => selectBatches(db).where('batch_key', '=', p.batchKey));

interface Taken {
  readonly batch: Batch;
  readonly items: readonly ClaimedItem[];
}

/** What one batch gives, under its lock: never more than `maxRunning` over all instances (BT-04). */
async function takeFrom(
  tx: Tx,
  batch: { readonly batch_key: number; readonly max_live: number; readonly max_running: number },
  share: number,
  input: Input & { readonly excludeJson: string },
): Promise<Taken | 'locked' | null> {
  const { batch_key: batchKey } = batch;
  const { now, owner } = input;
  // A batch that somebody else looks after is skipped, not waited for (BT-18).
  if (!tx.serial && (await tx.first(lockBatch, { batchKey })) === undefined) return 'locked';
  const counts = new Map((await tx.all(inHand, { batchKey })).map((row) => [row.status, row.items]));
  const running = (counts.get('leased') ?? 0) + (counts.get('running') ?? 0);
  const room = batch.max_live - running - (counts.get('queued') ?? 0);
  if (room > 0) {
    const keys = (await tx.all(pendingOf, { batchKey, limit: room })).map((row) => row.item_key);
    if (keys.length > 0) await tx.run(promote, { keys: JSON.stringify(keys), now });
  }
  const limit = Math.min(share, batch.max_running - running);
  if (limit <= 0) return null;
  const ready = await tx.all(queuedOf, { batchKey, limit, exclude: input.excludeJson, now });
  if (ready.length === 0) return null;
  const keys = JSON.stringify(ready.map((row) => row.item_key));
  const leased = await tx.all(lease, { keys, owner, expiresAt: now + input.leaseMs, now });
  if (leased.length === 0) return null;
  await tx.run(working, { batchKey, now });
  const [texts, record] = await Promise.all([
    tx.all(prompts, { batchKey, positions: JSON.stringify(leased.map((row) => row.position)) }),
    tx.first(byKey, { batchKey }),
  ]);
  if (record === undefined) return null;
  const byPosition = new Map(texts.map((row) => [row.position, row]));
  return {
    batch: toBatch(record),
    items: leased
      .sort((a, b) => a.position - b.position)
      .map((row) => ({
        lease: { itemId: row.item_id, owner, epoch: row.epoch },
        batchId: record.batch_id,
        key: byPosition.get(row.position)?.name ?? '',
        position: row.position,
        prompt: byPosition.get(row.position)?.prompt ?? '',
        acceptance: byPosition.get(row.position)?.acceptance ?? null,
        attempt: row.attempt,
      })),
  };
}

async function claim(tx: Tx, input: Input): Promise<ClaimAnswer> {
  const { limit, now } = input;
  const excludeJson = JSON.stringify(input.exclude);
  const ended = await recoverExpired(tx, { now, exclude: excludeJson });
  for (const batchKey of ended) await settle(tx, batchKey, now);
  // One more than asked for tells whether anything stays behind.
  const open = await tx.all(demands, { limit: MAX_BATCHES, now, slots: limit + 1 });
  const wanted = open.map((row) => {
    const promotable = Math.max(Math.min(row.pending, row.max_live - row.running - row.queued), 0);
    return {
      key: String(row.batch_key),
      userId: row.user_id,
      running: row.running,
      maxRunning: row.max_running,
      waiting: row.ready + promotable,
    };
  });
  const shares = shareSlots(wanted, limit);
  const items: ClaimedItem[] = [];
  const batches = new Map<string, Batch>();
  let more = wanted.some(
    ({ key, running, maxRunning, waiting }) => Math.min(waiting, maxRunning - running) > (shares.get(key) ?? 0),
  );
  for (const row of open) {
    // A pass without room still promotes and ends batches.
    const share = shares.get(String(row.batch_key)) ?? 0;
    const idle = row.running + row.queued + row.pending === 0;
    if (idle) await settle(tx, row.batch_key, now);
    const promotes = row.pending > 0 && row.running + row.queued < row.max_live;
    if (idle || (share === 0 && !promotes)) continue;
    const taken = await takeFrom(tx, row, share, { ...input, excludeJson });
    if (taken === 'locked') more = true;
    else if (taken !== null) {
      items.push(...taken.items);
      batches.set(taken.batch.batchId, taken.batch);
    }
  }
  return { items, batches, more };
}

export const claimItems = defineScript('batches.claim', 'write', claim);
