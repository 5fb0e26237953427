import { constants, type Stats } from 'node:fs';
import { type FileHandle, lstat, mkdir, open, opendir } from 'node:fs/promises';
import { systemCode } from './file-errors.ts';

export type EntryKind = 'file' | 'directory' | 'link' | 'special';

export interface Entry {
  readonly name: string;
  readonly kind: EntryKind;
}

/**
 * An open folder whose children are reached by name only, never through a longer path.
 *
 * On Linux the handle is a descriptor and a child is `/proc/self/fd/<descriptor>/<name>`: however a hostile process renames or
 * swaps folders above it meanwhile, the name is looked up in the very folder that was opened, and `O_NOFOLLOW` refuses a link
 * there. On other systems there is no such path; `PathDirectory` checks every component with `lstat` first. That is safe against
 * planted links, not against a process that swaps folders in the same instant; there no sandbox exists to run one (D8).
 */
export interface Directory {
  /** Path by which the operating system finds the child now. For system calls only, never for messages. */
  child(name: string): string;
  /** At most `limit` entries, sorted by name; `complete` is false when there are more. */
  entries(limit: number): Promise<{ readonly entries: readonly Entry[]; readonly complete: boolean }>;
  /** Opens the sub-folder; a link or a file in its place rejects with ELOOP or ENOTDIR. */
  enter(name: string): Promise<Directory>;
  /** mkdir; an existing entry is left alone. */
  make(name: string): Promise<void>;
  /** Opens a file in this folder without following a link and without waiting for a FIFO's other side. */
  openFile(name: string, flags: number, mode?: number): Promise<FileHandle>;
  stat(name: string): Promise<Stats>;
  /** Gives entries made here to the owner of the thread's folder, where we are root and it is not. */
  readonly owner: Owner | null;
  close(): Promise<void>;
}

export interface Owner {
  readonly uid: number;
  readonly gid: number;
}

const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK } = constants;
/** Windows lacks these; there `PathDirectory` relies on its `lstat`. */
const NO_FOLLOW = O_NOFOLLOW ?? 0;
const NON_BLOCKING = O_NONBLOCK ?? 0;

class DescriptorDirectory implements Directory {
  readonly #handle: FileHandle;
  readonly owner: Owner | null;

  constructor(handle: FileHandle, owner: Owner | null) {
    this.#handle = handle;
    this.owner = owner;
  }

  child(name: string): string {
    return `/proc/self/fd/${this.#handle.fd}/${name}`;
  }

  entries(limit: number): Promise<{ entries: Entry[]; complete: boolean }> {
    return readEntries(`/proc/self/fd/${this.#handle.fd}`, limit);
  }

  async enter(name: string): Promise<Directory> {
    return new DescriptorDirectory(
      await open(this.child(name), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK),
      this.owner,
    );
  }

  async make(name: string): Promise<void> {
    await makeFolder(this.child(name));
    if (this.owner === null) return;
    const made = await open(this.child(name), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK);
    try {
      await made.chown(this.owner.uid, this.owner.gid);
    } finally {
      await made.close();
    }
  }

  openFile(name: string, flags: number, mode?: number): Promise<FileHandle> {
    return open(this.child(name), flags | O_NOFOLLOW | O_NONBLOCK, mode);
  }

  stat(name: string): Promise<Stats> {
    return lstat(this.child(name));
  }

  close(): Promise<void> {
    return this.#handle.close();
  }
}

class PathDirectory implements Directory {
  readonly #path: string;
  readonly owner = null;

  constructor(path: string) {
    this.#path = path;
  }

  child(name: string): string {
    return `${this.#path}/${name}`;
  }

  entries(limit: number): Promise<{ entries: Entry[]; complete: boolean }> {
    return readEntries(this.#path, limit);
  }

  async enter(name: string): Promise<Directory> {
    const path = this.child(name);
    assertFolder(await lstat(path));
    return new PathDirectory(path);
  }

  async make(name: string): Promise<void> {
    await makeFolder(this.child(name));
  }

  async openFile(name: string, flags: number, mode?: number): Promise<FileHandle> {
    const path = this.child(name);
    const before = await lstat(path).catch(() => null);
    if (before !== null && !before.isFile()) throw codeError(before.isSymbolicLink() ? 'ELOOP' : 'ENXIO');
    const handle = await open(path, flags | NO_FOLLOW | NON_BLOCKING, mode);
    const after = await handle.stat();
    if (before !== null && (before.ino !== after.ino || before.dev !== after.dev)) {
      await handle.close();
      throw codeError('ELOOP');
    }
    return handle;
  }

  stat(name: string): Promise<Stats> {
    return lstat(this.child(name));
  }

  async close(): Promise<void> {}
}

async function makeFolder(path: string): Promise<void> {
  await mkdir(path, { mode: 0o755 }).catch((error: unknown) => {
    if (systemCode(error) !== 'EEXIST') throw error;
  });
}

/** What kind of entry is this? A folder listing and `lstat` answer the same questions. */
export function kindOf(entry: Pick<Stats, 'isFile' | 'isDirectory' | 'isSymbolicLink'>): EntryKind {
  if (entry.isFile()) return 'file';
  if (entry.isDirectory()) return 'directory';
  return entry.isSymbolicLink() ? 'link' : 'special';
}

async function readEntries(path: string, limit: number): Promise<{ entries: Entry[]; complete: boolean }> {
  const entries: Entry[] = [];
  let complete = true;
  // Read piece by piece: a folder with a million names must not fill the memory.
  const folder = await opendir(path, { bufferSize: 256 });
  for await (const entry of folder) {
    if (entries.length >= limit) {
      complete = false;
      break;
    }
    entries.push({ name: entry.name, kind: kindOf(entry) });
  }
  entries.sort((left, right) => (left.name < right.name ? -1 : 1));
  return { entries, complete };
}

function assertFolder(stats: Stats): void {
  if (stats.isSymbolicLink()) throw codeError('ELOOP');
  if (!stats.isDirectory()) throw codeError('ENOTDIR');
}

function codeError(code: string): Error {
  return Object.assign(new Error(code), { code });
}

/** Opens a root folder of ours. Its parents are out of reach of any sandbox; the last component must not be a link. */
export async function openRoot(path: string): Promise<Directory> {
  if (process.platform !== 'linux') {
    assertFolder(await lstat(path));
    return new PathDirectory(path);
  }
  const handle = await open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  const stats = await handle.stat();
  const foreign = process.getuid?.() === 0 && stats.uid !== 0;
  return new DescriptorDirectory(handle, foreign ? { uid: stats.uid, gid: stats.gid } : null);
}

/**
 * Walks down from `root` by names and returns the last folder. Takes over `root`: it and every folder passed on the way
 * are closed, also on failure.
 */
export async function descend(
  root: Directory,
  parts: readonly string[],
  options: { readonly create: boolean },
): Promise<Directory> {
  let current = root;
  try {
    for (const part of parts) {
      const next = await current.enter(part).catch(async (error: unknown) => {
        if (systemCode(error) !== 'ENOENT' || !options.create) throw error;
        await current.make(part);
        return current.enter(part);
      });
      await current.close();
      current = next;
    }
    return current;
  } catch (error) {
    await current.close();
    throw error;
  }
}
