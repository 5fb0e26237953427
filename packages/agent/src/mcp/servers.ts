import { createHash } from 'node:crypto';
import type { StructuredToolInterface } from '@langchain/core/tools';
import { type Clock, type Logger, type Random, ReindeerError } from '@reindeer/protocol';
import { ProcessGuard } from '@reindeer/sandbox';
import type { AttemptScope } from '../loop/scope.ts';
import { OAuthToken } from './oauth.ts';
import { SessionPool } from './pool.ts';
import type { McpSession } from './session.ts';
import { type McpServer, type McpSettings, readServers, type ServerProblem } from './settings.ts';
import { mcpTool } from './tool.ts';

export interface McpServersOptions {
  /**
   * Reads the section `mcpServers` as it stands now; null = there is none. Rejects when it cannot be read, which keeps what was read last.
   */
  readonly read: () => Promise<unknown>;
  /** Makes, if needed, and answers the working folder of a conversation; null = for discovery, where there is none. */
  readonly folder: (thread: { readonly userId: string; readonly threadId: string } | null) => Promise<string>;
  /** The server's own environment; a stdio server gets only a few harmless variables of it. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
  /** How long runs wait for a server from the moment on in which it is asked, in milliseconds; they go on without it then. Default 10,000. */
  readonly waitMs?: number;
  /** A server that failed is asked again after this time. Default 60,000. */
  readonly retryMs?: number;
  /** A session that nobody used for this time is closed. Default 15 minutes. */
  readonly idleMs?: number;
  /** One that says that its tools have changed is listed anew, this long after the last time at the earliest. Default 10,000. */
  readonly relistMs?: number;
}

/** The tools of all servers that work. */
export interface McpCatalog {
  /** Changes with the tools. */
  readonly version: string;
  readonly tools: readonly StructuredToolInterface[];
}

export interface ServerStatus {
  readonly name: string;
  readonly state: 'connecting' | 'ready' | 'failed';
  readonly tools: readonly string[];
  /** Why it failed; safe to show. */
  readonly reason: string | null;
}

interface Known {
  readonly server: McpServer;
  /** Of the entry in the file: a changed one is discovered anew. */
  readonly signature: string;
  readonly token: OAuthToken | null;
  readonly stop: AbortController;
  state: ServerStatus['state'];
  tools: readonly StructuredToolInterface[];
  reason: string | null;
  /** Settles when discovery has. */
  done: Promise<void>;
  /** Monotonic milliseconds of the last failure. */
  failedAt: number;
  /** Until when runs wait for it, in monotonic milliseconds. */
  awaitedUntil: number;
  /** Monotonic milliseconds of the last listing. */
  listedAt: number;
  /** It has said since that its tools are others now. */
  stale: boolean;
}

/** Variables that a program needs to run at all. Everything else must be named in the server's `env`. */
const INHERITED = [
  'PATH',
  'HOME',
  'LANG',
  'LC_ALL',
  'TMPDIR',
  'TEMP',
  'TMP',
  'SYSTEMROOT',
  'USER',
  'LOGNAME',
  'SHELL',
  'TERM',
];
const NONE: McpCatalog = { version: '', tools: [] };
/** For one that failed before. */
const RETRY_WAIT_MS = 1_000;
const CHECK_MS = 60_000;
const LISTING_CLOSE_MS = 5_000;

/**
 * The MCP servers of the configuration (MCP-1, MCP-2). The file is looked at before each run: what changed is discovered anew, all servers at
 * once and each for itself, so that one that hangs, floods or fails costs only its own tools. A file that cannot be read, or is gone,
 * leaves everything as it was.
 *
 * States of a server: `connecting` → `ready` or `failed`; `failed` → `connecting` at the first run after a pause; gone when the file no longer has it.
 * `ready` → `connecting` when the server says that its tools have changed: it keeps those that it had until it has named others.
 */
export class McpServers {
  readonly #options: Required<McpServersOptions>;
  readonly #pool: SessionPool<McpSession>;
  readonly #guard: ProcessGuard;
  readonly #known = new Map<string, Known>();
  readonly #stop = new AbortController();
  #problems: readonly ServerProblem[] = [];
  #reading: Promise<void> | null = null;
  #unreadable = false;
  #catalog: McpCatalog = { version: versionOf([], []), tools: [] };
  #sweeping: Promise<void> | null = null;
  /** Listings under way, also those of servers that are forgotten already: each has a process or a socket. */
  readonly #listings = new Set<Promise<unknown>>();

  constructor(options: McpServersOptions) {
    this.#options = { waitMs: 10_000, retryMs: 60_000, idleMs: 15 * 60_000, relistMs: 10_000, ...options };
    const { clock, logger } = options;
    this.#guard = new ProcessGuard(options);
    this.#pool = new SessionPool({
      clock,
      logger,
      open: (name, scope, signal) => this.#open(name, scope, signal),
      close: (session) => session.close(),
    });
  }

  /** Begins to discover, so that the first run need not wait, and to close what idles. */
  start(): void {
    void this.#refresh().catch(() => {});
    this.#sweeping ??= this.#sweep();
  }

  /** Looks at the configuration now: what is new is being discovered when this resolves, what is gone is forgotten. */
  async refresh(): Promise<void> {
    if (!this.#stop.signal.aborted) await this.#refresh();
  }

  /** The tools that there are now. Waits a bounded time for servers that have not answered yet. */
  async catalog(signal?: AbortSignal): Promise<McpCatalog> {
    // Nothing is offered from the moment on in which the sessions close (GW-19).
    if (this.#stop.signal.aborted) return NONE;
    await this.#refresh();
    const late = new AbortController();
    const now = this.#options.clock.monotonic();
    const open = [...this.#known.values()].filter((known) => known.state === 'connecting' && known.awaitedUntil > now);
    if (open.length > 0) {
      const waitMs = Math.max(...open.map((known) => known.awaitedUntil)) - now;
      const waiting = signal === undefined ? late.signal : AbortSignal.any([late.signal, signal]);
      await Promise.race([
        Promise.all(open.map((known) => known.done)),
        this.#options.clock.sleep(waitMs, waiting).catch(() => {}),
      ]);
      late.abort();
    }
    return this.#catalog;
  }

  status(): readonly ServerStatus[] {
    return [
      ...[...this.#known.values()].map(({ server, state, tools, reason }) => ({
        name: server.name,
        state,
        tools: tools.map((tool) => tool.name),
        reason,
      })),
      ...this.#problems.map(({ server, reason }) => ({ name: server, state: 'failed' as const, tools: [], reason })),
    ];
  }

  /** Sessions and processes that there are. */
  get sessions(): number {
    return this.#pool.size;
  }

  /** Forgets everything and closes all sessions; the next run discovers anew. */
  async reset(): Promise<void> {
    for (const name of [...this.#known.keys()]) this.#forget(name);
    this.#publish();
    await Promise.all([this.#pool.reset(), this.#listed()]);
  }

  /** The conversation is being deleted: what it held goes. */
  closeThread(thread: { readonly userId: string; readonly threadId: string }): Promise<void> {
    return this.#pool.closeScope(scopeName(thread));
  }

  /** Closes all sessions within a bound; calls that come later are refused. Idempotent. */
  async close(): Promise<void> {
    this.#stop.abort(new ReindeerError('shutting_down', 'The server is being stopped.'));
    for (const known of this.#known.values()) known.stop.abort();
    await Promise.all([this.#pool.closeAll(), this.#listed()]);
    await this.#sweeping;
    await this.#guard.close();
  }

  /** Listings that were cut short have closed what they had opened; within a bound. */
  async #listed(): Promise<void> {
    const late = new AbortController();
    const bound = this.#options.clock.sleep(LISTING_CLOSE_MS, late.signal).catch(() => {});
    await Promise.race([Promise.allSettled([...this.#listings]), bound]);
    late.abort();
  }

  /** One look at the file at a time; callers share it. */
  #refresh(): Promise<void> {
    this.#reading ??= this.#look().finally(() => {
      this.#reading = null;
    });
    return this.#reading;
  }

  async #look(): Promise<void> {
    let settings: McpSettings;
    try {
      settings = readServers(await this.#options.read());
    } catch (error) {
      if (!this.#unreadable)
        this.#options.logger.warn('The configuration of MCP servers cannot be read; the servers stay as they were', {
          error: ReindeerError.is(error) ? error.message : String(error).slice(0, 200),
        });
      this.#unreadable = true;
      return;
    }
    this.#unreadable = false;
    this.#tellProblems(settings.problems);
    const wanted = new Map(settings.servers.map((server) => [server.name, server]));
    for (const [name, known] of this.#known) {
      const server = wanted.get(name);
      if (server === undefined || signatureOf(server) !== known.signature) {
        this.#forget(name);
        // Calls under way end with their session; new ones meet the new server.
        void this.#pool.closeServer(name).catch(() => {});
      }
    }
    const now = this.#options.clock.monotonic();
    for (const server of wanted.values()) {
      const known = this.#known.get(server.name);
      if (known === undefined) this.#discover(server);
      else if (known.state === 'failed' && now - known.failedAt >= this.#options.retryMs)
        this.#again(known, Math.min(this.#options.waitMs, RETRY_WAIT_MS));
      else this.#listChanged(known);
    }
    this.#publish();
  }

  /** A server that says so again and again is heard now and then. */
  #listChanged(known: Known): void {
    const pause = known.listedAt + this.#options.relistMs - this.#options.clock.monotonic();
    if (!known.stale || known.state !== 'ready' || pause > 0 || this.#stop.signal.aborted) return;
    if (this.#known.get(known.server.name) === known) this.#again(known, Math.min(this.#options.waitMs, RETRY_WAIT_MS));
  }

  #tellProblems(problems: readonly ServerProblem[]): void {
    const before = JSON.stringify(this.#problems);
    this.#problems = problems;
    if (JSON.stringify(problems) === before) return;
    for (const { server, reason } of problems)
      this.#options.logger.warn('An MCP server is left out', { server, reason });
  }

  #forget(name: string): void {
    this.#known.get(name)?.stop.abort();
    this.#known.delete(name);
  }

  #discover(server: McpServer): void {
    const { transport } = server;
    const oauth = transport.type === 'stdio' ? null : transport.oauth;
    const known: Known = {
      server,
      signature: signatureOf(server),
      token: oauth === null ? null : new OAuthToken(oauth, this.#options.clock),
      stop: new AbortController(),
      state: 'connecting',
      tools: [],
      reason: null,
      done: Promise.resolve(),
      failedAt: 0,
      awaitedUntil: 0,
      listedAt: 0,
      stale: false,
    };
    this.#known.set(server.name, known);
    this.#again(known, this.#options.waitMs);
  }

  /** @param waitMs how long runs wait for it, all together: one that hangs delays the first ones, and not each in turn */
  #again(known: Known, waitMs: number): void {
    known.state = 'connecting';
    known.listedAt = this.#options.clock.monotonic();
    known.awaitedUntil = known.listedAt + waitMs;
    known.stale = false;
    const listing = this.#list(known);
    this.#listings.add(listing);
    known.done = listing
      .then(
        (tools) => {
          known.state = 'ready';
          known.tools = tools;
          known.reason = null;
          this.#options.logger.info('Tools of an MCP server are ready', {
            server: known.server.name,
            tools: tools.length,
          });
          this.#publish();
        },
        (error: unknown) => {
          const reason = ReindeerError.is(error) ? error.message : 'it does not speak MCP';
          if (known.tools.length > 0) {
            // It works, and only could not say what has changed.
            known.state = 'ready';
            known.stale = true;
            this.#options.logger.warn('An MCP server could not list its changed tools; those that it had stay', {
              server: known.server.name,
              reason,
            });
            return;
          }
          known.state = 'failed';
          known.reason = reason;
          known.failedAt = this.#options.clock.monotonic();
          if (!known.stop.signal.aborted && !this.#stop.signal.aborted)
            this.#options.logger.warn('An MCP server does not work; runs go on without it', {
              server: known.server.name,
              reason: known.reason,
            });
          this.#publish();
        },
      )
      .finally(() => this.#listings.delete(listing));
  }

  /** Connects for the listing alone; the bound holds for both together (MC-07). */
  async #list(known: Known): Promise<readonly StructuredToolInterface[]> {
    const { server } = known;
    const bound = server.initTimeoutMs === null ? [] : [AbortSignal.timeout(server.initTimeoutMs)];
    const signal = AbortSignal.any([known.stop.signal, this.#stop.signal, ...bound]);
    // What it says of its tools here is what is about to be asked.
    const connecting = this.#connect(known, await this.#options.folder(null), signal, () => {});
    const session = await connecting.catch((error: unknown) => {
      if (bound[0]?.aborted === true)
        throw new ReindeerError(
          'tool_failed',
          `The MCP server ${server.name} did not answer within ${(server.initTimeoutMs ?? 0) / 1000} s.`,
        );
      throw error;
    });
    try {
      const listed = await session.listTools(signal);
      const tools = listed.tools.map((tool) => mcpTool(server, tool, (...call) => this.#call(...call)));
      const left = [
        ...listed.left,
        ...listed.tools.filter((_tool, at) => tools[at] === null).map((tool) => tool.name.slice(0, 80)),
      ];
      if (left.length > 0)
        this.#options.logger.warn(
          'Tools of an MCP server are left out: their names or schemas are not fit for a model',
          {
            server: server.name,
            tools: left.slice(0, 10),
          },
        );
      return tools.filter((tool) => tool !== null);
    } catch (cause) {
      throw new ReindeerError(
        'tool_failed',
        `The MCP server ${server.name} could not list its tools in time, or not in a way that makes sense.`,
        { cause },
      );
    } finally {
      await session.close();
    }
  }

  async #connect(known: Known, cwd: string, signal: AbortSignal, onToolsChanged: () => void): Promise<McpSession> {
    const environment: Record<string, string> = {};
    for (const name of INHERITED) {
      const value = this.#options.environment[name];
      if (value !== undefined) environment[name] = value;
    }
    const launchFolder = await this.#options.folder(null);
    // The client library is large: a server without MCP servers never loads it.
    const { openSession } = await import('./session.ts');
    return await openSession({
      server: known.server,
      cwd,
      launchFolder,
      environment,
      guard: this.#guard,
      token: known.token,
      signal,
      onToolsChanged,
    });
  }

  /** Opens a session for the pool. */
  async #open(name: string, scope: string, signal: AbortSignal): Promise<McpSession> {
    const known = this.#known.get(name);
    if (known === undefined) throw new ReindeerError('tool_failed', `The MCP server ${name} is no longer configured.`);
    const [userId = '', threadId = ''] = JSON.parse(scope) as string[];
    const bound = known.server.initTimeoutMs === null ? [] : [AbortSignal.timeout(known.server.initTimeoutMs)];
    return await this.#connect(
      known,
      await this.#options.folder({ userId, threadId }),
      AbortSignal.any([signal, ...bound]),
      () => {
        known.stale = true;
        this.#listChanged(known);
      },
    );
  }

  async #call(
    server: McpServer,
    tool: string,
    args: Record<string, unknown>,
    { attempt }: AttemptScope,
    signal: AbortSignal | undefined,
  ): Promise<NonNullable<Awaited<ReturnType<McpSession['callTool']>>>> {
    const scope = scopeName(attempt.run);
    // It works in the folder of the conversation: what lay there before is noted first, as before a command.
    if (server.transport.type === 'stdio') await attempt.touchFiles?.();
    const once = async (): ReturnType<McpSession['callTool']> => {
      // What is left of a run that is over opens nothing: its conversation may be gone, and a session would make the folder again.
      if (attempt.signal.aborted) throw new ReindeerError('aborted', 'The call was cut short.');
      return await this.#pool.use(
        server.name,
        scope,
        async (session) => {
          // It ended while nobody used it: nothing was sent yet. Nor was anything done in a session that the server has forgotten.
          if (session.ended) return null;
          try {
            return await session.callTool(tool, args, { signal, timeoutMs: server.callTimeoutMs });
          } catch (error) {
            throw callFailure(error, server.name, session.ended, signal);
          }
        },
        signal,
      );
    };
    const first = await once();
    if (first !== null) return first;
    await this.#pool.closePair(server.name, scope);
    const second = await once();
    if (second !== null) return second;
    throw new ReindeerError('tool_failed', `The MCP server ${server.name} ends as soon as it has started.`);
  }

  #publish(): void {
    const known = [...this.#known.values()];
    const tools = known.flatMap((one) => one.tools);
    // A changed server is another one, also when its tools look the same.
    const version = versionOf(
      known.filter((one) => one.tools.length > 0).map((one) => one.signature),
      tools,
    );
    if (version !== this.#catalog.version) this.#catalog = { version, tools };
  }

  async #sweep(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await this.#options.clock.sleep(CHECK_MS, signal).catch(() => {});
      if (!signal.aborted) await this.#pool.closeIdle(this.#options.idleMs);
    }
  }
}

const scopeName = ({ userId, threadId }: { readonly userId: string; readonly threadId: string }): string =>
  JSON.stringify([userId, threadId]);

function callFailure(error: unknown, server: string, ended: boolean, signal: AbortSignal | undefined): unknown {
  if (ReindeerError.is(error)) return error;
  if (signal?.aborted === true) return new ReindeerError('aborted', 'The call was cut short.', { cause: error });
  if (ended)
    return new ReindeerError(
      'tool_failed',
      `The MCP server ${server} ended during the call. Whether the call took effect is not known.`,
      { cause: error },
    );
  if ((error as { code?: unknown }).code === -32000)
    return new ReindeerError(
      'tool_failed',
      `The connection with the MCP server ${server} broke off during the call. Whether the call took effect is not known.`,
      { cause: error },
    );
  if ((error as { code?: unknown }).code === -32001)
    return new ReindeerError(
      'tool_failed',
      `The MCP server ${server} did not answer in time. Whether the call took effect is not known.`,
      { cause: error },
    );
  return new ReindeerError(
    'tool_failed',
    // Cut to its length where secrets are taken out of it.
    `The MCP server ${server} refused the call: ${String((error as Error).message).slice(0, 10_000)}`,
    { cause: error },
  );
}

const signatureOf = (server: McpServer): string => createHash('sha256').update(JSON.stringify(server)).digest('hex');

function versionOf(signatures: readonly string[], tools: readonly StructuredToolInterface[]): string {
  const hash = createHash('sha256').update(JSON.stringify(signatures));
  for (const tool of tools) hash.update(JSON.stringify([tool.name, tool.description, tool.schema]));
  return hash.digest('hex').slice(0, 16);
}
