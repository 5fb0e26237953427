import { readdir, readFile } from 'node:fs/promises';
import type { Clock } from '@reindeer/protocol';

/** Sends SIGKILL; a process or group that is gone already is fine. Negative ids mean the process group. */
export function kill(id: number): void {
  // 0, 1, -1 would reach ourselves, the machine's first process, or everything.
  if (!Number.isInteger(id) || Math.abs(id) <= 1) return;
  try {
    process.kill(id, 'SIGKILL');
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && (error.code === 'ESRCH' || error.code === 'EPERM'))) throw error;
  }
}

/**
 * Is the process gone? A zombie counts as gone: when the first process of a namespace is one, the kernel has ended all others in
 * it. `started` tells the process from a later one with the same id.
 */
export async function isGone(id: number, started: string | null): Promise<boolean> {
  const stat = await processStat(id);
  return stat === null || stat.state === 'Z' || stat.state === 'X' || (started !== null && stat.started !== started);
}

export interface ProcessStat {
  /** One letter: `R`, `S`, `Z` … */
  readonly state: string;
  readonly parent: number;
  readonly group: number;
  readonly started: string;
}

/** State and start time of a process from `/proc`; null when there is none. */
export async function processStat(id: number): Promise<ProcessStat | null> {
  const text = await readFile(`/proc/${id}/stat`, 'utf8').catch(() => null);
  if (text === null) return null;
  // The name in parentheses may hold blanks and parentheses of its own.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  return { state: fields[0] ?? '', parent: Number(fields[1]), group: Number(fields[2]), started: fields[19] ?? '' };
}

/** First questions are asked without a pause: what was killed is mostly gone within a millisecond. */
const WITHOUT_PAUSE = 8;

/** Asks again and again, ever more slowly, until `check` says yes or the time is over. Returns the last answer. */
export async function pollUntil(clock: Clock, milliseconds: number, check: () => Promise<boolean>): Promise<boolean> {
  const deadline = clock.monotonic() + milliseconds;
  for (let turn = 0, pause = 1; ; turn += 1) {
    if (await check()) return true;
    if (clock.monotonic() >= deadline) return false;
    if (turn < WITHOUT_PAUSE) continue;
    await clock.sleep(pause);
    pause = Math.min(pause * 2, 50);
  }
}

/** Has a process group no living member? Zombies that wait for their parent do not count. */
export async function groupIsGone(group: number): Promise<boolean> {
  try {
    process.kill(-group, 0);
  } catch {
    return true;
  }
  if (process.platform !== 'linux') return false;
  for (const name of await readdir('/proc').catch(() => [])) {
    if (!/^\d+$/.test(name)) continue;
    const stat = await processStat(Number(name));
    if (stat !== null && stat.group === group && stat.state !== 'Z' && stat.state !== 'X') return false;
  }
  return true;
}
