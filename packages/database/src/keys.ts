import { defineStatement, lasting, type Tx } from './executor.ts';

const find = lasting(
  defineStatement((db, p: { threadId: string }) =>
    db.selectFrom('thread_keys').select('thread_key').where('thread_id', '=', p.threadId),
  ),
);
const lock = lasting(
  defineStatement((db, p: { threadId: string }) =>
    db.selectFrom('thread_keys').select('thread_key').where('thread_id', '=', p.threadId).forNoKeyUpdate(),
  ),
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

/**
 * As `findThreadKey`, and whoever else writes content of the thread waits until this transaction ends. Everything that numbers,
 * stores or removes content holds this lock: numbers stay dense, and nothing is removed that a neighbour has just mentioned.
 */
export async function lockThreadKey(tx: Tx, threadId: string): Promise<number | null> {
  if (tx.serial) return findThreadKey(tx, threadId);
  return (await tx.first(lock, { threadId }))?.thread_key ?? null;
}

/** The short form of a thread id, locked as by `lockThreadKey`, made on first use. */
export async function threadKey(tx: Tx, threadId: string): Promise<number> {
  const found = await lockThreadKey(tx, threadId);
  if (found !== null) return found;
  await tx.run(create, { threadId });
  return (await lockThreadKey(tx, threadId)) ?? 0;
}
