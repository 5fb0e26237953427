import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { type PlainError, ReindeerError } from '@reindeer/protocol';
import {
  bindParameters,
  type CompiledStatement,
  compileStatement,
  createDialect,
  type Dialect,
  type Script,
  type Statement,
  type Tx,
  transactionOver,
} from '../executor.ts';
import { toPlainError } from './errors.ts';
import { applyMigrations } from './migrate.ts';

/** One unit of work of a batch. */
export interface Operation {
  readonly name: string;
  readonly input: unknown;
}

export type OperationResult =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly error: PlainError };

export interface BatchResult {
  readonly results: readonly OperationResult[];
  /** Threads whose log grew, with the highest number of each. */
  readonly appended: readonly (readonly [threadId: string, head: number])[];
}

interface Prepared {
  readonly compiled: CompiledStatement;
  readonly statement: StatementSync;
}

/** What stands around the statements of a script. */
type Control = 'BEGIN' | 'BEGIN IMMEDIATE' | 'COMMIT' | 'SAVEPOINT operation' | 'RELEASE operation';

/** Bound of prepared statements kept; there are fewer statements than that in the program, so that it is a safety net. */
const MAX_PREPARED = 1000;

/**
 * One SQLite connection that runs batches of scripts. Blocking: it lives in a worker thread.
 *
 * A batch is one transaction (group commit): all of it becomes durable with one flush, or, if the commit fails, none of it. Each
 * operation among others stands in a savepoint of its own, so that a failing one undoes its own writes and no neighbour's.
 */
export class SqliteConnection {
  readonly #db: DatabaseSync;
  readonly #scripts: Readonly<Record<string, Script<never, unknown>>>;
  readonly #dialect: Dialect = createDialect('sqlite');
  readonly #prepared = new Map<Statement<never, unknown>, Prepared>();
  readonly #controls = new Map<Control, StatementSync>();
  #synchronous: 'NORMAL' | 'FULL' = 'FULL';

  /**
   * Opens (and creates) the database and brings it to the newest format.
   * @param file path, or `:memory:`
   * @throws ReindeerError `data_too_new`; whatever SQLite throws
   */
  constructor(file: string, scripts: Readonly<Record<string, Script<never, unknown>>>) {
    this.#scripts = scripts;
    this.#db = new DatabaseSync(file, { enableForeignKeyConstraints: false, timeout: 5000 });
    try {
      this.#db.exec('PRAGMA journal_mode = WAL');
      this.#db.exec('PRAGMA cache_size = -16000');
      this.#db.exec('PRAGMA temp_store = MEMORY');
      // After a burst the log is cut back to this size (bytes).
      this.#db.exec('PRAGMA journal_size_limit = 67108864');
      this.#db.exec('PRAGMA synchronous = FULL');
      applyMigrations(this.#db);
    } catch (error) {
      this.#db.close();
      throw error;
    }
  }

  /**
   * Runs operations in order, in one transaction.
   * @returns one result per operation. Operations that had succeeded before a failing commit are reported as failed: nothing of the
   *   batch is stored then.
   */
  async runBatch(operations: readonly Operation[]): Promise<BatchResult> {
    const appended = new Map<string, number>();
    const scripts = operations.map((operation) => this.#scripts[operation.name]);
    const writes = scripts.some((script) => script !== undefined && script.mode !== 'read');
    try {
      this.#setSynchronous(scripts.some((script) => script?.mode === 'durable') ? 'FULL' : 'NORMAL');
      this.#control(writes ? 'BEGIN IMMEDIATE' : 'BEGIN');
    } catch (error) {
      return failedBatch(operations, error);
    }
    const results: OperationResult[] = [];
    const among = operations.length > 1;
    for (const [index, operation] of operations.entries()) {
      results.push(await this.#runOne(operation, scripts[index], appended, among));
      // Some faults (a full disk) undo the whole transaction on the spot, and with it the neighbours of the one that failed.
      if (!this.#db.isTransaction) return undoneBatch(operations, results);
    }
    try {
      this.#control('COMMIT');
    } catch (error) {
      if (this.#db.isTransaction) this.#db.exec('ROLLBACK');
      return failedBatch(operations, error);
    }
    return { results, appended: [...appended] };
  }

  /** Moves the write-ahead log into the database file and closes. */
  close(): void {
    if (!this.#db.isOpen) return;
    try {
      this.#db.exec('PRAGMA wal_checkpoint(TRUNCATE)');
    } finally {
      this.#db.close();
    }
  }

  async #runOne(
    operation: Operation,
    script: Script<never, unknown> | undefined,
    appended: Map<string, number>,
    among: boolean,
  ): Promise<OperationResult> {
    if (script === undefined)
      return { ok: false, error: toPlainError(new TypeError(`There is no script "${operation.name}".`)) };
    const own = new Map<string, number>();
    const writes = script.mode !== 'read';
    try {
      if (writes && among) this.#control('SAVEPOINT operation');
      const value = await script.run(this.#transaction(own), operation.input as never);
      if (writes && among) this.#control('RELEASE operation');
      for (const [threadId, head] of own) appended.set(threadId, head);
      return { ok: true, value };
    } catch (error) {
      if (writes && this.#db.isTransaction)
        this.#db.exec(among ? 'ROLLBACK TO operation; RELEASE operation' : 'ROLLBACK');
      return { ok: false, error: toPlainError(error) };
    }
  }

  #transaction(own: Map<string, number>): Tx {
    return transactionOver({
      all: async (statement, params) => {
        const { compiled, statement: prepared } = this.#prepare(statement);
        return prepared.all(...bindParameters(compiled, params)) as never;
      },
      first: async (statement, params) => {
        const { compiled, statement: prepared } = this.#prepare(statement);
        return prepared.get(...bindParameters(compiled, params)) as never;
      },
      run: async (statement, params) => {
        const { compiled, statement: prepared } = this.#prepare(statement);
        return Number(prepared.run(...bindParameters(compiled, params)).changes);
      },
      send: (statement, params, then) => {
        const { compiled, statement: prepared } = this.#prepare(statement);
        const values = bindParameters(compiled, params);
        if (then === undefined) prepared.run(...values);
        else then(prepared.get(...values) as never);
      },
      appended: (threadId, head) => {
        own.set(threadId, head);
      },
      serial: true,
    });
  }

  #prepare<P, R>(statement: Statement<P, R>): Prepared {
    const known = this.#prepared.get(statement as Statement<never, unknown>);
    if (known !== undefined) return known;
    const compiled = compileStatement(statement, this.#dialect);
    const prepared = { compiled, statement: this.#db.prepare(compiled.sql) };
    if (this.#prepared.size >= MAX_PREPARED) this.#prepared.clear();
    this.#prepared.set(statement as Statement<never, unknown>, prepared);
    return prepared;
  }

  #control(sql: Control): void {
    let statement = this.#controls.get(sql);
    if (statement === undefined) {
      statement = this.#db.prepare(sql);
      this.#controls.set(sql, statement);
    }
    statement.run();
  }

  /** `PRAGMA synchronous` has no effect inside a transaction, so it is set before `BEGIN`. */
  #setSynchronous(level: 'NORMAL' | 'FULL'): void {
    if (this.#synchronous === level) return;
    this.#db.exec(`PRAGMA synchronous = ${level}`);
    this.#synchronous = level;
  }
}

/** The newest result is of the operation that failed; nothing is stored, and nothing after it was tried. */
function undoneBatch(operations: readonly Operation[], results: readonly OperationResult[]): BatchResult {
  const undone = new ReindeerError('store_unavailable', 'The database undid a change because another one failed.', {
    retryable: true,
  }).toPlain();
  const culprit = results.length - 1;
  return {
    results: operations.map((_, index) => results[index === culprit ? culprit : -1] ?? { ok: false, error: undone }),
    appended: [],
  };
}

function failedBatch(operations: readonly Operation[], error: unknown): BatchResult {
  const plain = toPlainError(error);
  return { results: operations.map(() => ({ ok: false, error: plain })), appended: [] };
}
