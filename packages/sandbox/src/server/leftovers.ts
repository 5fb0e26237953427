import { readdir, readFile } from 'node:fs/promises';
import type { Clock } from '@reindeer/protocol';
import { kill, pollUntil, processStat } from '../process/signals.ts';

/** Variable by which a command's processes are known, wherever they moved. */
export const MARK = 'REINDEER_COMMAND';

export interface Leftovers {
  /** Value of `MARK` in the environment of the command. */
  readonly mark: string;
  /** First process of the command: leader of a session and group of its own. */
  readonly leader: number;
  /**
   * May every process of this container go, apart from the first and this one? Asked right before each kill: true only where nothing else
   * runs here and the processes that are seen are those of the container.
   */
  readonly alone: () => boolean;
  readonly clock: Clock;
}

/** Milliseconds for killed processes to vanish. */
const GONE_MS = 5_000;

/**
 * Ends all that a command has started: its group, its session, whoever carries its mark, and their descendants; with `alone`, everything,
 * so that not even a daemon with an empty environment escapes. Resolves with false when something is still there after a bounded wait.
 */
export function endLeftovers(command: Leftovers): Promise<boolean> {
  const known = new Set([command.leader]);
  kill(-command.leader);
  return pollUntil(command.clock, GONE_MS, async () => {
    const living = await othersAlive();
    if (command.alone()) {
      if (living.length === 0) return true;
      killAll();
      return false;
    }
    const victims = await belonging(living, command, known);
    for (const id of victims) kill(id);
    return victims.length === 0;
  });
}

interface Living {
  readonly id: number;
  readonly parent: number;
  readonly group: number;
}

/** All living processes but the container's first and this one. */
async function othersAlive(): Promise<readonly Living[]> {
  const found: Living[] = [];
  for (const name of await readdir('/proc')) {
    const id = Number(name);
    if (!Number.isInteger(id) || id === 1 || id === process.pid) continue;
    const stat = await processStat(id);
    if (stat !== null && stat.state !== 'Z' && stat.state !== 'X')
      found.push({ id, parent: stat.parent, group: stat.group });
  }
  return found;
}

async function belonging(living: readonly Living[], command: Leftovers, known: Set<number>): Promise<number[]> {
  const mark = `${MARK}=${command.mark}`;
  const marked = await Promise.all(
    living.map(async ({ id }) =>
      (await readFile(`/proc/${id}/environ`, 'latin1').catch(() => '')).split('\0').includes(mark),
    ),
  );
  const victims = new Set(
    living.filter(({ group }, at) => marked[at] === true || group === command.leader).map(({ id }) => id),
  );
  // Children of what was seen before count as well, although their parent may be gone by now.
  for (let grew = true; grew; ) {
    grew = false;
    for (const { id, parent } of living) {
      if (victims.has(id) || !(victims.has(parent) || known.has(parent))) continue;
      victims.add(id);
      grew = true;
    }
  }
  for (const id of victims) known.add(id);
  return [...victims];
}

/** One system call that reaches all at once, however fast they multiply; the kernel spares the first process and the caller. */
function killAll(): void {
  try {
    process.kill(-1, 'SIGKILL');
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && (error.code === 'ESRCH' || error.code === 'EPERM'))) throw error;
  }
}

/** Does this process run as the only service of a container that was started by our own launcher? */
export async function ownsContainer(launcher: string): Promise<boolean> {
  const first = await readFile('/proc/1/cmdline', 'utf8').catch(() => '');
  return process.ppid === 1 && first.split('\0').includes(launcher);
}
