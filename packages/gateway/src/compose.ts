import { ChannelService } from '@reindeer/channels';
import { openPostgres, openSqlite, type PostgresStores, type SqliteStores } from '@reindeer/database';
import {
  type BatchExecutor,
  type BatchService,
  DEFAULT_USER,
  type GraphFactory,
  type MemoryStore,
  NO_LOG,
  ReindeerError,
  type RunService,
  type SandboxLeases,
  type SandboxProvider,
  type Surroundings,
  type ThreadService,
} from '@reindeer/protocol';
import {
  createRuntime,
  DEFAULT_SETTINGS,
  type LiveRuntimeSettings,
  LocalBatchService,
  LocalScheduleService,
  type Runtime,
} from '@reindeer/runtime';
import { type createContainerProvider, WorkspaceChangeWatch } from '@reindeer/sandbox';
import { accessToken, startUrl } from './access.ts';
import { fileCredentials } from './channels/credentials.ts';
import { channelHost } from './channels/host.ts';
import type { LiveSettings } from './config/reload.ts';
import type { Settings } from './config/settings.ts';
import type { Variables } from './config/substitute.ts';
import type { Conversation } from './conversation.ts';
import { batchRoutes } from './http/batches.ts';
import { channelRoutes } from './http/channels.ts';
import type { Convert } from './http/companions.ts';
import { cronRoutes } from './http/crons.ts';
import { loadPage, NO_PAGE } from './http/page.ts';
import type { HttpParts, ModelView } from './http/parts.ts';
import type { Api } from './http/route.ts';
import { contextOf, type RunLimits } from './http/run-request.ts';
import { type ScheduleRouteParts, scheduleRoutes } from './http/schedules.ts';
import { type HttpServer, listen } from './http/server.ts';
import type { Lifecycle } from './life/lifecycle.ts';
import { type FlushingMemory, memoryStep } from './life/memory-step.ts';
import { type SessionPool, sessionsStep } from './life/sandbox-steps.ts';
import { gather, LoopDelay, RunCounts } from './metrics/gather.ts';
import { metricsText } from './metrics/text.ts';
import { pricesOf } from './prices.ts';
import type { Resources } from './resources.ts';
import { type Exit, type StartedSandboxes, sandboxesBoundMs, startSandboxes } from './sandboxes/start.ts';

/** The agent side: which graphs there are and which models they may use. */
export interface Agents {
  readonly graphs: ReadonlyMap<string, GraphFactory>;
  readonly models: readonly ModelView[];
  /** Looks whether the configuration is another one by now. Absent = it stays. */
  refresh?(): Promise<void>;
  /** Who may do what, as the configuration has it now; absent = everybody everything. */
  readonly authorization?: NonNullable<HttpParts['authorization']>;
  /** Custom agents of users; absent = there are none. */
  readonly custom?: HttpParts['agents'];
  /** How they work on items of batches; absent = they cannot. */
  readonly batches?: {
    executor(services: { readonly runs: RunService; readonly threads: ThreadService }): BatchExecutor;
    /** Names of the sub-agents that items may ask for. */
    readonly types: readonly string[];
    /** Their tools use this service from now on. */
    bind(service: BatchService): void;
  };
  /** Routes of the agents' own: MCP servers, skills. */
  readonly modules?: readonly ((api: Api) => void)[];
  /** A thread is being deleted: what the agents hold for it goes. */
  onThreadDeleting?(thread: { readonly userId: string; readonly threadId: string }): Promise<void>;
  /** Answers what takes the secrets of a user's skills out of a text; absent = there are none. */
  readonly hide?: (thread: { readonly userId: string }) => Promise<(text: string) => string>;
  /** Turns documents into Markdown. */
  readonly convert?: Convert;
  /** Services about a conversation beside its runs. */
  readonly conversation?: Conversation;
  /** Learns from conversations; null = nothing does. Stopped when no run can note one any more. */
  readonly memory?: FlushingMemory | null;
  /** Sessions with MCP servers; closed when no run can use them any more, before the sandboxes. */
  readonly sessions?: SessionPool;
  /** Names of the skills that are switched on for a user; absent = there are none. */
  skillNames?(userId: string): Promise<readonly string[]>;
  /** What is remembered of a user, newest first; absent = nothing that can be told. */
  remembered?(userId: string): Promise<readonly string[]>;
  /** Stops what of them runs on after the runs have ended, and waits for it; answers the names of what still runs. */
  drain?(timeoutMs: number): Promise<readonly string[]>;
}

export interface ComposeOptions {
  readonly settings: Settings;
  readonly surroundings: Surroundings;
  readonly lifecycle: Lifecycle;
  readonly resources: Resources;
  readonly version: string;
  /** The environment of the operator: `PATH` for the sandbox, values for its variables. */
  readonly variables: Variables;
  readonly agents: (parts: {
    settings: Settings;
    sandboxes: SandboxProvider;
    leases: SandboxLeases;
    surroundings: Surroundings;
    variables: Variables;
    resources: Resources;
    memoryStore: MemoryStore;
    live?: LiveSettings;
  }) => Agents | Promise<Agents>;
  /** The configuration while the process runs; absent = nothing changes. */
  readonly live?: LiveSettings;
  /** Makes the provider of containers, where the settings ask for one; default: Docker or Podman. */
  readonly containers?: typeof createContainerProvider;
  readonly exit?: Exit;
  /** Open the port. `reindeer run` works without. */
  readonly serve: boolean;
}

/** Either database: the ports are the same. */
export type OpenStores = SqliteStores | PostgresStores;

/** A running Reindeer. Stopped through the lifecycle that it was started with. */
export interface Composed {
  readonly runs: RunService;
  readonly threads: ThreadService;
  readonly batches: LocalBatchService;
  readonly sandboxes: SandboxProvider;
  readonly sandboxParts: StartedSandboxes;
  readonly stores: OpenStores;
  readonly runtime: Runtime;
  readonly agents: Agents;
  readonly userId: string;
  /** Runs of an earlier process that continue here. */
  readonly recovered: number;
  /** null without a port. */
  readonly server: {
    readonly host: string;
    readonly port: number;
    readonly url: string;
    readonly token: string | null;
  } | null;
}

/** What runs may, as the settings have it. */
const runLimits = (settings: Settings): LiveRuntimeSettings => ({
  crashPolicy: settings.runs.crashPolicy,
  maxActiveRuns: settings.runs.maxActive ?? DEFAULT_SETTINGS.maxActiveRuns,
  maxQueuedRuns: settings.runs.maxQueued ?? DEFAULT_SETTINGS.maxQueuedRuns,
  maxRecursionLimit: settings.maxRecursionLimit,
  runTimeoutMs: settings.runs.timeoutMs,
  requirePresented: settings.workspaceChanges.requirePresented,
});

/** Bounds of the stop, in milliseconds; `drainMs` of the settings comes on top. */
const BOUND = {
  intake: 1_000,
  runsAfterDrain: 8_000,
  batchesAfterDrain: 8_000,
  schedules: 3_000,
  agents: 3_000,
  http: 6_000,
  mcp: 10_000,
  database: 20_000,
} as const;
/** Readers get this long to take the end of their streams after the last run has ended. */
const HTTP_GRACE_MS = 5_000;

/** What is being sent has its time; then its end, and giving the channels back. */
const channelsBoundMs = ({ channels }: Settings): number => channels.graceMs + 4_000;

/** Longest time that a whole stop may take; the process leaves with a non-zero code after it. */
export const hardDeadlineMs = (settings: Settings): number =>
  2 * settings.runs.drainMs +
  sandboxesBoundMs(settings) +
  memoryStep(() => null, settings.memory.flushMs, NO_LOG).boundMs +
  Object.values(BOUND).reduce((sum, bound) => sum + bound, 0) +
  channelsBoundMs(settings) +
  1_000;

/**
 * Builds the parts in order: data-folder lock, then beside each other database and sandbox provider with its ownership store, agents, runtime
 * with recovery, HTTP. They stop in reverse: no new work, drain of the runs, end of the streams, memory, MCP sessions, sandboxes, database.
 * Nothing is admitted before recovery has run (GW-06), and runs are drained before what they need is closed (GW-08, GW-10, GW-11).
 */
export async function compose(options: ComposeOptions): Promise<Composed> {
  const { settings, surroundings, lifecycle, variables, live } = options;
  const { logger } = surroundings;
  // What counts now; what is not in a `live` part below is only read at the start.
  let now = settings;
  const userId = DEFAULT_USER;

  let stores: OpenStores | null = null;
  const locked = Promise.withResolvers<void>();
  const opened = Promise.withResolvers<void>();
  for (const { promise } of [locked, opened]) promise.catch(() => {});
  const opening = lifecycle.start({
    name: 'database',
    boundMs: BOUND.database,
    start: async () => {
      try {
        // What an earlier process left running is adopted when nothing of the start can fail that is not the sandboxes' own.
        stores = await openDatabase(options, settings.sandbox.provider === 'container' ? () => {} : locked.resolve);
        locked.resolve();
        opened.resolve();
      } catch (error) {
        locked.reject(error);
        opened.reject(error);
        throw error;
      }
    },
    stop: async () => await stores?.close(),
  });
  // The trials of the sandbox take as long as the rest of the start: they begin as soon as the data folder is this process's own.
  const { containers, exit } = options;
  const [, sandboxParts] = await Promise.all([
    opening,
    startSandboxes(lifecycle, {
      settings,
      surroundings,
      variables,
      containers,
      begin: locked.promise,
      end: opened.promise,
      ...(exit === undefined ? {} : { exit }),
    }),
  ]);
  const openStores = acquired<OpenStores>(stores);
  const { provider, leases, prewarming } = sandboxParts;
  let sessions: SessionPool | null = null;
  await lifecycle.start(sessionsStep(() => sessions));
  let memory: FlushingMemory | null = null;
  await lifecycle.start(memoryStep(() => memory, settings.memory.flushMs, logger));

  let server: HttpServer | null = null;
  // Registered before the runs, so that streams stay open until the drain has ended and readers learn the outcome.
  await lifecycle.start({
    name: 'connections',
    boundMs: BOUND.http,
    start: async () => {},
    stop: async () => await server?.close(HTTP_GRACE_MS),
  });

  const agents = await inside(
    lifecycle,
    async () =>
      await options.agents({
        settings,
        sandboxes: provider,
        leases,
        surroundings,
        variables,
        resources: options.resources,
        memoryStore: openStores.memory,
        ...(live === undefined ? {} : { live }),
      }),
  );
  sessions = agents.sessions ?? null;
  memory = agents.memory ?? null;
  // Ends after the runs and before their sandboxes: a sub-agent may go on closing when its run has ended (SA-08).
  await lifecycle.start({
    name: 'agents',
    boundMs: BOUND.agents,
    start: async () => {},
    stop: async () => {
      const left = (await agents.drain?.(BOUND.agents - 500)) ?? [];
      if (left.length > 0) throw new ReindeerError('internal', `Sub-agents had not ended: ${left.join(', ')}`);
    },
  });
  const runCounts = new RunCounts();
  let wakeSchedules = (): void => {};
  let stopItemsOf: LocalBatchService['threadDeleted'] = () => {};
  const runtime = createRuntime({
    stores: openStores,
    graphs: agents.graphs,
    surroundings,
    settings: {
      instanceId: openStores.identity.instanceId,
      ...runLimits(settings),
      leaseMs: settings.runs.leaseMs,
      graceMs: settings.runs.graceMs,
      // Two renewals may be missed.
      beatMs: settings.runs.leaseMs / 3,
    },
    ...(settings.workspaceChanges.enabled
      ? {
          workspaces: new WorkspaceChangeWatch({
            files: (thread) => provider.files(thread),
            logger,
            ...(agents.hide === undefined ? {} : { hide: agents.hide }),
          }),
        }
      : {}),
    hooks: {
      // Only runs that were admitted: one that is refused starts nothing.
      onAdmitted: (run) => {
        runCounts.admitted += 1;
        // An item of a batch works in the sandbox of another thread.
        if (agents.graphs.get(run.assistantId)?.internal !== true) prewarming?.admitted(run);
      },
      onFinished: (run) => {
        runCounts.finished(run);
        if (run.metadata.source === 'schedule') wakeSchedules();
      },
      onThreadDeleting: async (thread) => {
        // Processes that work in its folders end first.
        await agents.onThreadDeleting?.(thread);
        await provider.removeThread(thread);
      },
      onThreadDeleted: (thread) => stopItemsOf(thread),
    },
    // Only where there can be other instances.
    ...('relay' in openStores ? { relay: openStores.relay } : {}),
  });
  let recovered = 0;
  await lifecycle.start({
    name: 'runs',
    boundMs: settings.runs.drainMs + BOUND.runsAfterDrain,
    start: async () => {
      ({ recovered } = await runtime.start());
      if (recovered > 0) logger.info('Continuing runs of an earlier process', { runs: recovered });
    },
    stop: async () => {
      const { unfinished } = await runtime.stop({
        drainMs: settings.runs.drainMs,
        hardMs: settings.runs.drainMs + BOUND.runsAfterDrain - 1_000,
      });
      // They continue after the next start; but this stop was not clean, and the exit code says so.
      if (unfinished.length > 0)
        throw new ReindeerError('internal', `Runs had not ended: ${unfinished.map((run) => run.runId).join(', ')}`);
    },
  });

  // What an earlier process left is learned beside everything else: nothing waits for it (GW-02, GW-05).
  agents.memory?.start();
  const batches = new LocalBatchService({
    store: openStores.batches,
    surroundings,
    settings: settings.batches,
    instanceId: openStores.identity.instanceId,
    work:
      agents.batches === undefined
        ? null
        : {
            executor: agents.batches.executor({ runs: runtime.runs, threads: runtime.threads }),
            files: (thread) => provider.files(thread),
            runs: runtime.runs,
            threads: runtime.threads,
            assistantId: [...agents.graphs.keys()][0] ?? '',
            get types() {
              return agents.batches?.types ?? [];
            },
          },
  });
  agents.batches?.bind(batches);
  stopItemsOf = (thread) => batches.threadDeleted(thread);
  const schedules = new LocalScheduleService({
    store: openStores.schedules,
    runs: runtime.runs,
    threads: runtime.threads,
    surroundings,
    settings: settings.schedules,
  });
  wakeSchedules = () => schedules.wake();
  // Its children are runs: it stops before they do, so that their items go back to the queue.
  await lifecycle.start({
    name: 'batches',
    boundMs: settings.runs.drainMs + BOUND.batchesAfterDrain,
    start: () => batches.start(),
    stop: async () => {
      const left = await batches.stop({
        drainMs: settings.runs.drainMs,
        hardMs: settings.runs.drainMs + BOUND.batchesAfterDrain - 1_000,
      });
      // They are tried again when their leases are over; but this stop was not clean.
      if (left.length > 0) throw new ReindeerError('internal', `Batch items had not ended: ${left.join(', ')}`);
    },
  });
  // A source of runs: it stops before what works on them.
  await lifecycle.start({
    name: 'scheduled tasks',
    boundMs: BOUND.schedules,
    start: async () => schedules.start(),
    stop: () => schedules.stop(BOUND.schedules - 500),
  });

  const intake = { ready: false, stopping: false };
  const uploads = () => ({ ...now.uploads, convert: now.uploads.convert ? (agents.convert ?? null) : null });
  const channels = new ChannelService({
    store: openStores.channels,
    host: channelHost({
      runs: runtime.runs,
      threads: runtime.threads,
      sandboxes: provider,
      surroundings,
      accepting: () => !intake.stopping,
      uploads,
      assistants: [...agents.graphs.values()].flatMap((graph) => (graph.internal === true ? [] : graph.assistantId)),
      models: () => agents.models.map((model) => model.name),
      hasAgent: async (user, name) => (await agents.custom?.exists(user, name)) ?? false,
      remembered: async (user) => (await agents.remembered?.(user)) ?? null,
      skills: async (user) => (await agents.skillNames?.(user)) ?? [],
      authorization: () => agents.authorization?.() ?? null,
      refresh: async () => await agents.refresh?.(),
    }),
    settings: settings.channels,
    surroundings,
    owner: openStores.identity.instanceId,
    credentials: fileCredentials(settings.home),
  });
  // A source of runs as well.
  await lifecycle.start({
    name: 'channels',
    boundMs: channelsBoundMs(settings),
    start: async () => {
      if (options.serve) channels.start();
    },
    stop: () => channels.stop(),
  });

  live?.onChange((next) => {
    const limitSandboxes = sandboxParts.prepare(next);
    return () => {
      now = next;
      limitSandboxes();
      runtime.configure(runLimits(next));
      batches.configure(next.batches);
    };
  });

  const loop = new LoopDelay();
  let token: string | null = null;
  const begun = surroundings.clock.now();
  await lifecycle.start({
    name: 'intake',
    boundMs: BOUND.intake,
    start: async () => {
      if (options.serve) {
        token = await accessToken(settings, provider.report());
        const limits: RunLimits = {
          get defaultRecursionLimit() {
            return Math.min(100, now.maxRecursionLimit);
          },
          get maxRecursionLimit() {
            return now.maxRecursionLimit;
          },
          get models() {
            return agents.models.map((model) => model.name);
          },
        };
        const parts: HttpParts = {
          runs: runtime.runs,
          threads: runtime.threads,
          feedback: openStores.feedback,
          sandboxes: provider,
          sandboxPool: poolOf(sandboxParts),
          metrics: () =>
            metricsText(
              gather({
                runtime,
                runs: runCounts,
                loop,
                uptimeSeconds: () => (surroundings.clock.now() - begun) / 1000,
                sandboxes: sandboxParts.lifecycle,
              }),
            ),
          assistants: [...agents.graphs.values()]
            .flatMap((graph) => (graph.internal === true ? [] : graph))
            .map(({ assistantId, name, description }) => ({
              assistantId,
              name,
              description,
            })),
          get models() {
            return agents.models;
          },
          ...(live === undefined ? {} : { configuration: live }),
          ...(agents.refresh === undefined ? {} : { refresh: agents.refresh }),
          ...(agents.custom === undefined ? {} : { agents: agents.custom }),
          modules: [
            ...(agents.modules ?? []),
            (api) =>
              batchRoutes(api, {
                batches,
                threads: runtime.threads,
                surroundings,
                heartbeatMs: settings.server.heartbeatMs,
                stalledMs: 120_000,
                get models() {
                  return agents.models.map((model) => model.name);
                },
              }),
            (api) => channelRoutes(api, { channels, operator: userId }),
            (api) => {
              const parts: ScheduleRouteParts = {
                schedules,
                threads: runtime.threads,
                assistants: [...agents.graphs.values()].flatMap((graph) =>
                  graph.internal === true ? [] : graph.assistantId,
                ),
                checkContext: (context, caller) => contextOf(context, limits, caller),
              };
              scheduleRoutes(api, parts);
              cronRoutes(api, parts);
            },
          ],
          ...(agents.conversation === undefined ? {} : { conversation: agents.conversation }),
          get prices() {
            return pricesOf(now);
          },
          get tokenUsage() {
            return now.tokenUsage;
          },
          limits,
          get uploads() {
            return uploads();
          },
          guards: {
            allowedHosts: settings.server.allowedHosts,
            allowedOrigins: settings.server.allowedOrigins,
            token,
            internalToken: settings.server.internalToken,
          },
          ...(agents.authorization === undefined ? {} : { authorization: agents.authorization }),
          page: await loadPage(options.resources.pageFolder).catch(() => NO_PAGE),
          surroundings,
          intake: () => intake,
          version: options.version,
          heartbeatMs: settings.server.heartbeatMs,
          stalledMs: 120_000,
          userId,
          facts: () => ({
            uptime_seconds: Math.round((surroundings.clock.now() - begun) / 1000),
            active_runs: runtime.stats().held,
          }),
        };
        server = await listen(parts, settings.server.host, settings.server.port);
      }
      loop.start();
      intake.ready = true;
    },
    stop: async () => {
      // Readiness falls and admissions are refused at once; the runtime refuses as well when its turn comes (GW-20).
      intake.ready = false;
      intake.stopping = true;
      channels.refuse();
      prewarming?.stop();
      loop.stop();
    },
  });

  const listening = server as HttpServer | null;
  return {
    runs: runtime.runs,
    threads: runtime.threads,
    batches,
    sandboxes: provider,
    sandboxParts,
    stores: openStores,
    runtime,
    agents,
    userId,
    recovered,
    server:
      listening === null
        ? null
        : { host: listening.host, port: listening.port, token, url: startUrl(listening.host, listening.port, token) },
  };
}

function openDatabase(
  { settings, surroundings, resources }: ComposeOptions,
  onLocked: () => void,
): Promise<OpenStores> {
  if (settings.postgres !== null) {
    const { url, connections, instanceId, redisUrl } = settings.postgres;
    return openPostgres({
      url,
      connections,
      // Instances on one database share the folder for files (D12).
      folder: settings.home,
      surroundings,
      clocksDifferMs: settings.runs.graceMs,
      ...(instanceId === null ? {} : { instanceId }),
      ...(redisUrl === null ? {} : { redisUrl }),
    });
  }
  const { databaseWorker } = resources;
  return openSqlite({
    folder: settings.databaseFolder,
    surroundings,
    onLocked,
    ...(databaseWorker === undefined ? {} : { workerUrl: databaseWorker }),
  });
}

const poolOf = ({ lifecycle, ownerId }: StartedSandboxes): HttpParts['sandboxPool'] =>
  lifecycle === null || ownerId === null ? null : { lifecycle, ownerId };

/** What a step that has started must have left behind. */
function acquired<T>(value: T | null): T {
  if (value === null) throw new ReindeerError('internal', 'A part is missing after its start.');
  return value;
}

/** Work between two steps: when it fails, what was started is stopped, as for a step. */
async function inside<T>(lifecycle: Lifecycle, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    await lifecycle.stop();
    throw error;
  }
}
