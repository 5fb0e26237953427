import { EventSourceParserStream } from 'eventsource-parser/stream';
import { ApiError, asApiError, troubleOf } from './trouble.ts';

export type Method = 'POST' | 'PUT' | 'PATCH' | 'DELETE';

/** Requests below the API's address, as JSON. Every failure is an `ApiError`; one that was cut short by its signal rejects as `fetch` does. */
export interface Rest {
  request(path: string, init?: RequestInit): Promise<Response>;
  get(path: string, signal?: AbortSignal): Promise<unknown>;
  /** null = an answer without a body. */
  send(method: Method, path: string, body?: unknown): Promise<unknown>;
  /** Server-sent events until the server ends the stream. Nothing at all when too many are open already: then the caller has to ask instead. */
  events(path: string, signal: AbortSignal): AsyncIterable<{ readonly event: string; readonly data: unknown }>;
}

/** A browser opens about six connections to a server, and the chat needs some: streams beyond these would keep everything else waiting. */
const MAX_STREAMS = 2;

export interface RestOptions {
  readonly url: string;
  readonly token: () => string | null;
  readonly fetch: typeof fetch;
}

/** @param options.fetch the one that also tells whether the server can be reached */
export function httpRest({ url, token, fetch: reach }: RestOptions): Rest & { authorize(headers: Headers): void } {
  function authorize(headers: Headers): void {
    const given = token();
    if (given !== null) headers.set('authorization', `Bearer ${given}`);
  }

  async function request(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers);
    authorize(headers);
    let response: Response;
    try {
      response = await reach(`${url}${path}`, { ...init, headers });
    } catch (error) {
      if (init.signal?.aborted) throw error;
      throw asApiError(error);
    }
    if (!response.ok) {
      const { trouble, info } = troubleOf(response.status, await response.text().catch(() => ''));
      // Only a chat is busy; elsewhere the server says what stands in the way.
      throw new ApiError(response.status, trouble.kind === 'busy' ? { ...trouble, kind: 'conflict' } : trouble, info);
    }
    return response;
  }

  let streams = 0;
  return {
    authorize,
    request,
    async get(path, signal) {
      return (await request(path, signal === undefined ? {} : { signal })).json();
    },
    async send(method, path, body) {
      const response = await request(path, {
        method,
        ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
      });
      return response.status === 204 ? null : response.json();
    },
    async *events(path, signal) {
      if (streams >= MAX_STREAMS) return;
      streams += 1;
      try {
        const { body } = await request(path, { signal, headers: { accept: 'text/event-stream' } });
        if (body === null) return;
        const reader = body.pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream()).getReader();
        try {
          for (;;) {
            const { value, done } = await reader.read();
            if (done) return;
            yield { event: value.event ?? 'message', data: parse(value.data) };
          }
        } finally {
          await reader.cancel().catch(() => {});
        }
      } finally {
        streams -= 1;
      }
    },
  };
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
