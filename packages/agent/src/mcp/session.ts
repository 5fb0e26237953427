import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { type CallToolResult, CallToolResultSchema, type Tool } from '@modelcontextprotocol/sdk/types.js';
import type { jsonSchemaValidator } from '@modelcontextprotocol/sdk/validation';
import { ReindeerError } from '@reindeer/protocol';
import type { ProcessGuard } from '@reindeer/sandbox';
import type { OAuthToken } from './oauth.ts';
import type { McpServer } from './settings.ts';
import { StdioTransport } from './stdio-transport.ts';

export interface OpenOptions {
  readonly server: McpServer;
  /** Working folder of a stdio server. */
  readonly cwd: string;
  /** A folder that no sandbox can write: where a launcher looks for packages and settings. */
  readonly launchFolder: string;
  /** What a stdio server gets beside its own `env`. */
  readonly environment: Readonly<Record<string, string>>;
  /** Ends a stdio server with this process. */
  readonly guard: ProcessGuard;
  /** Shared by all sessions of the server; null without OAuth. */
  readonly token: OAuthToken | null;
  readonly signal: AbortSignal;
}

/** A connection with a server that has greeted it. */
export interface McpSession {
  listTools(signal: AbortSignal): Promise<readonly Tool[]>;
  callTool(
    name: string,
    args: Record<string, unknown>,
    options: { readonly signal: AbortSignal | undefined; readonly timeoutMs: number | null },
  ): Promise<CallToolResult>;
  /** Has the other side gone? */
  readonly ended: boolean;
  close(): Promise<void>;
}

/** A listing goes on for so many pages and tools; the rest is left out. */
const MAX_PAGES = 20;
const MAX_TOOLS = 256;
/** The SDK wants a number; a run ends long before. */
const NO_TIMEOUT_MS = 2 ** 31 - 1;
const DAY_MS = 86_400_000;
/** Bytes of one answer or one event over HTTP; as for a server that is a process. */
const MAX_MESSAGE = 16 * 1024 * 1024;
/** What a server says of its own results is not checked: its expressions would run on our thread, on texts of its choice. */
const UNCHECKED = { getValidator: () => (data: unknown) => ({ valid: true, data, errorMessage: undefined }) };

/**
 * Connects to a server and greets it (MCP-1). When that fails, nothing is left of it: no process, no socket (MC-12).
 *
 * @throws ReindeerError `tool_failed` with the reason, `aborted`
 */
export async function openSession(options: OpenOptions): Promise<McpSession> {
  const { server, signal } = options;
  const transport = transportOf(options);
  const client = new Client(
    { name: 'reindeer', version: '0.1.0' },
    { jsonSchemaValidator: UNCHECKED as unknown as jsonSchemaValidator },
  );
  let ended = false;
  client.onclose = () => {
    ended = true;
  };
  const close = async (): Promise<void> => {
    ended = true;
    await client.close().catch(() => {});
    await transport.close().catch(() => {});
  };
  try {
    await waitUnless(
      signal,
      client.connect(transport as Transport, { timeout: server.initTimeoutMs ?? NO_TIMEOUT_MS }),
    );
  } catch (error) {
    await close();
    if (signal.aborted) throw signal.reason instanceof Error ? signal.reason : aborted();
    throw new ReindeerError(
      'tool_failed',
      `The MCP server ${server.name} cannot be reached: ${reasonOf(error, transport)}.`,
      { cause: error },
    );
  }
  return {
    get ended() {
      return ended;
    },
    close,
    async listTools(listing) {
      const tools: Tool[] = [];
      let cursor: string | undefined;
      for (let page = 0; page < MAX_PAGES && tools.length < MAX_TOOLS; page += 1) {
        const answer = await client.listTools(cursor === undefined ? {} : { cursor }, {
          signal: listing,
          timeout: server.initTimeoutMs ?? NO_TIMEOUT_MS,
        });
        tools.push(...answer.tools);
        if (answer.nextCursor === undefined || answer.nextCursor === cursor) break;
        cursor = answer.nextCursor;
      }
      return tools.slice(0, MAX_TOOLS);
    },
    async callTool(name, args, { signal: calling, timeoutMs }) {
      return (await client.callTool({ name, arguments: args }, CallToolResultSchema, {
        ...(calling === undefined ? {} : { signal: calling }),
        timeout: timeoutMs ?? DAY_MS,
      })) as CallToolResult;
    },
  };
}

/**
 * `npx` prefers programs and settings of the folder that it is started in. That is the conversation's, in which the sandbox writes: what lies there
 * must not run outside of it. The server itself still works in the conversation's folder.
 */
function argumentsOf(command: string, args: readonly string[], launchFolder: string): readonly string[] {
  return /(?:^|[\\/])npx(?:\.cmd)?$/.test(command) ? [`--prefix=${launchFolder}`, ...args] : args;
}

function transportOf({
  server,
  cwd,
  launchFolder,
  environment,
  guard,
  token,
}: OpenOptions): Transport | StdioTransport {
  const { transport } = server;
  if (transport.type === 'stdio')
    return new StdioTransport({
      command: transport.command,
      args: argumentsOf(transport.command, transport.args, launchFolder),
      env: { ...environment, ...transport.env },
      cwd,
      guard,
    });
  const url = new URL(transport.url);
  const options = { fetch: authorised(token), requestInit: { headers: { ...transport.headers } } };
  return transport.type === 'sse'
    ? new SSEClientTransport(url, {
        ...options,
        eventSourceInit: { fetch: withHeaders(options.fetch, transport.headers) },
      })
    : // The SDK reconnects streams for ever otherwise.
      new StreamableHTTPClientTransport(url, {
        ...options,
        reconnectionOptions: {
          maxRetries: 2,
          initialReconnectionDelay: 500,
          maxReconnectionDelay: 5_000,
          reconnectionDelayGrowFactor: 2,
        },
      });
}

type Fetch = (url: string | URL, init?: RequestInit) => Promise<Response>;

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
  const isStream = /^text\/event-stream/i.test(answer.headers.get('content-type') ?? '');
  let size = 0;
  let tail = Buffer.alloc(0);
  const counted = answer.body.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        size += chunk.length;
        if (isStream) {
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
  const { status, statusText, headers } = answer;
  return new Response(counted, { status, statusText, headers });
}

/** Short, for a log and a person; never a header or a value of the environment. */
function reasonOf(error: unknown, transport: Transport | StdioTransport): string {
  if (ReindeerError.is(error)) return error.message.replace(/\.$/, '');
  const { code } = error as { code?: unknown };
  if (code === 'ENOENT') return 'its command does not exist';
  if (code === 'EACCES') return 'its command may not be run';
  if (code === -32001 || (error as Error).name === 'TimeoutError') return 'it does not answer in time';
  if (transport instanceof StdioTransport) return transport.refusal ?? 'its process ended, or does not speak MCP';
  const cause = (error as { cause?: { code?: unknown } }).cause?.code;
  if (typeof cause === 'string') return cause;
  if (typeof code === 'number' && code >= 100) return `it answers with status ${code}`;
  return 'it does not speak MCP';
}

const aborted = (): ReindeerError => new ReindeerError('aborted', 'The connection was cut short.');

/** The SDK's `connect` takes no signal. */
function waitUnless<T>(signal: AbortSignal, work: Promise<T>): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const leave = (): void => reject(aborted());
    if (signal.aborted) leave();
    signal.addEventListener('abort', leave, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', leave));
  });
}
