import { type ChildProcess, spawn } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';
import { type Clock, type ExecResult, type Logger, ReindeerError } from '@reindeer/protocol';
import type { ProcessGuard } from '../process/guard.ts';
import { OutputBuffer } from '../process/output.ts';
import { type OutputPipe, type PipePool, startWith } from '../process/pipes.ts';
import { isGone, kill, pollUntil, processStat } from '../process/signals.ts';
import { supervise, within } from '../process/supervise.ts';
import { type BubblewrapCommand, bubblewrapArguments, insideCommand } from './arguments.ts';
import type { Cgroups, CommandGroup } from './cgroups.ts';
import { usageOf, type WatchInput } from './watchdog.ts';

export interface Launch {
  /** Absolute path of `bwrap`. */
  readonly program: string;
  /** Its name in the machine's process list; see `orphans.ts`. */
  readonly mark: string;
  readonly command: Omit<BubblewrapCommand, 'blockDescriptor' | 'statusDescriptor' | 'filterDescriptor'>;
  /** Program for the kernel that filters system calls; null for none. */
  readonly filter: Buffer | null;
  readonly cgroups: Cgroups | null;
  readonly pipes: PipePool;
  /** Ends it with this process, also in the instant in which bubblewrap does not see to that itself (see `orphans.ts`). */
  readonly guard: ProcessGuard;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly timeoutMs: number;
  readonly outputBytes: number;
  readonly outputEndBytes: number;
  readonly onOutput?: (text: string) => void;
  readonly signal: AbortSignal;
  /** Takes over work that nobody has to wait for but that must be over before the provider is closed. */
  readonly afterwards: (work: Promise<void>) => void;
  /** Watches what no kernel limit holds; see `watchdog.ts`. */
  readonly watch: (input: WatchInput, signal: AbortSignal) => Promise<string | null>;
}

const STATUS = 3;
const ARGUMENTS = 4;
const FILTER = 5;
const BLOCK = 6;
/** Milliseconds for the kernel to end a killed namespace. */
const GONE_MS = 20_000;
const START_MS = 10_000;

/**
 * Runs one command in a bubblewrap of its own. The first process of the sandbox's pid namespace is known from bubblewrap's status
 * messages: it joins the control group before the command starts, and killing it makes the kernel end every process inside,
 * however they were started. The result is returned when that has happened.
 */
export async function launch(input: Launch): Promise<ExecResult> {
  const began = input.clock.monotonic();
  const output = new OutputBuffer(input.outputBytes, input.onOutput);
  // Made while bubblewrap is started, which holds this thread, and makes its mounts; the command waits for it.
  const creating = input.cgroups === null ? Promise.resolve(null) : input.cgroups.create(input.command.limits);
  const group = creating.catch((cause: unknown) => {
    input.logger.error('The control group of a command could not be made; the command was ended.', {
      cause: String(cause),
    });
    return 'failed' as const;
  });
  const removeGroup = async (): Promise<void> => {
    const limits = await group;
    // The group is empty by now; nobody has to wait for the kernel to let go of it.
    if (limits !== null && limits !== 'failed') input.afterwards(limits.remove());
  };
  let pipe: OutputPipe;
  let child: ChildProcess;
  try {
    pipe = await input.pipes.acquire();
    child = await startWith(pipe, () => start(input, pipe));
  } catch (error) {
    await removeGroup();
    throw error;
  }
  const release = input.guard.hold(child.pid);
  const status = new StatusReader(channelOf<Readable>(child, STATUS));
  const first = firstProcess(status, child, group, input);
  try {
    const ended = await supervise({
      child,
      pipe,
      output,
      clock: input.clock,
      timeoutMs: input.timeoutMs,
      outputEndBytes: input.outputEndBytes,
      signal: input.signal,
      stop: async () => endAll(child, await first, input),
      watch: async (signal) => {
        const [process, limits] = await Promise.all([first, group]);
        if (process === null || limits === 'failed') return null;
        return input.watch({ process: process.id, group: limits }, signal);
      },
    });
    const kept = output.finish();
    const durationMs = input.clock.monotonic() - began;
    if (ended.ended !== 'exit') return { ...ended, ...kept, durationMs };
    const [limits, exitCode] = await Promise.all([group, status.exitCode]);
    if (limits === 'failed' || exitCode === null) throw setupFailed(kept.output);
    if (limits !== null && exitCode !== 0 && (await limits.memoryExceeded())) {
      return { ended: 'limit', limit: 'memory', exitCode: null, ...kept, durationMs };
    }
    return { ended: 'exit', exitCode, ...kept, durationMs };
  } finally {
    release();
    await removeGroup();
  }
}

function start(input: Launch, pipe: OutputPipe): ChildProcess {
  const block = input.cgroups !== null;
  const child = spawn(input.program, ['--args', String(ARGUMENTS), '--', ...insideCommand(input.command)], {
    stdio: [
      'ignore',
      pipe.writer,
      pipe.writer,
      'pipe',
      'pipe',
      input.filter === null ? 'ignore' : 'pipe',
      ...(block ? ['pipe' as const] : []),
    ],
    argv0: input.mark,
    // Not even the names of the server's variables reach the sandbox or the program that builds it.
    env: {},
    cwd: '/',
    // A group of its own: an interrupt typed at the server's terminal must not end commands during a drain.
    detached: true,
  });
  const words = bubblewrapArguments({
    ...input.command,
    statusDescriptor: STATUS,
    filterDescriptor: input.filter === null ? null : FILTER,
    blockDescriptor: block ? BLOCK : null,
  });
  send(channelOf<Writable>(child, ARGUMENTS), words.map((word) => `${word}\0`).join(''));
  if (input.filter !== null) send(channelOf<Writable>(child, FILTER), input.filter);
  return child;
}

/** Writes all and closes; that the child is gone already shows elsewhere. */
function send(channel: Writable, data: string | Buffer): void {
  channel.on('error', () => {});
  channel.end(data);
}

/** One of the extra channels given to `spawn`; its declared type knows the first five only. */
function channelOf<T extends Readable | Writable>(child: ChildProcess, descriptor: number): T {
  const channels: readonly (Readable | Writable | null | undefined)[] = child.stdio;
  return channels[descriptor] as T;
}

interface FirstProcess {
  readonly id: number;
  readonly started: string | null;
}

/**
 * Waits for the sandbox's first process, puts it under its limits and lets it go on. Null when there never was one. A process that
 * cannot be put under its limits is killed before the command starts.
 */
async function firstProcess(
  status: StatusReader,
  child: ChildProcess,
  group: Promise<CommandGroup | null | 'failed'>,
  input: Launch,
): Promise<FirstProcess | null> {
  // Entering a group makes the kernel wait for a grace period, the next entry soon after does not. So bubblewrap itself enters
  // at once, while it makes its mounts; the first process inside follows quickly, wherever it was when bubblewrap moved.
  const warmedUp = group.then(async (limits) => {
    if (limits !== null && limits !== 'failed' && child.pid !== undefined) await limits.join(child.pid).catch(() => {});
    return limits;
  });
  const known = await within(input.clock, START_MS, status.firstProcess);
  const id = known ? await status.firstProcess : null;
  if (id === null) {
    if (!known && child.pid !== undefined) kill(child.pid);
    return null;
  }
  const [stat, limits] = await Promise.all([processStat(id), warmedUp]);
  const first = { id, started: stat?.started ?? null };
  if (limits === null) return first;
  try {
    if (limits === 'failed') throw new Error('there is no group');
    await limits.join(id);
    send(channelOf<Writable>(child, BLOCK), '1');
  } catch (cause) {
    input.logger.error('A command could not be put under its limits and was ended.', { cause: String(cause) });
    kill(id);
  }
  return first;
}

async function endAll(child: ChildProcess, first: FirstProcess | null, input: Launch): Promise<void> {
  const outer = child.pid;
  if (outer === undefined) return;
  const over = () => child.exitCode !== null || child.signalCode !== null;
  if (first !== null && !(await isGone(first.id, first.started))) kill(first.id);
  if (first === null && !over()) {
    // Its child may still wait for it and would do so for ever.
    const { processes } = await usageOf(outer, 100);
    for (const id of processes.toReversed()) kill(id);
  }
  if (!(await pollUntil(input.clock, GONE_MS, async () => over()))) {
    kill(outer);
    await pollUntil(input.clock, GONE_MS, async () => over());
  }
  if (first !== null && !(await pollUntil(input.clock, GONE_MS, () => isGone(first.id, first.started)))) {
    input.logger.error('A sandbox did not end after SIGKILL.', { process: first.id });
  }
}

function setupFailed(output: string): ReindeerError {
  return new ReindeerError('sandbox_unavailable', 'The sandbox could not be set up; `reindeer doctor` tells why.', {
    cause: new Error(output.slice(0, 2_000)),
    retryable: true,
  });
}

/** bubblewrap's status messages: one JSON object a line, first the process id, at the end the command's exit code. */
class StatusReader {
  /** Id of the first process inside; null when the channel closed without one. */
  readonly firstProcess: Promise<number | null>;
  /** Exit code of the command; null when the sandbox was never set up, or was killed. */
  readonly exitCode: Promise<number | null>;

  constructor(channel: Readable) {
    let text = '';
    const closed = new Promise<void>((resolve) => {
      channel.once('close', () => resolve());
      channel.on('error', () => resolve());
    });
    this.firstProcess = new Promise((resolve) => {
      channel.on('data', (chunk: Buffer) => {
        if (text.length < 10_000) text += chunk.toString('utf8');
        const id = /"child-pid"\s*:\s*(\d+)/.exec(text)?.[1];
        if (id !== undefined) resolve(Number(id));
      });
      closed.then(
        () => resolve(null),
        () => {},
      );
    });
    this.exitCode = closed.then(() => {
      const code = /"exit-code"\s*:\s*(\d+)/.exec(text)?.[1];
      return code === undefined ? null : Number(code);
    });
  }
}
