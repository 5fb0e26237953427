import { open, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { newId, newToken, ReindeerError, type Stores, type Surroundings } from '@reindeer/protocol';
import { batchStore } from '../batches/store.ts';
import { readBootId } from '../boot.ts';
import { channelStore } from '../channels/store.ts';
import { checkpointStore } from '../checkpoints/store.ts';
import { type FolderLock, lockFolder } from '../folder-lock.ts';
import type { Identity } from '../meta.ts';
import type { StoredStats } from '../stats.ts';
import {
  attemptStore,
  feedbackStore,
  journalStore,
  logStore,
  runStore,
  scheduleStore,
  threadStore,
} from '../stores.ts';
import { userMemoryStore } from '../user-memory/store.ts';
import { backup } from './backup.ts';
import { SqliteClient } from './client.ts';
import { type StartEngine, workerEngine } from './engine.ts';
import type { WorkerInput } from './worker.ts';

/** The database file inside the data folder. */
export const DATABASE_FILE = 'reindeer.db';

export interface SqliteOptions {
  /** The data folder; made where missing. `:memory:` = no files and no lock, for tests. */
  readonly folder: string;
  readonly surroundings: Surroundings;
  /** Entry of the database's thread. Default: the source beside this file. A bundle passes the URL of its `database-worker.js`. */
  readonly workerUrl?: URL;
  /** Called when the folder is this process's own, long before the database is open. */
  readonly onLocked?: () => void;
  /** Bounds of the queue before the thread; see `ClientOptions`. */
  readonly maxQueued?: number;
  readonly answerMs?: number;
}

export interface DatabaseStats extends StoredStats {
  /** Bytes of all rows, without indexes. */
  readonly rowBytes: number;
  /** Present size of the write-ahead log beside the database; it is used again and again. 0 in memory. */
  readonly logBytes: number;
}

export interface SqliteStores extends Stores {
  /** Who this process is to the database, and which owners it follows. */
  readonly identity: Identity;
  /**
   * Writes a copy as of one moment into a new file, without holding anybody up.
   * @throws ReindeerError `precondition_failed` when the file exists
   */
  backup(toFile: string): Promise<void>;
  stats(): Promise<DatabaseStats>;
}

/**
 * Opens the data folder: takes its lock, starts the database's thread, brings the data to the newest format, settles the epoch.
 *
 * @returns the stores. `close` waits for what was called before, stops cleanly, then gives the folder free.
 * @throws ReindeerError `data_folder_locked`, `configuration` (folder), `data_too_new`, `store_unavailable`
 */
export async function openSqlite(options: SqliteOptions): Promise<SqliteStores> {
  const inMemory = options.folder === ':memory:';
  const file = inMemory ? ':memory:' : join(options.folder, DATABASE_FILE);
  const workerUrl = options.workerUrl ?? new URL('./worker.ts', import.meta.url);
  return openWith(options, file, (input) => workerEngine(workerUrl, input));
}

/** As `openSqlite`, with the thread's maker passed in. */
export async function openWith(
  options: SqliteOptions,
  file: string,
  engineFor: (input: WorkerInput) => StartEngine,
): Promise<SqliteStores> {
  const { surroundings } = options;
  const inMemory = file === ':memory:';
  const lock: FolderLock | null = inMemory ? null : await lockFolder(options.folder);
  options.onLocked?.();
  const client = new SqliteClient({
    start: engineFor({ kind: 'serve', file }),
    restartable: !inMemory,
    logger: surroundings.logger,
    ...(options.maxQueued === undefined ? {} : { maxQueued: options.maxQueued }),
    ...(options.answerMs === undefined ? {} : { answerMs: options.answerMs }),
  });
  const stopping = new AbortController();
  const backups = new Set<Promise<void>>();
  let closing: Promise<void> | null = null;
  const close = async (): Promise<void> => {
    stopping.abort();
    await Promise.allSettled(backups);
    try {
      await client.close();
    } finally {
      await lock?.release();
    }
  };

  let identity: Identity;
  try {
    // Made here for its mode: SQLite would let everybody on the machine read it. Its companion files follow it.
    if (!inMemory) await touch(file);
    identity = await client.call('database.open', {
      boot: await readBootId(surroundings.clock),
      freshEpoch: newToken(surroundings.random).replaceAll('-', '').toLowerCase().slice(0, 12),
      freshInstanceId: newId(surroundings.random),
      ownerSuffix: newToken(surroundings.random),
    });
  } catch (error) {
    await close();
    throw error;
  }

  const { call } = client;
  return {
    identity,
    threads: threadStore(call),
    runs: runStore(call, client.callFirst),
    log: logStore(call, (listener) => client.onAppend(listener)),
    journal: journalStore(call),
    checkpoints: checkpointStore(call),
    batches: batchStore(call, client.callFirst),
    memory: userMemoryStore(call),
    feedback: feedbackStore(call),
    schedules: scheduleStore(call),
    channels: channelStore(call, client.callFirst),
    attempts: attemptStore(call),
    backup: async (toFile) => {
      if (inMemory) throw new ReindeerError('not_implemented', 'A database in memory cannot be backed up.');
      const running = backup(toFile, engineFor({ kind: 'backup', file, to: toFile }), stopping.signal);
      backups.add(running);
      try {
        await running;
      } finally {
        backups.delete(running);
      }
    },
    stats: async () => {
      const stored = await call('database.stats', {});
      return {
        ...stored,
        rowBytes: stored.tables.reduce((sum, table) => sum + table.bytes, 0),
        logBytes: inMemory ? 0 : await sizeOf(`${file}-wal`),
      };
    },
    close: () => {
      closing ??= close();
      return closing;
    },
  };
}

async function touch(file: string): Promise<void> {
  try {
    await (await open(file, 'a', 0o600)).close();
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    throw new ReindeerError(
      'configuration',
      `The database file ${file} cannot be opened for writing (${code}). It must be a file that this user may write; move away what stands there.`,
      { cause },
    );
  }
}

async function sizeOf(file: string): Promise<number> {
  return stat(file).then(
    ({ size }) => size,
    () => 0,
  );
}
