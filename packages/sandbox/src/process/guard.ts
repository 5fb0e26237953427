import { type ChildProcess, spawn } from 'node:child_process';
import { readdir, readFile } from 'node:fs/promises';
import type { Logger, Random } from '@reindeer/protocol';
import { kill } from './signals.ts';

/** Variable by which what one process has started is told from what others have. */
const PROCESS = 'REINDEER_PROCESS';
/** Rounds over the process list: what is killed may have started something meanwhile. */
const ROUNDS = 10;

/** Variable by which the watcher finds processes that left their group. */
const OWNER = 'REINDEER_PROCESS_OWNER';

/**
 * Reads `+ GROUP` and `- GROUP`, and at the end of its input kills the groups that are left. Then, where there is `/proc`, whatever carries the
 * owner's mark in its environment, until nothing does: a process may start another one meanwhile. What is no number above 1 is not read: 0 and 1
 * would reach others.
 */
const WATCHER = `
trap '' HUP INT TERM QUIT
groups=' '
while read -r sign group; do
  case $group in ''|*[!0-9]*|0|1) continue;; esac
  case $sign in
    +) groups="$groups$group ";;
    -) case $groups in *" $group "*) groups="\${groups%%" $group "*} \${groups#*" $group "}";; esac;;
  esac
done
for group in $groups; do kill -KILL "-$group" 2>/dev/null; done
round=0
while [ -r /proc/self/environ ] && [ $round -lt 50 ]; do
  found=$(grep -lsF -- "$1" /proc/[0-9]*/environ 2>/dev/null | sed 's|^/proc/||; s|/environ$||')
  [ -n "$found" ] || break
  kill -KILL $found 2>/dev/null
  round=$((round + 1))
done
`;

/**
 * Makes the processes that this one starts end with it, also when it ends by `kill -9`, which no handler sees. One shell watches a pipe that only
 * this process holds, knows the process groups of what it started, and kills them when the pipe ends. On Linux it also finds what left
 * its group, by a variable that is passed on, so that nothing is missed between a start and its being told. Elsewhere a process that leaves its group
 * on purpose stays, and so does one that clears its environment as well; on Windows there is no watcher.
 *
 * The watcher: none → (first use) running → (`close`, or the end of this process) gone. One that ends by itself is replaced at the next use.
 */
export class ProcessGuard {
  readonly #logger: Logger;
  readonly #mark: string;
  readonly #groups = new Set<number>();
  #watcher: ChildProcess | null = null;
  #failed = false;
  #closed = false;

  constructor(parts: { readonly random: Random; readonly logger: Logger }) {
    this.#logger = parts.logger;
    this.#mark = parts.random.uuid();
  }

  /** Id of the watcher; null when there is none. */
  get watcher(): number | null {
    return this.#watcher?.pid ?? null;
  }

  /**
   * Variables for a process that must not outlive this one. Starts the watcher: it must be there before what it watches.
   *
   * @param id of the process, for `endMarked`; absent = nobody will ask
   */
  environment(id?: string): Readonly<Record<string, string>> {
    this.#watch();
    return process.platform === 'win32' ? {} : { [OWNER]: this.#mark, ...(id === undefined ? {} : { [PROCESS]: id }) };
  }

  /** Ends what a process with this id has started, also what left its group. Where there is no `/proc`, that is nothing. */
  async endMarked(id: string): Promise<void> {
    const mark = `${PROCESS}=${id}`;
    for (let round = 0; round < ROUNDS; round += 1) {
      const names = (await readdir('/proc').catch(() => [])).filter((name) => /^\d+$/.test(name));
      const found = await Promise.all(
        names.map(async (name) =>
          (await readFile(`/proc/${name}/environ`, 'latin1').catch(() => '')).split('\0').includes(mark),
        ),
      );
      const victims = names.filter((_, at) => found[at] === true);
      if (victims.length === 0) return;
      for (const name of victims) kill(Number(name));
    }
  }

  /**
   * Holds a process that was just started as the leader of a group of its own.
   *
   * @returns to be called when nothing of the group is left: its number may be another's from then on. Idempotent.
   */
  hold(group: number | undefined): () => void {
    if (group === undefined || process.platform === 'win32') return () => {};
    this.#watch();
    this.#groups.add(group);
    this.#tell(`+ ${group}\n`);
    return () => {
      if (this.#groups.delete(group)) this.#tell(`- ${group}\n`);
    };
  }

  /** Lets the watcher end; what is still held, or carries the mark, ends with it. Idempotent. */
  async close(): Promise<void> {
    this.#closed = true;
    const watcher = this.#watcher;
    this.#watcher = null;
    if (watcher === null || watcher.exitCode !== null || watcher.signalCode !== null) return;
    const gone = new Promise<void>((resolve) => watcher.once('exit', () => resolve()));
    watcher.ref();
    watcher.stdin?.end();
    await gone;
  }

  #watch(): void {
    if (this.#watcher !== null || this.#closed || process.platform === 'win32') return;
    const watcher = spawn('/bin/sh', ['-c', WATCHER, 'reindeer-watcher', `${OWNER}=${this.#mark}`], {
      stdio: ['pipe', 'ignore', 'ignore'],
      // A session of its own, so that an interrupt typed at the terminal does not reach it; no variable of ours, least of all the mark.
      detached: true,
      env: { PATH: '/usr/local/bin:/usr/bin:/bin' },
      cwd: '/',
    });
    this.#watcher = watcher;
    const lost = (why: string): void => {
      if (this.#watcher !== watcher) return;
      this.#watcher = null;
      if (!this.#failed)
        this.#logger.warn('Processes that are started may outlive a kill of this server: nothing watches them', {
          why,
        });
      this.#failed = true;
    };
    watcher.once('error', (error) => lost(error.message));
    watcher.once('exit', (code, signal) => lost(`the watcher ended with ${signal ?? code}`));
    watcher.stdin?.on('error', () => {});
    // It lives as long as this process does, and is no reason to live.
    watcher.unref();
    (watcher.stdin as { unref?(): void } | null)?.unref?.();
    for (const group of this.#groups) this.#tell(`+ ${group}\n`);
  }

  #tell(line: string): void {
    const input = this.#watcher?.stdin;
    if (input?.writable === true) input.write(line);
  }
}
