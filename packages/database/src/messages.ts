import { hash as digest } from 'node:crypto';
import type { PackedMessage } from '@reindeer/protocol';
import { type RawBuilder, sql } from 'kysely';
import { type Dialect, defineStatement, type Tx } from './executor.ts';
import { findThreadKey, threadKey } from './keys.ts';

const insert = defineStatement((db, p: { threadKey: number; hash: Uint8Array; body: string }) =>
  db
    .insertInto('messages')
    .values({
      thread_key: p.threadKey,
      // Not max(): inside an expression it would read every row of the thread.
      number: sql<number>`1 + coalesce((select number from messages where thread_key = ${p.threadKey} order by number desc limit 1), 0)`,
      hash: p.hash,
      body: p.body,
    })
    .onConflict((c) => c.columns(['thread_key', 'hash']).doNothing()),
);
const numberOf = defineStatement((db, p: { threadKey: number; hash: Uint8Array }) =>
  db.selectFrom('messages').select('number').where('thread_key', '=', p.threadKey).where('hash', '=', p.hash),
);
const byHash = defineStatement((db, p: { threadKey: number; hashes: string }, dialect) =>
  db
    .selectFrom('messages')
    .select(['hash', 'body'])
    .where('thread_key', '=', p.threadKey)
    .where('hash', 'in', hexBytes(dialect, p.hashes)),
);

/** Bytes of a JSON array of hexadecimal texts that travels as one parameter. */
function hexBytes(dialect: Dialect, json: string): RawBuilder<Uint8Array> {
  return dialect.name === 'sqlite'
    ? sql<Uint8Array>`(select unhex(value) from json_each(${json}))`
    : sql<Uint8Array>`(select decode(value, 'hex') from jsonb_array_elements_text(${json}::jsonb))`;
}

/** A content address as bytes, and back. */
export const hashBytes = (hash: string): Uint8Array => Buffer.from(hash, 'base64url');
export const hashText = (bytes: Uint8Array): string =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('base64url');

/** The id that a message body names, without reading the rest of a dictionary; null = none. */
export function idOfBody(body: string): string | null {
  const match = /^\{"type":"[^"\\]*","id":("(?:[^"\\]|\\.)*")/.exec(body);
  if (match?.[1] !== undefined) return JSON.parse(match[1]) as string;
  if (!body.startsWith('{"lc":1')) return null;
  const { kwargs } = JSON.parse(body) as { kwargs?: { id?: unknown } };
  return typeof kwargs?.id === 'string' ? kwargs.id : null;
}

/** The number of a text of this thread, or null when the thread does not have it. */
export async function findNumber(tx: Tx, key: number, hash: Uint8Array): Promise<number | null> {
  return (await tx.first(numberOf, { threadKey: key, hash }))?.number ?? null;
}

/** Stores a text once per thread under its address; answers its number. */
export async function storeBody(tx: Tx, key: number, hash: Uint8Array, body: string): Promise<number> {
  // Two statements: `returning` makes SQLite build a table for the answer, which costs more than the look-up.
  await tx.run(insert, { threadKey: key, hash, body });
  return (await findNumber(tx, key, hash)) ?? 0;
}

/** Stores any text under the address of its content. Most are there already, so that is looked up first. */
export async function storeText(tx: Tx, key: number, text: string): Promise<number> {
  const address = digest('sha256', text, 'buffer').subarray(0, 16);
  return (await findNumber(tx, key, address)) ?? (await storeBody(tx, key, address, text));
}

/** Stores message bodies, each once per thread; answers the number of each by its hash. */
export async function storeMessages(
  tx: Tx,
  threadId: string,
  messages: readonly PackedMessage[],
): Promise<Map<string, number>> {
  const numbers = new Map<string, number>();
  if (messages.length === 0) return numbers;
  const key = await threadKey(tx, threadId);
  for (const { hash, body } of messages) {
    if (!numbers.has(hash)) numbers.set(hash, await storeBody(tx, key, hashBytes(hash), body));
  }
  return numbers;
}

/** The stored messages of these hashes; those that the thread does not have are left out. */
export async function loadMessages(tx: Tx, threadId: string, hashes: readonly string[]): Promise<PackedMessage[]> {
  if (hashes.length === 0) return [];
  const key = await findThreadKey(tx, threadId);
  if (key === null) return [];
  const wanted = hashes.map((hash) => Buffer.from(hash, 'base64url').toString('hex'));
  const rows = await tx.all(byHash, { threadKey: key, hashes: JSON.stringify(wanted) });
  return rows.map((row) => ({ hash: hashText(row.hash), id: idOfBody(row.body), body: row.body }));
}
