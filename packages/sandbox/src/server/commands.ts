import { spawn } from 'node:child_process';
import { type Clock, type ExecResult, ReindeerError } from '@reindeer/protocol';
import { OutputBuffer } from '../process/output.ts';
import { type PipePool, startWith } from '../process/pipes.ts';
import { supervise } from '../process/supervise.ts';
import { endLeftovers, MARK } from './leftovers.ts';
import { memoryKills } from './memory-kills.ts';

export interface CommandInput {
  readonly command: string;
  /** An existing folder. */
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
  readonly outputBytes: number;
  readonly outputEndBytes: number;
  /** Largest file that the command may write; null = as large as the container allows. */
  readonly fileBytes: number | null;
  readonly signal: AbortSignal;
  readonly onOutput?: (text: string) => void;
}

export interface CommandRunnerParts {
  readonly clock: Clock;
  readonly uuid: () => string;
  readonly pipes: PipePool;
  /** The environment that every command begins with. */
  readonly environment: Readonly<Record<string, string>>;
  /** Is this process the only service of its container, so that what runs besides it and the first was started by a command? */
  readonly ownsContainer: boolean;
}

/** Commands at once in one container; more are refused. */
const MAX_RUNNING = 64;
const LOOK_MS = 200;

/**
 * The kernel's choice when memory runs out is the command, never this server: the score is inherited by all that the command starts.
 * Arguments: the command, and the largest file in KiB or nothing.
 */
const START =
  'echo 1000 2>/dev/null >/proc/self/oom_score_adj; if [ -n "$2" ]; then ulimit -f "$2"; fi; exec bash -c "$1"';

/** Runs commands in this container. Whatever a command has started is dead before its result is returned (SL-09, SL-10). */
export class CommandRunner {
  readonly #parts: CommandRunnerParts;
  #running = 0;

  constructor(parts: CommandRunnerParts) {
    this.#parts = parts;
  }

  get running(): number {
    return this.#running;
  }

  async run(input: CommandInput): Promise<ExecResult> {
    if (this.#running >= MAX_RUNNING)
      throw new ReindeerError('over_capacity', `${MAX_RUNNING} commands run already.`, { retryable: true });
    // Counted before anything is started: the end of another command must not take this one for a leftover.
    this.#running += 1;
    try {
      return await this.#run(input);
    } finally {
      this.#running -= 1;
    }
  }

  async #run(input: CommandInput): Promise<ExecResult> {
    const { clock, pipes, environment, ownsContainer } = this.#parts;
    const began = clock.monotonic();
    const mark = this.#parts.uuid();
    const output = new OutputBuffer(input.outputBytes, input.onOutput);
    const killsBefore = await memoryKills();
    const pipe = await pipes.acquire();
    const limit = input.fileBytes === null ? '' : String(Math.max(1, Math.ceil(input.fileBytes / 1024)));
    const child = await startWith(pipe, () =>
      spawn('bash', ['-c', START, 'bash', input.command, limit], {
        stdio: ['ignore', pipe.writer, pipe.writer],
        cwd: input.cwd,
        env: { ...environment, ...input.env, [MARK]: mark },
        detached: true,
      }),
    );
    const killed = async (): Promise<boolean> => killsBefore !== null && ((await memoryKills()) ?? 0) > killsBefore;
    const ended = await supervise({
      child,
      pipe,
      output,
      clock,
      timeoutMs: input.timeoutMs,
      outputEndBytes: input.outputEndBytes,
      signal: input.signal,
      stop: async () => {
        if (child.pid === undefined) return;
        const alone = () => ownsContainer && this.#running === 1;
        await endLeftovers({ mark, leader: child.pid, alone, clock });
      },
      watch: async (signal) => {
        while (!signal.aborted) {
          await clock.sleep(LOOK_MS, signal).catch(() => {});
          if (!signal.aborted && (await killed())) return 'memory';
        }
        return null;
      },
    });
    const result = { ...ended, ...output.finish(), durationMs: clock.monotonic() - began };
    // A short command may die between two looks.
    if (ended.ended === 'exit' && ended.exitCode !== 0 && (await killed()))
      return { ...result, ended: 'limit', limit: 'memory', exitCode: null };
    return result;
  }
}
