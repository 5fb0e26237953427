import type { PackedMessage } from '@reindeer/protocol';
import { sql } from 'kysely';
import { defineStatement, type Tx } from './executor.ts';
import { findThreadKey, threadKey } from './keys.ts';
import { texts } from './sql.ts';

const insert = defineStatement((db, p: { threadKey: number; hash: string; messageId: string | null; body: string }) =>
  db
    .insertInto('messages')
    .values({
      thread_key: p.threadKey,
      number: sql<number>`(select coalesce(max(number), 0) + 1 from messages where thread_key = ${p.threadKey})`,
      hash: p.hash,
      message_id: p.messageId,
      body: p.body,
    })
    .onConflict((c) => c.columns(['thread_key', 'hash']).doNothing()),
);
const numberOf = defineStatement((db, p: { threadKey: number; hash: string }) =>
  db.selectFrom('messages').select('number').where('thread_key', '=', p.threadKey).where('hash', '=', p.hash),
);
const byHash = defineStatement((db, p: { threadKey: number; hashes: string }, dialect) =>
  db
    .selectFrom('messages')
    .select(['hash', 'message_id', 'body'])
    .where('thread_key', '=', p.threadKey)
    .where('hash', 'in', texts(dialect, p.hashes)),
);

/** Stores message bodies, each once per thread; answers the number of each by its hash. */
export async function storeMessages(
  tx: Tx,
  threadId: string,
  messages: readonly PackedMessage[],
): Promise<Map<string, number>> {
  const numbers = new Map<string, number>();
  if (messages.length === 0) return numbers;
  const key = await threadKey(tx, threadId);
  for (const message of messages) {
    if (numbers.has(message.hash)) continue;
    await tx.run(insert, { threadKey: key, hash: message.hash, messageId: message.id, body: message.body });
    const row = await tx.first(numberOf, { threadKey: key, hash: message.hash });
    if (row !== undefined) numbers.set(message.hash, row.number);
  }
  return numbers;
}

/** The stored messages of these hashes; those that the thread does not have are left out. */
export async function loadMessages(tx: Tx, threadId: string, hashes: readonly string[]): Promise<PackedMessage[]> {
  if (hashes.length === 0) return [];
  const key = await findThreadKey(tx, threadId);
  if (key === null) return [];
  const rows = await tx.all(byHash, { threadKey: key, hashes: JSON.stringify(hashes) });
  return rows.map((row) => ({ hash: row.hash, id: row.message_id, body: row.body }));
}
