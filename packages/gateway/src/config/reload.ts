import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { entryOf, type Logger } from '@reindeer/protocol';
import type { LoadedConfig } from './load.ts';
import type { Settings } from './settings.ts';
import type { Variables } from './substitute.ts';

/** Keys that describe the file itself. */
export const OF_THE_FILE: readonly string[] = ['config_version'];

const DEADLINE = 'The longest time of a whole stop is worked out at the start.';
const ISOLATION = 'Sandboxes live between turns and are owned under these settings.';
const POLLING = 'The worker of batches is made once, and items were claimed under this time.';

/**
 * What counts from the next start on, and why (CFG-4b): whole sections, and single keys of sections. Everything else counts from the next run
 * on: a run that has begun goes on with what it began with.
 */
export const STARTUP_ONLY: Readonly<Record<string, string>> = {
  skills: 'The folder is projected into sandboxes that live between turns.',
  'sandbox.use': ISOLATION,
  'sandbox.allow_host_bash': ISOLATION,
  'sandbox.network': 'Who may reach the server without a token was decided with it.',
  'sandbox.prewarm': ISOLATION,
  'sandbox.image': ISOLATION,
  'sandbox.port': ISOLATION,
  'sandbox.container_prefix': 'Containers of this server are known by it.',
  'sandbox.engine_socket': 'The engine is connected once.',
  'sandbox.bind_host': ISOLATION,
  'sandbox.transport': ISOLATION,
  'sandbox.provisioner_url': 'The provisioner is connected once.',
  'sandbox.provisioner_api_key': 'The provisioner is connected once.',
  'sandbox.thread_data_mounts': ISOLATION,
  'sandbox.mounts': ISOLATION,
  'sandbox.ownership': 'The store is opened once, and leases that are held were promised under these times.',
  stream_bridge: 'Instances are connected by it.',
  run_ownership: 'Leases that are held were promised under these times.',
  database: 'The stores are opened once.',
  'subagent_batches.enabled': 'The worker of batches is made once.',
  'subagent_batches.poll_interval_seconds': POLLING,
  'subagent_batches.lease_seconds': POLLING,
  channels: 'Bots are connected under these settings.',
  scheduler: 'The loop that starts scheduled tasks is made once.',
  'memory.manager_class': 'What is remembered is in the store of the manager.',
  'memory.shutdown_flush_timeout_seconds': DEADLINE,
  'workspace_changes.enabled': 'A run is compared with what was noted when it began.',
  server: 'The port is open, and whom it lets in was decided with it.',
  'runs.drain_timeout': DEADLINE,
};

/** Variables of the environment, or of `.env`, that count from the next start on. */
const STARTUP_VARIABLES: readonly string[] = [
  'REINDEER_HOME',
  'REINDEER_HOST',
  'GATEWAY_HOST',
  'REINDEER_PORT',
  'PORT',
  'REINDEER_TOKEN',
  'GATEWAY_CORS_ORIGINS',
  'REINDEER_SKILLS_PATH',
  'DEER_FLOW_SKILLS_PATH',
  'DEER_FLOW_STREAM_BRIDGE_REDIS_URL',
  'PROVISIONER_API_KEY',
  'REDIS_URL',
  'GATEWAY_WORKERS',
  'WEB_CONCURRENCY',
];

/** Why a key, written as `section` or `section.key`, needs a restart; null = it counts from the next run on. */
export const needsRestart = (key: string): string | null => {
  const [section = key, name] = key.replaceAll('[]', '').split('.');
  return entryOf(STARTUP_ONLY, section) ?? entryOf(STARTUP_ONLY, `${section}.${name}`) ?? null;
};

/** What of the configuration counts in this process. */
export interface ReloadState {
  /** The file that is read; null = there is none. */
  readonly file: string | null;
  /** 0 = what the process began with; one more for each change that counts. */
  readonly revision: number;
  /** Keys that the newest change brought. */
  readonly changed: readonly string[];
  /** Keys, and variables, whose change waits for a restart. */
  readonly restart: readonly string[];
  /** Why the files as they are now cannot be used, with line and key; null = they can, or are. */
  readonly fault: string | null;
}

/** Takes over new settings: makes everything that may fail and answers what lets it count, which neither fails nor waits. */
export type PrepareChange = (settings: Settings, variables: Variables) => Promise<() => void> | (() => void);

/** The configuration of a process that goes on: what counts now, and looking for changes. */
export interface LiveSettings {
  readonly state: ReloadState;
  /**
   * Reads the files again if their content is another one, or, asked for `again`, in any case: a module or a folder that they name may be there
   * by now. Never rejects: a file that cannot be used changes nothing and is told once.
   */
  refresh(again?: 'again'): Promise<void>;
  /**
   * Adds what takes over new settings. All prepare first; when one throws, the earlier settings stay everywhere. Then all let it count in one go,
   * so that it counts whole or not at all.
   */
  onChange(prepare: PrepareChange): void;
}

export interface LiveOptions {
  /** What the process began with. */
  readonly loaded: LoadedConfig;
  load(): Promise<LoadedConfig>;
  /** Throws for settings that cannot be. */
  resolve(loaded: LoadedConfig): Settings;
  readonly logger: Logger;
}

/**
 * Looks for changes of the configuration by content: times of files tell neither a second edit within one tick nor a file that was put back. States:
 *
 *   quiet → (`refresh`, other content) reading → quiet, with the new settings or with the old ones
 *
 * Those who ask while it reads wait for the same reading.
 */
export function liveSettings({ loaded: first, load, resolve, logger }: LiveOptions): LiveSettings {
  const files = [first.file ?? join(first.root, 'config.yaml'), join(first.root, '.env')];
  const prepares: PrepareChange[] = [];
  let counts = first;
  let seen: string | null = null;
  let reading: Promise<void> | null = null;
  let state: ReloadState = { file: first.file, revision: 0, changed: [], restart: [], fault: null };

  const take = async (next: LoadedConfig): Promise<void> => {
    // The file as a whole must be one that the next start can use.
    resolve(next);
    const effective = withoutRestart(first, next);
    const restart = [
      ...changedKeys(first, next).filter((key) => needsRestart(key) !== null),
      ...changedVariables(first, next),
    ];
    const news = changedKeys(counts, effective);
    const waiting = restart.filter((key) => !state.restart.includes(key));
    if (same(effective, counts) && waiting.length === 0) {
      state = { ...state, restart, fault: null };
      return;
    }
    const settings = resolve(effective);
    const commits: (() => void)[] = [];
    for (const prepare of prepares) commits.push(await prepare(settings, effective.variables));
    // From here on nothing fails and nothing waits: it counts whole.
    for (const commit of commits) commit();
    counts = effective;
    state = { file: next.file, revision: state.revision + 1, changed: news, restart, fault: null };
    logger.info('The configuration changed', { counts: news });
    for (const key of waiting)
      logger.warn(`${key}: the change counts after a restart. ${needsRestart(key) ?? 'It is read at the start only.'}`);
    for (const warning of next.warnings) if (!first.warnings.includes(warning)) logger.warn(warning);
  };
  const look = async (): Promise<void> => {
    const found = await signatureOf(files);
    if (found === seen) return;
    const signature = await rested(files, found);
    // Also when it fails below: one fault is told once.
    seen = signature;
    try {
      await take(await load());
    } catch (error) {
      const fault = error instanceof Error ? error.message : String(error);
      state = { ...state, fault };
      logger.error('The changed configuration cannot be used; the earlier one still counts', { error: fault });
    }
  };
  return {
    get state() {
      return state;
    },
    refresh: (again) => {
      if (again !== undefined) seen = null;
      reading ??= look().finally(() => {
        reading = null;
      });
      return reading;
    },
    onChange: (prepare) => void prepares.push(prepare),
  };
}

/** What a file says now, but with what needs a restart as the process began with it. */
function withoutRestart(first: LoadedConfig, next: LoadedConfig): LoadedConfig {
  const [before, after] = [recordOf(first.config), recordOf(next.config)];
  const config: Record<string, unknown> = { ...after };
  const put = (into: Record<string, unknown>, from: Readonly<Record<string, unknown>>, key: string): void => {
    if (Object.hasOwn(from, key)) into[key] = from[key];
    else delete into[key];
  };
  for (const path of Object.keys(STARTUP_ONLY)) {
    const [name = path, key] = path.split('.');
    if (key === undefined) put(config, before, name);
    else {
      const section = { ...recordOf(config[name]) };
      put(section, recordOf(before[name]), key);
      if (Object.keys(section).length > 0 || Object.hasOwn(after, name)) config[name] = section;
    }
  }
  const variables: Record<string, string | undefined> = { ...next.variables };
  for (const name of STARTUP_VARIABLES) variables[name] = first.variables[name];
  return { ...next, config: config as LoadedConfig['config'], variables };
}

const recordOf = (value: unknown): Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as Readonly<Record<string, unknown>>)
    : {};

const changedVariables = (first: LoadedConfig, next: LoadedConfig): string[] =>
  STARTUP_VARIABLES.filter((name) => first.variables[name] !== next.variables[name]);

/** Many editors empty a file before they write it: what is only half there must not count. Milliseconds without a change, and how often they are waited for. */
const REST_MS = 50;
const MAX_RESTS = 20;

/** The signature of the files once they stay as they are; the newest after a second of changes. */
async function rested(files: readonly string[], found: string): Promise<string> {
  let signature = found;
  for (let round = 0; round < MAX_RESTS; round += 1) {
    await setTimeout(REST_MS);
    const again = await signatureOf(files);
    if (again === signature) break;
    signature = again;
  }
  return signature;
}

/** What the files say, as one text. A file that is not there, or cannot be read, is part of it. */
async function signatureOf(files: readonly string[]): Promise<string> {
  const hash = createHash('sha256');
  for (const file of files) {
    const content = await readFile(file).catch((error: NodeJS.ErrnoException) => `\0${error.code}`);
    hash.update(`${content.length}\n`).update(content);
  }
  return hash.digest('hex');
}

const same = (a: LoadedConfig, b: LoadedConfig): boolean =>
  changedKeys(a, b).length === 0 && JSON.stringify(defined(a.variables)) === JSON.stringify(defined(b.variables));

const defined = (variables: Variables): [string, string | undefined][] =>
  Object.entries(variables)
    .filter(([, value]) => value !== undefined)
    .toSorted(([a], [b]) => (a < b ? -1 : 1));

/** Keys that differ: `section.key`, or the section where it is a list. Those that describe the file are none. */
function changedKeys(a: LoadedConfig, b: LoadedConfig): string[] {
  const differ = (before: unknown, after: unknown): boolean => JSON.stringify(before) !== JSON.stringify(after);
  const keysOf = (before: unknown, after: unknown): string[] => [
    ...new Set([...Object.keys(recordOf(before)), ...Object.keys(recordOf(after))]),
  ];
  const [before, after] = [recordOf(a.config), recordOf(b.config)];
  return keysOf(before, after)
    .filter((name) => !OF_THE_FILE.includes(name) && differ(before[name], after[name]))
    .flatMap((name) => {
      const inside = keysOf(before[name], after[name]).filter((key) =>
        differ(recordOf(before[name])[key], recordOf(after[name])[key]),
      );
      return Array.isArray(before[name]) || Array.isArray(after[name]) || inside.length === 0
        ? [name]
        : inside.map((key) => `${name}.${key}`);
    });
}
