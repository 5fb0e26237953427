import { constants } from 'node:fs';
import { chmod, type FileHandle, open, rename, rm, rmdir, unlink } from 'node:fs/promises';
import type { Random } from '@reindeer/protocol';
import { type Directory, type Owner, openRoot } from './directory.ts';
import { systemCode } from './file-errors.ts';

/**
 * A folder beside the thread's own ones that no sandbox mounts. New files are written here and renamed into place when whole;
 * removed trees are renamed here before they are taken apart. So a process in the sandbox never sees half a file and
 * cannot swap anything under a removal.
 */
export class Staging {
  readonly #path: string;
  readonly #random: Random;

  constructor(path: string, random: Random) {
    this.#path = path;
    this.#random = random;
  }

  /**
   * Writes a new file by `fill`, then moves it to `name` in `target`. With `overwrite: false` an existing entry rejects with
   * EEXIST. When anything fails nothing is left behind.
   */
  async place(
    target: Directory,
    name: string,
    options: { readonly mode: number; readonly overwrite: boolean; readonly owner: Owner | null },
    fill: (file: FileHandle) => Promise<void>,
  ): Promise<void> {
    const folder = await openRoot(this.#path);
    const temporary = this.#random.uuid();
    let placeholder = false;
    try {
      const file = await folder.openFile(temporary, constants.O_CREAT | constants.O_EXCL | constants.O_WRONLY, 0o600);
      try {
        await fill(file);
        await file.chmod(options.mode);
        if (options.owner !== null) await file.chown(options.owner.uid, options.owner.gid);
      } finally {
        await file.close();
      }
      if (!options.overwrite) {
        // Claims the name in one step; the rename below then replaces our own empty file.
        const claim = await target.openFile(name, constants.O_CREAT | constants.O_EXCL | constants.O_WRONLY, 0o600);
        placeholder = true;
        await claim.close();
      }
      await rename(folder.child(temporary), target.child(name));
    } catch (error) {
      await rm(folder.child(temporary), { force: true });
      if (placeholder) await rm(target.child(name), { force: true });
      throw error;
    } finally {
      await folder.close();
    }
  }

  /** Removes `name` from `parent`, with all below it when it is a folder. False when there was nothing. */
  async discard(parent: Directory, name: string): Promise<boolean> {
    const folder = await openRoot(this.#path);
    try {
      const temporary = this.#random.uuid();
      try {
        await rename(parent.child(name), folder.child(temporary)).catch(async (error: unknown) => {
          // A folder without write permission cannot change its parent.
          if (systemCode(error) !== 'EACCES') throw error;
          await openUp(parent, name);
          await rename(parent.child(name), folder.child(temporary));
        });
      } catch (error) {
        if (systemCode(error) === 'ENOENT') return false;
        throw error;
      }
      await removeTree(folder, temporary, this.#random);
      return true;
    } finally {
      await folder.close();
    }
  }

  /** Removes what a crash left behind more than `ageMs` milliseconds before `now`. */
  async sweep(now: number, ageMs: number): Promise<void> {
    const folder = await openRoot(this.#path);
    try {
      const { entries } = await folder.entries(1_000);
      for (const { name } of entries) {
        const stats = await folder.stat(name).catch(() => null);
        if (stats === null || now - stats.ctimeMs < ageMs) continue;
        await removeTree(folder, name, this.#random);
      }
    } finally {
      await folder.close();
    }
  }
}

/** Deeper trees are moved up piece by piece, so that the number of open folders stays bounded. */
const MAX_OPEN_DEPTH = 32;
const MAX_ATTEMPTS = 5;
const LISTED_AT_ONCE = 1_000;
/** Linux: a handle on the entry itself that needs no permission on it. */
const O_PATH = 0o10000000;

interface Removal {
  readonly trash: Directory;
  readonly random: Random;
  /** Folders that were moved up into `trash` because they lay too deep; removed after the rest. */
  readonly later: string[];
  readonly depth: number;
}

/** Removes `name` from `trash` and all below it, without ever following a link. */
async function removeTree(trash: Directory, name: string, random: Random): Promise<void> {
  const later = [name];
  for (let next = later.pop(); next !== undefined; next = later.pop()) {
    await removeEntry(trash, next, { trash, random, later, depth: 0 });
  }
}

/** Removes one entry; folders that were closed to us (mode 000) are opened first. */
async function removeEntry(parent: Directory, name: string, removal: Removal): Promise<void> {
  if (!(await parent.stat(name)).isDirectory()) return unlink(parent.child(name));
  for (let attempt = 0; ; attempt += 1) {
    await emptyFolder(parent, name, removal);
    try {
      return await rmdir(parent.child(name));
    } catch (error) {
      // A process that still has its working folder inside may keep adding entries.
      if (systemCode(error) !== 'ENOTEMPTY' || attempt >= MAX_ATTEMPTS) throw error;
    }
  }
}

async function emptyFolder(parent: Directory, name: string, removal: Removal): Promise<void> {
  const folder = await parent.enter(name).catch(async (error: unknown) => {
    if (systemCode(error) !== 'EACCES') throw error;
    await openUp(parent, name);
    return parent.enter(name);
  });
  try {
    for (let complete = false; !complete; ) {
      const page = await folder.entries(LISTED_AT_ONCE);
      complete = page.complete;
      for (const entry of page.entries) {
        await removeChild(folder, entry.name, parent, name, removal);
      }
    }
  } finally {
    await folder.close();
  }
}

async function removeChild(folder: Directory, child: string, parent: Directory, name: string, removal: Removal) {
  try {
    if (removal.depth < MAX_OPEN_DEPTH) {
      return await removeEntry(folder, child, { ...removal, depth: removal.depth + 1 });
    }
    const moved = removal.random.uuid();
    await rename(folder.child(child), removal.trash.child(moved));
    removal.later.push(moved);
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return;
    if (systemCode(error) !== 'EACCES') throw error;
    await openUp(parent, name);
    await removeEntry(folder, child, { ...removal, depth: removal.depth + 1 });
  }
}

/** chmod 0700 on the folder itself, never on what a link in its place points to. */
async function openUp(parent: Directory, name: string): Promise<void> {
  if (process.platform !== 'linux') return chmod(parent.child(name), 0o700);
  const { O_DIRECTORY, O_NOFOLLOW } = constants;
  const handle = await open(parent.child(name), O_PATH | O_DIRECTORY | O_NOFOLLOW);
  try {
    await chmod(`/proc/self/fd/${handle.fd}`, 0o700);
  } finally {
    await handle.close();
  }
}
