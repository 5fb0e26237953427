import type { ExecResult, IsolationReport, Surroundings } from '@reindeer/protocol';
import type { CheckedRequest, Executor, ThreadKey } from '../executor.ts';
import { makeThreadFolders, type ThreadPaths } from '../folders.ts';
import { privateUid, safeUserId } from '../identity.ts';
import type { PipePool } from '../process/pipes.ts';
import type { SandboxSettings } from '../settings.ts';
import { baseEnvironment, type Identity } from './arguments.ts';
import { launch } from './launch.ts';
import type { BubblewrapFindings } from './probe.ts';
import { watchCommand } from './watchdog.ts';

/** Runs commands in bubblewrap, under what the probe found. Idle it costs nothing: no process outlives its command. */
export class BubblewrapExecutor implements Executor {
  readonly report: IsolationReport;
  readonly pathStyle = 'virtual';
  readonly #findings: BubblewrapFindings;
  readonly #settings: SandboxSettings;
  readonly #surroundings: Surroundings;
  readonly #pipes: PipePool;

  constructor(findings: BubblewrapFindings, settings: SandboxSettings, surroundings: Surroundings, pipes: PipePool) {
    this.#findings = findings;
    this.#settings = settings;
    this.#surroundings = surroundings;
    this.#pipes = pipes;
    this.report = isolationReport(findings, settings);
  }

  prepare(paths: ThreadPaths, key: ThreadKey): Promise<void> {
    const identity = this.#identity(key);
    return makeThreadFolders(paths, identity.kind === 'private-uid' ? identity.uid : null);
  }

  readonly execute = (paths: ThreadPaths, key: ThreadKey, request: CheckedRequest): Promise<ExecResult> => {
    const { confirmed, cgroups, filter, program, system } = this.#findings;
    const settings = this.#settings;
    const { clock, logger } = this.#surroundings;
    const limits = settings;
    return launch({
      program,
      command: {
        identity: this.#identity(key),
        folders: paths.folders,
        system,
        network: settings.network,
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
      clock,
      logger,
      timeoutMs: request.timeoutMs,
      outputBytes: settings.outputBytes,
      outputEndBytes: settings.outputEndBytes,
      signal: request.signal,
      ...(request.onOutput === undefined ? {} : { onOutput: request.onOutput }),
      watch: (input, signal) =>
        watchCommand(
          {
            clock,
            logger,
            limits,
            folder: paths.thread,
            memory: !confirmed.memoryGroup,
            processes: !confirmed.processGroup,
          },
          input,
          signal,
        ),
    });
  };

  async close(): Promise<void> {}

  #identity({ userId, threadId }: ThreadKey): Identity {
    const { identity } = this.#findings;
    if (identity.kind !== 'private-uid') return identity;
    return { kind: 'private-uid', uid: privateUid(safeUserId(userId), threadId) };
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
        enforcedBy: confirmed.processGroup ? group : confirmed.processUlimit ? ownLimit : watched,
        value: String(settings.processes),
      },
      { name: 'disk', enforcedBy: 'watchdog', value: mebibytes(settings.diskBytes), note: late },
      { name: 'file size', enforcedBy: confirmed.fileSize ? 'rlimit' : null, value: mebibytes(settings.diskBytes) },
      { name: 'output', enforcedBy: 'reader', value: mebibytes(settings.outputBytes) },
      { name: 'time', enforcedBy: 'namespace kill', value: `${Math.round(settings.bashCommandTimeoutMs / 1000)} s` },
    ],
  };
}
