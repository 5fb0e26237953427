import type { BatchStore, EndedBatch, SeenItem } from '@reindeer/protocol';
import { sql } from 'kysely';
import { defineScript, defineStatement, type Tx } from '../executor.ts';
import { claimItems } from './claim.ts';
import { controlScripts } from './control.ts';
import { createBatch } from './create.ts';
import { holdScripts } from './hold.ts';
import { countItems, findBatch, readItems, selectBatches, toBatch } from './rows.ts';
import { NOTIFY, PHASE } from './tables.ts';

type Input<M extends keyof BatchStore> = Parameters<BatchStore[M]>[0];

const ofThread = defineStatement((db, p: { userId: string; threadId: string; limit: number }) =>
  selectBatches(db)
    .where('thread_id', '=', p.threadId)
    .where('user_id', '=', p.userId)
    .orderBy('batch_key', 'desc')
    .limit(p.limit),
);
const ofUser = defineStatement((db, p: { userId: string; limit: number }) =>
  selectBatches(db).where('user_id', '=', p.userId).orderBy('batch_key', 'desc').limit(p.limit),
);

const AFTER_THE_END = [PHASE.toReport, PHASE.toTell];
const toReport = defineStatement((db, p: { now: number; limit: number }, dialect) =>
  selectBatches(db)
    .select('notify')
    .where('phase', 'in', AFTER_THE_END)
    .where((eb) => eb.or([eb('reporter_until', 'is', null), eb('reporter_until', '<=', p.now)]))
    .orderBy('batch_key')
    .limit(p.limit)
    .$if(dialect.name === 'postgres', (query) => query.forNoKeyUpdate().skipLocked()),
);
const take = defineStatement((db, p: { batchKey: number; owner: string; until: number; now: number }) =>
  db
    .updateTable('batches')
    .set({ reporter: p.owner, reporter_until: p.until })
    .where('batch_key', '=', p.batchKey)
    .where('phase', 'in', AFTER_THE_END)
    .where((eb) => eb.or([eb('reporter_until', 'is', null), eb('reporter_until', '<=', p.now)])),
);
/** A step of the report by the one that took it. */
interface Report {
  readonly batchId: string;
  readonly owner: string;
  readonly ends: number;
}
const filed = defineStatement((db, p: Report) =>
  db
    .updateTable('batches')
    .set({ phase: PHASE.toTell, reporter: null, reporter_until: null })
    .where('batch_id', '=', p.batchId)
    .where('reporter', '=', p.owner)
    .where('ends', '=', p.ends)
    .where('phase', '=', PHASE.toReport),
);
const postpone = defineStatement((db, p: Report & { until: number }) =>
  db
    .updateTable('batches')
    .set({ reporter_until: p.until })
    .where('batch_id', '=', p.batchId)
    .where('reporter', '=', p.owner)
    .where('ends', '=', p.ends)
    .where('phase', '=', PHASE.toTell),
);
const done = defineStatement((db, p: Report) =>
  db
    .updateTable('batches')
    .set({ phase: PHASE.done, reporter: null, reporter_until: null })
    .where('batch_id', '=', p.batchId)
    .where('reporter', '=', p.owner)
    .where('ends', '=', p.ends)
    .where('phase', 'in', AFTER_THE_END),
);
const heard = defineStatement((db, p: { batchId: string; ends: number }) =>
  db
    .updateTable('batches')
    .set({ notify: NOTIFY.heard })
    .where('batch_id', '=', p.batchId)
    .where('ends', '=', p.ends)
    .where('notify', '=', NOTIFY.yes),
);

/** The id of an item's thread is its own, with another sign in it. */
const ITEM_OF_THREAD = sql`substr(threads.user_id, 7) || '.' || substr(threads.thread_id, length(threads.user_id) - 4)`;
/** The first condition is that of a partial index, word for word. */
const leftThreads = defineStatement((db, p: Input<'leftThreads'>) =>
  db
    .selectFrom('threads')
    .select(['thread_id', 'user_id', sql<string>`${ITEM_OF_THREAD}`.as('item_id')])
    .select(
      sql<number>`coalesce((select i.epoch from batch_items i where i.item_id = ${ITEM_OF_THREAD}), 0)`.as('epoch'),
    )
    .where(sql<boolean>`substr(user_id, 1, 6) = 'batch_'`)
    .where('thread_id', '>', p.after)
    .where('updated_at', '<=', p.before)
    .where(
      sql<boolean>`not exists (select 1 from batch_items i
        where i.item_id = ${ITEM_OF_THREAD}
        and i.status in ('pending', 'queued', 'leased', 'running'))`,
    )
    .orderBy('thread_id')
    .limit(p.limit),
);

const epochOf = defineStatement((db, p: { itemId: string }, dialect) =>
  db
    .selectFrom('batch_items')
    .select('epoch')
    .where('item_id', '=', p.itemId)
    .$if(dialect.name === 'postgres', (query) => query.forNoKeyUpdate()),
);
/** Has nobody begun the item since it was seen? Nobody will before this transaction ends: a claim leaves out rows that are held. */
export async function isUnclaimed(tx: Tx, { itemId, epoch }: SeenItem): Promise<boolean> {
  const row = await tx.first(epochOf, { itemId });
  return row === undefined || row.epoch === epoch;
}

/** The batches of a thread go with it; their workers find no row to renew. Behind `lockBatches`. */
export const deletionsOfBatches = [
  defineStatement((db, p: { threadId: string }) =>
    db
      .deleteFrom('batch_item_details')
      .where(sql<boolean>`batch_key in (select batch_key from batches where thread_id = ${p.threadId})`),
  ),
  defineStatement((db, p: { threadId: string }) =>
    db
      .deleteFrom('batch_items')
      .where(sql<boolean>`batch_key in (select batch_key from batches where thread_id = ${p.threadId})`),
  ),
  defineStatement((db, p: { threadId: string }) => db.deleteFrom('batches').where('thread_id', '=', p.threadId)),
];
const lockAll = defineStatement((db, p: { threadId: string }) =>
  db.selectFrom('batches').select('batch_key').where('thread_id', '=', p.threadId).orderBy('batch_key').forUpdate(),
);

/** Whoever else changes the batches of the thread waits. */
export async function lockBatches(tx: Tx, threadId: string): Promise<void> {
  if (!tx.serial) await tx.all(lockAll, { threadId });
}

async function claimEnded(tx: Tx, input: Input<'claimEnded'>): Promise<EndedBatch[]> {
  const { owner, leaseMs, limit, now } = input;
  const taken: EndedBatch[] = [];
  for (const row of await tx.all(toReport, { now, limit }))
    if ((await tx.run(take, { batchKey: row.batch_key, owner, until: now + leaseMs, now })) === 1)
      taken.push({ batch: toBatch(row), notify: row.notify === NOTIFY.yes });
  return taken;
}

export const batchScripts = {
  'batches.create': createBatch,
  'batches.get': defineScript('batches.get', 'read', async (tx, input: Input<'get'>) => {
    const row = await findBatch(tx, input);
    return row === undefined ? null : { batch: toBatch(row), counts: await countItems(tx, row.batch_key) };
  }),
  'batches.list': defineScript(
    'batches.list',
    'read',
    async (tx, { userId, threadId, limit }: Input<'list'>) =>
      (threadId === null
        ? await tx.all(ofUser, { userId, limit })
        : await tx.all(ofThread, { userId, threadId, limit })
      ).map(toBatch),
    'alone',
  ),
  'batches.items': defineScript('batches.items', 'read', async (tx, input: Input<'items'>) => {
    const row = await findBatch(tx, input);
    return row === undefined ? null : readItems(tx, row, input);
  }),
  'batches.claim': claimItems,
  ...holdScripts,
  ...controlScripts,
  'batches.claimEnded': defineScript('batches.claimEnded', 'write', claimEnded),
  'batches.filed': defineScript(
    'batches.filed',
    'write',
    async (tx, input: Input<'filed'>) => (await tx.run(filed, input)) === 1,
  ),
  'batches.postpone': defineScript(
    'batches.postpone',
    'write',
    async (tx, input: Input<'postpone'>) => (await tx.run(postpone, input)) === 1,
  ),
  'batches.reported': defineScript(
    'batches.reported',
    'write',
    async (tx, input: Input<'reported'>) => (await tx.run(done, input)) === 1,
  ),
  'batches.leftThreads': defineScript(
    'batches.leftThreads',
    'read',
    async (tx, input: Input<'leftThreads'>) =>
      (await tx.all(leftThreads, input)).map((row) => ({
        threadId: row.thread_id,
        userId: row.user_id,
        item: { itemId: row.item_id, epoch: row.epoch },
      })),
    'alone',
  ),
  'batches.told': defineScript('batches.told', 'write', async (tx, input: Input<'told'>): Promise<void> => {
    await tx.run(heard, input);
  }),
};
