import { stat } from 'node:fs/promises';
import type { ExecResult, IsolationReport, Surroundings } from '@reindeer/protocol';
import type { CheckedRequest, Executor, ThreadKey } from '../executor.ts';
import { makeThreadFolders, type ThreadPaths } from '../folders.ts';
import { isPrivateUid, privateUid, safeUserId } from '../identity.ts';
import { Background } from '../process/background.ts';
import type { ProcessGuard } from '../process/guard.ts';
import type { PipePool } from '../process/pipes.ts';
import type { SandboxSettings } from '../settings.ts';
import { baseEnvironment, type Identity } from './arguments.ts';
import { DiskLedger } from './disk.ts';
import { launch } from './launch.ts';
import { markOf } from './orphans.ts';
import type { BubblewrapFindings } from './probe.ts';
import { watchCommand } from './watchdog.ts';

const OVER_QUOTA_FILE_BYTES = 1024 * 1024;

/** Runs commands in bubblewrap, under what the probe found. Idle it costs nothing: no process outlives its command. */
export class BubblewrapExecutor implements Executor {
  readonly pathStyle = 'virtual';
  readonly #findings: BubblewrapFindings;
  readonly #settings: SandboxSettings;
  readonly #surroundings: Surroundings;
  readonly #pipes: PipePool;
  readonly #guard: ProcessGuard;
  readonly #home: string;
  readonly #background: Background;
  readonly #ledger: DiskLedger;

  /** @param home real path of the data folder: two data folders on one machine share no user id */
  constructor(
    findings: BubblewrapFindings,
    settings: SandboxSettings,
    surroundings: Surroundings,
    pipes: PipePool,
    guard: ProcessGuard,
    home: string,
  ) {
    this.#home = home;
    this.#findings = findings;
    this.#settings = settings;
    this.#surroundings = surroundings;
    this.#pipes = pipes;
    this.#guard = guard;
    this.#background = new Background(surroundings.logger);
    this.#ledger = new DiskLedger(surroundings.clock);
  }

  get report(): IsolationReport {
    return isolationReport(this.#findings, this.#settings);
  }

  async prepare(paths: ThreadPaths, key: ThreadKey): Promise<void> {
    const identity = await this.#identity(paths, key);
    await makeThreadFolders(paths, identity.kind === 'private-uid' ? identity.uid : null);
  }

  readonly execute = async (
    paths: ThreadPaths,
    key: ThreadKey,
    request: CheckedRequest,
    settings = this.#settings,
  ): Promise<ExecResult> => {
    const { confirmed, cgroups, filter, inheritedDescriptors, program, system } = this.#findings;
    const { clock, logger } = this.#surroundings;
    const [identity, over] = await Promise.all([
      this.#identity(paths, key),
      this.#ledger.isOver(paths.thread, settings.diskBytes),
    ]);
    // Over its quota a thread can clean up and write small files, no more.
    const limits = over ? { ...settings, diskBytes: Math.min(settings.diskBytes, OVER_QUOTA_FILE_BYTES) } : settings;
    return launch({
      program,
      mark: markOf(this.#home),
      command: {
        identity,
        folders: paths.folders,
        skills: paths.skills,
        system,
        network: settings.network,
        inheritedDescriptors,
        limits,
        // Only where no group counts: two limits of the same height would hide each other's refusals.
        limitProcesses: confirmed.processUlimit && !confirmed.processGroup,
        cwd: request.cwd.virtual,
        environment: { ...baseEnvironment(), ...settings.environment, ...request.env },
        command: request.command,
      },
      cgroups,
      filter,
      pipes: this.#pipes,
      guard: this.#guard,
      clock,
      logger,
      timeoutMs: request.timeoutMs,
      outputBytes: settings.outputBytes,
      outputEndBytes: settings.outputEndBytes,
      signal: request.signal,
      ...(request.onOutput === undefined ? {} : { onOutput: request.onOutput }),
      afterwards: (work) => this.#background.add(work),
      watch: (input, signal) =>
        watchCommand(
          {
            clock,
            logger,
            limits,
            disk: this.#ledger.watch(paths.thread, settings.diskBytes),
            memory: !confirmed.memoryGroup,
            processes: !confirmed.processGroup,
          },
          input,
          signal,
        ),
    });
  };

  async close(): Promise<void> {
    await this.#background.settled();
    await this.#guard.close();
  }

  /**
   * A thread keeps the private id that owns its folder, also when the data folder moved; a new one gets an id derived from where
   * it lies. The owner is out of a command's reach: it may not change it.
   */
  async #identity(paths: ThreadPaths, { userId, threadId }: ThreadKey): Promise<Identity> {
    const { identity } = this.#findings;
    if (identity.kind !== 'private-uid') return identity;
    const owner = await stat(paths.folders.workspace).then(
      (info) => info.uid,
      () => null,
    );
    const uid = owner !== null && isPrivateUid(owner) ? owner : privateUid(this.#home, safeUserId(userId), threadId);
    return { kind: 'private-uid', uid };
  }
}

function mebibytes(bytes: number): string {
  return `${Math.round(bytes / 1024 / 1024)} MiB`;
}

/** What is enforced, in the words of `doctor` and the start-up line. Only what the probe saw. */
function isolationReport(findings: BubblewrapFindings, settings: SandboxSettings): IsolationReport {
  const { confirmed, cgroups, identity } = findings;
  const group = cgroups?.version ?? null;
  const watched = confirmed.watchdog ? 'watchdog' : null;
  const ownLimit = identity.kind === 'private-uid' ? 'private user id and rlimit' : 'user namespace and rlimit';
  const held = confirmed.processGroup || confirmed.processUlimit;
  const late = 'Looked at ten times a second: a fast command can pass it for a moment before it is ended.';
  return {
    provider: 'bubblewrap',
    canExecute: true,
    network: settings.network,
    limits: [
      {
        name: 'identity',
        enforcedBy: identity.kind === 'private-uid' ? 'private user id' : 'user namespace',
        value: 'no capabilities, no new privileges',
      },
      {
        name: 'system calls',
        enforcedBy: confirmed.noNesting ? (findings.filter === null ? 'user namespace' : 'seccomp') : null,
        value: confirmed.noNesting
          ? 'no further namespaces, mounts, kernel keys or VM sockets'
          : 'all that the kernel allows',
      },
      {
        name: 'network',
        enforcedBy: settings.network === 'none' ? 'network namespace' : null,
        value: settings.network === 'none' ? 'none' : 'the network of the host',
      },
      {
        name: 'memory',
        enforcedBy: confirmed.memoryGroup ? group : watched,
        value: mebibytes(settings.memoryBytes),
        ...(confirmed.memoryGroup ? {} : { note: late }),
      },
      {
        name: 'processes',
        enforcedBy: confirmed.processGroup ? group : confirmed.processUlimit ? ownLimit : null,
        value: String(settings.processes),
        // Looking ten times a second is too late for a fork bomb: it must not count as a limit.
        ...(held ? {} : { note: 'Only watched: a command with too many processes is ended late.' }),
      },
      { name: 'disk', enforcedBy: 'watchdog', value: mebibytes(settings.diskBytes), note: late },
      { name: 'file size', enforcedBy: confirmed.fileSize ? 'rlimit' : null, value: mebibytes(settings.diskBytes) },
      { name: 'output', enforcedBy: 'reader', value: mebibytes(settings.outputBytes) },
      { name: 'time', enforcedBy: 'namespace kill', value: `${Math.round(settings.bashCommandTimeoutMs / 1000)} s` },
    ],
  };
}
