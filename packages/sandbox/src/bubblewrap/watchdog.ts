import { readdir, readFile } from 'node:fs/promises';
import type { Clock, Logger } from '@reindeer/protocol';
import type { CommandGroup } from './cgroups.ts';
import type { DiskWatch } from './disk.ts';
import type { CommandLimits } from './limits.ts';

export interface WatchInput {
  /** Id of the sandbox's first process, as the host sees it. */
  readonly process: number;
  readonly group: CommandGroup | null;
}

export interface WatchdogOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly limits: CommandLimits;
  /** Watches the folder that holds all that the command may write. */
  readonly disk: DiskWatch;
  /** Watch memory and processes here as well, because nothing in the kernel limits them. */
  readonly memory: boolean;
  readonly processes: boolean;
}

/** Milliseconds between two looks. */
const TICK_MS = 100;
const COUNT_EVERY = 5;
/** A command that stays at the process limit for so many milliseconds is a bomb, not a busy build. */
const CROWDED_MS = 2_000;
/** From this share of the limit on a command counts as being at it: refused forks come and go. */
const CROWDED_SHARE = 0.9;

/**
 * The last rung of the ladder: looks at a running command every 100 ms and names the limit that it passed, or null when `signal`
 * fires. A look costs a few small reads; the expensive one (adding up the folder) happens only when the disk's free space fell.
 */
export async function watchCommand(
  options: WatchdogOptions,
  input: WatchInput,
  signal: AbortSignal,
): Promise<string | null> {
  const { disk } = options;
  let crowdedSince: number | null = null;
  for (let tick = 0; ; tick += 1) {
    // First the pause: most commands are over before the first look.
    await options.clock.sleep(TICK_MS, signal).catch(() => {});
    if (signal.aborted) return null;
    if (input.group !== null && (await input.group.memoryExceeded())) return 'memory';
    // Counting processes one by one costs more than reading a number; a bomb stays anyway.
    const counts = options.memory || (options.processes && tick % COUNT_EVERY === 0);
    const usage = counts ? await usageOf(input.process, options.limits.processes) : null;
    if (options.memory && usage !== null && usage.memoryBytes > options.limits.memoryBytes) return 'memory';
    const tasks = await tasksOf(options, input, usage);
    if (tasks !== null) {
      if (tasks > options.limits.processes) return 'processes';
      crowdedSince =
        tasks < options.limits.processes * CROWDED_SHARE ? null : (crowdedSince ?? options.clock.monotonic());
      if (crowdedSince !== null && options.clock.monotonic() - crowdedSince >= CROWDED_MS) return 'processes';
    }
    if (await disk.exceeded(input.process)) return 'disk';
  }
}

/** How many processes and threads there are now, by the cheapest way that knows; null when nobody looked this time. */
async function tasksOf(options: WatchdogOptions, input: WatchInput, usage: Usage | null): Promise<number | null> {
  if (options.processes) return usage?.tasks ?? null;
  if (input.group === null) return null;
  const count = await input.group.processCount();
  // A group that never refused anybody is not at its limit, however large it is.
  return count.refused ? Math.min(count.now, options.limits.processes) : 0;
}

export interface Usage {
  /** Processes and threads. */
  readonly tasks: number;
  readonly memoryBytes: number;
  readonly processes: readonly number[];
}

/** Adds up a process and all its descendants. Stops counting soon after `enough` tasks: more is too many anyway. */
export async function usageOf(first: number, enough: number): Promise<Usage> {
  const processes: number[] = [];
  const pending = [first];
  let tasks = 0;
  let memoryBytes = 0;
  for (let id = pending.pop(); id !== undefined && tasks <= enough * 2; id = pending.pop()) {
    const threads = await readdir(`/proc/${id}/task`).catch(() => []);
    if (threads.length === 0) continue;
    processes.push(id);
    tasks += threads.length;
    memoryBytes += await memoryOf(id);
    const children = await Promise.all(
      threads.map((thread) => readFile(`/proc/${id}/task/${thread}/children`, 'utf8').catch(() => '')),
    );
    for (const text of children) for (const child of text.split(' ')) if (child !== '') pending.push(Number(child));
  }
  return { tasks, memoryBytes, processes };
}

/** Memory that only this process can account for: anonymous and shared memory, no file cache. */
async function memoryOf(id: number): Promise<number> {
  const text = await readFile(`/proc/${id}/status`, 'utf8').catch(() => '');
  let kibibytes = 0;
  for (const match of text.matchAll(/^Rss(?:Anon|Shmem):\s+(\d+) kB$/gm)) kibibytes += Number(match[1]);
  return kibibytes * 1024;
}
