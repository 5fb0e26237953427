import { DatabaseSync } from 'node:sqlite';
import type { BatchStore } from '@reindeer/protocol';
import { deferred, testSurroundings, type UnisolatedBatches } from '@reindeer/testkit';
import type { Client } from 'pg';
import { batchStore } from '../batches/store.ts';
import {
  bindParameters,
  compileStatement,
  createDialect,
  type DialectName,
  type SqlValue,
  type Statement,
  type Tx,
  transactionOver,
} from '../executor.ts';
import { MemoryDatabase, openMemory } from '../memory/index.ts';
import { type Driver, numbersAsNumbers } from '../postgres/driver.ts';
import { type Call, scripts } from '../scripts.ts';
import { applyMigrations } from '../sqlite/migrate.ts';
import { threadStore } from '../stores.ts';

/** How one statement is run, in no transaction at all. */
export type RunStatement = (sql: string, values: SqlValue[]) => Promise<{ rows: object[]; changes: number }>;

/** Stops a caller before its nth step. */
class Hold {
  #left = 0;
  #reached = deferred<boolean>();
  #released = deferred();

  arm(nth: number): ReturnType<UnisolatedBatches['holdBefore']> {
    this.#left = nth;
    this.#reached = deferred<boolean>();
    this.#released = deferred();
    const [reached, released] = [this.#reached, this.#released];
    return {
      reached: reached.promise,
      release: () => {
        this.#left = 0;
        released.resolve();
      },
    };
  }
  ended(): void {
    this.#reached.resolve(false);
  }
  async step(): Promise<void> {
    if (this.#left === 0) return;
    this.#left -= 1;
    if (this.#left > 0) return;
    this.#reached.resolve(true);
    await this.#released.promise;
  }
}

function withoutTransactions(name: DialectName, run: RunStatement, before: () => Promise<void>): Call {
  const dialect = createDialect(name);
  const send = async <P extends object>(statement: Statement<P, unknown>, params: P) => {
    await before();
    const compiled = compileStatement(statement, dialect);
    return run(compiled.sql, bindParameters(compiled, params));
  };
  const connection: Omit<Tx, 'memory'> = {
    all: async (statement, params) => (await send(statement, params)).rows as never,
    first: async (statement, params) => (await send(statement, params)).rows[0] as never,
    run: async (statement, params) => (await send(statement, params)).changes,
    send: () => {
      throw new Error('Batches look at every answer.');
    },
    appended: () => {},
    serial: name === 'sqlite',
  };
  return (script, input) => scripts[script].run(transactionOver(connection), input as never) as never;
}

function overStatements(name: DialectName, held: RunStatement, peer: RunStatement, close: () => Promise<void>) {
  const hold = new Hold();
  const own = withoutTransactions(name, held, () => hold.step());
  const other = withoutTransactions(name, peer, async () => {});
  const mark = (n: number): string => (name === 'sqlite' ? '?' : `$${n}`);
  return {
    threads: threadStore(other),
    held: batchStore(own, own),
    peer: batchStore(other, other),
    holdBefore: (nth) => hold.arm(nth),
    ended: () => hold.ended(),
    row: async (itemId) => {
      const { rows } = await peer(
        `select i.*, d.result, d.result_preview, d.error, d.input_tokens, d.output_tokens, d.model_name from batch_items i
         join batch_item_details d on d.batch_key = i.batch_key and d.position = i.position where i.item_id = ${mark(1)}`,
        [itemId],
      );
      return { ...rows[0] };
    },
    mark: async (what, itemId, now) => {
      if (what === 'item_cancelled')
        await peer(`update batch_items set cancel_requested_at = ${mark(1)} where item_id = ${mark(2)}`, [now, itemId]);
      else
        await peer(
          `update batches set status = 'cancelled' where batch_key = (select batch_key from batch_items where item_id = ${mark(1)})`,
          [itemId],
        );
    },
    close,
  } satisfies UnisolatedBatches;
}

/** Statements of SQLite, each a transaction of its own. */
export async function unisolatedSqlite(): Promise<UnisolatedBatches> {
  const db = new DatabaseSync(':memory:');
  applyMigrations(db);
  const run: RunStatement = async (sql, values) => {
    const prepared = db.prepare(sql);
    if (prepared.columns().length > 0) return { rows: prepared.all(...values), changes: 0 };
    return { rows: [], changes: Number(prepared.run(...values).changes) };
  };
  return overStatements('sqlite', run, run, async () => db.close());
}

/** Statements of Postgres without BEGIN, on two connections. */
export function unisolatedPostgres(
  held: Client,
  peer: Client,
  driver: Driver,
  close: () => Promise<void>,
): UnisolatedBatches {
  const types = numbersAsNumbers(driver);
  const over =
    (client: Client): RunStatement =>
    async (text, values) => {
      const { rows, rowCount } = await client.query({ text, values, types });
      return { rows, changes: rowCount ?? 0 };
    };
  return overStatements('postgres', over(held), over(peer), close);
}

/** In memory each call is one step: it can be held before it, and nowhere inside. */
export async function unisolatedMemory(): Promise<UnisolatedBatches> {
  const surroundings = testSurroundings();
  const database = new MemoryDatabase(surroundings.random);
  const [own, other] = [openMemory({ surroundings, database }), openMemory({ surroundings, database })];
  const hold = new Hold();
  const held = new Proxy(own.batches, {
    get: (target, method: keyof BatchStore) => async (input: never) => {
      await hold.step();
      return target[method](input);
    },
  });
  return {
    threads: other.threads,
    held,
    peer: other.batches,
    holdBefore: (nth) => hold.arm(nth),
    ended: () => hold.ended(),
    row: async (itemId) => structuredClone(database.batchItems.get(itemId)),
    mark: async (what, itemId) => {
      const item = database.batchItems.get(itemId);
      const row = item === undefined ? undefined : database.batches.get(item.batchId);
      if (item === undefined || row === undefined) throw new Error('There is no such item.');
      if (what === 'item_cancelled') item.state = { ...item.state, cancelRequested: true };
      else row.batch = { ...row.batch, status: 'cancelled' };
    },
    close: async () => void (await Promise.all([own.close(), other.close()])),
  };
}
