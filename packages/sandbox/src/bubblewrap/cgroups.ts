import { mkdir, readdir, readFile, rmdir, stat, writeFile } from 'node:fs/promises';
import type { Clock, Random } from '@reindeer/protocol';
import { pollUntil } from '../process/signals.ts';
import type { CommandLimits } from './limits.ts';

/** Control groups in which commands can be put, as found on this machine. */
export interface Cgroups {
  readonly version: 'cgroup v2' | 'cgroup v1';
  readonly memory: boolean;
  readonly processes: boolean;
  /** Makes the group of one command; rejects when the machine refuses. */
  create(limits: CommandLimits): Promise<CommandGroup>;
  /**
   * The same without counting processes, where something else holds them: in version 1 each controller has a hierarchy of its own, and
   * entering one makes the kernel wait for a grace period (some 10 ms). In version 2 there is only one to enter; nothing changes.
   */
  withoutProcesses(): Cgroups;
}

export interface CommandGroup {
  /** Puts a process in, and with it all that it starts later. */
  join(processId: number): Promise<void>;
  /** Did the kernel end a process of the group because its memory was used up? */
  memoryExceeded(): Promise<boolean>;
  /** Processes and threads in the group now, and whether a new one was ever refused. */
  processCount(): Promise<{ readonly now: number; readonly refused: boolean }>;
  /** Removes the group; every process in it must be dead. */
  remove(): Promise<void>;
}

/** One folder to make per controller (v1), or one for all (v2). */
interface Place {
  readonly memory: string | null;
  readonly processes: string | null;
}

/** Empty groups of ours that are older belong to a server that was killed. */
const STALE_MS = 10 * 60 * 1000;

/** Removes what killed servers left; a group with processes in it refuses. */
async function sweepGroups(folder: string, now: number): Promise<void> {
  for (const name of await readdir(folder).catch(() => [])) {
    if (!name.startsWith('reindeer-')) continue;
    const info = await stat(`${folder}/${name}`).catch(() => null);
    if (info !== null && now - info.mtimeMs > STALE_MS) await rmdir(`${folder}/${name}`).catch(() => {});
  }
}

/** Finds where this process may make groups, and clears up there. Null when nowhere. What is found still has to be proved by a probe. */
export async function findCgroups(clock: Clock, random: Random): Promise<Cgroups | null> {
  const own = parseOwnGroups(await readText('/proc/self/cgroup'));
  const mounts = parseMounts(await readText('/proc/self/mountinfo'));
  const second = await findVersion2(own, mounts, random);
  const place: Place =
    second === null
      ? {
          memory: await findVersion1('memory', own, mounts, random),
          processes: await findVersion1('pids', own, mounts, random),
        }
      : { memory: second, processes: second };
  const folders = new Set([place.memory, place.processes].filter((folder) => folder !== null));
  if (folders.size === 0) return null;
  for (const folder of folders) await sweepGroups(folder, clock.now());
  return new Groups(second === null ? 'cgroup v1' : 'cgroup v2', place, clock, random);
}

/** `/proc/self/cgroup`: controller → path; the unified hierarchy under the empty name. */
export function parseOwnGroups(text: string): ReadonlyMap<string, string> {
  const groups = new Map<string, string>();
  for (const line of text.split('\n')) {
    const match = /^\d+:([^:]*):(.*)$/.exec(line);
    if (match === null) continue;
    for (const controller of (match[1] ?? '').split(',')) groups.set(controller, match[2] ?? '/');
  }
  return groups;
}

export interface CgroupMount {
  readonly point: string;
  /** Part of the hierarchy that is mounted here. */
  readonly root: string;
  readonly version: 1 | 2;
  readonly controllers: readonly string[];
}

/** `/proc/self/mountinfo`: the mounted hierarchies. */
export function parseMounts(text: string): readonly CgroupMount[] {
  const mounts: CgroupMount[] = [];
  for (const line of text.split('\n')) {
    const [before, after] = line.split(' - ');
    const fields = before?.split(' ') ?? [];
    const [type, , options] = after?.split(' ') ?? [];
    const [root, point] = [fields[3], fields[4]];
    if (root === undefined || point === undefined || (type !== 'cgroup' && type !== 'cgroup2')) continue;
    mounts.push({ root, point, version: type === 'cgroup2' ? 2 : 1, controllers: options?.split(',') ?? [] });
  }
  return mounts;
}

/** Folder of our own group in this mount, then those above it, up to the mount. */
function upwards(mount: CgroupMount, path: string): string[] {
  const below =
    path === mount.root
      ? ''
      : path.startsWith(mount.root === '/' ? '/' : `${mount.root}/`)
        ? path.slice(mount.root === '/' ? 0 : mount.root.length)
        : '';
  const folders: string[] = [];
  for (let rest = below === '/' ? '' : below; ; rest = rest.slice(0, rest.lastIndexOf('/'))) {
    folders.push(`${mount.point}${rest}`);
    if (rest === '') return folders;
  }
}

async function findVersion2(own: ReadonlyMap<string, string>, mounts: readonly CgroupMount[], random: Random) {
  const mount = mounts.find((candidate) => candidate.version === 2);
  const path = own.get('');
  if (mount === undefined || path === undefined) return null;
  for (const folder of upwards(mount, path).slice(0, 4)) {
    if (await canLimit(folder, ['memory.max', 'pids.max'], random)) return folder;
  }
  return null;
}

async function findVersion1(
  controller: 'memory' | 'pids',
  own: ReadonlyMap<string, string>,
  mounts: readonly CgroupMount[],
  random: Random,
) {
  const mount = mounts.find((candidate) => candidate.version === 1 && candidate.controllers.includes(controller));
  const path = own.get(controller);
  if (mount === undefined || path === undefined) return null;
  const file = controller === 'memory' ? 'memory.limit_in_bytes' : 'pids.max';
  for (const folder of upwards(mount, path)) {
    if (await canLimit(folder, [file], random)) return folder;
  }
  return null;
}

/** Makes a group, looks for the files, and removes it again. */
async function canLimit(folder: string, files: readonly string[], random: Random): Promise<boolean> {
  const trial = `${folder}/reindeer-${random.uuid()}`;
  try {
    await mkdir(trial);
  } catch {
    return false;
  }
  try {
    if (await haveAll(trial, files)) return true;
    // Version 2 hands controllers down only on request; refused where processes sit in the folder itself.
    await writeFile(`${folder}/cgroup.subtree_control`, '+memory +pids');
    return await haveAll(trial, files);
  } catch {
    return false;
  } finally {
    await rmdir(trial).catch(() => {});
  }
}

async function haveAll(folder: string, files: readonly string[]): Promise<boolean> {
  const texts = await Promise.all(files.map((file) => readFile(`${folder}/${file}`, 'utf8').catch(() => null)));
  return texts.every((text) => text !== null);
}

class Groups implements Cgroups {
  readonly version: 'cgroup v2' | 'cgroup v1';
  readonly #place: Place;
  readonly #clock: Clock;
  readonly #random: Random;

  constructor(version: 'cgroup v2' | 'cgroup v1', place: Place, clock: Clock, random: Random) {
    this.version = version;
    this.#place = place;
    this.#clock = clock;
    this.#random = random;
  }

  get memory(): boolean {
    return this.#place.memory !== null;
  }

  get processes(): boolean {
    return this.#place.processes !== null;
  }

  withoutProcesses(): Cgroups {
    if (this.version === 'cgroup v2') return this;
    return new Groups(this.version, { ...this.#place, processes: null }, this.#clock, this.#random);
  }

  async create(limits: CommandLimits): Promise<CommandGroup> {
    const name = `reindeer-${this.#random.uuid()}`;
    const memory = this.#place.memory === null ? null : `${this.#place.memory}/${name}`;
    const processes = this.#place.processes === null ? null : `${this.#place.processes}/${name}`;
    const folders = [...new Set([memory, processes])].filter((folder) => folder !== null);
    const group = new Group(this.version, folders, memory, processes, this.#clock);
    try {
      await Promise.all(folders.map((folder) => mkdir(folder)));
      await group.limit(limits);
    } catch (error) {
      await group.remove();
      throw error;
    }
    return group;
  }
}

/** Milliseconds for the kernel to let go of an empty group. */
const REMOVE_MS = 2_000;

class Group implements CommandGroup {
  readonly #version: 'cgroup v2' | 'cgroup v1';
  readonly #folders: readonly string[];
  readonly #memory: string | null;
  readonly #processes: string | null;
  readonly #clock: Clock;

  constructor(
    version: 'cgroup v2' | 'cgroup v1',
    folders: readonly string[],
    memory: string | null,
    processes: string | null,
    clock: Clock,
  ) {
    this.#version = version;
    this.#folders = folders;
    this.#memory = memory;
    this.#processes = processes;
    this.#clock = clock;
  }

  async limit(limits: CommandLimits): Promise<void> {
    if (this.#processes !== null) await writeFile(`${this.#processes}/pids.max`, String(limits.processes));
    if (this.#memory === null) return;
    const bytes = String(limits.memoryBytes);
    if (this.#version === 'cgroup v2') {
      await writeFile(`${this.#memory}/memory.max`, bytes);
      // Absent where the kernel has no swap accounting.
      await writeFile(`${this.#memory}/memory.swap.max`, '0').catch(() => {});
      await writeFile(`${this.#memory}/memory.oom.group`, '1').catch(() => {});
      return;
    }
    await writeFile(`${this.#memory}/memory.limit_in_bytes`, bytes);
    await writeFile(`${this.#memory}/memory.memsw.limit_in_bytes`, bytes).catch(() => {});
  }

  async join(processId: number): Promise<void> {
    await Promise.all(this.#folders.map((folder) => writeFile(`${folder}/cgroup.procs`, String(processId))));
  }

  async memoryExceeded(): Promise<boolean> {
    if (this.#memory === null) return false;
    const file = this.#version === 'cgroup v2' ? 'memory.events' : 'memory.oom_control';
    return (await readCount(`${this.#memory}/${file}`, 'oom_kill')) > 0;
  }

  async processCount(): Promise<{ readonly now: number; readonly refused: boolean }> {
    if (this.#processes === null) return { now: 0, refused: false };
    const [now, refused] = await Promise.all([
      readText(`${this.#processes}/pids.current`),
      readCount(`${this.#processes}/pids.events`, 'max'),
    ]);
    return { now: Number(now), refused: refused > 0 };
  }

  async remove(): Promise<void> {
    for (const folder of this.#folders) {
      await pollUntil(this.#clock, REMOVE_MS, () =>
        rmdir(folder).then(
          () => true,
          (error: unknown) => error instanceof Error && 'code' in error && error.code === 'ENOENT',
        ),
      );
    }
  }
}

async function readCount(file: string, name: string): Promise<number> {
  const line = (await readText(file)).split('\n').find((candidate) => candidate.startsWith(`${name} `));
  return line === undefined ? 0 : Number(line.slice(name.length + 1));
}

function readText(file: string): Promise<string> {
  return readFile(file, 'utf8').catch(() => '');
}
