import type { ChildProcess } from 'node:child_process';
import { type Clock, type ExecResult, ReindeerError } from '@reindeer/protocol';
import type { OutputBuffer } from './output.ts';
import type { OutputPipe } from './pipes.ts';

export interface Supervision {
  readonly child: ChildProcess;
  readonly pipe: OutputPipe;
  readonly output: OutputBuffer;
  readonly clock: Clock;
  readonly timeoutMs: number;
  readonly outputEndBytes: number;
  /** Ends the command: `request.signal` and the provider's shutdown, joined. */
  readonly signal: AbortSignal;
  /** Kills everything that the command started and resolves when nothing of it is alive. Idempotent, bounded. */
  readonly stop: () => Promise<void>;
  /** Resolves with the name of a limit that was passed, or null when `signal` fires. */
  readonly watch: (signal: AbortSignal) => Promise<string | null>;
}

export type Ended = Pick<ExecResult, 'ended' | 'limit' | 'exitCode'>;

/** Milliseconds to wait for the pipe's end once everything is dead; only an escaped process of `local` can use them up. */
const DRAIN_MS = 200;

/**
 * Follows one running command to its end. *Running* → *ending* (the first of timeout, abort, limit wins, and `stop` is called)
 * → *gone*. It always passes through `stop`: whatever the command left behind is dead before the result is returned (SL-09, SL-10).
 * Rejects with `sandbox_unavailable` when the process could not be started.
 */
export async function supervise(run: Supervision): Promise<Ended> {
  const over = new AbortController();
  const ended = { cause: undefined as Pick<Ended, 'ended' | 'limit'> | undefined };
  let stopping: Promise<void> | undefined;
  const stop = () => {
    stopping ??= run.stop();
    return stopping;
  };
  const end = (cause: Pick<Ended, 'ended' | 'limit'>) => {
    if (ended.cause !== undefined || over.signal.aborted) return;
    ended.cause = cause;
    stop().catch(() => {});
  };
  const onAbort = () => end({ ended: 'aborted' });
  const drained = new Promise<void>((resolve) => run.pipe.source.once('close', () => resolve()));
  run.pipe.source.on('data', (chunk: Buffer) => {
    run.output.push(chunk);
    if (run.output.total > run.outputEndBytes) end({ ended: 'limit', limit: 'output' });
  });
  run.pipe.source.on('error', () => run.pipe.source.destroy());

  // Before anything is awaited: the events of a child that dies at once would be missed.
  const exited = waitForExit(run.child);
  run.pipe.closeWriter().catch(() => {});
  run.signal.addEventListener('abort', onAbort, { once: true });
  if (run.signal.aborted) onAbort();
  const timer = run.clock.sleep(run.timeoutMs, over.signal).then(
    () => end({ ended: 'timeout' }),
    () => {},
  );
  const watcher = run.watch(over.signal).then(
    (limit) => {
      if (limit !== null) end({ ended: 'limit', limit });
    },
    // A watch that fails must not let a command run unwatched.
    () => end({ ended: 'limit', limit: 'unwatched' }),
  );
  let clean = false;
  try {
    const exitCode = await exited;
    over.abort();
    await Promise.all([timer, watcher]);
    await stop();
    clean = await within(run.clock, DRAIN_MS, drained);
    if (ended.cause === undefined) return { ended: 'exit', exitCode };
    return { ...ended.cause, exitCode: null };
  } finally {
    over.abort();
    run.signal.removeEventListener('abort', onAbort);
    await run.pipe.release(clean);
  }
}

function waitForExit(child: ChildProcess): Promise<number | null> {
  return new Promise((resolve, reject) => {
    child.once('exit', (code) => resolve(code));
    child.once('error', (cause) => {
      reject(new ReindeerError('sandbox_unavailable', 'The command could not be started.', { cause, retryable: true }));
    });
  });
}

/** Did `promise` settle within so many milliseconds? */
export async function within(clock: Clock, milliseconds: number, promise: Promise<unknown>): Promise<boolean> {
  const over = new AbortController();
  const late = clock.sleep(milliseconds, over.signal).then(
    () => false,
    () => false,
  );
  try {
    return await Promise.race([promise.then(() => true), late]);
  } finally {
    over.abort();
  }
}
