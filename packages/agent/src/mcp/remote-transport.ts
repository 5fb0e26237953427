import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import type { OAuthToken } from './oauth.ts';
import type { McpServer } from './settings.ts';

/** Bytes of one answer or one event over HTTP; as for a server that is a process. */
const MAX_MESSAGE = 16 * 1024 * 1024;
/** After the end of a stream its last event may still be on its way through the client. */
const TAIL_MS = 500;

type Remote = Extract<McpServer['transport'], { readonly url: string }>;
type Fetch = (url: string | URL, init?: RequestInit) => Promise<Response>;

/** The SDK's transport for a server over HTTP, with what it lacks: a token, bounds, and an end of calls whose stream broke off. */
export function remoteTransport(transport: Remote, token: OAuthToken | null): Transport {
  const url = new URL(transport.url);
  const send = authorised(token);
  const requestInit = { headers: { ...transport.headers } };
  if (transport.type === 'sse')
    return new SSEClientTransport(url, {
      requestInit,
      fetch: send,
      eventSourceInit: { fetch: withHeaders(send, transport.headers) },
    });
  const answers = new OpenCalls();
  const made = new StreamableHTTPClientTransport(url, {
    requestInit,
    fetch: answers.watching(send),
    // The SDK reconnects streams for ever otherwise.
    reconnectionOptions: {
      maxRetries: 2,
      initialReconnectionDelay: 500,
      maxReconnectionDelay: 5_000,
      reconnectionDelayGrowFactor: 2,
    },
  });
  answers.attach(made);
  return made;
}

/**
 * Calls that a stream is to answer. The SDK forgets one whose stream ends before its answer, and the caller would wait for ever. Here it
 * fails then; a stream that can be resumed is left to the SDK until that gives up.
 */
class OpenCalls {
  /** Ids of requests, and whether their stream named an event to go on from. */
  readonly #open = new Map<number, { resumable: boolean }>();
  #fail: (id: number) => void = () => {};

  attach(transport: StreamableHTTPClientTransport): void {
    // The client puts its own handlers in place when it connects.
    const start = transport.start.bind(transport);
    transport.start = async () => {
      const { onmessage, onerror } = transport;
      transport.onmessage = (message) => {
        if ('id' in message && !('method' in message)) this.#open.delete(Number(message.id));
        onmessage?.(message);
      };
      transport.onerror = (error) => {
        if (/^Maximum reconnection attempts/.test(error.message))
          for (const [id, { resumable }] of this.#open) if (resumable) this.#end(id);
        onerror?.(error);
      };
      this.#fail = (id) =>
        onmessage?.({ jsonrpc: '2.0', id, error: { code: CONNECTION_LOST, message: 'the connection broke off' } });
      await start();
    };
  }

  watching(send: Fetch): Fetch {
    return async (url, init) => {
      const id = requestOf(init);
      const answer = await send(url, init);
      if (id === null || answer.body === null || !isStream(answer)) return answer;
      const call = { resumable: false };
      this.#open.set(id, call);
      const over = (): void => {
        setTimeout(() => {
          if (!call.resumable) this.#end(id);
        }, TAIL_MS).unref();
      };
      const reader = answer.body.getReader();
      const watched = new ReadableStream<Uint8Array>({
        async pull(controller) {
          try {
            const { done, value } = await reader.read();
            if (!done) {
              call.resumable ||= /(?:^|[\r\n])id:/.test(Buffer.from(value).toString('latin1'));
              return controller.enqueue(value);
            }
            controller.close();
          } catch (error) {
            controller.error(error);
          }
          over();
        },
        cancel: (reason) => reader.cancel(reason),
      });
      return copyOf(answer, watched);
    };
  }

  #end(id: number): void {
    if (this.#open.delete(id)) this.#fail(id);
  }
}

/** Of a call whose stream ended without its answer: whether it took effect is not known. */
const CONNECTION_LOST = -32_000;

function requestOf(init: RequestInit | undefined): number | null {
  if (init?.method !== 'POST' || typeof init.body !== 'string') return null;
  const { id, method } = JSON.parse(init.body) as { id?: unknown; method?: unknown };
  return typeof id === 'number' && typeof method === 'string' ? id : null;
}

const isStream = (answer: Response): boolean => /^text\/event-stream/i.test(answer.headers.get('content-type') ?? '');

function copyOf({ status, statusText, headers }: Response, body: ReadableStream<Uint8Array>): Response {
  return new Response(body, { status, statusText, headers });
}

const withHeaders =
  (fetcher: Fetch, headers: Readonly<Record<string, string>>): Fetch =>
  (url, init) => {
    const all = new Headers(headers);
    for (const [name, value] of new Headers(init?.headers)) all.set(name, value);
    return fetcher(url, { ...init, headers: all });
  };

/** Puts the current token on each request; a refused one is replaced once. */
function authorised(token: OAuthToken | null): Fetch {
  if (token === null) return async (url, init) => bounded(await fetch(url, init));
  const send = async (url: string | URL, init: RequestInit | undefined, header: string): Promise<Response> => {
    const headers = new Headers(init?.headers);
    headers.set('authorization', header);
    return bounded(await fetch(url, { ...init, headers }));
  };
  return async (url, init) => {
    const header = await token.header();
    const answer = await send(url, init, header);
    // A body that is a stream cannot be sent twice; the SDK sends text.
    if (answer.status !== 401 || init?.body instanceof ReadableStream) return answer;
    token.forget(header);
    await answer.body?.cancel();
    return await send(url, init, await token.header());
  };
}

/** Fails when one answer, or one event of a stream, is longer than a message may be. */
function bounded(answer: Response): Response {
  if (answer.body === null) return answer;
  const inEvents = isStream(answer);
  let size = 0;
  let tail = Buffer.alloc(0);
  const counted = answer.body.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        size += chunk.length;
        if (inEvents) {
          // An empty line ends an event; it may stand where two chunks meet.
          const seen = Buffer.concat([tail, chunk]);
          const end = Math.max(...['\n\n', '\r\n\r\n', '\r\r'].map((line) => seen.lastIndexOf(line)));
          if (end !== -1) size = seen.length - end;
          tail = seen.subarray(-3);
        }
        if (size > MAX_MESSAGE)
          controller.error(new Error(`the server sent a message of more than ${MAX_MESSAGE} bytes`));
        else controller.enqueue(chunk);
      },
    }),
  );
  return copyOf(answer, counted);
}
