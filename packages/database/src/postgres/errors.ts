import { ReindeerError } from '@reindeer/protocol';

/** SQLSTATE of an error of the server, or the system's code of a lost connection; null = neither. */
export function errorCode(error: unknown): string | null {
  if (typeof error !== 'object' || error === null || !('code' in error)) return null;
  return typeof error.code === 'string' ? error.code : null;
}

/** Recognised by the server's code, never by text (RA-13). */
export const isUniqueViolation = (error: unknown): boolean => errorCode(error) === '23505';

/** The server undid the transaction because of others that ran beside it; run again, it may pass. */
export function isUndoneByOthers(error: unknown): boolean {
  const code = errorCode(error);
  return code === '40001' || code === '40P01';
}

/** Waited in vain for a lock. */
export const isLockTimeout = (error: unknown): boolean =>
  ReindeerError.is(error) ? error.detail?.postgres === '55P03' : errorCode(error) === '55P03';

/**
 * Is the connection gone, or of no use any more? What the driver itself reports has no code: that the connection ended, or that it
 * was cut off because nothing came back.
 */
export function isConnectionLost(error: unknown): boolean {
  const code = errorCode(error);
  if (code !== null) return /^(08|57P0[1-5]|25P0[34]|ECONN|EPIPE|ETIMEDOUT|EHOST|ENET|EAI_AGAIN|ENOTFOUND)/.test(code);
  return error instanceof Error && /connection|not queryable|timeout exceeded|read timeout/i.test(error.message);
}

/** Every message says what to do; `detail.postgres` is the code. */
const UNAVAILABLE: readonly (readonly [RegExp, string])[] = [
  [/^(40001|40P01)$/, 'Too many changes at once met in the database. Try again.'],
  [/^55P03$/, 'The database is busy: another transaction holds what this one needs. Try again.'],
  [/^57014$/, 'The database took too long over a statement. Try again, or look at its load.'],
  [/^53100$/, 'The disk of the database server is full. Free some space.'],
  [/^53300$/, 'The database server takes no more connections. Raise max_connections, or use fewer connections.'],
  [/^53/, 'The database server is out of resources. Look at its load.'],
  [/^57P0[1-3]$/, 'The database server is stopping or starting. Try again.'],
  [/^25006$/, 'The database server is read-only: it is a standby. Point the URL at the primary.'],
  [/^58/, 'The database server cannot read or write its files. Look at its disk.'],
];

/**
 * An error as one of ours. What can pass (a lost connection, a restart, a full disk, a lock) is `store_unavailable`, retryable:
 * the store cannot answer. A refused login or a missing database is `configuration`. A broken uniqueness is `conflict`. Anything else
 * is a fault of the program.
 */
export function toReindeerError(error: unknown): ReindeerError {
  if (ReindeerError.is(error)) return error;
  const code = errorCode(error);
  const options = { cause: error, ...(code === null ? {} : { detail: { postgres: code } }) };
  if (code !== null) {
    if (/^28/.test(code))
      return new ReindeerError(
        'configuration',
        'The database refused the login. Check user and password of its URL.',
        options,
      );
    if (code === '3D000')
      return new ReindeerError('configuration', 'The database of the URL does not exist. Create it first.', options);
    if (code === '42501')
      return new ReindeerError('configuration', 'The database user may not do this. Grant it the schema.', options);
    if (code === '23505') return new ReindeerError('conflict', 'A row with this key exists already.', options);
    const known = UNAVAILABLE.find(([pattern]) => pattern.test(code));
    if (known !== undefined) return new ReindeerError('store_unavailable', known[1], { ...options, retryable: true });
  }
  if (isConnectionLost(error))
    return new ReindeerError('store_unavailable', 'The database cannot be reached. Check that it runs, and its URL.', {
      ...options,
      retryable: true,
    });
  return new ReindeerError('internal', 'The database refused a statement.', options);
}

/** After a COMMIT whose answer did not come. */
export function unknownOutcome(cause: unknown): ReindeerError {
  return new ReindeerError(
    'store_unavailable',
    'The connection to the database was lost during a commit; whether the change is stored is unknown.',
    { cause, retryable: true },
  );
}
