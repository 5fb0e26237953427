import { createHash } from 'node:crypto';
import { constants, type Dirent } from 'node:fs';
import { type FileHandle, lstat, mkdir, open, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { ReindeerError } from '@reindeer/protocol';

/** Bounds of one skill's folder (SK-5). */
export const MAX_ENTRIES = 4_096;
export const MAX_BYTES = 512 * 1024 * 1024;
export const MAX_DEPTH = 16;

export interface SkillFile {
  /** Names joined with `/`, below the skill's folder. */
  readonly path: string;
  readonly size: number;
  readonly modified: number;
  /** Which file of the disk it is: one that was replaced within a tick of the clock is another. */
  readonly inode: number;
  readonly executable: boolean;
}

/** Hidden folders are no part of a skill, nor is what version control and package managers leave. */
export const isHidden = (name: string): boolean =>
  name.startsWith('.') || name === '__MACOSX' || name === 'node_modules' || name === '__pycache__';

/** Templates such as `.dockerignore` are content; what systems leave, and where people keep keys, is not. */
const isLeftOut = (name: string): boolean =>
  name === '.DS_Store' || name.startsWith('._') || /^\.env(?!\.(?:example|sample|template)$)/.test(name);

export async function entriesOf(folder: string): Promise<Dirent[]> {
  try {
    return await readdir(folder, { withFileTypes: true });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return [];
    throw error;
  }
}

/**
 * The regular files of a skill, in a fixed order. Links and special files are left out: they could lead anywhere.
 *
 * @throws ReindeerError `too_large` past the bounds of a skill
 */
export async function filesOf(folder: string): Promise<SkillFile[]> {
  const files: SkillFile[] = [];
  let entries = 0;
  let bytes = 0;
  const walk = async (path: string, depth: number): Promise<void> => {
    const found = (await entriesOf(join(folder, path))).filter((entry) =>
      entry.isFile() ? !isLeftOut(entry.name) : !isHidden(entry.name),
    );
    for (const entry of found.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      entries += 1;
      if (entries > MAX_ENTRIES || depth > MAX_DEPTH)
        throw tooLarge(`more than ${MAX_ENTRIES} files, or folders deeper than ${MAX_DEPTH}`);
      const below = path === '' ? entry.name : `${path}/${entry.name}`;
      if (entry.isDirectory()) await walk(below, depth + 1);
      else if (entry.isFile()) {
        const info = await lstat(join(folder, below));
        bytes += info.size;
        if (bytes > MAX_BYTES) throw tooLarge(`more than ${MAX_BYTES / 1024 / 1024} MiB`);
        files.push({
          path: below,
          size: info.size,
          modified: info.mtimeMs,
          inode: info.ino,
          executable: (info.mode & 0o111) !== 0,
        });
      }
    }
  };
  await walk('', 0);
  return files;
}

/** Changes when a file of the folder does; cheap, since no file is read. */
export function signatureOf(files: readonly SkillFile[]): string {
  return createHash('sha256').update(JSON.stringify(files)).digest('hex');
}

/** Copies the files so that every user inside a sandbox can read them. */
export async function copyFiles(from: string, to: string, files: readonly SkillFile[]): Promise<void> {
  await mkdir(to, { recursive: true, mode: 0o755 });
  const made = new Set<string>();
  for (const file of files) {
    const parts = file.path.split('/').slice(0, -1);
    for (let depth = 1; depth <= parts.length; depth += 1) {
      const folder = parts.slice(0, depth).join('/');
      if (made.has(folder)) continue;
      await mkdir(join(to, folder), { recursive: true, mode: 0o755 });
      made.add(folder);
    }
    const target = join(to, file.path);
    await copyFile(join(from, file.path), target, file.size, file.executable ? 0o755 : 0o644);
  }
}

/** Neither follows a link nor waits for a pipe, and ends where the file ended when it was listed. */
async function copyFile(from: string, to: string, size: number, mode: number): Promise<void> {
  const source = await openFile(from);
  try {
    const target = await open(to, 'wx', mode);
    try {
      if (size > 0) {
        for await (const chunk of source.createReadStream({ start: 0, end: size - 1, autoClose: false }))
          await target.writeFile(chunk as Uint8Array);
      }
      // Not what the process's mask left of it.
      await target.chmod(mode);
    } finally {
      await target.close();
    }
  } finally {
    await source.close();
  }
}

/**
 * Opens a regular file that was listed as one. By now it may be a link, which could lead anywhere, or a pipe, which would never answer.
 *
 * @throws `ENOENT` for what is no regular file any more
 */
async function openFile(path: string): Promise<FileHandle> {
  const gone = (): NodeJS.ErrnoException => Object.assign(new Error('no regular file'), { code: 'ENOENT' });
  const handle = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK).catch(
    (error: NodeJS.ErrnoException) => {
      throw error.code === 'ELOOP' || error.code === 'ENXIO' ? gone() : error;
    },
  );
  if ((await handle.stat()).isFile()) return handle;
  await handle.close();
  throw gone();
}

/** The text of a file that was listed; of a longer one the first `most` bytes. @throws `ENOENT` as `openFile` */
export async function readListed(path: string, most: number): Promise<string> {
  const handle = await openFile(path);
  try {
    const chunks: Buffer[] = [];
    for await (const chunk of handle.createReadStream({ start: 0, end: most - 1, autoClose: false }))
      chunks.push(chunk as Buffer);
    return Buffer.concat(chunks).toString('utf8');
  } finally {
    await handle.close();
  }
}

const tooLarge = (what: string): ReindeerError => new ReindeerError('too_large', `The skill has ${what}.`);
