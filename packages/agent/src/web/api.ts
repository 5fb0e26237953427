import { type Logger, ReindeerError } from '@reindeer/protocol';

export interface ApiRequest {
  readonly url: string;
  readonly query?: Readonly<Record<string, string | number | undefined>>;
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as JSON by POST; absent = GET. */
  readonly json?: unknown;
  /** Sent as a form by POST. */
  readonly form?: Readonly<Record<string, string>>;
  readonly signal: AbortSignal | undefined;
  /** Milliseconds. Default 30,000. */
  readonly timeoutMs?: number;
}

const MAX_BYTES = 8 * 1024 * 1024;

/**
 * Calls the API of a provider that the operator configured, and answers its text. Unlike pages that a model names, its address is trusted.
 *
 * @throws ReindeerError `tool_failed` with what the model and the operator should know; never with a header, a key or a body
 */
export async function callApi(provider: string, request: ApiRequest): Promise<string> {
  const url = new URL(request.url);
  for (const [name, value] of Object.entries(request.query ?? {}))
    if (value !== undefined) url.searchParams.set(name, String(value));
  const timeoutMs = request.timeoutMs ?? 30_000;
  const deadline = AbortSignal.timeout(timeoutMs);
  const body = bodyOf(request);
  let answer: Response;
  let text: string;
  try {
    answer = await fetch(url, {
      method: body === undefined ? 'GET' : 'POST',
      headers: { accept: 'application/json', ...body?.headers, ...request.headers },
      ...(body === undefined ? {} : { body: body.text }),
      // A key in a header of its own would go along to wherever an answer points.
      redirect: 'error',
      signal: request.signal === undefined ? deadline : AbortSignal.any([request.signal, deadline]),
    });
    text = await bounded(answer, provider);
  } catch (error) {
    if (ReindeerError.is(error)) throw error;
    if (request.signal?.aborted === true)
      throw new ReindeerError('aborted', 'The request was cut short.', { cause: error });
    const why = deadline.aborted ? `did not answer within ${Math.round(timeoutMs / 1000)} s` : 'cannot be reached';
    throw new ReindeerError('tool_failed', `${provider} ${why}. Try again later, or go on without it.`, {
      cause: error,
      retryable: true,
    });
  }
  if (answer.ok) return text;
  const { status } = answer;
  const why =
    status === 401 || status === 403
      ? 'refused the API key; the operator must check it'
      : status === 402 || status === 432
        ? 'has no credit left; the operator must look at the account'
        : status === 429
          ? 'gets too many requests; wait before you ask again'
          : `answered with status ${status}`;
  throw new ReindeerError('tool_failed', `${provider} ${why}.`, { retryable: status === 429 || status >= 500 });
}

/** As `callApi`, for an answer in JSON. */
export async function callJson(provider: string, request: ApiRequest): Promise<Record<string, unknown>> {
  const text = await callApi(provider, request);
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch {
    // Told below, as for JSON of another shape.
  }
  throw new ReindeerError('tool_failed', `${provider} sent an answer that makes no sense.`);
}

function bodyOf({ json, form }: ApiRequest): { text: string; headers: Record<string, string> } | undefined {
  if (json !== undefined) return { text: JSON.stringify(json), headers: { 'content-type': 'application/json' } };
  if (form === undefined) return undefined;
  return {
    text: new URLSearchParams(form).toString(),
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
  };
}

async function bounded(answer: Response, provider: string): Promise<string> {
  const decoder = new TextDecoder();
  let text = '';
  let size = 0;
  for await (const chunk of answer.body ?? []) {
    size += chunk.length;
    if (size > MAX_BYTES)
      throw new ReindeerError('tool_failed', `${provider} sent more than ${MAX_BYTES / 1024 / 1024} MiB.`);
    text += decoder.decode(chunk, { stream: true });
  }
  return text + decoder.decode();
}

/** The key of a provider. Tells the operator once when it is missing; the model learns it at each call. */
export class ApiKey {
  readonly #provider: string;
  readonly #variable: string;
  readonly #key: string | undefined;
  readonly #logger: Logger;
  #told = false;

  constructor(provider: string, variable: string, key: string | undefined, logger: Logger) {
    this.#provider = provider;
    this.#variable = variable;
    this.#key = key === '' ? undefined : key;
    this.#logger = logger;
  }

  /** @throws ReindeerError `configuration` that names the variable to set */
  required(): string {
    if (this.#key !== undefined) return this.#key;
    const message = `${this.#provider} needs an API key: set ${this.#variable} in the environment, or api_key of the tool in config.yaml.`;
    if (!this.#told) this.#logger.warn(message);
    this.#told = true;
    throw new ReindeerError('configuration', message);
  }

  /** For a provider that works without one, only less often. */
  optional(): string | undefined {
    if (this.#key === undefined && !this.#told)
      this.#logger.info(
        `${this.#provider} works without a key, but answers fewer requests; ${this.#variable} would give it one.`,
      );
    this.#told = true;
    return this.#key;
  }
}

/** A list of objects under a key; anything else counts as empty. */
export function listOf(value: unknown): Record<string, unknown>[] {
  return Array.isArray(value)
    ? value.filter((item): item is Record<string, unknown> => typeof item === 'object' && item !== null)
    : [];
}

export const textOf = (value: unknown): string => (typeof value === 'string' ? value.trim() : '');
