import { open, rm } from 'node:fs/promises';
import { ReindeerError } from '@reindeer/protocol';
import type { Engine, StartEngine } from './engine.ts';
import { toReindeerError } from './errors.ts';

/**
 * Backs a database up into `to`, which must not exist, through a thread that calls `copyDatabase`.
 * @throws ReindeerError `precondition_failed` when `to` exists; `store_unavailable` when it cannot be written, or `signal` fired
 */
export async function backup(to: string, start: StartEngine, signal: AbortSignal): Promise<void> {
  try {
    // Creating it decides whether it is ours: nobody else's file is ever overwritten.
    await (await open(to, 'wx', 0o600)).close();
  } catch (cause) {
    const exists = typeof cause === 'object' && cause !== null && 'code' in cause && cause.code === 'EEXIST';
    throw exists
      ? new ReindeerError('precondition_failed', `The file ${to} exists. Choose a name that is free.`, { cause })
      : new ReindeerError('store_unavailable', `The file ${to} cannot be written.`, { cause });
  }
  try {
    await inThread(start, signal);
    const copy = await open(to, 'r+');
    try {
      await copy.sync();
    } finally {
      await copy.close();
    }
  } catch (error) {
    await rm(to, { force: true });
    throw toReindeerError(error);
  }
}

async function inThread(start: StartEngine, signal: AbortSignal): Promise<void> {
  if (signal.aborted) throw new ReindeerError('store_unavailable', 'The database is closed.');
  let engine: Engine | null = null;
  const stop = (): void => engine?.terminate();
  signal.addEventListener('abort', stop);
  const failure = await new Promise<ReindeerError | null>((resolve) => {
    let outcome: ReindeerError | null = new ReindeerError('store_unavailable', 'The backup was cut short.');
    engine = start({
      onMessage: (message) => {
        if (message.kind === 'closed') outcome = null;
        else if (message.kind === 'refused') outcome = ReindeerError.fromPlain(message.error);
      },
      onError: (error) => {
        outcome = toReindeerError(error);
      },
      onExit: () => resolve(outcome),
    });
  });
  signal.removeEventListener('abort', stop);
  if (failure !== null) throw failure;
}
