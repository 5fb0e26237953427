import { type Logger, ReindeerError } from '@reindeer/protocol';
import type pg from 'pg';
import { Overtaken, type Script } from '../executor.ts';
import type { Call } from '../scripts.ts';
import { cut, endWithin } from './driver.ts';
import { isUndoneByOthers, isUniqueViolation, toReindeerError } from './errors.ts';
import { type Committed, runScript, Statements, Undone } from './session.ts';

export interface ClientOptions {
  /** Connections for everything but renewals. */
  readonly pool: pg.Pool;
  /** The one connection that renewals have to themselves: heartbeats wait behind nothing (D9). */
  readonly renewals: pg.Pool;
  readonly scripts: Readonly<Record<string, Script<never, unknown>>>;
  readonly logger: Logger;
  /** Told after the commit; see `Log.onAppend`. */
  readonly onAppended: (appended: ReadonlyMap<string, number>) => void;
  /** Operations that wait for a connection, at most; past it a call is answered `store_unavailable` at once. Default 5,000. */
  readonly maxQueued?: number;
  /** How long an operation may take, its waiting and repeats included, before its caller is told `store_unavailable`, in ms. */
  readonly answerMs: number;
}

/** Runs of one script when others undo it or get ahead of it (RA-12). */
const TRIES = 3;
/** A graceful end of the connections may take this long, in milliseconds. */
const END_MS = 2_000;

/**
 * The calling side of a Postgres database: each call is one transaction on a connection of the pool.
 *
 * States: open → closing → closed. In `closing` nothing new is taken and what runs is waited for.
 *
 * An operation is repeated here only when nothing of it is stored: when the server undid it because of others, when its script says that
 * it was overtaken, and once when the connection was lost before COMMIT was sent (a connection that a restarted server or a
 * firewall had cut is noticed only by using it). After COMMIT was sent nothing is repeated: the caller is told that the
 * outcome is unknown.
 */
export class PostgresClient {
  readonly #options: Required<ClientOptions>;
  readonly #statements = new Statements();
  readonly #running = new Set<Promise<unknown>>();
  readonly #clients = new Set<pg.ClientBase>();
  #closing: Promise<void> | null = null;

  constructor(options: ClientOptions) {
    this.#options = { maxQueued: 5_000, ...options };
    // A connection that breaks while nobody uses it. The pool has dropped it.
    for (const pool of [options.pool, options.renewals]) {
      pool.on('connect', (client) => {
        this.#clients.add(client);
        // While it is in use, or on its way out, nobody else listens; whoever uses it is told by its statements.
        client.on('error', () => {});
      });
      pool.on('remove', (client) => void this.#clients.delete(client));
      // A connection that breaks while nobody uses it. The pool has dropped it.
      pool.on('error', (error) => options.logger.warn('A database connection ended', { error: error.message }));
    }
  }

  /** @throws ReindeerError `store_unavailable` when the effect is unknown or there was none */
  readonly call: Call = (name, input) => this.#enqueue(this.#options.pool, name, input);

  /** As `call`, on the connection of the renewals. */
  readonly callFirst: Call = (name, input) => this.#enqueue(this.#options.renewals, name, input);

  /** Runs a script that only this database has. `first`: on the connection of the renewals. */
  run<I, O>(script: Script<I, O>, input: I, first = false): Promise<O> {
    const pool = first ? this.#options.renewals : this.#options.pool;
    return this.#accept(pool, () => this.#run(pool, script as Script<never, unknown>, input)) as Promise<O>;
  }

  /** Waits for what was called before, at most as long as an answer may take, and ends the connections. Idempotent. */
  close(): Promise<void> {
    this.#closing ??= (async () => {
      await Promise.allSettled(this.#running);
      const pools = [this.#options.pool, this.#options.renewals];
      await endWithin(
        END_MS,
        () => Promise.all(pools.map((pool) => pool.end())),
        () => this.#clients,
      );
    })();
    return this.#closing;
  }

  #enqueue(pool: pg.Pool, name: string, input: unknown): Promise<never> {
    const script = this.#options.scripts[name];
    if (script === undefined) return Promise.reject(toReindeerError(new TypeError(`There is no script "${name}".`)));
    return this.#accept(pool, () => this.#run(pool, script, input)) as Promise<never>;
  }

  #accept(pool: pg.Pool, work: () => Promise<unknown>): Promise<unknown> {
    if (this.#closing !== null)
      return Promise.reject(new ReindeerError('store_unavailable', 'The database is closed.'));
    const limit = this.#options.maxQueued;
    if (pool.waitingCount >= limit)
      return Promise.reject(
        new ReindeerError('store_unavailable', 'Too many database operations are waiting. Try again later.', {
          retryable: true,
          detail: { limit },
        }),
      );
    const running = work();
    this.#running.add(running);
    const done = (): void => void this.#running.delete(running);
    running.then(done, done);
    return running;
  }

  async #run(pool: pg.Pool, script: Script<never, unknown>, input: unknown): Promise<unknown> {
    const deadline = performance.now() + this.#options.answerMs;
    let mayReconnect = true;
    for (let tries = 1; ; tries += 1) {
      try {
        const { value, appended } = await this.#attempt(pool, script, input, deadline);
        if (appended.size > 0) this.#options.onAppended(appended);
        return value;
      } catch (error) {
        if (!(error instanceof Undone) || performance.now() >= deadline) throw toReindeerError(reasonOf(error));
        const again =
          isUndoneByOthers(error.reason) || isUniqueViolation(error.reason) || error.reason instanceof Overtaken;
        if (again ? tries >= TRIES : !(error.connectionLost && mayReconnect)) throw toReindeerError(error.reason);
        if (!again) mayReconnect = false;
      }
    }
  }

  async #attempt(
    pool: pg.Pool,
    script: Script<never, unknown>,
    input: unknown,
    deadline: number,
  ): Promise<Committed<unknown>> {
    const client = await pool.connect().catch((error: unknown) => {
      throw new Undone(error, false);
    });
    if (performance.now() >= deadline) {
      client.release();
      throw new Undone(late(), false);
    }
    let broken = true;
    const timer = setTimeout(
      () => {
        this.#options.logger.error('The database does not answer', { script: script.name });
        cut(client);
      },
      Math.max(deadline - performance.now(), 1),
    );
    try {
      const committed = await runScript(client, this.#statements, script, input as never);
      broken = false;
      return committed;
    } catch (error) {
      broken = !(error instanceof Undone) || error.connectionLost;
      throw error;
    } finally {
      clearTimeout(timer);
      if (broken) cut(client);
      client.release(broken);
    }
  }
}

const late = (): ReindeerError =>
  new ReindeerError('store_unavailable', 'The database is busy: no connection came free in time. Try again.', {
    retryable: true,
  });

const reasonOf = (error: unknown): unknown => (error instanceof Undone ? error.reason : error);
