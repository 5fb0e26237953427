import { isIP } from 'node:net';
import { resolve } from 'node:path';
import type { SubagentSettings } from '@reindeer/agent';
import type { ChannelSettings } from '@reindeer/channels';
import { entryOf, ReindeerError } from '@reindeer/protocol';
import type { BatchSettings, ScheduleSettings } from '@reindeer/runtime';
import { OWNERSHIP_TYPES, type OwnershipSettings, resolveOwnership } from '@reindeer/sandbox';
import { isLoopbackName } from '../http/guards.ts';
import { didYouMean } from '../nearest.ts';
import { batchesOf } from './batches.ts';
import { channelsOf } from './channels.ts';
import { isOwnModule } from './class-path.ts';
import { checkInstances } from './instances.ts';
import type { LoadedConfig } from './load.ts';
import { type MemoryConfiguration, memoryOf } from './memory.ts';
import { modelsNamedIn, modelsOf } from './models.ts';
import { type KeyPath, located, milliseconds, unknownName, wrongValue } from './readers.ts';
import { type AgentSettings, agentSettingsOf } from './safeguards.ts';
import { schedulesOf } from './schedules.ts';
import type { ConfigFile, ModelEntry } from './schema.ts';
import { subagentsOf } from './subagents.ts';
import { type ToolSettings, toolsOf } from './tools.ts';

/** Everything that the composition root needs to know, resolved: file, environment and command line together. */
export interface Settings {
  /** Absolute path of the data folder. */
  readonly home: string;
  /** For the operator: names in the file that there are not, and what takes their place. */
  readonly warnings: readonly string[];
  /** Absolute path of the folder of the database. */
  readonly databaseFolder: string;
  /** The database that several instances share; null = SQLite in the folder. */
  readonly postgres: {
    readonly url: string;
    /** Connections for ordinary work. */
    readonly connections: number;
    /** null = the first number that no living instance has. */
    readonly instanceId: string | null;
    /** Tell hints and tokens between instances through this Redis; null = through the database. */
    readonly redisUrl: string | null;
  } | null;
  readonly logLevel: 'debug' | 'info' | 'warn' | 'error';
  readonly models: readonly ModelEntry[];
  readonly sandbox: NonNullable<ConfigFile['sandbox']> & { readonly provider: SandboxProviderName };
  /** Who may stop a sandbox that lives between turns, and where that is kept. */
  readonly sandboxOwnership: OwnershipSettings;
  readonly title: NonNullable<ConfigFile['title']>;
  readonly subagents: SubagentSettings;
  /** Batches of work for sub-agents. */
  readonly batches: BatchSettings;
  /** Scheduled tasks. */
  readonly schedules: ScheduleSettings;
  /** Conversations in messengers. */
  readonly channels: ChannelSettings;
  /** Retries, limits and services of the agent. */
  readonly agent: AgentSettings;
  /** What is remembered of users. */
  readonly memory: MemoryConfiguration;
  /** Are the schemas of MCP tools kept back until they are searched for? */
  readonly toolSearch: boolean;
  readonly skills: {
    /** Folder of the operator's shared skills, `public/` in it; absolute. */
    readonly folder: string;
    /** Are packages scanned? */
    readonly scan: boolean;
    /** Model that judges packages; null = the first one. */
    readonly judge: string | null;
    /** Is a package refused when the model cannot be asked? */
    readonly failClosed: boolean;
  };
  /** What stands above `extensions_config.json`. */
  readonly extensions: Readonly<Record<string, unknown>> | null;
  /** The project folder; absolute. */
  readonly root: string;
  /** Which sandbox and web tools there are. */
  readonly tools: ToolSettings;
  /** Tools that a person must approve before each call; `*` = every tool. */
  readonly approvals: readonly string[];
  readonly uploads: {
    readonly maxFiles: number;
    readonly maxFileSize: number;
    readonly maxTotalSize: number;
    readonly convert: boolean;
  };
  readonly maxRecursionLimit: number;
  readonly tokenUsage: boolean;
  /** May custom agents be managed over HTTP? */
  readonly agentsApi: boolean;
  /** Is told what a run changed in its thread's files, and must a run present what it made? */
  readonly workspaceChanges: { readonly enabled: boolean; readonly requirePresented: boolean };
  readonly runs: {
    readonly crashPolicy: 'resume' | 'error';
    readonly maxActive: number | null;
    /** Runs that may wait on one thread; null = the runtime's default. */
    readonly maxQueued: number | null;
    readonly timeoutMs: number | null;
    /** How long a process keeps a run without confirming it, and what others wait on top: the budget for differences of clocks. */
    readonly leaseMs: number;
    readonly graceMs: number;
    /** How long active runs may go on after a stop was asked for. */
    readonly drainMs: number;
  };
  readonly server: {
    readonly host: string;
    readonly port: number;
    readonly loopback: boolean;
    /** The operator's token; null = none was given. */
    readonly token: string | null;
    /** Token of programs that act for users; null = there are none. */
    readonly internalToken: string | null;
    readonly allowedHosts: readonly string[];
    readonly allowedOrigins: readonly string[];
    readonly heartbeatMs: number;
  };
}

/** `own` = of the operator's own, as `sandbox.use` names it. */
export type SandboxProviderName = (typeof SANDBOX_PROVIDERS)[number] | 'own';
const SANDBOX_PROVIDERS = ['bubblewrap', 'container', 'local'] as const;

export interface CommandLineSettings {
  readonly host?: string | undefined;
  readonly port?: number | undefined;
}

const DEFAULT_PORT = 2026;
const LEVELS = {
  debug: 'debug',
  info: 'info',
  warning: 'warn',
  warn: 'warn',
  error: 'error',
  critical: 'error',
} as const;
const MIB = 1024 * 1024;

/** Class names of the reference → our providers; the module before the colon has moved between its versions. */
const PROVIDER_CLASSES: Readonly<Record<string, SandboxProviderName>> = {
  LocalSandboxProvider: 'local',
  AioSandboxProvider: 'container',
};

function postgresOf({ config, variables }: LoadedConfig): Settings['postgres'] {
  const {
    backend = 'sqlite',
    postgres_url: url,
    pool_size: connections = 10,
    instance_id: instanceId,
  } = config.database ?? {};
  if (backend === 'sqlite') return null;
  if (url == null || url === '')
    throw wrongValue(
      ['database', 'backend'],
      'database.backend is postgres, but database.postgres_url is missing. Set it to postgres://user:password@host:5432/database, ' +
        'or to $DATABASE_URL with that variable in the environment.',
    );
  return { url, connections, instanceId: instanceId ?? null, redisUrl: bridgeOf(config, variables) };
}

const BRIDGES = ['memory', 'redis'] as const;

/** The Redis between the instances of one database; null = none. `memory` is what the reference calls the absence of one. */
function bridgeOf({ stream_bridge: bridge }: ConfigFile, variables: LoadedConfig['variables']): string | null {
  const fromEnvironment = variables.DEER_FLOW_STREAM_BRIDGE_REDIS_URL?.trim() || undefined;
  const asked = bridge?.type ?? (fromEnvironment === undefined ? 'memory' : 'redis');
  const type = BRIDGES.find((known) => known === asked);
  if (type === undefined)
    throw wrongValue(
      ['stream_bridge', 'type'],
      `stream_bridge.type: "${asked.slice(0, 200)}" is none of: ${BRIDGES.join(', ')}.${didYouMean(asked, BRIDGES)}`,
    );
  if (type === 'memory') return null;
  const url = bridge?.redis_url || fromEnvironment || variables.REDIS_URL?.trim();
  if (url === undefined || url === '')
    throw wrongValue(
      ['stream_bridge', 'type'],
      'stream_bridge.type is redis, but stream_bridge.redis_url is missing. Set it to redis://host:6379/0, or remove stream_bridge: ' +
        'instances then tell each other through Postgres.',
    );
  return url;
}

/**
 * Puts the settings together. The command line wins over the environment, which wins over the file.
 *
 * @throws ReindeerError `configuration` with file, line and key of a value that cannot be; among others when the address would be open to
 * others without a token (D12)
 */
export const resolveSettings = (loaded: LoadedConfig, line: CommandLineSettings): Settings =>
  located(loaded.placeOf, () => settingsOf(loaded, line));

function settingsOf(loaded: LoadedConfig, line: CommandLineSettings): Settings {
  const { config, variables, root } = loaded;
  const home = resolve(root, variables.REINDEER_HOME ?? '.reindeer');
  checkInstances(loaded);
  const server = serverOf(loaded, line);
  const provider = providerOf(config.sandbox?.use);
  if (provider !== 'container' && config.sandbox?.provisioner_url != null)
    throw wrongValue(
      ['sandbox', 'provisioner_url'],
      `sandbox.provisioner_url needs sandbox.use: container; with ${provider} it would have no effect. Set it, or remove the address.`,
    );
  checkNetwork(provider, config.sandbox?.network);
  const warnings: string[] = [];
  const told = (path: KeyPath, text: string) => {
    const place = loaded.placeOf(path);
    warnings.push(place === null ? text : `${place}: ${text}`);
  };
  const models = modelsOf(config, variables);
  const modelNames = models.map(({ name }) => name);
  for (const { path, name } of modelsNamedIn(config))
    if (!modelNames.includes(name))
      told(
        path,
        `${path.join('.')}: there is no model "${name.slice(0, 200)}".${didYouMean(name, modelNames)} The first one, ${modelNames[0]}, is used. Configured: ${modelNames.slice(0, 20).join(', ')}.`,
      );
  return {
    warnings,
    home,
    databaseFolder:
      config.database?.sqlite_dir == null ? resolve(home, 'data') : resolve(root, config.database.sqlite_dir),
    postgres: postgresOf(loaded),
    logLevel: LEVELS[config.log_level ?? 'info'],
    models,
    sandbox: { ...config.sandbox, provider },
    sandboxOwnership: ownershipOf(loaded, provider),
    title: config.title ?? {},
    subagents: subagentsOf(config.subagents),
    batches: batchesOf(config.subagent_batches ?? undefined),
    schedules: schedulesOf(config.scheduler ?? undefined),
    channels: channelsOf(config.channels),
    agent: agentSettingsOf(config),
    tools: toolsOf(config, told),
    memory: memoryOf(config.memory),
    toolSearch: config.tool_search?.enabled ?? false,
    skills: {
      folder: resolve(
        root,
        config.skills?.path ?? variables.REINDEER_SKILLS_PATH ?? variables.DEER_FLOW_SKILLS_PATH ?? 'skills',
      ),
      scan: config.skill_scan?.enabled ?? true,
      judge: config.skill_evolution?.moderation_model_name ?? null,
      failClosed: config.skill_evolution?.security_fail_closed ?? true,
    },
    extensions: config.extensions ?? null,
    root,
    approvals: config.approvals?.tools ?? [],
    uploads: {
      maxFiles: config.uploads?.max_files ?? 10,
      maxFileSize: config.uploads?.max_file_size ?? 50 * MIB,
      maxTotalSize: config.uploads?.max_total_size ?? 100 * MIB,
      convert: config.uploads?.auto_convert_documents ?? false,
    },
    maxRecursionLimit: config.max_recursion_limit ?? 1000,
    tokenUsage: config.token_usage?.enabled ?? true,
    agentsApi: config.agents_api?.enabled ?? false,
    workspaceChanges: {
      enabled: config.workspace_changes?.enabled ?? true,
      requirePresented: config.workspace_changes?.require_presented ?? true,
    },
    runs: {
      crashPolicy: config.runs?.crash_policy ?? 'resume',
      maxActive: config.runs?.max_active ?? null,
      maxQueued: config.runs?.max_queued ?? null,
      timeoutMs: milliseconds(config.runs?.timeout, null),
      leaseMs: milliseconds(config.run_ownership?.lease_seconds, 12_000),
      graceMs: milliseconds(config.run_ownership?.grace_seconds, 3_000),
      drainMs: milliseconds(config.runs?.drain_timeout, 10_000),
    },
    server,
  };
}

function providerOf(use: string | undefined): SandboxProviderName {
  if (use === undefined) return 'bubblewrap';
  if (isOwnModule(use)) return 'own';
  const found = SANDBOX_PROVIDERS.find((name) => name === use) ?? entryOf(PROVIDER_CLASSES, use.split(':')[1] ?? '');
  if (found === undefined)
    throw unknownName(
      ['sandbox', 'use'],
      'sandbox provider',
      use,
      SANDBOX_PROVIDERS,
      `one of: ${SANDBOX_PROVIDERS.join(', ')}`,
    );
  return found;
}

/** Which networks each provider can give to its commands. */
function checkNetwork(provider: SandboxProviderName, network: 'none' | 'host' | 'bridge' = 'none'): void {
  if (provider === 'own') return;
  if (provider === 'container' && network === 'host')
    throw wrongValue(
      ['sandbox', 'network'],
      'sandbox.network: host is not possible with sandbox.use: container. Use none, or bridge for the internet without this machine.',
    );
  if (provider !== 'container' && network === 'bridge')
    throw wrongValue(
      ['sandbox', 'network'],
      `sandbox.network: bridge is only possible with sandbox.use: container. With ${provider} use none or host.`,
    );
}

function ownershipOf({ config, variables }: LoadedConfig, provider: SandboxProviderName): OwnershipSettings {
  const sharedDatabase = config.database?.backend === 'postgres';
  const given = config.sandbox?.ownership ?? undefined;
  // The operator's own answers for itself.
  const own = given?.type !== undefined && isOwnModule(given.type);
  if (given?.type !== undefined && !own && !OWNERSHIP_TYPES.some((type) => type === given.type))
    throw unknownName(
      ['sandbox', 'ownership', 'type'],
      'ownership store',
      given.type,
      OWNERSHIP_TYPES,
      `one of: ${OWNERSHIP_TYPES.join(', ')}`,
    );
  const ownership = resolveOwnership({
    ownership: own ? { ...given, type: 'memory' } : given,
    streamBridge:
      config.stream_bridge == null
        ? undefined
        : { type: config.stream_bridge.type, redis_url: config.stream_bridge.redis_url ?? undefined },
    sharedDatabase,
    environment: variables,
  });
  if (provider === 'container' && sharedDatabase && ownership.type === 'memory' && !own)
    throw wrongValue(
      ['sandbox', 'ownership', 'type'],
      'sandbox.ownership.type is memory, but instances share the database: each would take the containers of the others for orphans and ' +
        'stop them. Remove the key (ownership is then kept in the database), or set it to postgres or redis.',
    );
  return ownership;
}

function serverOf({ config, variables }: LoadedConfig, line: CommandLineSettings): Settings['server'] {
  const host = line.host ?? variables.REINDEER_HOST ?? variables.GATEWAY_HOST ?? config.server?.host ?? '127.0.0.1';
  const port = line.port ?? portOf(variables.REINDEER_PORT ?? variables.PORT) ?? config.server?.port ?? DEFAULT_PORT;
  const token = variables.REINDEER_TOKEN ?? config.server?.token ?? null;
  if (token !== null && token.length < 16)
    throw new ReindeerError(
      'configuration',
      'REINDEER_TOKEN has fewer than 16 characters. Choose a longer one, for example with: openssl rand -hex 32',
    );
  if (token !== null && !/^[\x21-\x7e]+$/.test(token))
    throw new ReindeerError(
      'configuration',
      'The token may only have visible ASCII characters. Choose one with: openssl rand -hex 32',
    );
  const internalToken =
    variables.REINDEER_INTERNAL_TOKEN ??
    variables.DEER_FLOW_INTERNAL_AUTH_TOKEN ??
    config.server?.internal_token ??
    null;
  if (internalToken !== null && (internalToken.length < 16 || !/^[\x21-\x7e]+$/.test(internalToken)))
    throw new ReindeerError(
      'configuration',
      'The internal token needs at least 16 visible ASCII characters. Choose one with: openssl rand -hex 32',
    );
  const loopback = isLoopbackName(host.toLowerCase().replace(/^\[|\]$/g, ''));
  if (!loopback && token === null)
    throw new ReindeerError(
      'configuration',
      `Listening on ${host} opens Reindeer to other machines, and whoever reaches it can run commands in its sandboxes. Set a token first (REINDEER_TOKEN=$(openssl rand -hex 32), or server.token in config.yaml), or use --host 127.0.0.1.`,
    );
  const cors = (variables.GATEWAY_CORS_ORIGINS ?? '')
    .split(',')
    .map((origin) => origin.trim())
    .filter((origin) => origin !== '');
  const own = !loopback && isIP(host) === 0 ? [host] : [];
  return {
    host,
    port,
    loopback,
    token,
    internalToken,
    allowedHosts: [...(config.server?.allowed_hosts ?? []), ...own],
    allowedOrigins: [...(config.server?.allowed_origins ?? []), ...cors],
    heartbeatMs: milliseconds(config.server?.heartbeat_seconds, 15_000),
  };
}

function portOf(text: string | undefined): number | undefined {
  if (text === undefined || text === '') return undefined;
  const port = Number(text);
  if (!Number.isInteger(port) || port < 0 || port > 65_535)
    throw new ReindeerError(
      'configuration',
      `The port "${text.slice(0, 20)}" is not a number from 0 to 65535. Correct REINDEER_PORT or PORT.`,
    );
  return port;
}
