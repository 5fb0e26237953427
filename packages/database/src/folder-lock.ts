import { access, constants, mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { ReindeerError } from '@reindeer/protocol';

export interface FolderLock {
  /** Idempotent. */
  release(): Promise<void>;
}

/**
 * The name of the lock file. No other code of this process may open it: the system drops a process's locks on a file as soon as the
 * process closes any descriptor of it. That is also why the holder's process id stands in a file of its own.
 */
const LOCK_FILE = 'reindeer.lock';
const PID_FILE = 'reindeer.pid';

const BUSY = 5;

/**
 * Creates the data folder (mode 0700) where it is missing and takes it for this process alone. The lock is an open exclusive
 * transaction on an empty SQLite file, hence a lock of the operating system: it ends with the process, however that ends.
 *
 * @throws ReindeerError `data_folder_locked` when another process (or another lock of this one) has it; `configuration` when the
 *   folder cannot be made or written.
 */
export async function lockFolder(folder: string): Promise<FolderLock> {
  try {
    await makeFolder(folder);
    await access(folder, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch (cause) {
    throw new ReindeerError(
      'configuration',
      `The data folder ${folder} cannot be ${reason(cause)}. Choose another folder, or change its permissions.`,
      { cause, detail: { folder } },
    );
  }
  const pidFile = join(folder, PID_FILE);
  const lock = take(join(folder, LOCK_FILE), folder);
  if (lock === null) {
    const pid = await holder(pidFile);
    throw new ReindeerError(
      'data_folder_locked',
      `The data folder ${folder} is in use by another Reindeer${pid === null ? '' : ` (process ${pid})`}. ` +
        'Stop that one, or choose another folder with REINDEER_HOME.',
      { detail: { folder, ...(pid === null ? {} : { pid }) } },
    );
  }
  try {
    await writeFile(pidFile, `${process.pid}\n`, { mode: 0o600 });
  } catch (cause) {
    lock.close();
    throw new ReindeerError('configuration', `The data folder ${folder} cannot be written.`, {
      cause,
      detail: { folder },
    });
  }
  return {
    release: async () => {
      if (!lock.isOpen) return;
      await rm(pidFile, { force: true });
      // Checked again: another call may have been here during the wait.
      if (lock.isOpen) lock.close();
    },
  };
}

/**
 * Makes the folder and what is missing above it, one step per name. Node's recursive form never ends where the system answers "no such
 * file" to every try, as below /proc.
 */
async function makeFolder(folder: string): Promise<void> {
  const missing: string[] = [];
  for (let path = folder; !(await exists(path)) && dirname(path) !== path; path = dirname(path)) missing.unshift(path);
  for (const path of missing) {
    await mkdir(path, { mode: 0o700 }).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error;
    });
  }
  if (!(await stat(folder)).isDirectory()) throw Object.assign(new Error('Not a folder'), { code: 'ENOTDIR' });
}

async function exists(path: string): Promise<boolean> {
  try {
    await access(path);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
    throw error;
  }
}

/** null = somebody else holds it. */
function take(file: string, folder: string): DatabaseSync | null {
  let database: DatabaseSync | null = null;
  try {
    database = new DatabaseSync(file, { timeout: 0 });
    database.exec('PRAGMA journal_mode = OFF');
    database.exec('PRAGMA locking_mode = EXCLUSIVE');
    database.exec('BEGIN EXCLUSIVE');
    return database;
  } catch (cause) {
    database?.close();
    if (typeof cause === 'object' && cause !== null && 'errcode' in cause && cause.errcode === BUSY) return null;
    throw new ReindeerError(
      'configuration',
      `The data folder ${folder} cannot be locked. Check its permissions and disk.`,
      {
        cause,
        detail: { folder },
      },
    );
  }
}

async function holder(pidFile: string): Promise<number | null> {
  try {
    const pid = Number.parseInt(await readFile(pidFile, 'utf8'), 10);
    return Number.isSafeInteger(pid) && pid > 0 ? pid : null;
  } catch {
    return null;
  }
}

function reason(error: unknown): string {
  const code = typeof error === 'object' && error !== null && 'code' in error ? error.code : null;
  if (code === 'ENOTDIR' || code === 'EEXIST') return 'made: a file is in the way';
  if (code === 'EROFS') return 'written: its disk is read-only';
  if (code === 'ENOSPC') return 'made: the disk is full';
  return 'made or written';
}
