import { ReindeerError } from '@reindeer/protocol';
import type pg from 'pg';
import { type Driver, numbersAsNumbers } from './driver.ts';

export interface ConnectionOptions {
  /** `postgres://user:password@host:port/database`; the parameters of the driver's URLs hold. */
  readonly url: string;
  /** Longest time of one statement, in milliseconds. Default 10,000. */
  readonly statementMs?: number;
  /** Longest wait for a lock, in milliseconds. Default 5,000. */
  readonly lockMs?: number;
  /** The server ends a session that has been idle inside a transaction for this time, in milliseconds; well below a lease. Default 5,000. */
  readonly idleInTransactionMs?: number;
  /** See `ClientOptions`; also the longest wait for a connection. Default 20,000. */
  readonly answerMs?: number;
}

const CONNECT_MS = 10_000;

/** Both ends notice within half a minute that the other is gone, where TCP would take hours. */
const KEEP_ALIVE =
  '-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=4 -c enable_seqscan=off -c jit=off';

/** What every connection is made with. @throws ReindeerError `configuration` when the URL cannot be read */
export function connectionConfig(driver: Driver, options: ConnectionOptions): pg.PoolConfig {
  try {
    const { protocol } = new URL(options.url);
    if (protocol !== 'postgres:' && protocol !== 'postgresql:') throw new TypeError(protocol);
  } catch (cause) {
    // The URL itself stays out of the message: it may hold a password.
    throw new ReindeerError(
      'configuration',
      'The database URL cannot be read. Write it as postgres://user:password@host:5432/database.',
      { cause },
    );
  }
  return {
    connectionString: options.url,
    application_name: 'reindeer',
    types: numbersAsNumbers(driver),
    pipeline: true,
    connectionTimeoutMillis: Math.min(CONNECT_MS, options.answerMs ?? CONNECT_MS),
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
    options: KEEP_ALIVE,
    statement_timeout: options.statementMs ?? 10_000,
    lock_timeout: options.lockMs ?? 5_000,
    idle_in_transaction_session_timeout: options.idleInTransactionMs ?? 5_000,
  } as pg.PoolConfig;
}
