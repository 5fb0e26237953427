import { type PlainError, ReindeerError } from '@reindeer/protocol';

/** Result codes of SQLite (https://sqlite.org/rescode.html): the low byte is the primary code. */
const BUSY = 5;
const LOCKED = 6;
const NOMEM = 7;
const READONLY = 8;
const INTERRUPT = 9;
const IOERR = 10;
const CORRUPT = 11;
const FULL = 13;
const CANTOPEN = 14;
const PROTOCOL = 15;
const CONSTRAINT_PRIMARYKEY = 1555;
const CONSTRAINT_UNIQUE = 2067;

/** SQLite's extended result code of an error of `node:sqlite`, or null. */
function resultCode(error: unknown): number | null {
  if (typeof error !== 'object' || error === null || !('errcode' in error)) return null;
  return typeof error.errcode === 'number' ? error.errcode : null;
}

/** Recognised by the engine's code, never by text (RA-13). */
export function isUniqueViolation(error: unknown): boolean {
  const code = resultCode(error);
  return code === CONSTRAINT_UNIQUE || code === CONSTRAINT_PRIMARYKEY;
}

/**
 * An error as one of ours, by the engine's result code: trouble with the disk, memory or another process is `store_unavailable` (the
 * store cannot answer), a broken uniqueness is `conflict`, anything else is a fault of the program.
 */
export function toReindeerError(error: unknown): ReindeerError {
  if (ReindeerError.is(error)) return error;
  const code = resultCode(error);
  if (code === null)
    return new ReindeerError('internal', 'The database failed on an unexpected error.', { cause: error });
  const detail = { sqlite: code };
  const unavailable = (what: string, retryable: boolean): ReindeerError =>
    new ReindeerError('store_unavailable', what, { cause: error, retryable, detail });
  switch (code & 0xff) {
    case BUSY:
    case LOCKED:
    case PROTOCOL:
      return unavailable('The database is busy. Try again.', true);
    case FULL:
      return unavailable('The disk that holds the data folder is full. Free some space.', true);
    case IOERR:
    case INTERRUPT:
    case NOMEM:
      return unavailable('The database could not read or write its file. Check the disk of the data folder.', true);
    case READONLY:
    case CANTOPEN:
      return unavailable(
        'The database file cannot be opened for writing. Check the permissions of the data folder.',
        false,
      );
    case CORRUPT:
    case 26: // not a database
      return unavailable('The database file is damaged. Restore a backup.', false);
    default:
      if (isUniqueViolation(error))
        return new ReindeerError('conflict', 'A row with this key exists already.', { cause: error, detail });
      return new ReindeerError('internal', 'The database refused a statement.', { cause: error, detail });
  }
}

/** For `postMessage`, over which an error would lose its code. */
export function toPlainError(error: unknown): PlainError {
  return toReindeerError(error).toPlain();
}
