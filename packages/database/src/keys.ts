import { defineStatement, type Tx } from './executor.ts';

const find = defineStatement((db, p: { threadId: string }) =>
  db.selectFrom('thread_keys').select('thread_key').where('thread_id', '=', p.threadId),
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

/** The short form of a thread id, made on first use. */
export async function threadKey(tx: Tx, threadId: string): Promise<number> {
  const found = await findThreadKey(tx, threadId);
  if (found !== null) return found;
  await tx.run(create, { threadId });
  return (await findThreadKey(tx, threadId)) ?? 0;
}
