import { sql } from 'kysely';
import { defineStatement, type Tx } from '../executor.ts';
import { findThreadKey, threadKey } from '../keys.ts';

const deleteMessages = defineStatement((db, p: { key: number }) =>
  db.deleteFrom('messages').where('thread_key', '=', p.key),
);
const copyMessages = defineStatement((db, p: { from: number; to: number }) =>
  db
    .insertInto('messages')
    .columns(['thread_key', 'number', 'hash', 'body'])
    .expression(
      db
        .selectFrom('messages')
        .select([sql<number>`${p.to}`.as('to'), 'number', 'hash', 'body'])
        .where('thread_key', '=', p.from),
    ),
);

/** Deletes the checkpoints and messages of a thread. */
export async function deleteThreadContent(tx: Tx, threadId: string): Promise<void> {
  const key = await findThreadKey(tx, threadId);
  if (key !== null) await tx.run(deleteMessages, { key });
}

/** Copies the checkpoints and messages of a thread into another, which has none. */
export async function copyThreadContent(tx: Tx, fromThreadId: string, toThreadId: string): Promise<void> {
  const from = await findThreadKey(tx, fromThreadId);
  if (from !== null) await tx.run(copyMessages, { from, to: await threadKey(tx, toThreadId) });
}
