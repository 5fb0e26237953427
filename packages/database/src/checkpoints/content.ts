import type { Packed, PackedMessage } from '@reindeer/protocol';
import { sql } from 'kysely';
import { type Dialect, defineStatement, type Tx } from '../executor.ts';
import { hashText, idOfBody, type Text, Texts, textOf } from '../messages.ts';
import { hashesIn, rangesIn, toInside, toOutside } from './numbers.ts';

/**
 * Stored values. A value is JSON text with its messages as numbers (`numbers.ts`); a long one is stored once per thread and
 * stands as `=7`, so that a value that comes back under another version, or in a task's write as well, costs nothing.
 */
const INLINE = 400;

/** The number of the text that holds a value, or null when the value is the text itself. */
export function outlineOf(value: string): number | null {
  return value.startsWith('=') ? Number(value.slice(1)) : null;
}

/** Turns packed values into stored ones, within one script. */
export class ContentWriter {
  readonly #texts: Texts;

  /** @param key of the thread, whose counter row is locked */
  constructor(tx: Tx, key: number) {
    this.#texts = Texts.of(tx, key);
  }

  /**
   * Are all messages that the values mention given with them or stored already? Writes nothing.
   * @param also texts that will be stored, most of which are there already: they are looked for together with the messages
   */
  async isComplete(values: readonly Packed[], also: readonly Text[] = []): Promise<boolean> {
    const given = new Set(values.flatMap((value) => value.messages.map((message) => message.hash)));
    const mentioned = values.flatMap(({ json }) => hashesIn(json)).filter((hash) => !given.has(hash));
    await this.#texts.lookUp([...mentioned, ...also.map(({ hash }) => hash)], given);
    return mentioned.every((hash) => this.#texts.numberOf(hash) !== undefined);
  }

  /** Stores the messages of values that are complete, and those of `also` that were looked for and are missing. */
  async storeMessages(values: readonly Packed[], also: readonly Text[] = []): Promise<void> {
    await this.#texts.store([...values.flatMap(({ messages }) => messages), ...also]);
  }

  /** A value's JSON with numbers in the place of its messages, which are stored. */
  inside(json: string): string {
    return toInside(json, (hash) => this.#texts.numberOf(hash) ?? 0);
  }

  /** What stands in a row for a text: the text, or the number under which it is stored. */
  async outline(text: string): Promise<string> {
    return text.length <= INLINE ? text : `=${await this.store(text)}`;
  }

  /** Stores a text, which is probably there already; answers its number. @param likely what it probably is, with its address */
  async store(body: string, likely: Text | null = null): Promise<number> {
    const text = body === likely?.body ? likely : textOf(body);
    await this.#texts.lookUp([text.hash]);
    await this.#texts.store([text]);
    return this.#texts.numberOf(text.hash) ?? 0;
  }
}

const byNumber = defineStatement((db, p: { key: number; numbers: string }, dialect) =>
  db
    .selectFrom('messages')
    .select(['number', 'hash', 'body'])
    .where('thread_key', '=', p.key)
    .where('number', 'in', integers(dialect, p.numbers)),
);
const byRange = defineStatement((db, p: { key: number; from: number; to: number }) =>
  db
    .selectFrom('messages')
    .select(['number', 'hash', 'body'])
    .where('thread_key', '=', p.key)
    .where('number', '>=', p.from)
    .where('number', '<=', p.to),
);

function integers(dialect: Dialect, json: string) {
  return dialect.name === 'sqlite'
    ? sql<number>`(select value from json_each(${json}))`
    : sql<number>`(select value::bigint from jsonb_array_elements_text(${json}::jsonb))`;
}

interface Stored {
  readonly hash: string;
  readonly body: string;
}

/** Reads stored values of one thread, each text once, within one script. */
export class ContentReader {
  readonly #tx: Tx;
  readonly #key: number;
  readonly #rows = new Map<number, Stored>();
  /** One object per message, so that answers that mention it twice carry it once. */
  readonly #messages = new Map<number, PackedMessage>();

  constructor(tx: Tx, key: number) {
    this.#tx = tx;
    this.#key = key;
  }

  /** Texts by their numbers. */
  async texts(numbers: readonly number[]): Promise<string[]> {
    await this.#fetch(numbers.map((number) => [number, number]));
    return numbers.map((number) => this.#rows.get(number)?.body ?? '');
  }

  /** What the values of rows stand for; messages still as numbers. */
  async outlined(values: readonly string[]): Promise<string[]> {
    const numbers = values.map(outlineOf);
    await this.texts(numbers.filter((number) => number !== null));
    return values.map((value, index) => {
      const number = numbers[index];
      return number === null || number === undefined ? value : (this.#rows.get(number)?.body ?? 'null');
    });
  }

  /** JSON of values as they were given, and all messages that they mention. */
  async read(values: readonly string[]): Promise<{ readonly jsons: string[]; readonly messages: PackedMessage[] }> {
    const inside = await this.outlined(values);
    await this.#fetch(inside.flatMap(rangesIn));
    const mentioned = new Set<number>();
    const jsons = inside.map((text) =>
      toOutside(text, (number) => {
        mentioned.add(number);
        return this.#rows.get(number)?.hash ?? 'missing';
      }),
    );
    return { jsons, messages: [...mentioned].flatMap((number) => this.#message(number)) };
  }

  #message(number: number): PackedMessage[] {
    const known = this.#messages.get(number);
    if (known !== undefined) return [known];
    const row = this.#rows.get(number);
    if (row === undefined) return [];
    const message = { hash: row.hash, id: idOfBody(row.body), body: row.body };
    this.#messages.set(number, message);
    return [message];
  }

  async #fetch(ranges: readonly (readonly [number, number])[]): Promise<void> {
    const single: number[] = [];
    for (const [from, to] of ranges) {
      let first = from;
      while (first <= to && this.#rows.has(first)) first += 1;
      if (first > to) continue;
      if (first === to) single.push(first);
      else this.#keep(await this.#tx.all(byRange, { key: this.#key, from: first, to }));
    }
    const missing = [...new Set(single)].filter((number) => !this.#rows.has(number));
    if (missing.length > 0)
      this.#keep(await this.#tx.all(byNumber, { key: this.#key, numbers: JSON.stringify(missing) }));
  }

  #keep(rows: readonly { readonly number: number; readonly hash: Uint8Array; readonly body: string }[]): void {
    for (const { number, hash, body } of rows) {
      if (!this.#rows.has(number)) this.#rows.set(number, { hash: hashText(hash), body });
    }
  }
}
