/**
 * Every fault of ours is a `ReindeerError` with a stable `code`. Expected outcomes (a conflict, a lost lease, a missing
 * row) are tagged results and never thrown; an exception means that something failed or that a store could not answer.
 */

/** Stable error codes. The HTTP status and the advice of each stand in one table: `gateway/src/http/errors.ts`. */
export type ErrorCode =
  | 'bad_request' // malformed input; `detail` names the field
  | 'validation_failed' // well-formed input that breaks a rule (HTTP 422)
  | 'unsupported_option' // an option that nothing here can honour (HTTP 422)
  | 'unauthorized'
  | 'forbidden'
  | 'not_found'
  | 'conflict' // somebody else holds the thread, or the state does not allow it
  | 'precondition_failed'
  | 'too_large'
  | 'unsupported_media_type'
  | 'range_not_satisfiable'
  | 'not_implemented'
  | 'shutting_down' // no new work is taken; try another instance or later
  | 'over_capacity' // a bound was reached; try later
  | 'queue_full' // a bound of this user's own: as many wait as may
  | 'configuration' // a configuration value is missing or wrong
  | 'store_unavailable' // a store could not answer: unknown, neither yes nor no
  | 'data_folder_locked' // another process owns the data folder
  | 'data_too_new' // the data folder was written by a newer version
  | 'fenced' // the caller lost the exclusive right it acted under
  | 'aborted' // cut short on request
  | 'sandbox_unavailable' // no sandbox can be had, or a command cannot be run in it
  | 'path_refused' // a path outside the allowed roots, through a link, or of a special file
  | 'model_failed' // a model provider failed for good
  | 'tool_failed'
  | 'run_failed' // a run ended with an error or at its time limit
  | 'internal';

export interface ErrorOptions {
  /** What went wrong underneath; kept for logs, never sent to a client. */
  readonly cause?: unknown;
  /** Can the same call succeed later without a change by the caller? Default false. */
  readonly retryable?: boolean;
  /** Machine-readable details that are safe to show: field names, limits, ids. */
  readonly detail?: Readonly<Record<string, unknown>>;
}

const BRAND: unique symbol = Symbol.for('reindeer.error') as never;

/** The one error class. `message` says what happened and what to do; it is safe to show to a client. */
export class ReindeerError extends Error {
  readonly code: ErrorCode;
  readonly retryable: boolean;
  readonly detail: Readonly<Record<string, unknown>> | undefined;

  constructor(code: ErrorCode, message: string, options: ErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'ReindeerError';
    this.code = code;
    this.retryable = options.retryable ?? false;
    this.detail = options.detail;
    Object.defineProperty(this, BRAND, { value: true, enumerable: false });
  }

  /** Works across bundles and worker boundaries, where `instanceof` does not. */
  static is(value: unknown): value is ReindeerError {
    return typeof value === 'object' && value !== null && BRAND in value;
  }

  /** Plain form for `postMessage` and back; the cause travels as text only. */
  toPlain(): PlainError {
    return {
      code: this.code,
      message: this.message,
      retryable: this.retryable,
      ...(this.detail === undefined ? {} : { detail: this.detail }),
      ...(this.cause === undefined ? {} : { cause: String(this.cause) }),
    };
  }

  static fromPlain(plain: PlainError): ReindeerError {
    return new ReindeerError(plain.code, plain.message, {
      retryable: plain.retryable,
      ...(plain.detail === undefined ? {} : { detail: plain.detail }),
      ...(plain.cause === undefined ? {} : { cause: plain.cause }),
    });
  }
}

export interface PlainError {
  readonly code: ErrorCode;
  readonly message: string;
  readonly retryable: boolean;
  readonly detail?: Readonly<Record<string, unknown>>;
  readonly cause?: string;
}

/** For branches that the types say cannot be reached. */
export function unreachable(value: never): never {
  throw new ReindeerError('internal', `Unexpected value: ${JSON.stringify(value)}`);
}
