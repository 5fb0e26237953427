import { hash as digest } from 'node:crypto';
import type { PackedMessage } from '@reindeer/protocol';
import { type RawBuilder, sql } from 'kysely';
import { type Dialect, defineStatement, memoryOf, type Tx } from './executor.ts';
import { storable } from './sql.ts';

const insert = defineStatement((db, p: { threadKey: number; number: number; hash: Uint8Array; body: string }) =>
  db
    .insertInto('messages')
    .values({ thread_key: p.threadKey, number: p.number, hash: p.hash, body: p.body })
    .onConflict((c) => c.columns(['thread_key', 'hash']).doNothing()),
);
/** `texts` is JSON: `[{n: number, h: hash in hexadecimal, b: body}, …]`. For Postgres, where each statement is a way over a network. */
const insertAll = defineStatement((db, p: { threadKey: number; texts: string }) =>
  db
    .insertInto('messages')
    .columns(['thread_key', 'number', 'hash', 'body'])
    .expression(
      db
        .selectFrom(
          sql<{ n: number; h: string; b: string }>`json_to_recordset(${p.texts}::json)`.as(
            sql`t(n bigint, h text, b text)`,
          ),
        )
        .select([
          sql<number>`${p.threadKey}::bigint`.as('thread_key'),
          't.n',
          sql<Uint8Array>`decode(t.h, 'hex')`.as('hash'),
          't.b',
        ]),
    ),
);
const numberOf = defineStatement((db, p: { threadKey: number; hash: Uint8Array }) =>
  db.selectFrom('messages').select('number').where('thread_key', '=', p.threadKey).where('hash', '=', p.hash),
);
const newest = defineStatement((db, p: { threadKey: number }) =>
  db.selectFrom('messages').select('number').where('thread_key', '=', p.threadKey).orderBy('number', 'desc').limit(1),
);
/** Numbers of those that the thread has, and, without a hash, the highest number that was given out. */
const numbersOf = defineStatement((db, p: { threadKey: number; hashes: string }, dialect) => {
  const query = sql<{ number: number; hash: Uint8Array | null }>`
    select number, hash from messages where thread_key = ${p.threadKey} and ${isHash(dialect, p.hashes)}
    union all
    select number, null from (select number from messages where thread_key = ${p.threadKey} order by number desc limit 1) x`;
  return { compile: () => query.compile(db) };
});
const byHash = defineStatement((db, p: { threadId: string; hashes: string }, dialect) =>
  db
    .selectFrom('messages')
    .select(['hash', 'body'])
    .where('thread_key', '=', (eb) =>
      eb.selectFrom('thread_keys').select('thread_keys.thread_key').where('thread_id', '=', p.threadId),
    )
    .where(isHash(dialect, p.hashes)),
);

/** Is `hash` one of a JSON array of hexadecimal texts that travels as one parameter? An array on Postgres, as in `isOneOf`. */
function isHash(dialect: Dialect, json: string): RawBuilder<boolean> {
  return dialect.name === 'sqlite'
    ? sql<boolean>`hash in (select unhex(value) from json_each(${json}))`
    : sql<boolean>`hash = any(array(select decode(value, 'hex') from json_array_elements_text(${json}::json) as t(value)))`;
}

/** A content address out of its bytes. */
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

/** A text on its way into the store. `hash`: its address as text. */
export interface Text {
  readonly hash: string;
  readonly body: string;
}

/** Any text under the address of its content. */
export const textOf = (body: string): Text => ({
  hash: digest('sha256', body, 'buffer').subarray(0, 16).toString('base64url'),
  body,
});

/** Two texts can spell the same bytes; the bytes are the address. */
const hexOf = (hash: string): string => Buffer.from(hash, 'base64url').toString('hex');

const ALL = { begin: () => new Map<number, Texts>() };

/** The texts of one thread, as one transaction sees and stores them: what it has looked up or written it does not ask for again. */
export class Texts {
  readonly #tx: Tx;
  readonly #key: number;
  /** By address in hexadecimal. */
  readonly #numbers = new Map<string, number>();
  /** Looked for, and not there. */
  readonly #absent = new Set<string>();
  /** The highest number that was given out; null = not known yet. */
  #newest: number | null = null;
  /** The thread had no text before: what is not known here is not there. */
  #began = false;

  /** @param key of the thread, whose counter row is locked: whoever else stores texts waits */
  static of(tx: Tx, key: number): Texts {
    const all = memoryOf(tx, ALL);
    let texts = all.get(key);
    if (texts === undefined) {
      texts = new Texts(tx, key);
      all.set(key, texts);
    }
    return texts;
  }

  private constructor(tx: Tx, key: number) {
    this.#tx = tx;
    this.#key = key;
  }

  /** The number of a text that was looked up or stored; undefined = the thread does not have it. */
  numberOf(hash: string): number | undefined {
    return this.#numbers.get(hexOf(hash));
  }

  /**
   * Finds out which of these the thread has.
   * @param soon those that will be stored and are probably new: where a statement is a way over a network they are looked for along with the others
   */
  async lookUp(hashes: Iterable<string>, soon: Iterable<string> = []): Promise<void> {
    const { serial } = this.#tx;
    const unknown = new Set<string>();
    for (const hash of serial ? hashes : [...hashes, ...soon]) {
      const hex = hexOf(hash);
      if (!this.#numbers.has(hex) && !this.#absent.has(hex)) unknown.add(hex);
    }
    if (unknown.size === 0 || this.#began) return;
    if (serial) for (const hex of unknown) await this.#lookUpOne(hex);
    else {
      const asked = { threadKey: this.#key, hashes: JSON.stringify([...unknown]) };
      let last = 0;
      for (const { number, hash } of await this.#tx.all(numbersOf, asked)) {
        if (hash === null) last = number;
        else this.#numbers.set(Buffer.from(hash).toString('hex'), number);
      }
      if (this.#newest === null) this.#began = last === 0;
      this.#newest ??= last;
    }
    for (const hex of unknown) if (!this.#numbers.has(hex)) this.#absent.add(hex);
  }

  async #lookUpOne(hex: string): Promise<void> {
    const row = await this.#tx.first(numberOf, { threadKey: this.#key, hash: Buffer.from(hex, 'hex') });
    if (row !== undefined) this.#numbers.set(hex, row.number);
  }

  /** Stores texts, each once; afterwards the number of each is known. */
  async store(texts: readonly Text[]): Promise<void> {
    const missing = texts.filter(({ hash }) => this.numberOf(hash) === undefined);
    if (missing.length === 0) return;
    if (this.#tx.serial) {
      for (const { hash, body } of missing) await this.#storeOne(hexOf(hash), body);
      return;
    }
    await this.lookUp(missing.map(({ hash }) => hash));
    const rows: { n: number; h: string; b: string }[] = [];
    for (const { hash, body } of missing) {
      const hex = hexOf(hash);
      if (!this.#numbers.has(hex)) rows.push({ n: this.#next(hex), h: hex, b: storable(body) });
    }
    if (rows.length > 0) this.#tx.send(insertAll, { threadKey: this.#key, texts: JSON.stringify(rows) });
  }

  /** Most messages are new, so that they are not looked for first. */
  async #storeOne(hex: string, body: string): Promise<void> {
    if (this.#numbers.has(hex)) return;
    const threadKey = this.#key;
    if (this.#newest === null) {
      this.#newest = (await this.#tx.first(newest, { threadKey }))?.number ?? 0;
      this.#began = this.#newest === 0;
    }
    const text = { threadKey, number: this.#newest + 1, hash: Buffer.from(hex, 'hex'), body };
    if ((await this.#tx.run(insert, text)) === 1) this.#next(hex);
    else await this.#lookUpOne(hex);
  }

  #next(hex: string): number {
    this.#newest = (this.#newest ?? 0) + 1;
    this.#numbers.set(hex, this.#newest);
    return this.#newest;
  }
}

/** The stored messages of these hashes; those that the thread does not have are left out. */
export async function loadMessages(tx: Tx, threadId: string, hashes: readonly string[]): Promise<PackedMessage[]> {
  if (hashes.length === 0) return [];
  const rows = await tx.all(byHash, { threadId, hashes: JSON.stringify(hashes.map(hexOf)) });
  return rows.map((row) => ({ hash: hashText(row.hash), id: idOfBody(row.body), body: row.body }));
}
