import { spawn } from 'node:child_process';
import type { ExecResult, IsolationReport, Surroundings } from '@reindeer/protocol';
import type { CheckedRequest, Executor, ThreadKey } from '../executor.ts';
import { makeThreadFolders, type ThreadPaths } from '../folders.ts';
import { scrubEnvironment } from '../process/environment.ts';
import type { ProcessGuard } from '../process/guard.ts';
import { OutputBuffer } from '../process/output.ts';
import { type PipePool, startWith } from '../process/pipes.ts';
import { groupIsGone, kill, pollUntil } from '../process/signals.ts';
import { supervise } from '../process/supervise.ts';
import type { SandboxSettings } from '../settings.ts';

/** Milliseconds for a killed process group to vanish. */
const GONE_MS = 5_000;

/**
 * Runs commands on the host as the server's own user, without isolation: only where the operator allowed it. They start in the thread's
 * working folder, know relative paths only, see no variable that looks like a secret, and end as a process group. A
 * command that leaves its group on purpose is not followed while the server runs; nothing here claims otherwise.
 */
export class LocalExecutor implements Executor {
  readonly pathStyle = 'relative';
  readonly #settings: SandboxSettings;
  readonly #surroundings: Surroundings;
  readonly #pipes: PipePool;
  readonly #guard: ProcessGuard;
  readonly #environment: Readonly<Record<string, string | undefined>>;

  /** @param environment the host's variables; filtered for every command */
  constructor(
    settings: SandboxSettings,
    surroundings: Surroundings,
    pipes: PipePool,
    guard: ProcessGuard,
    environment: Readonly<Record<string, string | undefined>>,
  ) {
    this.#settings = settings;
    this.#surroundings = surroundings;
    this.#pipes = pipes;
    this.#guard = guard;
    this.#environment = environment;
  }

  get report(): IsolationReport {
    const settings = this.#settings;
    return {
      provider: 'local',
      canExecute: true,
      network: 'host',
      limits: [
        { name: 'files', enforcedBy: null, value: 'all that the user of the server may open' },
        { name: 'memory', enforcedBy: null, value: 'none' },
        { name: 'processes', enforcedBy: null, value: 'none' },
        { name: 'disk', enforcedBy: null, value: 'none' },
        { name: 'output', enforcedBy: 'reader', value: `${Math.round(settings.outputBytes / 1024 / 1024)} MiB` },
        {
          name: 'time',
          enforcedBy: 'process group kill',
          value: `${Math.round(settings.bashCommandTimeoutMs / 1000)} s`,
          note: 'A process that leaves its group is not followed.',
        },
      ],
    };
  }

  prepare(paths: ThreadPaths, _key: ThreadKey): Promise<void> {
    return makeThreadFolders(paths, null);
  }

  readonly execute = async (
    paths: ThreadPaths,
    _key: ThreadKey,
    request: CheckedRequest,
    settings = this.#settings,
  ): Promise<ExecResult> => {
    const { clock, logger } = this.#surroundings;
    const began = clock.monotonic();
    const output = new OutputBuffer(settings.outputBytes, request.onOutput);
    const pipe = await this.#pipes.acquire();
    const start = () =>
      spawn('bash', ['-c', request.command], {
        stdio: ['ignore', pipe.writer, pipe.writer],
        cwd: request.cwd.real,
        env: {
          ...scrubEnvironment(this.#environment),
          TMPDIR: paths.folders.temporary,
          // Commands have no virtual paths here; this is what file tools call /mnt/skills.
          SKILLS: paths.skills,
          ...settings.environment,
          ...request.env,
          ...this.#guard.environment(),
        },
        detached: true,
      });
    const child = await startWith(pipe, start);
    const release = this.#guard.hold(child.pid);
    const ended = await supervise({
      child,
      pipe,
      output,
      clock,
      timeoutMs: request.timeoutMs,
      outputEndBytes: settings.outputEndBytes,
      signal: request.signal,
      stop: async () => {
        const group = child.pid;
        if (group === undefined) return;
        kill(-group);
        if (!(await pollUntil(clock, GONE_MS, () => groupIsGone(group)))) {
          logger.error('A process group did not end after SIGKILL.', { group });
        }
      },
      watch: (signal) =>
        new Promise((resolve) => signal.addEventListener('abort', () => resolve(null), { once: true })),
    }).finally(release);
    return { ...ended, ...output.finish(), durationMs: clock.monotonic() - began };
  };

  close(): Promise<void> {
    return this.#guard.close();
  }
}
