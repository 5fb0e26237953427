import { Client as LangGraphClient } from '@langchain/langgraph-sdk/client';
import { ReindeerError } from '@reindeer/protocol';
import { closed, refusalOf, unreachable } from './errors.ts';

export interface Server {
  /** Address of the server, e.g. `http://127.0.0.1:2026`. */
  readonly url: string;
  /** null = it needs none. */
  readonly token: string | null;
  /** For whom to ask, with the server's internal token; absent = the user that the server has by itself. */
  readonly owner?: { readonly userId: string; readonly internalToken: string } | undefined;
}

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

export interface Request {
  /** Sent as JSON; a form as it is. */
  readonly body?: unknown;
  readonly query?: Readonly<Record<string, string | number | undefined>>;
  readonly signal?: AbortSignal | undefined;
}

/** Requests to one server. Open until `end`; afterwards everything is refused and what is under way is cut. */
export class Connection {
  readonly url: string;
  /** The official LangGraph client on the same server. */
  readonly sdk: LangGraphClient;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #over = new AbortController();

  constructor({ url, token, owner }: Server) {
    if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol))
      throw new ReindeerError('bad_request', `url: "${url.slice(0, 200)}" is no address. Use http://host:port.`);
    this.url = url.replace(/\/+$/, '');
    this.#headers = {
      ...(token === null ? {} : { authorization: `Bearer ${token}` }),
      ...(owner === undefined
        ? {}
        : { 'x-reindeer-internal-token': owner.internalToken, 'x-reindeer-owner-user-id': owner.userId }),
    };
    this.sdk = new LangGraphClient({
      apiUrl: `${this.url}/api`,
      // Never a key of LangSmith's from the environment.
      apiKey: null,
      defaultHeaders: { ...this.#headers },
      // A request that starts a run must not be sent twice; streams go on by themselves after a cut. A stream takes a place as long as it is read.
      callerOptions: { maxRetries: 0, maxConcurrency: Number.POSITIVE_INFINITY },
      onRequest: (_url, init) => ({ ...init, signal: this.signal(init.signal ?? undefined) }),
    });
  }

  /** Aborted with the given one, and at the end of the connection. */
  signal(given: AbortSignal | undefined): AbortSignal {
    return given === undefined ? this.#over.signal : AbortSignal.any([given, this.#over.signal]);
  }

  get over(): boolean {
    return this.#over.signal.aborted;
  }

  /** The answer as it comes. `path` is below `/api`. @throws ReindeerError with what the server said, or that nothing answers */
  async send(method: Method, path: string, { body, query = {}, signal }: Request = {}): Promise<Response> {
    if (this.over) throw closed();
    const url = new URL(`${this.url}/api${path}`);
    for (const [name, value] of Object.entries(query))
      if (value !== undefined) url.searchParams.set(name, String(value));
    const form = body instanceof FormData;
    const content = body === undefined ? {} : { body: form ? body : JSON.stringify(body) };
    let response: Response;
    try {
      response = await fetch(url, {
        method,
        headers: { ...this.#headers, ...(form || body === undefined ? {} : { 'content-type': 'application/json' }) },
        signal: this.signal(signal),
        ...content,
      });
    } catch (cause) {
      throw this.fault(cause, signal);
    }
    if (!response.ok) throw refusalOf(response.status, await response.text().catch(() => ''), response.headers);
    return response;
  }

  /** The answer as JSON; null where there is none. */
  async request<T>(method: Method, path: string, request?: Request): Promise<T> {
    const response = await this.send(method, path, request);
    const text = await response.text().catch((cause: unknown) => {
      throw this.fault(cause, request?.signal);
    });
    try {
      return (text === '' ? null : JSON.parse(text)) as T;
    } catch (cause) {
      throw new ReindeerError('store_unavailable', `What answers at ${this.url} is no Reindeer.`, { cause });
    }
  }

  /** Why a request was cut: by the caller, by the end of this connection, or on the way. */
  fault(cause: unknown, signal: AbortSignal | undefined): ReindeerError {
    if (ReindeerError.is(cause)) return cause;
    if (signal?.aborted === true) return new ReindeerError('aborted', 'Cut short by its signal.', { cause });
    return this.over ? closed() : unreachable(this.url, cause);
  }

  end(): void {
    this.#over.abort();
  }
}
