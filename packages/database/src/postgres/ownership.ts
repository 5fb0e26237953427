import { createHash } from 'node:crypto';
import {
  type ClaimOptions,
  decodeOwnership,
  encodeOwnership,
  type OwnershipRenewal,
  type OwnershipStore,
  ReindeerError,
  type Surroundings,
} from '@reindeer/protocol';
import type pg from 'pg';
import { connectionConfig } from './config.ts';
import { cut, endWithin, loadDriver } from './driver.ts';
import { errorCode } from './errors.ts';

export interface PostgresOwnershipOptions {
  /** `postgres://user:password@host:port/database`. May carry a password: never logged. */
  readonly url: string;
  readonly ownerId: string;
  /** Put before each sandbox id, with a colon between. */
  readonly keyPrefix: string;
  /** Time to live of a lease in milliseconds; counted by the server's clock, so that those of the instances need not agree. */
  readonly ttlMs: number;
  readonly surroundings: Surroundings;
}

/** Milliseconds within which one operation is answered, or the store counts as out of reach. */
const POSTGRES_OWNERSHIP_MS = 5_000;
/** The server gives a statement up before its caller does: what was given up here never takes effect later. */
const STATEMENT_MS = 4_000;
const END_MS = 1_000;
const MAX_QUEUED = 10_000;
/** Expired leases are removed with every so-manieth write. */
const SWEEP_EVERY = 256;
/** Tells the lock of the table's making from other locks of the database. */
const TABLE_LOCK = 0x52_53_01;
const NO_TABLE = '42P01';

/*
 * One row per sandbox; an expired one counts as none. The table is no part of the data: leases are worth nothing after a restart of the
 * server, so they are neither logged for a crash nor kept in a backup, and whoever needs the table makes it.
 */
const TABLE = `create unlogged table if not exists sandbox_owners (
  id text primary key, value text not null, expires_at timestamptz not null)`;

/*
 * One statement per operation: look and write are one step on the server (SO-22). $1 the lease; `own:<me>`, `del:<me>` and milliseconds
 * as named. The rules are those of `reduceOwnership`; the contract suite compares the two. `clock_timestamp()`, not `now()`: a
 * statement that waited for a row judges by the time at which it got it.
 */
const until = (parameter: number): string => `clock_timestamp() + $${parameter} * interval '1 millisecond'`;
const written = (condition: string): string => `insert into sandbox_owners as lease (id, value, expires_at)
  values ($1, $2, ${until(3)})
  on conflict (id) do update set value = excluded.value, expires_at = ${until(3)}
  where lease.expires_at <= clock_timestamp() or ${condition}`;
const SQL = {
  take: written(`lease.value not like 'del:%'`),
  claim: written('lease.value = excluded.value'),
  // The server empties the table when it starts again after a crash; the row that names its memory goes with the leases.
  claimWithin: `insert into sandbox_owners as lease (id, value, expires_at)
    select $1, $2, ${until(3)} where exists (select 1 from sandbox_owners where id = $4 and value = $5)
    on conflict (id) do update set value = excluded.value, expires_at = ${until(3)}
    where lease.expires_at <= clock_timestamp() or lease.value = excluded.value`,
  memory: `insert into sandbox_owners as memory (id, value, expires_at) values ($1, $2, 'infinity')
    on conflict (id) do update set value = memory.value returning value`,
  claimForDestroy: written('lease.value = excluded.value or lease.value = $4'),
  renew: `with renewed as (
      update sandbox_owners set expires_at = ${until(3)}
      where id = $1 and value = $2 and expires_at > clock_timestamp() returning id)
    select case when exists (select 1 from renewed) then 'renewed'
      when exists (select 1 from sandbox_owners where id = $1 and expires_at > clock_timestamp()) then 'lost'
      else 'lapsed' end as outcome`,
  release: 'delete from sandbox_owners where id = $1 and value in ($2, $3)',
  owner: 'select value from sandbox_owners where id = $1 and expires_at > clock_timestamp()',
  sweep: 'delete from sandbox_owners where expires_at <= clock_timestamp()',
} as const;

/** Of the text: two versions of this program behind one connection pooler never mean different things by one name. */
const NAMES = Object.fromEntries(
  Object.entries(SQL).map(([name, text]) => [
    name,
    `reindeer_${createHash('sha256').update(text).digest('hex').slice(0, 24)}`,
  ]),
) as Readonly<Record<keyof typeof SQL, string>>;

/**
 * Opens the store. A server that is out of reach is no error here: it is *unknown*, like one that goes away later, and the connection is
 * made again by the next operation.
 *
 * @throws ReindeerError `configuration` when the driver is not installed or the address is none
 */
export async function openPostgresOwnership(options: PostgresOwnershipOptions): Promise<OwnershipStore> {
  const driver = await loadDriver();
  const { url } = options;
  const config = connectionConfig(driver, {
    url,
    statementMs: STATEMENT_MS,
    lockMs: STATEMENT_MS,
    answerMs: POSTGRES_OWNERSHIP_MS,
  });
  // One connection: what one instance asks about a sandbox is done in the order in which it was asked.
  const pool = new driver.Pool({ ...config, application_name: 'reindeer ownership', max: 1, idleTimeoutMillis: 0 });
  return new PostgresOwnershipStore(pool, options);
}

/**
 * Ownership that all instances of one database see.
 *
 * An operation: *queued* → *sent* → answered; or given up, from either, after `POSTGRES_OWNERSHIP_MS`: a queued one is then never
 * sent, and the connection of a sent one is cut. The store: open → `close` → *closed*, where every operation is refused.
 */
class PostgresOwnershipStore implements OwnershipStore {
  readonly ownerId: string;
  readonly seesPeers = true;
  readonly #pool: pg.Pool;
  readonly #options: PostgresOwnershipOptions;
  readonly #own: string;
  readonly #del: string;
  readonly #clients = new Set<pg.ClientBase>();
  #made = false;
  #writes = 0;
  #queued = 0;
  #down = false;
  #closing: Promise<void> | null = null;

  constructor(pool: pg.Pool, options: PostgresOwnershipOptions) {
    this.#pool = pool;
    this.#options = options;
    this.ownerId = options.ownerId;
    this.#own = encodeOwnership({ state: 'own', owner: options.ownerId });
    this.#del = encodeOwnership({ state: 'del', owner: options.ownerId });
    pool.on('connect', (client) => {
      this.#clients.add(client);
      // Whoever uses it is told by its statements.
      client.on('error', () => {});
    });
    pool.on('remove', (client) => void this.#clients.delete(client));
    pool.on('error', () => {});
  }

  async take(sandboxId: string): Promise<boolean> {
    return this.#write('take', sandboxId, [this.#own, this.#options.ttlMs]);
  }

  async claim(sandboxId: string, options: ClaimOptions = {}): Promise<boolean> {
    const { ttlMs } = this.#options;
    if (options.forDestroy !== true && options.memory !== undefined)
      return this.#write('claimWithin', sandboxId, [this.#own, ttlMs, this.#memoryKey, options.memory]);
    return options.forDestroy === true
      ? this.#write('claimForDestroy', sandboxId, [this.#del, ttlMs, this.#own])
      : this.#write('claim', sandboxId, [this.#own, ttlMs]);
  }

  async renew(sandboxId: string): Promise<OwnershipRenewal> {
    const { rows } = await this.#asked('renew', [this.#key(sandboxId), this.#own, this.#options.ttlMs]);
    const outcome: unknown = rows[0]?.outcome;
    return outcome === 'renewed' || outcome === 'lapsed' ? outcome : 'lost';
  }

  async release(sandboxId: string): Promise<void> {
    await this.#asked('release', [this.#key(sandboxId), this.#own, this.#del]);
  }

  async owner(sandboxId: string): Promise<string | null> {
    const { rows } = await this.#asked('owner', [this.#key(sandboxId)]);
    const text: unknown = rows[0]?.value;
    if (typeof text !== 'string') return null;
    // A foreign value is somebody's, whoever that is: nothing may be adopted over it.
    return decodeOwnership(text)?.owner ?? text;
  }

  async memory(): Promise<string> {
    const { rows } = await this.#asked('memory', [this.#memoryKey, this.#options.surroundings.random.uuid()]);
    return String(rows[0]?.value);
  }

  close(): Promise<void> {
    this.#closing ??= endWithin(
      END_MS,
      () => this.#pool.end(),
      () => this.#clients,
    );
    return this.#closing;
  }

  async #write(
    name: 'take' | 'claim' | 'claimWithin' | 'claimForDestroy',
    sandboxId: string,
    values: readonly unknown[],
  ): Promise<boolean> {
    const { rowCount } = await this.#asked(name, [this.#key(sandboxId), ...values]);
    this.#writes += 1;
    if (this.#writes % SWEEP_EVERY === 0) await this.#asked('sweep', []).catch(() => {});
    return rowCount === 1;
  }

  /** No error of the driver leaves this file, and none becomes a "no" (SO-16). */
  async #asked(name: keyof typeof SQL, values: readonly unknown[]): Promise<pg.QueryResult> {
    if (this.#closing !== null) throw unavailable('is closed');
    if (this.#queued >= MAX_QUEUED) throw unavailable('has too many questions waiting');
    const { clock, logger } = this.#options.surroundings;
    const over = new AbortController();
    const given = { up: false, client: null as pg.PoolClient | null };
    this.#queued += 1;
    const asking = this.#ask(name, values, given).finally(() => {
      this.#queued -= 1;
    });
    asking.catch(() => {});
    const late = clock.sleep(POSTGRES_OWNERSHIP_MS, over.signal).then(() => {
      given.up = true;
      if (given.client !== null) cut(given.client);
      throw new Error('no answer in time');
    });
    late.catch(() => {});
    try {
      const answer = await Promise.race([asking, late]);
      if (this.#down) logger.info('The ownership store answers again');
      this.#down = false;
      return answer;
    } catch (cause) {
      if (!this.#down) logger.warn('The ownership store is out of reach', { cause: errorCode(cause) ?? 'unknown' });
      this.#down = true;
      throw unavailable('did not answer', cause);
    } finally {
      over.abort();
    }
  }

  async #ask(
    name: keyof typeof SQL,
    values: readonly unknown[],
    given: { readonly up: boolean; client: pg.PoolClient | null },
  ): Promise<pg.QueryResult> {
    const client = await this.#pool.connect();
    let broken = true;
    try {
      if (given.up) {
        broken = false;
        throw new Error('given up before it was sent');
      }
      given.client = client;
      if (!this.#made) await makeTable(client);
      this.#made = true;
      const answer = await client.query({
        name: NAMES[name],
        text: SQL[name],
        values: [...values],
      });
      broken = false;
      return answer;
    } catch (error) {
      if (errorCode(error) === NO_TABLE) this.#made = false;
      throw error;
    } finally {
      given.client = null;
      // After an error of any kind a new connection is the surest state.
      client.release(broken);
    }
  }

  /** No sandbox's key: those have a colon after the prefix. */
  get #memoryKey(): string {
    return `${this.#options.keyPrefix}.memory`;
  }

  #key(sandboxId: string): string {
    return `${this.#options.keyPrefix}:${sandboxId}`;
  }
}

/** Two that make it at once would meet in the catalogue of the server; a user who may not make tables finds it made by another. */
async function makeTable(client: pg.ClientBase): Promise<void> {
  const { rows } = await client.query<{ there: boolean }>(`select to_regclass('sandbox_owners') is not null as there`);
  if (rows[0]?.there === true) return;
  await client.query('begin');
  await client.query(`select pg_advisory_xact_lock(${TABLE_LOCK})`);
  await client.query(TABLE);
  await client.query('commit');
}

function unavailable(what: string, cause?: unknown): ReindeerError {
  return new ReindeerError('store_unavailable', `The ownership store of the sandboxes (Postgres) ${what}.`, {
    retryable: true,
    ...(cause === undefined ? {} : { cause }),
  });
}
