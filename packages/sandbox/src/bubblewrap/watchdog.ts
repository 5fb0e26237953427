import { execFile } from 'node:child_process';
import { readdir, readFile, stat, statfs } from 'node:fs/promises';
import { promisify } from 'node:util';
import type { Clock, Logger } from '@reindeer/protocol';
import type { CommandGroup } from './cgroups.ts';
import type { CommandLimits } from './limits.ts';

const run = promisify(execFile);

export interface WatchInput {
  /** Id of the sandbox's first process, as the host sees it. */
  readonly process: number;
  readonly group: CommandGroup | null;
}

export interface WatchdogOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly limits: CommandLimits;
  /** Real folder that holds all that the command may write; its growth is watched. */
  readonly folder: string;
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
  const disk = new DiskWatch(options);
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

/** A tree is added up again at the latest after this, and never so often that adding up takes a notable share of the time. */
const SCAN_EVERY_MS = 3_000;
const SCAN_SHARE = 20;
/** Free space has to fall by this much to be worth a look. */
const NOTABLE_BYTES = 8 * 1024 * 1024;
/** A thread that was over its quota before may still run commands, to delete things. */
const GRACE_BYTES = 16 * 1024 * 1024;

class DiskWatch {
  readonly #options: WatchdogOptions;
  #freeAtScan: number | null = null;
  #lastScan: number;
  #lastCost = 0;
  /** What the folder may hold: the quota, or a little more than what it held at the first look. */
  #allowed: number | null = null;

  constructor(options: WatchdogOptions) {
    this.#options = options;
    this.#lastScan = options.clock.monotonic();
  }

  async exceeded(process: number): Promise<boolean> {
    const { clock, folder, limits } = this.#options;
    const space = await statfs(folder).catch(() => null);
    if (space === null) return false;
    const free = space.bfree * space.bsize;
    this.#freeAtScan ??= free;
    const fell = this.#freeAtScan - free;
    const since = clock.monotonic() - this.#lastScan;
    const due = since >= Math.max(SCAN_EVERY_MS, this.#lastCost * SCAN_SHARE);
    const urgent = fell >= Math.max(NOTABLE_BYTES, limits.diskBytes / 8) && since >= this.#lastCost * 4;
    if (!due && !urgent) return false;
    const began = clock.monotonic();
    const used = await sizeOf(folder);
    this.#lastScan = clock.monotonic();
    this.#lastCost = this.#lastScan - began;
    this.#freeAtScan = free;
    if (used === null) return false;
    const unseen = urgent ? await deletedBytes(process) : 0;
    // At an urgent look the command may have written a lot already; only an unhurried first look tells what was there before.
    this.#allowed ??= urgent ? limits.diskBytes : Math.max(limits.diskBytes, used + GRACE_BYTES);
    return used + unseen > this.#allowed;
  }
}

/** Bytes on disk below a folder. `du` walks by descriptors and follows no link, and its work is not ours. Null when it failed. */
export async function sizeOf(folder: string): Promise<number | null> {
  try {
    const { stdout } = await run('du', ['-skx', '--', folder], {
      timeout: 20_000,
      env: { PATH: '/usr/local/bin:/usr/bin:/bin', LC_ALL: 'C' },
    });
    return Number(stdout.split(/\s/)[0]) * 1024;
  } catch (error) {
    // Files that vanish meanwhile make it complain and still print the sum.
    const text = error instanceof Error && 'stdout' in error ? String(error.stdout) : '';
    const kibibytes = Number(text.split(/\s/)[0]);
    return text !== '' && Number.isFinite(kibibytes) ? kibibytes * 1024 : null;
  }
}

const MAX_DESCRIPTORS = 2_000;

/** Space held by files that were deleted but are still open, which no walk of the folder finds. */
async function deletedBytes(first: number): Promise<number> {
  const seen = new Set<string>();
  let bytes = 0;
  let looked = 0;
  for (const id of (await usageOf(first, 10_000)).processes) {
    for (const descriptor of await readdir(`/proc/${id}/fd`).catch(() => [])) {
      looked += 1;
      if (looked > MAX_DESCRIPTORS) return bytes;
      const path = `/proc/${id}/fd/${descriptor}`;
      const info = await stat(path).catch(() => null);
      if (info === null || !info.isFile() || info.nlink > 0) continue;
      const key = `${info.dev}:${info.ino}`;
      if (!seen.has(key)) bytes += info.blocks * 512;
      seen.add(key);
    }
  }
  return bytes;
}
