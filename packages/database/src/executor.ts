import { type ErrorOptions, ReindeerError } from '@reindeer/protocol';
import {
  type Compilable,
  type CompiledQuery,
  DummyDriver,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  type QueryCreator,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
  sql,
} from 'kysely';
import type { Database } from './schema.ts';

/**
 * How SQL is written and run here.
 *
 * A *statement* is written once through Kysely with placeholders for its parameters, compiled once per dialect, and prepared
 * once per connection: a call costs no query building. A *script* is one unit of work, `(tx, input) => Promise<output>`; it
 * is registered by name in `scripts.ts` and runs where the connection lives: on SQLite as one savepoint of a shared transaction, on
 * Postgres as a transaction of its own. A script may await nothing but its `tx`: an outside wait would hold its neighbours,
 * or its locks. It may be run again from its beginning, so it changes nothing but the database.
 */

/** What a column can hold. Times are integers (milliseconds), flags are 0 and 1, structured values are JSON text. */
export type SqlValue = string | number | bigint | null | Uint8Array;

export type DialectName = 'sqlite' | 'postgres';

export interface Tx {
  /** All rows. */
  all<P extends object, R>(statement: Statement<P, R>, params: P): Promise<R[]>;
  /** The first row, or undefined. */
  first<P extends object, R>(statement: Statement<P, R>, params: P): Promise<R | undefined>;
  /** Runs a statement and answers how many rows it changed. */
  run<P extends object>(statement: Statement<P, unknown>, params: P): Promise<number>;
  /**
   * Runs a statement behind which the script goes on at once: the transaction ends behind it, and as failed when it fails. Over a network
   * it costs no wait. `then` is told its first row, before the transaction has ended, and must not throw.
   */
  send<P extends object, R>(statement: Statement<P, R>, params: P, then?: (row: R | undefined) => void): void;
  /** Notes that facts were appended; told to listeners once per flush and thread, after the commit (D3). */
  appended(threadId: string, head: number): void;
  /**
   * True = transactions run one after another: nothing that a script has read changes before its end. False = others run beside it,
   * each statement sees what was committed before it began, and a script locks what must not change under it. Rows are locked
   * in one order everywhere: runs, leases, thread keys, threads.
   */
  readonly serial: boolean;
  /** What this transaction has found or written that nobody else can change before its end, by whoever keeps it. See `memoryOf`. */
  readonly memory: Map<object, unknown>;
}

/**
 * Thrown by a script whose write met a row that it could not see when it decided, because another transaction had not ended. The
 * whole script is run again, a few times, and decides anew; after that it is the conflict that it says (RA-12).
 */
export class Overtaken extends ReindeerError {
  constructor(message: string, options: ErrorOptions = {}) {
    super('conflict', message, options);
  }
}

/** A unit of work; see above. */
export interface Script<I, O> {
  readonly name: string;
  /**
   * `read` writes nothing. `write` survives the end of the process. `durable` also survives a power cut as soon as it is
   * answered: for what acknowledges something to somebody else (admissions, the tool journal, terminal rows).
   */
  readonly mode: 'read' | 'write' | 'durable';
  /**
   * On Postgres, what saves ways over the network: the script is one statement, and needs no transaction around it.
   */
  readonly trip?: 'alone';
  readonly run: (tx: Tx, input: I) => Promise<O>;
}

export function defineScript<I, O>(
  name: string,
  mode: Script<I, O>['mode'],
  run: (tx: Tx, input: I) => Promise<O>,
  trip?: Script<I, O>['trip'],
): Script<I, O> {
  return trip === undefined ? { name, mode, run } : { name, mode, run, trip };
}

type Build<P, R> = (db: Kysely<Database>, params: P, dialect: Dialect) => Compilable<R>;

/** A statement with named parameters. Hold it as a constant: its identity is the key under which it is prepared. */
export interface Statement<P, R> {
  readonly build: Build<P, R>;
  /** See `lasting`. */
  readonly lasting?: true;
}

/**
 * Marks a statement whose row, once it is there, stays the same until the transaction ends: ids that never change, and locks. A
 * transaction asks it once, however many things it does for one thread.
 */
export function lasting<P, R>(statement: Statement<P, R>): Statement<P, R> {
  return { ...statement, lasting: true };
}

/** A transaction over what a connection can do: with a memory of its own, in which the answers of lasting statements stand. */
export function transactionOver(connection: Omit<Tx, 'memory'>): Tx {
  const { first, run } = connection;
  const memory: Tx['memory'] = new Map();
  const once = async (statement: object, params: object, ask: () => Promise<unknown>) => {
    let answers = memory.get(statement) as Map<string, unknown> | undefined;
    if (answers === undefined) {
      answers = new Map();
      memory.set(statement, answers);
    }
    const key = JSON.stringify(Object.values(params));
    const before = answers.get(key);
    if (before !== undefined) return before;
    const answer = await ask();
    // No row: one may come.
    if (answer !== undefined && answer !== 0) answers.set(key, answer);
    return answer;
  };
  return {
    ...connection,
    memory,
    first: (statement, params) =>
      statement.lasting ? (once(statement, params, () => first(statement, params)) as never) : first(statement, params),
    run: (statement, params) =>
      statement.lasting
        ? (once(statement, params, () => run(statement, params)) as Promise<number>)
        : run(statement, params),
  };
}

/** What a transaction remembers under this name; made by `begin` when it is asked for first. */
export function memoryOf<T>(tx: Tx, name: { readonly begin: () => T }): T {
  let found = tx.memory.get(name) as T | undefined;
  if (found === undefined) {
    found = name.begin();
    tx.memory.set(name, found);
  }
  return found;
}

/**
 * Defines a statement; `params.x` inside `build` is a placeholder, never a value. Types of parameters and rows come from the callback:
 * `defineStatement((db, p: {runId: string}) => db.selectFrom('runs').select('status').where('run_id', '=', p.runId))`.
 * A list travels as one JSON parameter, through `dialect.each` or `dialect.texts`.
 */
export function defineStatement<P extends object, R>(build: Build<P, R>): Statement<P, R> {
  return { build };
}

/** Statements that change different tables, none of which needs to see what another one did. */
export interface Changes<P> {
  readonly each: readonly Statement<P, unknown>[];
  readonly together: Statement<P, unknown>;
}

export function changes<P extends object>(...each: readonly Statement<P, unknown>[]): Changes<P> {
  const together = defineStatement((db, params: P, dialect) => {
    let query = db as QueryCreator<Database>;
    for (const [n, one] of each.entries())
      query = query.with(`change_${n}`, () => one.build(db, params, dialect) as never) as never;
    return query.selectNoFrom(sql<number>`1`.as('one'));
  });
  return { each, together };
}

/** Sends all of them: as one where each is a way over a network. */
export function sendAll<P extends object>(tx: Tx, { each, together }: Changes<P>, params: P): void {
  for (const one of tx.serial ? each : [together]) tx.send(one, params);
}

/** Stands for a parameter while a statement is compiled. */
class Placeholder {
  readonly name: string;
  constructor(name: string) {
    this.name = name;
  }
}

/** Every property is a placeholder of that name. */
const PLACEHOLDERS = new Proxy(
  {},
  { get: (_target, name) => (typeof name === 'string' ? new Placeholder(name) : undefined) },
);

export interface CompiledStatement {
  readonly sql: string;
  /** In the order of the SQL text: the name of a parameter, or a constant of the statement itself. */
  readonly slots: readonly ({ readonly name: string } | { readonly value: SqlValue })[];
}

export interface Dialect {
  readonly name: DialectName;
  readonly db: Kysely<Database>;
}

/**
 * Writes the constants of a statement into its text. Postgres plans a prepared statement once for all values, and a condition
 * `acknowledged = $2` does not tell it that an index over the unacknowledged rows will do.
 */
class LiteralCompiler extends PostgresQueryCompiler {
  protected override appendValue(value: unknown): void {
    if (value instanceof Placeholder) super.appendValue(value);
    else this.appendImmediateValue(bindable(value, 'constant'));
  }
}

/** A dialect only compiles; connections are made elsewhere. */
export function createDialect(name: DialectName): Dialect {
  const db = new Kysely<Database>({
    dialect:
      name === 'sqlite'
        ? {
            createAdapter: () => new SqliteAdapter(),
            createDriver: () => new DummyDriver(),
            createIntrospector: (inner) => new SqliteIntrospector(inner),
            createQueryCompiler: () => new SqliteQueryCompiler(),
          }
        : {
            createAdapter: () => new PostgresAdapter(),
            createDriver: () => new DummyDriver(),
            createIntrospector: (inner) => new PostgresIntrospector(inner),
            createQueryCompiler: () => new LiteralCompiler(),
          },
  });
  return { name, db };
}

/** Compiles a statement for a dialect. Costs ~0.1 ms: callers keep the result per connection. */
export function compileStatement<P, R>(statement: Statement<P, R>, dialect: Dialect): CompiledStatement {
  const compiled: CompiledQuery<R> = statement.build(dialect.db, PLACEHOLDERS as P, dialect).compile();
  return {
    sql: compiled.sql,
    slots: compiled.parameters.map((parameter) =>
      parameter instanceof Placeholder ? { name: parameter.name } : { value: bindable(parameter, 'constant') },
    ),
  };
}

/** Values for a compiled statement, in its order. A missing or unfit value throws a `TypeError` that names it. */
export function bindParameters(compiled: CompiledStatement, params: object): SqlValue[] {
  return compiled.slots.map((slot) =>
    'name' in slot ? bindable((params as Record<string, unknown>)[slot.name], slot.name) : slot.value,
  );
}

/**
 * A driver may bind an unfit value as NULL without a word (a `Date`, in `node:sqlite`) or lose digits; so everything but the
 * plain types is refused here.
 */
function bindable(value: unknown, name: string): SqlValue {
  switch (typeof value) {
    case 'string':
      return value;
    case 'number':
      if (Number.isFinite(value)) return value;
      break;
    case 'bigint':
      return value;
    case 'boolean':
      return value ? 1 : 0;
    case 'object':
      if (value === null || value instanceof Uint8Array) return value;
      break;
    default:
  }
  const kind = value instanceof Date ? 'a Date' : Array.isArray(value) ? 'an array' : String(value);
  throw new TypeError(
    `Parameter "${name}" cannot be stored: it is ${kind}. Pass text, a finite number, bytes or null.`,
  );
}
