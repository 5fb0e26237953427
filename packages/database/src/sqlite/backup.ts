import { open, rm } from 'node:fs/promises';
import { DatabaseSync } from 'node:sqlite';
import { ReindeerError } from '@reindeer/protocol';
import { META } from '../meta.ts';
import type { Engine, StartEngine } from './engine.ts';
import { toReindeerError } from './errors.ts';

/**
 * Copies a database that is in use into a new file, as of one moment. Blocking: runs in a thread of its own with its own
 * connection, so that nobody waits for it. The copy is marked, so that whoever opens it starts a new epoch (D3).
 */
export function copyDatabase(file: string, to: string): void {
  const source = new DatabaseSync(file, { readOnly: true, timeout: 5000 });
  try {
    source.prepare('VACUUM INTO ?').run(to);
  } finally {
    source.close();
  }
  const copy = new DatabaseSync(to);
  try {
    copy.exec('PRAGMA synchronous = FULL');
    const set = copy.prepare(
      "insert into meta (name, value) values (?, '1') on conflict (name) do update set value = excluded.value",
    );
    set.run(META.restored);
    copy.prepare('delete from meta where name = ?').run(META.open);
  } finally {
    copy.close();
  }
}

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
