import { constants, type Stats } from 'node:fs';
import { type FileHandle, readlink, rmdir, symlink, unlink } from 'node:fs/promises';
import { type Directory, descend, openRoot } from '../files/directory.ts';
import { systemCode } from '../files/file-errors.ts';
import type { FolderBatch } from './batch.ts';
import {
  directoryStamp,
  fileEntry,
  isCarriedName,
  linkStamp,
  MAX_MIRRORED_BYTES,
  MAX_MIRRORED_ENTRIES,
  MAX_PATH,
  MAX_TARGET,
  type MirrorEntry,
  type MirrorListing,
  mirrorPath,
} from './entry.ts';

/** Writes a file under a name in one step: nobody sees half of it. `fill` writes it, and sets what is to be set. */
export type PlaceFile = (
  folder: Directory,
  name: string,
  mode: number,
  fill: (file: FileHandle) => Promise<void>,
) => Promise<void>;

export interface TreeParts {
  /** Name of a carried folder → where it lies. */
  readonly folders: ReadonlyMap<string, string>;
  readonly place: PlaceFile;
  /** Is this the side on which commands run, which may give a file any time they like, and several names? */
  readonly commands: boolean;
}

const { O_RDONLY, O_DIRECTORY } = constants;
const MAX_DEPTH = 64;
/** Bytes of all names of one look: the listing of it fits into what the other side reads. */
const MAX_NAMES_BYTES = 16 * 1024 * 1024;
const CHUNK = 256 * 1024;
/** What stands in the way of one entry, and of no other. */
const OBSTACLES = [
  'EEXIST',
  'EISDIR',
  'ENOTDIR',
  'ENOTEMPTY',
  'ELOOP',
  'ENOENT',
  'ENXIO',
  'EACCES',
  'EPERM',
  'ENAMETOOLONG',
];

interface Looking {
  readonly entries: Map<string, MirrorEntry>;
  readonly leftOut: Set<string>;
  complete: boolean;
  /** Of names, so far. */
  bytes: number;
}

/** The carried folders of one side. Every path is opened component by component; links are read and made, never followed. */
export class Tree {
  readonly #parts: TreeParts;

  constructor(parts: TreeParts) {
    this.#parts = parts;
  }

  async list(): Promise<MirrorListing> {
    const looking: Looking = { entries: new Map(), leftOut: new Set(), complete: true, bytes: 0 };
    for (const [name, path] of this.#parts.folders) {
      const folder = await openRoot(path).catch((error: unknown) => {
        if (systemCode(error) === 'ENOENT') return null;
        throw error;
      });
      if (folder === null) {
        // That a whole folder is missing is no reason to empty the other side's.
        looking.complete = false;
        continue;
      }
      try {
        await this.#look(folder, name, 0, looking);
      } finally {
        await folder.close();
      }
    }
    return looking;
  }

  /**
   * The stamp of one entry as it is now; '' = there is none.
   *
   * @param batch of a caller that has more entries to ask for; so in what follows
   */
  async stampOf(path: string, batch: FolderBatch | null = null): Promise<string> {
    return (await this.#inFolder(path, false, batch, (folder, name) => this.#entry(folder, name, path)))?.stamp ?? '';
  }

  /** Opens one entry for reading; null when there is none any more that could be carried. The caller closes the file. */
  async open(
    path: string,
    batch: FolderBatch | null = null,
  ): Promise<{ readonly entry: MirrorEntry; readonly file: FileHandle | null } | null> {
    return this.#inFolder(path, false, batch, async (folder, name) => {
      const entry = await this.#entry(folder, name, path);
      if (entry === null || entry.kind !== 'file') return entry === null ? null : { entry, file: null };
      const file = await folder.openFile(name, O_RDONLY);
      try {
        const opened = this.#fileEntry(path, await file.stat());
        if (opened !== null) return { entry: opened, file };
        await file.close();
        return null;
      } catch (error) {
        await file.close();
        throw error;
      }
    });
  }

  /**
   * Makes or replaces one entry. Whatever stands in its place goes, unless it is a folder with something in it.
   *
   * @param content of a file; rejects = nothing is replaced
   * @returns the entry as it is now; null when something else is in its way
   */
  async put(
    entry: MirrorEntry,
    content: AsyncIterable<Buffer>,
    batch: FolderBatch | null = null,
  ): Promise<MirrorEntry | null> {
    return this.#inFolder(entry.path, true, batch, async (folder, name) => {
      const before = await folder.stat(name).catch(() => null);
      if (before?.isDirectory() === true && entry.kind !== 'directory') await rmdir(folder.child(name));
      if (entry.kind === 'file') return this.#putFile(folder, name, entry, content);
      if (entry.kind === 'link') {
        if (before !== null && !before.isDirectory()) await unlink(folder.child(name));
        await symlink(entry.target, folder.child(name));
        return { ...entry, stamp: linkStamp(entry.target) };
      }
      if (before !== null && !before.isDirectory()) await unlink(folder.child(name));
      await folder.make(name);
      // Whoever carries it has to be able to enter it.
      const mode = entry.mode | 0o700;
      const made = await folder.openFile(name, O_RDONLY | O_DIRECTORY);
      try {
        await made.chmod(mode);
      } finally {
        await made.close();
      }
      return { ...entry, mode, stamp: directoryStamp(mode) };
    });
  }

  /** Removes one entry; a folder only when nothing is in it. False = it is still there. */
  async remove(path: string): Promise<boolean> {
    const removed = await this.#inFolder(path, false, null, async (folder, name) => {
      const stats = await folder.stat(name);
      await (stats.isDirectory() ? rmdir(folder.child(name)) : unlink(folder.child(name)));
      return true;
    });
    return removed ?? (await this.#inFolder(path, false, null, (folder, name) => folder.stat(name))) === null;
  }

  async #putFile(
    folder: Directory,
    name: string,
    entry: MirrorEntry,
    content: AsyncIterable<Buffer>,
  ): Promise<MirrorEntry | null> {
    let opened: FileHandle | null = null;
    let stats: Stats | null = null;
    const mode = entry.mode | 0o600;
    const time = entry.modifiedAt / 1000;
    await this.#parts.place(folder, name, mode, async (file) => {
      opened = file;
      let size = 0;
      for await (const chunk of content) {
        size += chunk.length;
        if (size > MAX_MIRRORED_BYTES) throw new Error('a file of more bytes than are carried');
        await file.writeFile(chunk);
      }
      await file.chmod(mode);
      await file.utimes(time, time);
      stats = await file.stat();
    });
    if (opened === null || stats === null) return null;
    // On the side of the commands the rename has changed the metadata once more.
    const now: Stats = this.#parts.commands ? await folder.stat(name) : stats;
    return this.#fileEntry(entry.path, now);
  }

  async #look(folder: Directory, prefix: string, depth: number, looking: Looking): Promise<void> {
    const room = MAX_MIRRORED_ENTRIES - looking.entries.size - looking.leftOut.size;
    const { entries, complete } = await folder.entries(Math.max(0, room));
    if (!complete) looking.complete = false;
    for (const { name } of entries) {
      const path = `${prefix}/${name}`;
      if (looking.entries.size + looking.leftOut.size >= MAX_MIRRORED_ENTRIES || looking.bytes > MAX_NAMES_BYTES) {
        looking.complete = false;
        return;
      }
      const carried = isCarriedName(name) && path.length <= MAX_PATH;
      const entry = carried ? await this.#entry(folder, name, path).catch(goneAsUndefined) : null;
      if (entry === undefined) continue;
      // What a link says stands in its stamp, too.
      looking.bytes += Buffer.byteLength(path) + 2 * Buffer.byteLength(entry?.target ?? '');
      if (entry === null) {
        looking.leftOut.add(path);
        continue;
      }
      looking.entries.set(path, entry);
      if (entry.kind !== 'directory') continue;
      const below = depth >= MAX_DEPTH ? null : await folder.enter(name).catch(() => null);
      if (below === null) {
        looking.complete = false;
        continue;
      }
      try {
        await this.#look(below, path, depth + 1, looking);
      } finally {
        await below.close();
      }
    }
  }

  /** null = it is there and is not carried. */
  async #entry(folder: Directory, name: string, path: string): Promise<MirrorEntry | null> {
    const stats = await folder.stat(name);
    const plain = { path, size: 0, modifiedAt: 0, target: '' };
    if (stats.isDirectory())
      return { ...plain, kind: 'directory', mode: stats.mode & 0o777, stamp: directoryStamp(stats.mode) };
    if (!stats.isSymbolicLink()) return this.#fileEntry(path, stats);
    const target = await readlink(folder.child(name));
    if (target === '' || target.length > MAX_TARGET || target.includes('\ufffd')) return null;
    return { ...plain, kind: 'link', mode: 0o777, target, stamp: linkStamp(target) };
  }

  #fileEntry(path: string, stats: Stats): MirrorEntry | null {
    return fileEntry(path, stats, this.#parts.commands);
  }

  /** null when something is in the way of this path. Other errors, such as a full disk, are the caller's. */
  async #inFolder<T>(
    path: string,
    create: boolean,
    batch: FolderBatch | null,
    body: (folder: Directory, name: string) => Promise<T>,
  ): Promise<T | null> {
    const parts = mirrorPath(path);
    const root = this.#parts.folders.get(parts[0] ?? '');
    if (root === undefined) return null;
    const open = async () => descend(await openRoot(root), parts.slice(1, -1), { create });
    const name = parts.at(-1) ?? '';
    try {
      if (batch !== null) return await batch.use(parts.slice(0, -1).join('/'), open, (folder) => body(folder, name));
      const folder = await open();
      try {
        return await body(folder, name);
      } finally {
        await folder.close();
      }
    } catch (error) {
      if (OBSTACLES.includes(systemCode(error) ?? '')) return null;
      throw error;
    }
  }
}

/** The content of an open file, piece by piece, at most as much as is carried. @param expected its bytes when it was opened */
export async function* contentOf(file: FileHandle, expected: number): AsyncGenerator<Buffer> {
  for (let position = 0; position < MAX_MIRRORED_BYTES; ) {
    // One byte more than is left of it tells its end in the same reading.
    const wanted = Math.min(CHUNK, Math.max(1, expected - position + 1), MAX_MIRRORED_BYTES - position);
    const buffer = Buffer.allocUnsafe(position > expected ? Math.min(CHUNK, MAX_MIRRORED_BYTES - position) : wanted);
    const { bytesRead } = await file.read(buffer, 0, buffer.length, position);
    if (bytesRead === 0) return;
    position += bytesRead;
    yield buffer.subarray(0, bytesRead);
    if (position === expected && bytesRead < buffer.length) return;
  }
}

function goneAsUndefined(error: unknown): undefined {
  if (systemCode(error) === 'ENOENT') return undefined;
  throw error;
}
