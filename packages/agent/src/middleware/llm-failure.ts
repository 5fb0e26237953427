import { ReindeerError } from '@reindeer/protocol';
import { withoutHostDetails } from '../tools/error-text.ts';

/** Kinds of provider failures, in the order in which they are looked for (MW-8). */
export type FailureKind =
  | 'quota'
  | 'auth'
  | 'burst'
  | 'stream_timeout'
  | 'transient'
  | 'busy'
  | 'too_long'
  /** Not tried: the provider failed several times in a row. */
  | 'circuit_open'
  | 'other';

export interface Failure {
  readonly kind: FailureKind;
  readonly retryable: boolean;
  /** Milliseconds that the provider asked to wait; null = it did not say. */
  readonly retryAfterMs: number | null;
  /** The HTTP status; null = there was no answer. */
  readonly status: number | null;
  /** Code of the fault that kept the call from an answer, such as ECONNREFUSED; null = none is known. */
  readonly unreachable: string | null;
  /** At most 500 characters for logs and details; no keys, no host paths. */
  readonly detail: string;
}

const TRANSIENT_STATUS: ReadonlySet<number> = new Set([408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529]);
const TRANSIENT_NAME =
  /^(APIConnectionError|APIConnectionTimeoutError|TimeoutError|ConnectTimeoutError|SocketError|RemoteProtocolError|ReadError|InternalServerError)$/;
const TRANSIENT_CODE =
  /^(ECONN\w+|ETIMEDOUT|EAI_AGAIN|EPIPE|ENETUNREACH|EHOSTUNREACH|ERR_STREAM_PREMATURE_CLOSE|UND_ERR_\w+)$/;
const UNREACHABLE =
  /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|ENETUNREACH|EHOSTUNREACH|ETIMEDOUT|UND_ERR_CONNECT_TIMEOUT|CERT_\w+|DEPTH_ZERO_\w+|SELF_SIGNED_\w+|UNABLE_TO_\w+|ERR_TLS_\w+|ERR_SSL_\w+|EPROTO)$/;
const TRANSIENT_TEXT =
  /fetch failed|socket hang up|premature close|network error|connection (error|reset|refused|closed|lost)|terminated|other side closed|ended (early|its answer without)|timed? ?out|list index out of range|no generations/i;
const QUOTA =
  /insufficient[_ ]quota|exceeded your current quota|billing|credit balance|余额不足|欠费|配额(已)?用(完|尽)/i;
const AUTH =
  /invalid[_ ]api[_ ]key|incorrect api key|authentication[_ ]error|unauthori[sz]ed|invalid x-api-key|permission[_ ]denied/i;
const BURST = /burst|rate increased too quickly|limit_burst_rate|速率增长过快/i;
const BUSY =
  /overloaded|server (is )?busy|at capacity|try again later|temporarily unavailable|服务器?繁忙|系统繁忙|稍后(再试|重试)/i;
const STREAM_TIMEOUT = /stream.{0,20}(chunk|idle).{0,20}time|chunk.{0,20}timed? ?out/i;
const TOO_LONG = /context[_ ](length|window)|maximum context|prompt is too long|too many tokens|input is too long/i;

const MAX_DETAIL = 500;

/** Reads a provider's failure: status, headers, codes and texts of the error and of what caused it. */
export function readFailure(error: unknown, now: number): Failure {
  const chain = causes(error);
  const text = chain.map(textOf).join(' | ');
  const status = first(chain, (item) => numberOf(item, 'status') ?? numberOf(item, 'statusCode'));
  const name = chain.map((item) => stringOf(item, 'name')).find((item) => TRANSIENT_NAME.test(item));
  const code = chain.map((item) => stringOf(item, 'code')).find((item) => TRANSIENT_CODE.test(item));
  const make = (kind: FailureKind, retryable: boolean): Failure => ({
    kind,
    retryable,
    retryAfterMs: first(chain, (item) => retryAfterOf(item, now)),
    status,
    unreachable:
      status === null
        ? (chain.map((item) => stringOf(item, 'code')).find((item) => UNREACHABLE.test(item)) ?? null)
        : null,
    detail: detailOf(text),
  });
  if (status === 402 || QUOTA.test(text)) return make('quota', false);
  if (status === 401 || status === 403 || AUTH.test(text)) return make('auth', false);
  if (TOO_LONG.test(text) && (status === null || status === 400 || status === 413)) return make('too_long', false);
  if (BURST.test(text)) return make('burst', true);
  if (STREAM_TIMEOUT.test(text)) return make('stream_timeout', true);
  if (status !== null && TRANSIENT_STATUS.has(status)) return make('transient', true);
  if (name !== undefined || code !== undefined || chain.some((item) => ReindeerError.is(item) && item.retryable))
    return make('transient', true);
  // A status that names a mistake of ours is final, whatever its text says.
  if (status !== null && status >= 400 && status < 500) return make('other', false);
  if (TRANSIENT_TEXT.test(text)) return make('transient', true);
  if (BUSY.test(text)) return make('busy', true);
  return make('other', false);
}

type Item = Readonly<Record<string, unknown>>;

function causes(error: unknown): Item[] {
  const chain: Item[] = [];
  let current: unknown = error;
  while (typeof current === 'object' && current !== null && chain.length < 5) {
    chain.push(current as Item);
    const { error: inner } = current as { error?: unknown };
    if (typeof inner === 'object' && inner !== null) chain.push(inner as Item);
    current = (current as { cause?: unknown }).cause;
  }
  return chain.length === 0 ? [{ message: String(error) }] : chain;
}

/** At most 4,000 characters: an error may carry a whole response. */
const stringOf = (item: Item, key: string): string => (typeof item[key] === 'string' ? item[key].slice(0, 4_000) : '');
const numberOf = (item: Item, key: string): number | undefined =>
  typeof item[key] === 'number' ? item[key] : undefined;
const textOf = (item: Item): string =>
  [stringOf(item, 'code'), stringOf(item, 'type'), stringOf(item, 'message')].filter((part) => part !== '').join(' ');

function first<T>(chain: readonly Item[], read: (item: Item) => T | undefined): T | null {
  for (const item of chain) {
    const value = read(item);
    if (value !== undefined) return value;
  }
  return null;
}

/** `Retry-After` in seconds or as a date, `retry-after-ms` in milliseconds; of a `Headers` object or a plain one. */
function retryAfterOf(item: Item, now: number): number | undefined {
  const milliseconds = Number(headerOf(item, 'retry-after-ms') ?? Number.NaN);
  if (Number.isFinite(milliseconds) && milliseconds >= 0) return milliseconds;
  const value = headerOf(item, 'retry-after');
  if (value === undefined) return undefined;
  const seconds = Number(value);
  if (Number.isFinite(seconds)) return seconds >= 0 ? seconds * 1_000 : undefined;
  const date = Date.parse(value);
  return Number.isNaN(date) ? undefined : Math.max(0, date - now);
}

function headerOf(item: Item, name: string): string | undefined {
  const headers = item.headers;
  if (typeof headers !== 'object' || headers === null) return undefined;
  if (headers instanceof Headers) return headers.get(name) ?? undefined;
  for (const [key, value] of Object.entries(headers)) if (key.toLowerCase() === name) return String(value);
  return undefined;
}

function detailOf(text: string): string {
  // The client's library adds a link to pages of its own, and says things twice.
  const said = text.replaceAll(/\n*Troubleshooting URL: \S*\n*/g, '').split(' | ');
  const once = said.filter((part, index) => !said.some((other, at) => at < index && other.endsWith(part)));
  const plain = withoutHostDetails(once.join(' | '))
    .replace(/\b(sk|pk|key|Bearer)[-_ ][A-Za-z0-9*_-]{6,}/g, '[secret]')
    .trim();
  return plain.length > MAX_DETAIL ? `${plain.slice(0, MAX_DETAIL - 1)}…` : plain;
}
