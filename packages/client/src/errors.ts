import { type ErrorCode, ReindeerError } from '@reindeer/protocol';
import { fieldsOf, isWritten, listOf } from './fields.ts';

/** Codes of answers that are none of ours: from a proxy, or from another program at that address. */
const CODES: ReadonlyMap<number, ErrorCode> = new Map([
  [401, 'unauthorized'],
  [403, 'forbidden'],
  [404, 'not_found'],
  [409, 'conflict'],
  [413, 'too_large'],
  [422, 'validation_failed'],
  [429, 'over_capacity'],
]);

/** What a server refused, with its own code and words. `detail` has the status, and the problems of a request that was wrong in several places. */
export function refusalOf(status: number, text: string, headers: Headers): ReindeerError {
  const { detail, code, info } = fieldsOf(parsed(text));
  const problems = listOf(detail).map(fieldsOf);
  const words = isWritten(detail)
    ? detail
    : problems.map(({ loc, msg }) => `${listOf(loc).join('.')}: ${String(msg)}`).join('; ') || text.slice(0, 500);
  return new ReindeerError(
    isWritten(code) ? (code as ErrorCode) : (CODES.get(status) ?? (status < 500 ? 'bad_request' : 'store_unavailable')),
    words === '' ? `The server answered ${status}.` : words,
    {
      retryable: headers.get('retry-after') !== null,
      detail: { ...fieldsOf(info), status, ...(problems.length === 0 ? {} : { problems }) },
    },
  );
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

export const closed = (): ReindeerError =>
  new ReindeerError('shutting_down', 'This client is closed. Open another one.');

export const unreachable = (url: string, cause: unknown): ReindeerError =>
  new ReindeerError('store_unavailable', `Nothing answers at ${url}, or the connection was cut. Is the server up?`, {
    cause,
    retryable: true,
  });
