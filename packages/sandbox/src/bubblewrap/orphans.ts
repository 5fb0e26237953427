import { createHash } from 'node:crypto';
import { readdir, readFile, readlink } from 'node:fs/promises';
import { kill, processStat } from '../process/signals.ts';

/** The name under which bubblewrap runs for a data folder (its `argv[0]`), so that a later start knows its own leftovers. */
export function markOf(home: string): string {
  return `reindeer-sandbox-${createHash('sha256').update(home).digest('hex').slice(0, 12)}`;
}

/**
 * Ends what a killed server left. bubblewrap's inner process asks to die with its parent only after it has waited for it; when the
 * server is killed in that instant it waits for ever. No command runs in it yet, but it would stay.
 * Processes whose parent is a living server, or a bubblewrap of one, are left alone. Returns how many were ended.
 */
export async function endOrphans(mark: string): Promise<number> {
  let ended = 0;
  for (const name of await readdir('/proc').catch(() => [])) {
    const id = Number(name);
    if (!Number.isInteger(id) || !(await isMarked(id, mark))) continue;
    const stat = await processStat(id);
    if (stat === null || stat.state === 'Z' || (await isLookedAfter(stat.parent, mark))) continue;
    kill(id);
    ended += 1;
  }
  return ended;
}

async function isMarked(id: number, mark: string): Promise<boolean> {
  const line = await readFile(`/proc/${id}/cmdline`, 'utf8').catch(() => '');
  return line.startsWith(`${mark}\0`);
}

/** Does somebody who will end the process look after it? A server runs on the same Node as this one. */
async function isLookedAfter(parent: number, mark: string): Promise<boolean> {
  if (await isMarked(parent, mark)) return true;
  return (await readlink(`/proc/${parent}/exe`).catch(() => '')) === process.execPath;
}
