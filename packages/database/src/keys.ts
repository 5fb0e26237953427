import { defineStatement, lasting, memoryOf, type Tx } from './executor.ts';

const find = lasting(
  defineStatement((db, p: { threadId: string }) =>
    db.selectFrom('thread_keys').select('thread_key').where('thread_id', '=', p.threadId),
  ),
);
const lock = defineStatement((db, p: { threadId: string }, dialect) =>
  db
    .selectFrom('thread_keys')
    .select(['thread_key', 'head'])
    .where('thread_id', '=', p.threadId)
    .$if(dialect.name === 'postgres', (query) => query.forNoKeyUpdate()),
);
const create = defineStatement((db, p: { threadId: string }) =>
  db
    .insertInto('thread_keys')
    .values({ thread_id: p.threadId, head: 0, pruned_through: 0 })
    .onConflict((c) => c.column('thread_id').doNothing()),
);

/** The short form of a thread id, or null when the thread has no rows that use it. */
export async function findThreadKey(tx: Tx, threadId: string): Promise<number | null> {
  return (await tx.first(find, { threadId }))?.thread_key ?? null;
}

/** A thread's counter row as this transaction holds it. */
export interface Counter {
  readonly key: number;
  head: number;
  /** `head` as it stands in the row. */
  stored: number;
}

const COUNTERS = { begin: () => ({ byThread: new Map<string, Counter>(), late: false }) };

const setHead = defineStatement((db, p: { key: number; head: number }) =>
  db.updateTable('thread_keys').set({ head: p.head }).where('thread_key', '=', p.key),
);

/** From here on heads are written once, by `storeHeads`, before the transaction ends. */
export function storeHeadsLate(tx: Tx): void {
  memoryOf(tx, COUNTERS).late = true;
}

/** Writes the heads that have been raised here. */
export function storeHeads(tx: Tx): void {
  for (const counter of memoryOf(tx, COUNTERS).byThread.values()) store(tx, counter);
}

function store(tx: Tx, counter: Counter): void {
  const { key, head } = counter;
  if (head > counter.stored) tx.send(setHead, { key, head });
  counter.stored = head;
}

/** A head that facts were numbered up to. */
export function raiseHead(tx: Tx, counter: Counter, head: number): void {
  counter.head = head;
  if (!memoryOf(tx, COUNTERS).late) store(tx, counter);
}

/**
 * The thread's counter row, and whoever else writes content of the thread waits until this transaction ends. Everything that numbers,
 * stores or removes content holds this lock: numbers stay dense, and nothing is removed that a neighbour has just mentioned.
 */
export async function lockCounter(tx: Tx, threadId: string): Promise<Counter | null> {
  const counters = memoryOf(tx, COUNTERS).byThread;
  const known = counters.get(threadId);
  if (known !== undefined) return known;
  const row = await tx.first(lock, { threadId });
  if (row === undefined) return null;
  // Asked twice at once, both have the one that is kept.
  const counter = counters.get(threadId) ?? { key: row.thread_key, head: row.head, stored: row.head };
  counters.set(threadId, counter);
  return counter;
}

/** As `lockCounter`, made on first use. */
export async function counterOf(tx: Tx, threadId: string): Promise<Counter> {
  const found = await lockCounter(tx, threadId);
  if (found !== null) return found;
  await tx.run(create, { threadId });
  return (await lockCounter(tx, threadId)) ?? { key: 0, head: 0, stored: 0 };
}

/** The short form of a thread id, locked as by `lockCounter`. */
export async function lockThreadKey(tx: Tx, threadId: string): Promise<number | null> {
  return (await lockCounter(tx, threadId))?.key ?? null;
}

/** The short form of a thread id, locked as by `lockCounter`, made on first use. */
export async function threadKey(tx: Tx, threadId: string): Promise<number> {
  return (await counterOf(tx, threadId)).key;
}

const findRun = lasting(
  defineStatement((db, p: { runId: string }) =>
    db.selectFrom('run_keys').select('run_key').where('run_id', '=', p.runId),
  ),
);
const createRun = defineStatement((db, p: { runId: string; key: number }) =>
  db
    .insertInto('run_keys')
    .values({ run_id: p.runId, thread_key: p.key })
    .onConflict((c) => c.column('run_id').doNothing()),
);

/** The short form of a run id, or null when no rows use it. */
export async function findRunKey(tx: Tx, runId: string): Promise<number | null> {
  return (await tx.first(findRun, { runId }))?.run_key ?? null;
}

/** The short form of a run id, made on first use. @param key of its thread */
export async function runKeyOf(tx: Tx, runId: string, key: number): Promise<number> {
  const found = await findRunKey(tx, runId);
  if (found !== null) return found;
  await tx.run(createRun, { runId, key });
  return (await findRunKey(tx, runId)) ?? 0;
}
