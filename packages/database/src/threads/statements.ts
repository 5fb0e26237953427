import type { JsonObject } from '@reindeer/protocol';
import { defineStatement, type Tx } from '../executor.ts';
import { canonicalJson } from '../json.ts';

const owner = defineStatement((db, p: { threadId: string }) =>
  db.selectFrom('threads').select('user_id').where('thread_id', '=', p.threadId),
);
const insert = defineStatement(
  (db, p: { threadId: string; userId: string; metadata: string; pinned: number; title: string | null; now: number }) =>
    db
      .insertInto('threads')
      .values({
        thread_id: p.threadId,
        user_id: p.userId,
        metadata: p.metadata,
        pinned: p.pinned,
        title: p.title,
        created_at: p.now,
        updated_at: p.now,
      })
      .onConflict((c) => c.column('thread_id').doNothing()),
);

const lock = defineStatement((db, p: { threadId: string }) =>
  db.selectFrom('threads').select('thread_id').where('thread_id', '=', p.threadId).forNoKeyUpdate(),
);

/** Keeps others from changing the thread's row before this transaction ends. */
export async function lockThread(tx: Tx, threadId: string): Promise<void> {
  if (!tx.serial) await tx.first(lock, { threadId });
}

/** The user of a thread; null = there is no such thread. */
export async function ownerOfThread(tx: Tx, threadId: string): Promise<string | null> {
  return (await tx.first(owner, { threadId }))?.user_id ?? null;
}

/** Does nothing when the thread exists; answers whether it was created. */
export async function insertThread(
  tx: Tx,
  thread: {
    readonly threadId: string;
    readonly userId: string;
    readonly metadata: JsonObject;
    readonly title: string | null;
    readonly now: number;
  },
): Promise<boolean> {
  const { metadata } = thread;
  return (await tx.run(insert, { ...thread, metadata: canonicalJson(metadata), pinned: pinnedOf(metadata) })) === 1;
}

export const pinnedOf = (metadata: JsonObject): number => (metadata.pinned === true ? 1 : 0);
