import { ReindeerError } from '@reindeer/protocol';

/** Where the metadata of a result stands in a tool message's `additional_kwargs`. */
export const TOOL_META = 'reindeer_tool_meta';

export type ToolErrorType =
  | 'auth'
  | 'rate_limited'
  | 'transient'
  | 'config'
  | 'permission'
  | 'no_results'
  | 'not_found'
  | 'internal'
  | 'unknown';

/** What became of a tool call, for the loop, the page and later middleware. */
export interface ToolMeta {
  readonly status: 'success' | 'error' | 'partial_success';
  readonly error_type: ToolErrorType | null;
  readonly recoverable_by_model: boolean;
  readonly recommended_next_action: 'continue' | 'rewrite_query' | 'try_alternative' | 'summarize' | 'stop';
  readonly source: 'result' | 'error_text' | 'error_body' | 'error_page' | 'exception';
}

export const SUCCESS: ToolMeta = {
  status: 'success',
  error_type: null,
  recoverable_by_model: true,
  recommended_next_action: 'continue',
  source: 'result',
};

const NEXT: Readonly<Record<ToolErrorType, Pick<ToolMeta, 'recoverable_by_model' | 'recommended_next_action'>>> = {
  auth: { recoverable_by_model: false, recommended_next_action: 'stop' },
  config: { recoverable_by_model: false, recommended_next_action: 'stop' },
  permission: { recoverable_by_model: true, recommended_next_action: 'try_alternative' },
  rate_limited: { recoverable_by_model: true, recommended_next_action: 'try_alternative' },
  transient: { recoverable_by_model: true, recommended_next_action: 'try_alternative' },
  no_results: { recoverable_by_model: true, recommended_next_action: 'rewrite_query' },
  not_found: { recoverable_by_model: true, recommended_next_action: 'try_alternative' },
  internal: { recoverable_by_model: true, recommended_next_action: 'try_alternative' },
  unknown: { recoverable_by_model: true, recommended_next_action: 'try_alternative' },
};

const failure = (type: ToolErrorType, source: ToolMeta['source']): ToolMeta => ({
  status: 'error',
  error_type: type,
  ...NEXT[type],
  source,
});

/** From most to least specific; the first that fits counts. */
const PATTERNS: readonly (readonly [RegExp, ToolErrorType])[] = [
  [/\b401\b|unauthori[sz]ed|invalid api key|authentication failed|api key (is )?(missing|not set)/i, 'auth'],
  [/\b429\b|rate.?limit|too many requests|quota/i, 'rate_limited'],
  [
    /\b403\b|forbidden|permission denied|not permitted|not allowed|outside of this conversation|read-only/i,
    'permission',
  ],
  [/\b404\b|not found|no such file|does not exist/i, 'not_found'],
  [/no (results|matches)|nothing matches|no file matches/i, 'no_results'],
  [/time(d)? ?out|ECONN|EAI_AGAIN|temporar|unavailable|\b50[234]\b|socket hang up|fetch failed/i, 'transient'],
  [/not configured|configuration/i, 'config'],
];

function typeOf(text: string): ToolErrorType {
  return PATTERNS.find(([pattern]) => pattern.test(text))?.[1] ?? 'unknown';
}

/** The metadata of a result by its text: an `Error:` prefix, a JSON body with `error`, or a fetched error page. */
export function metaOfText(text: string, status?: string): ToolMeta {
  const head = text.slice(0, 2_000);
  if (status === 'error' || /^\s*Error:/i.test(head)) return failure(typeOf(head), 'error_text');
  const body = errorOfBody(head);
  if (body !== null) return failure(typeOf(body), 'error_body');
  const title = /^\s*(?:#\s*|<title>|title:\s*)([^\n<]{0,120})/i.exec(head)?.[1];
  if (title !== undefined && /^\s*(404|403|401|50[0-4])\b|not found|access denied|captcha|just a moment/i.test(title))
    return failure(/captcha|just a moment|denied|403/i.test(title) ? 'permission' : typeOf(title), 'error_page');
  return SUCCESS;
}

function errorOfBody(head: string): string | null {
  if (!/^\s*\{\s*"error"\s*:/.test(head)) return null;
  const text = /"error"\s*:\s*(?:"((?:[^"\\]|\\.)*)"|\{[^}]*"message"\s*:\s*"((?:[^"\\]|\\.)*)")/.exec(head);
  return text === null ? null : (text[1] ?? text[2] ?? 'error');
}

/** The metadata of something that a tool threw. */
export function metaOfError(error: unknown): ToolMeta {
  if (ReindeerError.is(error)) {
    switch (error.code) {
      case 'not_found':
        return failure('not_found', 'exception');
      case 'forbidden':
      case 'path_refused':
        return failure('permission', 'exception');
      case 'configuration':
        return failure('config', 'exception');
      case 'over_capacity':
        return failure('transient', 'exception');
      case 'internal':
        return failure('internal', 'exception');
    }
    if (error.retryable) return failure('transient', 'exception');
  }
  const text = error instanceof Error ? `${error.name} ${error.message}` : String(error);
  const type = typeOf(text);
  return failure(type === 'unknown' && error instanceof TypeError ? 'internal' : type, 'exception');
}
