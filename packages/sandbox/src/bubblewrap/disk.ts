import { execFile } from 'node:child_process';
import { readdir, stat, statfs } from 'node:fs/promises';
import { promisify } from 'node:util';
import type { Clock } from '@reindeer/protocol';
import { usageOf } from './watchdog.ts';

const run = promisify(execFile);

/** What was last seen of a thread's folder. */
interface Entry {
  /** Bytes in the folder; null before the first scan. */
  used: number | null;
  /** Free bytes of the disk at that moment. */
  free: number;
}

type FreeOf = (folder: string) => Promise<number | null>;

/** Threads remembered; of a forgotten one the folder is simply added up again. */
const MAX_ENTRIES = 10_000;
/** A tree is added up again at the latest after this, and never so often that adding up takes a notable share of the time. */
const SCAN_EVERY_MS = 3_000;
const SCAN_SHARE = 20;
/** Free space has to fall by this much to be worth a look. */
const NOTABLE_BYTES = 8 * 1024 * 1024;
/** What a thread over its quota may still add in small files, so that it can clean up. */
const GRACE_BYTES = 8 * 1024 * 1024;

/**
 * Keeps account of the disk space of threads over many commands, so that no series of short ones passes the quota unseen. Adding up
 * a folder is dear and happens only when the disk's free space fell; asking for that is cheap.
 */
export class DiskLedger {
  readonly #clock: Clock;
  readonly #freeOf: FreeOf;
  readonly #entries = new Map<string, Entry>();

  /** @param freeOf free bytes of the disk that holds a folder; null when unknown */
  constructor(clock: Clock, freeOf: FreeOf = freeBytes) {
    this.#clock = clock;
    this.#freeOf = freeOf;
  }

  /** Before a command: is the thread over its quota? Adds up again where the last sum can no longer be trusted. */
  async isOver(folder: string, quota: number): Promise<boolean> {
    const free = await this.#freeOf(folder);
    const entry = this.#entryOf(folder, free ?? 0);
    const fell = free === null ? 0 : entry.free - free;
    const doubtful = fell >= notable(quota) || (entry.used !== null && entry.used > quota);
    if (doubtful) await this.#scan(folder, entry, free);
    return entry.used !== null && entry.used > quota;
  }

  /** Watches one command; call `exceeded` again and again while it runs. */
  watch(folder: string, quota: number): DiskWatch {
    return new DiskWatch(
      this.#clock,
      () => this.#freeOf(folder),
      quota,
      (free) => {
        const entry = this.#entryOf(folder, free);
        return { entry, scan: () => this.#scan(folder, entry, free) };
      },
    );
  }

  async #scan(folder: string, entry: Entry, free: number | null): Promise<void> {
    const size = await sizeOf(folder);
    if (size === null) return;
    const hidden = size.complete || free === null ? 0 : Math.max(0, entry.free - free);
    // Folders that were closed to us hide what is in them; what the disk lost meanwhile is then taken to be there.
    entry.used = size.bytes + hidden;
    if (free !== null && size.complete) entry.free = free;
  }

  #entryOf(folder: string, free: number): Entry {
    const entry = this.#entries.get(folder) ?? { used: null, free };
    this.#entries.delete(folder);
    this.#entries.set(folder, entry);
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size <= MAX_ENTRIES) break;
      this.#entries.delete(oldest);
    }
    return entry;
  }
}

function notable(quota: number): number {
  return Math.max(NOTABLE_BYTES, quota / 8);
}

/** The account of one folder, and how to add it up anew. */
type Look = (free: number) => { readonly entry: Entry; readonly scan: () => Promise<void> };

/** One command's view of the ledger. */
export class DiskWatch {
  readonly #clock: Clock;
  readonly #free: () => Promise<number | null>;
  readonly #quota: number;
  readonly #look: Look;
  #lastScan: number;
  #lastCost = 0;
  /** The quota, or a little more than what was there before the command. */
  #allowed: number | null = null;

  constructor(clock: Clock, free: () => Promise<number | null>, quota: number, look: Look) {
    this.#clock = clock;
    this.#free = free;
    this.#quota = quota;
    this.#look = look;
    this.#lastScan = clock.monotonic();
  }

  /** @param process first process of the sandbox, whose open but deleted files count as well */
  async exceeded(process: number): Promise<boolean> {
    const free = await this.#free();
    if (free === null) return false;
    const { entry, scan } = this.#look(free);
    if (this.#allowed === null && entry.used !== null) this.#allow(entry.used);
    const since = this.#clock.monotonic() - this.#lastScan;
    const urgent = entry.free - free >= notable(this.#quota) && since >= this.#lastCost * 4;
    const due = entry.used === null || since >= Math.max(SCAN_EVERY_MS, this.#lastCost * SCAN_SHARE);
    if (!due && !urgent) return false;
    const began = this.#clock.monotonic();
    const unseen = urgent ? await deletedBytes(process) : 0;
    await scan();
    this.#lastScan = this.#clock.monotonic();
    this.#lastCost = this.#lastScan - began;
    if (entry.used === null) return false;
    if (this.#allowed === null) this.#allow(urgent ? 0 : entry.used);
    return entry.used + unseen > (this.#allowed ?? this.#quota);
  }

  #allow(before: number): void {
    this.#allowed = Math.max(this.#quota, before > this.#quota ? before + GRACE_BYTES : 0);
  }
}

async function freeBytes(folder: string): Promise<number | null> {
  const space = await statfs(folder).catch(() => null);
  return space === null ? null : space.bfree * space.bsize;
}

/**
 * Bytes on disk below a folder; not `complete` when a part of it could not be read. `du` walks by descriptors and follows no link, and
 * its work is not ours. Null when it failed altogether.
 */
export async function sizeOf(folder: string): Promise<{ readonly bytes: number; readonly complete: boolean } | null> {
  const env = { PATH: '/usr/local/bin:/usr/bin:/bin', LC_ALL: 'C' };
  const limits = { timeout: 20_000, maxBuffer: 64 * 1024 * 1024, env };
  const { stdout, stderr } = await run('du', ['-skx', '--', folder], limits).catch((error: unknown) => {
    // Files that vanish meanwhile make it complain and still print the sum.
    const text = (name: string) => (error instanceof Error && name in error ? String(Reflect.get(error, name)) : '');
    return { stdout: text('stdout'), stderr: text('stderr') };
  });
  const kibibytes = Number(/^(\d+)\s/.exec(stdout)?.[1] ?? Number.NaN);
  if (Number.isNaN(kibibytes)) return null;
  return { bytes: kibibytes * 1024, complete: !stderr.includes('Permission denied') };
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
      const info = await stat(`/proc/${id}/fd/${descriptor}`).catch(() => null);
      if (info === null || !info.isFile() || info.nlink > 0) continue;
      const key = `${info.dev}:${info.ino}`;
      if (!seen.has(key)) bytes += info.blocks * 512;
      seen.add(key);
    }
  }
  return bytes;
}
