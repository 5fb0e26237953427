import type { Fenced, Json, JsonObject, Thread, ThreadStatus, ThreadStore } from '@reindeer/protocol';
import { type Kysely, type RawBuilder, sql } from 'kysely';
import { deletionsOfBatches, isUnclaimed, lockBatches } from '../batches/scripts.ts';
import { deleteConversations } from '../channels/accounts.ts';
import { copyThreadContent, deletionsOfContent } from '../checkpoints/thread.ts';
import { changes, type Dialect, defineScript, defineStatement, sendAll, type Tx } from '../executor.ts';
import { deleteFeedback } from '../feedback/scripts.ts';
import { fenceRun } from '../fence.ts';
import { canonicalJson } from '../json.ts';
import { lockThreadKey } from '../keys.ts';
import type { Database } from '../schema.ts';
import { typed } from '../sql.ts';
import { insertThread, lockThread, ownerOfThread, pinnedOf } from './statements.ts';

type Input<M extends keyof ThreadStore> = Parameters<ThreadStore[M]>[0];
type Output<M extends keyof ThreadStore> = Awaited<ReturnType<ThreadStore[M]>>;

/** Derived at every read, so that it cannot disagree with the runs (S5). */
const STATUS = sql<string>`case
  when exists (select 1 from runs where runs.thread_id = threads.thread_id and runs.kind = 'run' and runs.status in ('pending', 'running', 'queued'))
    then 'busy'
  else coalesce((
    select case when runs.status = 'success' and runs.stop_reason = 'interrupt' then 'interrupted' else
      case runs.status when 'success' then 'idle' when 'interrupted' then 'interrupted' else 'error' end end
    from runs
    where runs.thread_id = threads.thread_id and runs.kind = 'run' and runs.acknowledged = 1
    order by runs.created_at desc, runs.admission desc limit 1), 'idle')
  end`;

const selectThreads = (db: Kysely<Database>) =>
  db
    .selectFrom('threads')
    .select(['thread_id', 'user_id', 'metadata', 'title', 'created_at', 'updated_at'])
    .select(STATUS.as('status'));
type ThreadRecord = Awaited<ReturnType<ReturnType<typeof selectThreads>['execute']>>[number];

const toThread = (row: ThreadRecord): Thread => ({
  threadId: row.thread_id,
  userId: row.user_id,
  metadata: JSON.parse(row.metadata) as JsonObject,
  title: row.title,
  status: row.status as ThreadStatus,
  createdAt: row.created_at,
  updatedAt: row.updated_at,
});

const one = defineStatement((db, p: { threadId: string; userId: string }) =>
  selectThreads(db).where('thread_id', '=', p.threadId).where('user_id', '=', p.userId),
);

/** Every wanted entry equals the thread's. Both texts come from `canonicalJson`, so that equal values are equal texts. */
function hasMetadata(dialect: Dialect, wanted: string) {
  return dialect.name === 'sqlite'
    ? sql<boolean>`not exists (
        select 1 from json_each(${wanted}) wanted where not exists (
          select 1 from json_each(threads.metadata) has
          where has.key = wanted.key and has.type = wanted.type and has.value is wanted.value))`
    : sql<boolean>`not exists (
        select 1 from jsonb_each(${plain(sql`${wanted}`)}) wanted
        where (${plain(sql`threads.metadata`)} -> wanted.key) is distinct from wanted.value)`;
}

/** JSON for comparisons. Postgres does not take the escapes of NUL and of halves of pairs: they compare as the replacement character. */
const plain = (json: RawBuilder<unknown>) =>
  sql<unknown>`regexp_replace(${json}, '\\\\u(0000|d[89a-f][0-9a-f]{2})', '\\\\ufffd', 'g')::jsonb`;

const searchThreads = defineStatement(
  (db, p: { userId: string; metadata: string; status: ThreadStatus | null; limit: number; offset: number }, dialect) =>
    selectThreads(db)
      .where('user_id', '=', p.userId)
      .where(hasMetadata(dialect, p.metadata))
      .where(sql<boolean>`(${typed(dialect, p.status, 'text')} is null or ${STATUS} = ${p.status})`)
      .orderBy('pinned', 'desc')
      .orderBy('updated_at', 'desc')
      .orderBy('creation', 'desc')
      .limit(p.limit)
      .offset(p.offset),
);
const updateThread = defineStatement(
  (db, p: { threadId: string; metadata: string; pinned: number; title: string | null; updatedAt: number }) =>
    db
      .updateTable('threads')
      .set({ metadata: p.metadata, pinned: p.pinned, title: p.title, updated_at: p.updatedAt })
      .where('thread_id', '=', p.threadId),
);
const isDelete = defineStatement((db, p: { runId: string }) =>
  db.selectFrom('runs').select('run_id').where('run_id', '=', p.runId).where('kind', '=', 'delete'),
);

async function find(tx: Tx, threadId: string, userId: string): Promise<Thread | null> {
  const row = await tx.first(one, { threadId, userId });
  return row === undefined ? null : toThread(row);
}

const create = defineScript(
  'threads.create',
  'durable',
  async (tx, input: Input<'create'>): Promise<Output<'create'>> => {
    const created = await insertThread(tx, { ...input, title: null });
    const thread = await find(tx, input.threadId, input.userId);
    if (thread === null) return { outcome: 'not_found' };
    return { outcome: created ? 'created' : 'exists', thread };
  },
);

const get = defineScript(
  'threads.get',
  'read',
  (tx, input: Input<'get'>): Promise<Thread | null> => find(tx, input.threadId, input.userId),
  'alone',
);

const search = defineScript(
  'threads.search',
  'read',
  async (tx, input: Input<'search'>): Promise<Thread[]> =>
    (await tx.all(searchThreads, { ...input, metadata: canonicalJson(input.metadata) })).map(toThread),
  'alone',
);

const update = defineScript('threads.update', 'write', async (tx, input: Input<'update'>): Promise<Thread | null> => {
  const { threadId, userId, title, touch, now } = input;
  // What is merged into must not change meanwhile.
  await lockThread(tx, threadId);
  const before = await find(tx, threadId, userId);
  if (before === null) return null;
  const merged = new Map<string, Json | undefined>(Object.entries(before.metadata));
  for (const [key, value] of Object.entries(input.metadata)) {
    if (value === null) merged.delete(key);
    else if (value !== undefined) merged.set(key, value);
  }
  const metadata = Object.fromEntries(merged);
  await tx.run(updateThread, {
    threadId,
    metadata: canonicalJson(metadata),
    pinned: pinnedOf(metadata),
    title: title === undefined ? before.title : title,
    updatedAt: touch ? now : before.updatedAt,
  });
  return find(tx, threadId, userId);
});

/** Nothing more is learned from it; what was learned stays. */
const deleteCaptures = defineStatement((db, p: { threadId: string }) =>
  db.deleteFrom('memory_captures').where('thread_id', '=', p.threadId),
);
const deletionsOfRuns = [
  defineStatement((db, p: { threadId: string }) =>
    db
      .deleteFrom('run_leases')
      .where('run_id', 'in', (eb) => eb.selectFrom('runs').select('runs.run_id').where('thread_id', '=', p.threadId)),
  ),
  defineStatement((db, p: { threadId: string }) =>
    db
      .deleteFrom('run_details')
      .where('run_id', 'in', (eb) => eb.selectFrom('runs').select('runs.run_id').where('thread_id', '=', p.threadId)),
  ),
  defineStatement((db, p: { threadId: string }) => db.deleteFrom('runs').where('thread_id', '=', p.threadId)),
  defineStatement((db, p: { threadId: string }) => db.deleteFrom('threads').where('thread_id', '=', p.threadId)),
];
const deletionsOfLog = [
  defineStatement((db, p: { key: number }) => db.deleteFrom('facts').where('thread_key', '=', p.key)),
  defineStatement((db, p: { key: number }) => db.deleteFrom('tool_calls').where('thread_key', '=', p.key)),
  defineStatement((db, p: { key: number }) => db.deleteFrom('run_keys').where('thread_key', '=', p.key)),
  defineStatement((db, p: { key: number }) => db.deleteFrom('thread_keys').where('thread_key', '=', p.key)),
];

/** What a thread consists of, beginning with what is found through the rest. `key`: its short form; none is negative. */
const deleteAll = changes<{ threadId: string; key: number }>(
  ...deletionsOfBatches,
  deleteCaptures,
  deleteFeedback,
  deleteConversations,
  ...deletionsOfContent,
  ...deletionsOfLog,
  ...deletionsOfRuns,
);

/** The thread goes with everything of it, the reservation that allows it included. */
const remove = defineScript(
  'threads.delete',
  'durable',
  async (tx, input: Input<'delete'>): Promise<Fenced<object>> => {
    const { fence, threadId, userId, item } = input;
    const [held, reservation, owner, unclaimed] = await Promise.all([
      fenceRun(tx, fence, threadId),
      tx.first(isDelete, fence),
      ownerOfThread(tx, threadId),
      item === undefined || isUnclaimed(tx, item),
    ]);
    if (!held || reservation === undefined || owner !== userId || !unclaimed) return { outcome: 'fenced' };
    const [, key] = await Promise.all([lockBatches(tx, threadId), lockThreadKey(tx, threadId)]);
    sendAll(tx, deleteAll, { threadId, key: key ?? -1 });
    return { outcome: 'ok' };
  },
);

const copy = defineScript('threads.copy', 'write', async (tx, input: Input<'copy'>): Promise<Thread | null> => {
  const { fromThreadId, toThreadId, userId, now } = input;
  const from = await find(tx, fromThreadId, userId);
  if (from === null) return null;
  const { metadata, title } = from;
  if (!(await insertThread(tx, { threadId: toThreadId, userId, metadata, title, now }))) return null;
  await copyThreadContent(tx, fromThreadId, toThreadId);
  return find(tx, toThreadId, userId);
});

export const threadScripts = {
  'threads.create': create,
  'threads.get': get,
  'threads.search': search,
  'threads.update': update,
  'threads.delete': remove,
  'threads.copy': copy,
};
