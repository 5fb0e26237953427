import { type ErrorCode, ReindeerError } from '@reindeer/protocol';

/**
 * The one table from error codes to HTTP. Every answer has the envelope `{"detail": …, "code": …}`; `detail` says what happened
 * and what to do. `retryAfter`: seconds, sent as `Retry-After`. What a code's message leaves open is completed with `advice`.
 */
interface ErrorRule {
  readonly status: number;
  readonly advice: string;
  readonly retryAfter?: number;
  /** The message may name files, hosts or settings of the machine: clients get `advice` alone. */
  readonly hidden?: true;
}

const RULES: Readonly<Record<ErrorCode, ErrorRule>> = {
  bad_request: { status: 400, advice: 'Correct the request and send it again.' },
  validation_failed: { status: 422, advice: 'Correct the named fields and send the request again.' },
  unsupported_option: { status: 422, advice: 'Leave the option out.' },
  unauthorized: {
    status: 401,
    advice: 'Send the token as "Authorization: Bearer <token>"; `reindeer serve` prints it at start.',
  },
  forbidden: { status: 403, advice: 'This is not allowed here.' },
  not_found: { status: 404, advice: 'Check the address and the id.' },
  conflict: { status: 409, advice: 'Wait for the other operation on this thread to end, then try again.' },
  precondition_failed: { status: 412, advice: 'Read the current version, then try again.' },
  too_large: { status: 413, advice: 'Send less at once.' },
  unsupported_media_type: { status: 415, advice: 'Send JSON with "Content-Type: application/json".' },
  range_not_satisfiable: { status: 416, advice: 'Ask for a range inside the file.' },
  not_implemented: { status: 501, advice: 'This version cannot do that yet.' },
  shutting_down: { status: 503, advice: 'The server is stopping; try again after its restart.', retryAfter: 5 },
  queue_full: { status: 429, advice: 'Wait until one of the waiting ones has ended, or cancel one.', retryAfter: 5 },
  over_capacity: { status: 503, advice: 'Too much is going on; try again shortly.', retryAfter: 2 },
  configuration: {
    status: 503,
    advice: 'The server is not configured for this; its operator finds the reason with `reindeer doctor`.',
    hidden: true,
  },
  store_unavailable: {
    status: 503,
    advice: 'The database did not answer; nothing is known to be lost. Try again shortly.',
    retryAfter: 2,
    hidden: true,
  },
  data_folder_locked: {
    status: 503,
    advice: 'Another process uses the data folder; stop it or use it instead.',
    hidden: true,
  },
  data_too_new: { status: 503, advice: 'The data was written by a newer version; install that version.', hidden: true },
  fenced: { status: 409, advice: 'Another worker took over; read the current state and try again.', retryAfter: 1 },
  aborted: { status: 409, advice: 'The operation was cut short on request.' },
  sandbox_unavailable: { status: 503, advice: 'No sandbox can run this; `reindeer doctor` names the reason.' },
  path_refused: {
    status: 403,
    advice: 'Only regular files below /mnt/user-data can be used, and never through links.',
  },
  model_failed: { status: 502, advice: 'The model provider failed; try again or choose another model.' },
  run_failed: { status: 502, advice: 'The run ended with an error; its message says why.' },
  tool_failed: { status: 502, advice: 'A tool failed; the run shows its message.' },
  internal: {
    status: 500,
    advice: 'Something failed inside the server; its log has the details under the request id in "x-request-id".',
    hidden: true,
  },
};

/** One problem of a request, in the shape of the 422 list. */
export interface Problem {
  readonly loc: readonly (string | number)[];
  readonly msg: string;
  readonly type: string;
}

export interface ErrorAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: { readonly detail: string | readonly Problem[]; readonly code: ErrorCode } & Readonly<
    Record<string, unknown>
  >;
}

const PROBLEMS = 'problems';
/** Problems that one answer lists. A body with a million unknown fields must not cost a million suggestions. */
export const MAX_PROBLEMS = 20;

/** A 422 (or, for malformed messages, a 400) that lists each problem with its place. */
export function invalid(
  problems: readonly Problem[],
  code: 'validation_failed' | 'unsupported_option' | 'bad_request' = 'validation_failed',
): ReindeerError {
  const text = problems.map((problem) => `${problem.loc.join('.')}: ${problem.msg}`).join('; ');
  return new ReindeerError(code, text, { detail: { [PROBLEMS]: problems } });
}

const sentence = (text: string) => (/[.!?]$/.test(text) ? text : `${text}.`);

/** Turns anything thrown into an answer that leaks nothing and says what to do. */
export function errorAnswer(error: unknown): ErrorAnswer {
  const known = ReindeerError.is(error) ? error : null;
  const code: ErrorCode = known?.code ?? 'internal';
  const rule = RULES[code] ?? RULES.internal;
  const { [PROBLEMS]: problems, ...info } = { ...known?.detail };
  let detail: string | readonly Problem[];
  if (Array.isArray(problems)) detail = problems as readonly Problem[];
  else if (known === null || rule.hidden === true) detail = rule.advice;
  else detail = known.message === '' ? rule.advice : sentence(known.message);
  // A message of one sentence says what happened; the advice says what to do.
  if (typeof detail === 'string' && detail.split(/[.;!?](?:\s|$)/).filter((part) => part !== '').length < 2)
    detail = detail === rule.advice ? detail : `${detail} ${rule.advice}`;
  const shown = rule.hidden === true ? {} : info;
  const told = info.retry_after_seconds;
  const retryAfter = typeof told === 'number' ? told : (rule.retryAfter ?? (known?.retryable === true ? 2 : undefined));
  return {
    status: rule.status,
    headers: retryAfter === undefined ? {} : { 'retry-after': String(retryAfter) },
    body: { detail, code, ...(Object.keys(shown).length === 0 ? {} : { info: shown }) },
  };
}

export const notFound = (what: string, id: string): ReindeerError =>
  new ReindeerError(
    'not_found',
    `There is no ${what} "${id.slice(0, 80)}". It may have been deleted, or the id is wrong.`,
  );
