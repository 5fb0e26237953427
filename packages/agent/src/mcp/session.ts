import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import type { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import {
  type CallToolResult,
  CallToolResultSchema,
  ToolListChangedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';
import type { jsonSchemaValidator } from '@modelcontextprotocol/sdk/validation';
import { ReindeerError } from '@reindeer/protocol';
import type { ProcessGuard } from '@reindeer/sandbox';
import { z } from 'zod';
import { type ListedTool, listedTool } from './listed-tool.ts';
import type { OAuthToken } from './oauth.ts';
import { remoteTransport } from './remote-transport.ts';
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
  /** The server says that it offers other tools now. */
  readonly onToolsChanged: () => void;
}

/** A connection with a server that has greeted it. */
export interface McpSession {
  /** What it offers; `left` names what makes no sense as a tool, which costs only itself. */
  listTools(signal: AbortSignal): Promise<{ readonly tools: readonly ListedTool[]; readonly left: readonly string[] }>;
  /** Null: the server does not know the session any more, and did nothing. It was restarted, or let the session expire. */
  callTool(
    name: string,
    args: Record<string, unknown>,
    options: { readonly signal: AbortSignal | undefined; readonly timeoutMs: number | null },
  ): Promise<CallToolResult | null>;
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
/** Everything about the tools themselves is judged one by one. */
const LISTING = z.looseObject({ tools: z.array(z.unknown()), nextCursor: z.string().optional() });
const FAREWELL_MS = 2_000;
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
  client.setNotificationHandler(ToolListChangedNotificationSchema, () => options.onToolsChanged());
  let ended = false;
  client.onclose = () => {
    ended = true;
  };
  const close = async (): Promise<void> => {
    ended = true;
    await farewell(transport);
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
  // Its answers would come over the stream that broke off: whoever waits for one learns it now, and the next call opens another session.
  if (server.transport.type === 'sse') client.onerror = () => void close();
  return {
    get ended() {
      return ended;
    },
    close,
    async listTools(listing) {
      const found: unknown[] = [];
      let cursor: string | undefined;
      for (let page = 0; page < MAX_PAGES && found.length < MAX_TOOLS; page += 1) {
        // Not the SDK's own method: it refuses a whole page for one tool that it does not like.
        const answer = await client.request(
          { method: 'tools/list', params: cursor === undefined ? {} : { cursor } },
          LISTING,
          { signal: listing, timeout: server.initTimeoutMs ?? NO_TIMEOUT_MS },
        );
        found.push(...answer.tools);
        if (answer.nextCursor === undefined || answer.nextCursor === cursor) break;
        cursor = answer.nextCursor;
      }
      const read = found.slice(0, MAX_TOOLS).map(listedTool);
      return {
        tools: read.filter((tool) => typeof tool !== 'string'),
        left: read.filter((tool) => typeof tool === 'string'),
      };
    },
    async callTool(name, args, { signal: calling, timeoutMs }) {
      try {
        return (await client.callTool({ name, arguments: args }, CallToolResultSchema, {
          ...(calling === undefined ? {} : { signal: calling }),
          timeout: timeoutMs ?? DAY_MS,
        })) as CallToolResult;
      } catch (error) {
        if (transport instanceof StdioTransport || !isForgotten(error)) throw error;
        ended = true;
        return null;
      }
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
  return remoteTransport(transport, token);
}

/**
 * 404 is what the protocol says for a session that is gone; some servers say 400 and why. What is not accepted is not executed either.
 */
function isForgotten(error: unknown): boolean {
  const { code, message } = error as { code?: unknown; message?: unknown };
  const text = String(message);
  const status = typeof code === 'number' && code >= 100 ? code : Number(/\(HTTP (\d{3})\)/.exec(text)?.[1]);
  return status === 404 || (status === 400 && /session/i.test(text));
}

/** A server over HTTP keeps what belongs to a session until it is told that nobody needs it. */
async function farewell(transport: Transport | StdioTransport): Promise<void> {
  if (!('terminateSession' in transport)) return;
  const late = new AbortController();
  const told = (transport as StreamableHTTPClientTransport).terminateSession().catch(() => {});
  await Promise.race([told, sleep(FAREWELL_MS, undefined, { signal: late.signal }).catch(() => {})]);
  late.abort();
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
  if (typeof code === 'number' && code >= 300 && code < 400)
    return 'it leads on to another address, where its secrets are not sent: write that address';
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
