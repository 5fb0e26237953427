import { execFile } from 'node:child_process';
import { rm } from 'node:fs/promises';
import { promisify } from 'node:util';
import type { ExecResult, Surroundings } from '@reindeer/protocol';
import { makeThreadFolders, type ThreadPaths } from '../folders.ts';
import { Background } from '../process/background.ts';
import type { ProcessGuard } from '../process/guard.ts';
import type { PipePool } from '../process/pipes.ts';
import type { SandboxSettings } from '../settings.ts';
import type { SystemView } from './arguments.ts';
import { baseEnvironment, type Identity } from './arguments.ts';
import { type Cgroups, findCgroups } from './cgroups.ts';
import { launch } from './launch.ts';
import type { CommandLimits } from './limits.ts';
import { explainRefusal, findInherited, findProgram, installCommand } from './machine.ts';
import { systemCallFilter } from './system-calls.ts';
import { findSystemView } from './system-view.ts';
import { usageOf } from './watchdog.ts';

const run = promisify(execFile);

/** What was found, and shown to work, on this machine. */
export interface BubblewrapFindings {
  readonly program: string;
  readonly system: SystemView;
  /** See `findInherited`. */
  readonly inheritedDescriptors: readonly number[];
  /** `private-uid` findings carry the probe's id; each thread has its own. */
  readonly identity: Identity;
  readonly cgroups: Cgroups | null;
  /** Filter for system calls, for this processor. */
  readonly filter: Buffer | null;
  /** Each name says what was seen to hold: the control group, the process's own limit, or the watch from outside. */
  readonly confirmed: {
    readonly memoryGroup: boolean;
    readonly processGroup: boolean;
    readonly processUlimit: boolean;
    readonly fileSize: boolean;
    /** A command could not make namespaces of its own. */
    readonly noNesting: boolean;
    readonly watchdog: boolean;
  };
}

type Machine = Pick<BubblewrapFindings, 'program' | 'system' | 'inheritedDescriptors'>;

export type ProbeResult =
  | { readonly ok: true; readonly findings: BubblewrapFindings }
  | { readonly ok: false; readonly reason: string; readonly remedy: string };

export interface ProbeInput {
  readonly settings: SandboxSettings;
  readonly surroundings: Surroundings;
  readonly pipes: PipePool;
  readonly guard: ProcessGuard;
  /** A folder of ours in which a trial thread is made and removed again. */
  readonly folder: string;
  readonly hidden: readonly string[];
  /** A folder of ours for what commands see as `/etc`. */
  readonly systemFolder: string;
  /** Name of our processes; see `orphans.ts`. */
  readonly mark: string;
  /** Folders to search for `bwrap`. */
  readonly searchPath: string;
}

const MIB = 1024 * 1024;
const TRIAL_UID = 1_879_048_191;
const GROUPS_UID = 1_879_048_189;

/** Finds out by trial what this machine offers. Never claims what a trial did not show (D8). */
export async function probeBubblewrap(input: ProbeInput): Promise<ProbeResult> {
  if (process.platform !== 'linux') {
    return {
      ok: false,
      reason: 'bubblewrap exists on Linux only.',
      remedy:
        'Run Reindeer on Linux, or set `sandbox.use: local` with `allow_host_bash: true` to run commands as your own user.',
    };
  }
  const program = await findProgram('bwrap', input.searchPath);
  if (program === null)
    return { ok: false, reason: 'bubblewrap is not installed.', remedy: await installCommand('bubblewrap') };
  if ((await findProgram('bash', input.searchPath)) === null) {
    return { ok: false, reason: 'bash is not installed.', remedy: await installCommand('bash') };
  }
  const asking = run(program, ['--help']).then(
    (result) => result.stdout + result.stderr,
    () => '',
  );
  const { clock, random } = input.surroundings;
  const [help, inheritedDescriptors, cgroups, view] = await Promise.all([
    asking,
    findInherited(),
    findCgroups(clock, random),
    findSystemView({
      network: input.settings.network,
      hidden: input.hidden,
      folder: input.systemFolder,
      random,
    }),
    // Made while the rest is looked up: the first trial needs one, and says so if it cannot be had.
    input.pipes.warmUp().catch(() => {}),
  ]);
  if (!help.includes('--json-status-fd') || !help.includes('--args')) {
    return {
      ok: false,
      reason: 'bubblewrap is too old (0.4 or newer is needed).',
      remedy: await installCommand('bubblewrap'),
    };
  }
  const system = { ...view, sizedTmpfs: help.includes('--size') && help.includes('--perms') };
  const found = { program, system, inheritedDescriptors };
  const trial = new Trial(input, found);
  try {
    return await tryIdentities(trial, input, found, cgroups, help.includes('--disable-userns'));
  } finally {
    await trial.over();
    await rm(input.folder, { recursive: true, force: true });
  }
}

async function tryIdentities(
  trial: Trial,
  input: ProbeInput,
  machine: Machine,
  found: Cgroups | null,
  canDisableNested: boolean,
): Promise<ProbeResult> {
  let last = '';
  for (const { identity, filter } of candidates(canDisableNested)) {
    // Side by side: mostly the process's own limit holds, and no group has to count processes.
    const lean = found?.withoutProcesses() ?? null;
    const [result, leanGroups] = await Promise.all([
      trial.basics(identity, filter),
      lean === null ? NOTHING : trial.groups(identity, filter, lean),
    ]);
    if (!result.ok) {
      last = result.why;
      const fields = { kind: identity.kind, filter: filter !== null, why: last.slice(0, 500) };
      input.surroundings.logger.info('A kind of sandbox does not work here.', fields);
      continue;
    }
    const cgroups = result.processUlimit ? lean : found;
    const groups =
      cgroups === null || cgroups.processes === lean?.processes
        ? leanGroups
        : await trial.groups(identity, filter, cgroups);
    if (groups.cause !== undefined)
      input.surroundings.logger.warn('Control groups are there but cannot be used.', { cause: groups.cause });
    return {
      ok: true,
      findings: {
        ...machine,
        identity,
        filter,
        cgroups: groups.memory || groups.processes ? cgroups : null,
        confirmed: {
          memoryGroup: groups.memory,
          processGroup: groups.processes,
          processUlimit: result.processUlimit,
          fileSize: result.fileSize,
          noNesting: result.noNesting,
          watchdog: result.watchdog,
        },
      },
    };
  }
  return { ok: false, ...(await explainRefusal(last)) };
}

interface GroupsResult {
  readonly memory: boolean;
  readonly processes: boolean;
  /** Why there was no trial. */
  readonly cause?: string;
}

const NOTHING: GroupsResult = { memory: false, processes: false };

/** All ways to try, the best first. */
function candidates(canDisableNested: boolean): { readonly identity: Identity; readonly filter: Buffer | null }[] {
  const root = process.getuid?.() === 0;
  const ways: { readonly identity: Identity; readonly filter: Buffer | null }[] = [];
  const own = systemCallFilter(process.arch);
  for (const filter of own === null ? [null] : [own, null]) {
    if (root) ways.push({ identity: { kind: 'private-uid', uid: TRIAL_UID }, filter });
    // The filter refuses nested namespaces already; a second way of refusing them costs a further namespace per command.
    if (canDisableNested && filter === null)
      ways.push({ identity: { kind: 'user-namespace', disableNested: true }, filter });
    ways.push({ identity: { kind: 'user-namespace', disableNested: false }, filter });
  }
  return ways;
}

/** Runs trial commands in a thread of its own. */
class Trial {
  readonly #input: ProbeInput;
  readonly #machine: Machine;
  readonly #background: Background;

  constructor(input: ProbeInput, machine: Machine) {
    this.#input = input;
    this.#machine = machine;
    this.#background = new Background(input.surroundings.logger);
  }

  /** Resolves when nothing of the trial is left. */
  over(): Promise<void> {
    return this.#background.settled();
  }

  /** Does a command run at all, without rights, and which of its own limits hold? */
  async basics(
    identity: Identity,
    filter: Buffer | null,
  ): Promise<
    | {
        readonly ok: true;
        readonly processUlimit: boolean;
        readonly fileSize: boolean;
        readonly noNesting: boolean;
        readonly watchdog: boolean;
      }
    | { readonly ok: false; readonly why: string }
  > {
    let seen = 0;
    try {
      const result = await this.#run({
        name: 'basics',
        identity,
        filter,
        cgroups: null,
        limits: { memoryBytes: 64 * MIB, processes: 6, diskBytes: 64 * 1024 },
        limitProcesses: true,
        command: BASICS,
        watch: async (first) => {
          seen = Math.max(seen, (await usageOf(first, 100)).tasks);
        },
      });
      const lines = new Set(result.output.split('\n'));
      if (result.ended !== 'exit' || !lines.has('unprivileged')) return { ok: false, why: result.output };
      return {
        ok: true,
        processUlimit: lines.has('processes'),
        fileSize: lines.has('file-size'),
        noNesting: lines.has('no-nesting'),
        watchdog: seen > 2,
      };
    } catch (error) {
      const cause = error instanceof Error && error.cause instanceof Error ? error.cause.message : String(error);
      return { ok: false, why: cause };
    }
  }

  /** Do the control groups hold a process that uses too much? */
  async groups(identity: Identity, filter: Buffer | null, cgroups: Cgroups): Promise<GroupsResult> {
    try {
      const result = await this.#run({
        name: 'groups',
        // A user id of its own: the kernel counts the processes of one together, and those of the other trial would be among them.
        identity: identity.kind === 'private-uid' ? { ...identity, uid: GROUPS_UID } : identity,
        filter,
        cgroups,
        limits: { memoryBytes: 24 * MIB, processes: 8, diskBytes: 64 * MIB },
        limitProcesses: false,
        command: GROUPS(cgroups.processes),
        watch: async () => {},
      });
      return {
        processes: cgroups.processes && result.output.split('\n').includes('processes'),
        memory: result.ended === 'limit' && result.limit === 'memory',
      };
    } catch (error) {
      return { ...NOTHING, cause: String(error) };
    }
  }

  async #run(options: {
    /** Of its folder: trials run side by side. */
    readonly name: string;
    readonly identity: Identity;
    readonly filter: Buffer | null;
    readonly cgroups: Cgroups | null;
    readonly limits: CommandLimits;
    readonly limitProcesses: boolean;
    readonly command: string;
    readonly watch: (first: number) => Promise<void>;
  }): Promise<ExecResult> {
    const { surroundings, pipes, guard, folder, settings } = this.#input;
    const paths = trialPaths(`${folder}/${options.name}`);
    await makeThreadFolders(paths, options.identity.kind === 'private-uid' ? options.identity.uid : null);
    return launch({
      program: this.#machine.program,
      mark: this.#input.mark,
      command: {
        identity: options.identity,
        folders: paths.folders,
        skills: paths.skills,
        system: this.#machine.system,
        inheritedDescriptors: this.#machine.inheritedDescriptors,
        network: settings.network,
        limits: options.limits,
        limitProcesses: options.limitProcesses,
        cwd: '/mnt/user-data/workspace',
        environment: baseEnvironment(),
        command: options.command,
      },
      cgroups: options.cgroups,
      filter: options.filter,
      pipes,
      guard,
      clock: surroundings.clock,
      logger: surroundings.logger,
      timeoutMs: 10_000,
      outputBytes: 64 * 1024,
      outputEndBytes: MIB,
      signal: new AbortController().signal,
      afterwards: (work) => this.#background.add(work),
      watch: async ({ process: first }, signal) => {
        while (!signal.aborted) {
          await options.watch(first);
          await surroundings.clock.sleep(3, signal).catch(() => {});
        }
        return null;
      },
    });
  }
}

/**
 * Starts more processes than allowed and waits, without starting any itself, for the first refusal. (bash tries a refused fork again
 * after a whole second; nobody waits for that, since the sandbox ends with its first command.)
 */
const FORKS = `
( for n in 1 2 3 4 5 6 7 8 9 10 11 12; do (exec sleep 5) & done ) 2>/tmp/refused &
for ((turn = 0; turn < 300000; turn++)); do [[ -s /tmp/refused ]] && { echo processes; break; }; done
`;

/** Prints a word for each thing that holds. */
const BASICS = `
status=$(</proc/self/status)
[[ $status == *CapEff:?0000000000000000* && $status == *NoNewPrivs:?1* && $UID != 0 ]] && echo unprivileged
(trap '' XFSZ; printf '%0.s0123456789abcdef' {1..8192} >/tmp/large) 2>/dev/null
[[ $(stat -c %s /tmp/large) -le 65536 ]] && echo file-size
unshare --user true 2>/dev/null || echo no-nesting
${FORKS}
exit 0`;

/** Forks past the group's limit, then fills the memory: a doubling string is enough, and needs no other program. */
const GROUPS = (forks: boolean) => `${forks ? FORKS : ''}
text=0123456789abcdef
while :; do text=$text$text; done`;

function trialPaths(folder: string): ThreadPaths {
  const userData = `${folder}/user-data`;
  return {
    thread: folder,
    userData,
    staging: `${folder}/staging`,
    skills: `${folder}/skills`,
    folders: {
      workspace: `${userData}/workspace`,
      uploads: `${userData}/uploads`,
      outputs: `${userData}/outputs`,
      temporary: `${folder}/tmp`,
      passwd: `${folder}/passwd`,
    },
  };
}
