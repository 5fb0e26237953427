import type { Trouble } from '../chat/state.ts';
import { type Dictionary, isDictionary, listOf, textOr } from '../chat/wire.ts';

/** A request that failed, in the page's terms. */
export class ApiError extends Error {
  readonly status: number;
  readonly trouble: Trouble;
  readonly info: Dictionary;

  constructor(status: number, trouble: Trouble, info: Dictionary = {}) {
    super(trouble.detail ?? trouble.kind);
    this.name = 'ApiError';
    this.status = status;
    this.trouble = trouble;
    this.info = info;
  }
}

/** Reads the answer of a failed request: `{detail, code, info}`, where `detail` is a text or a list of problems. */
export function troubleOf(status: number, body: string): { readonly trouble: Trouble; readonly info: Dictionary } {
  const answer = parse(body);
  const detail = textOr(answer.detail, null) ?? problemsOf(answer.detail);
  return {
    trouble: { kind: kindOf(status), detail },
    info: isDictionary(answer.info) ? answer.info : {},
  };
}

function kindOf(status: number): Trouble['kind'] {
  if (status === 401) return 'token';
  if (status === 404) return 'not-found';
  if (status === 409) return 'busy';
  if (status === 413) return 'too-large';
  return 'server';
}

function problemsOf(detail: unknown): string | null {
  const lines = listOf(detail)
    .filter(isDictionary)
    .map((problem) => `${listOf(problem.loc).slice(1).join('.')}: ${textOr(problem.msg, '')}`);
  return lines.length === 0 ? null : lines.join('\n');
}

function parse(body: string): Dictionary {
  try {
    const value: unknown = JSON.parse(body);
    return isDictionary(value) ? value : {};
  } catch {
    return {};
  }
}

/** Whatever was thrown, as trouble. The SDK's errors carry `status` and the body as `text`. */
export function asTrouble(error: unknown): Trouble {
  return asApiError(error).trouble;
}

export function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const known = isDictionary(error) ? error : {};
  if (typeof known.status === 'number') {
    const { trouble, info } = troubleOf(known.status, textOr(known.text, ''));
    return new ApiError(known.status, trouble, info);
  }
  // `fetch` rejects with a TypeError when there was no answer at all.
  return new ApiError(0, { kind: 'network', detail: null });
}
