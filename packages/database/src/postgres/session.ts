import { createHash } from 'node:crypto';
import { ReindeerError } from '@reindeer/protocol';
import type { ClientBase, QueryResult } from 'pg';
import {
  bindParameters,
  type CompiledStatement,
  compileStatement,
  createDialect,
  type Dialect,
  type Script,
  type SqlValue,
  type Statement,
  type Tx,
  transactionOver,
} from '../executor.ts';
import { isConnectionLost, unknownOutcome } from './errors.ts';

interface Named {
  readonly compiled: CompiledStatement;
  /** Of the text: two processes behind one connection pooler mean the same by it. */
  readonly name: string;
}

/** The compiled statements of one opened database. */
export class Statements {
  readonly #dialect: Dialect = createDialect('postgres');
  readonly #known = new Map<Statement<never, unknown>, Named>();

  get<P, R>(statement: Statement<P, R>): Named {
    const key = statement as Statement<never, unknown>;
    let named = this.#known.get(key);
    if (named === undefined) {
      const compiled = compileStatement(statement, this.#dialect);
      const digest = createHash('sha256').update(compiled.sql).digest('hex').slice(0, 24);
      named = { compiled, name: `reindeer_${digest}` };
      this.#known.set(key, named);
    }
    return named;
  }
}

/** A text column does not take the NUL character, and a run must be able to end whatever its error says. */
const storable = (value: SqlValue): SqlValue =>
  typeof value === 'string' && value.includes('\0') ? value.replaceAll('\0', '\uFFFD') : value;

export interface Committed<O> {
  readonly value: O;
  /** Threads whose log grew, with the highest number of each. */
  readonly appended: ReadonlyMap<string, number>;
}

/** What a failed attempt did not do: nothing of it is stored. */
export class Undone extends Error {
  readonly reason: unknown;
  /** Of no use any more. */
  readonly connectionLost: boolean;
  constructor(reason: unknown, connectionLost: boolean) {
    super('The transaction was undone.');
    this.reason = reason;
    this.connectionLost = connectionLost;
  }
}

const BEGIN_WRITE = 'begin isolation level read committed';
/** One moment for all statements of a script. */
const BEGIN_READ = 'begin isolation level repeatable read read only';

/** The statements of a transaction that its script does not wait for. */
class Sent {
  readonly #answers: Promise<unknown>[] = [];
  /** Of the first that failed: what the server says of later ones is only that something did. */
  failure: { readonly reason: unknown } | null = null;

  add(answer: Promise<unknown>): void {
    this.#answers.push(
      answer.catch((reason: unknown) => {
        this.failure ??= { reason };
      }),
    );
  }

  /** Never rejects. */
  async answered(): Promise<void> {
    await Promise.all(this.#answers);
  }
}

/**
 * Runs a script as one transaction on a connection in pipeline mode: a statement is on its way before the answer to the one before
 * it, so that BEGIN costs no wait of its own.
 *
 * @throws Undone when nothing is stored; `store_unavailable` when the answer to COMMIT was lost
 */
export async function runScript<I, O>(
  client: ClientBase,
  statements: Statements,
  script: Script<I, O>,
  input: I,
): Promise<Committed<O>> {
  const appended = new Map<string, number>();
  const sent = new Sent();
  const tx = transaction(client, statements, appended, sent, script.trip === 'alone' ? 1 : Number.POSITIVE_INFINITY);
  if (script.trip === 'alone') return { value: await runAlone(script, tx, input), appended };
  const begun = client.query(script.mode === 'read' ? BEGIN_READ : BEGIN_WRITE);
  // Looked at below, also when the script fails first.
  begun.catch(() => {});
  let value: O;
  try {
    value = await script.run(tx, input);
    await begun;
  } catch (error) {
    // What failed first, unless the script has decided by itself.
    const reason = ReindeerError.is(error) ? error : (sent.failure?.reason ?? error);
    throw new Undone(reason, isConnectionLost(reason) || !(await rolledBack(client)));
  }
  let end: QueryResult;
  try {
    end = await client.query('commit');
    await sent.answered();
  } catch (error) {
    if (script.mode === 'read') throw new Undone(error, true);
    // The server refused: for instance a deferred check. It has undone everything, and the connection is as good as before.
    if (!isConnectionLost(error)) throw new Undone(error, !(await rolledBack(client)));
    throw unknownOutcome(error);
  }
  // What COMMIT answers in a transaction that had failed before.
  if (end.command === 'ROLLBACK') throw new Undone(sent.failure?.reason ?? overlooked(), false);
  return { value, appended };
}

/** One statement, which the server makes a transaction of its own. */
async function runAlone<I, O>(script: Script<I, O>, tx: Tx, input: I): Promise<O> {
  try {
    return await script.run(tx, input);
  } catch (error) {
    if (!isConnectionLost(error)) throw new Undone(error, false);
    if (script.mode === 'read') throw new Undone(error, true);
    throw unknownOutcome(error);
  }
}

/** Runs a script inside the caller's transaction. */
export async function runInside<I, O>(
  client: ClientBase,
  statements: Statements,
  script: Script<I, O>,
  input: I,
): Promise<O> {
  const sent = new Sent();
  const value = await script.run(transaction(client, statements, new Map(), sent), input);
  await sent.answered();
  if (sent.failure !== null) throw sent.failure.reason;
  return value;
}

const overlooked = (): ReindeerError =>
  new ReindeerError('internal', 'A failed statement was overlooked; nothing is stored.');

async function rolledBack(client: ClientBase): Promise<boolean> {
  return client.query('rollback').then(
    () => true,
    () => false,
  );
}

/** @param most statements; without a transaction around them a second one would see another moment than the first */
function transaction(
  client: ClientBase,
  statements: Statements,
  appended: Map<string, number>,
  sent: Sent,
  most = Number.POSITIVE_INFINITY,
): Tx {
  let count = 0;
  // Throws at once what cannot be sent: a statement that was left out must not look like one that is on its way.
  const query = <P extends object>(statement: Statement<P, unknown>, params: P): Promise<QueryResult> => {
    count += 1;
    if (count > most) throw new ReindeerError('internal', 'A script that is said to be one statement has another.');
    const { compiled, name } = statements.get(statement);
    return client.query({ name, text: compiled.sql, values: bindParameters(compiled, params).map(storable) });
  };
  return transactionOver({
    all: async (statement, params) => (await query(statement, params)).rows as never,
    first: async (statement, params) => (await query(statement, params)).rows[0] as never,
    run: async (statement, params) => (await query(statement, params)).rowCount ?? 0,
    send: (statement, params, then) => {
      sent.add(query(statement, params).then(({ rows }) => then?.(rows[0] as never)));
    },
    appended: (threadId, head) => {
      appended.set(threadId, head);
    },
    serial: false,
  });
}
