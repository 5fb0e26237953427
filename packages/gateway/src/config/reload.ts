import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '@reindeer/protocol';
import type { LoadedConfig } from './load.ts';
import type { Settings } from './settings.ts';
import type { Variables } from './substitute.ts';

/** Sections that count from the next run on when the file changes, without a restart (CFG-4a, GW-27). */
export const RELOADED: readonly string[] = ['models', 'title'];

/** Keys that describe the file itself. */
export const OF_THE_FILE: readonly string[] = ['config_version'];

const CHAIN = 'The chain of middleware is built once, and what it knows of running work would be lost.';
const SERVICE = 'A service with a life of its own is made from it, which would have to be drained first.';

/** Sections that count from the next start on, and why (CFG-4b). */
export const STARTUP_ONLY: Readonly<Record<string, string>> = {
  log_level: 'The log is opened before anything else.',
  max_recursion_limit:
    'Clients are told the limit when they ask what runs may be, and waiting runs were admitted under it.',
  token_usage: 'It shapes the answers that pages which are open already rely on.',
  tools: 'The tools are described to models in a fixed order, which keeps their caches of the prompt valid.',
  tool_search: CHAIN,
  tool_groups: CHAIN,
  skills: 'The folder is projected into sandboxes that live between turns.',
  skill_scan: 'What was let in under one rule stays in under another.',
  skill_evolution: 'The judge of skills is made once.',
  extensions: 'MCP servers have sessions with conversations. Their own file is changed over the API at any time.',
  agents_api: 'Routes are registered once.',
  sandbox: 'Sandboxes live between turns and are owned under these settings.',
  stream_bridge: 'Instances are connected by it.',
  run_ownership: 'Leases that are held were promised under these times.',
  uploads: 'The reader of documents is made once.',
  database: 'The stores are opened once.',
  subagent_batches: SERVICE,
  subagents: SERVICE,
  tool_output: CHAIN,
  summarization: CHAIN,
  loop_detection: CHAIN,
  token_budget: CHAIN,
  circuit_breaker: CHAIN,
  llm_call: CHAIN,
  safety_finish_reason: CHAIN,
  read_before_write: CHAIN,
  guardrails: 'A policy that changes under a run could let one half of an act through.',
  suggestions: CHAIN,
  memory: SERVICE,
  workspace_changes: 'A run is compared with what was noted when it began.',
  server: 'The port is open.',
  approvals: 'Approvals that people were asked for were asked under these rules.',
  runs: 'Runs were admitted under these limits.',
};

/** The configuration of a process that goes on: what counts now, and looking for changes. */
export interface LiveSettings {
  /** Reads the files again if their content is another one. Never rejects: a file that cannot be used changes nothing and is told once. */
  refresh(): Promise<void>;
  /**
   * What takes over new settings. It makes everything first and lets it count at the end, without an await in between, so that it counts whole
   * or not at all. When it throws, the earlier settings stay.
   */
  onChange(apply: (settings: Settings, variables: Variables) => Promise<void> | void): void;
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
  let counts = first;
  let seen: string | null = null;
  let reading: Promise<void> | null = null;
  let take: Parameters<LiveSettings['onChange']>[0] = () => {};

  const look = async (): Promise<void> => {
    const signature = await signatureOf(files);
    const begun = seen;
    if (signature === begun) return;
    // Also when it fails below: one fault is told once.
    seen = signature;
    try {
      const next = await load();
      if (begun === null && same(next, counts)) return;
      await take(resolve(next), next.variables);
      const waiting = changed(counts, next).filter((key) => Object.hasOwn(STARTUP_ONLY, key));
      const count = changed(counts, next).filter((key) => RELOADED.includes(key));
      counts = next;
      logger.info('The configuration changed', { counts: count });
      for (const key of waiting) logger.warn(`${key}: the change counts after a restart. ${STARTUP_ONLY[key] ?? ''}`);
      for (const warning of next.warnings) if (!first.warnings.includes(warning)) logger.warn(warning);
    } catch (error) {
      logger.error('The changed configuration cannot be used; the earlier one still counts', {
        error: error instanceof Error ? error.message : String(error),
      });
    }
  };
  return {
    refresh: () => {
      reading ??= look().finally(() => {
        reading = null;
      });
      return reading;
    },
    onChange: (apply) => {
      take = apply;
    },
  };
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
  changed(a, b).length === 0 && JSON.stringify(a.variables) === JSON.stringify(b.variables);

/** Sections that differ. */
function changed(a: LoadedConfig, b: LoadedConfig): string[] {
  const [before, after] = [a.config as Record<string, unknown>, b.config as Record<string, unknown>];
  const keys = new Set([...Object.keys(before), ...Object.keys(after)]);
  return [...keys].filter((key) => JSON.stringify(before[key]) !== JSON.stringify(after[key]));
}
