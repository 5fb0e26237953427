import { randomUUID } from 'node:crypto';
import { mkdir, open, realpath, rename, rm, stat } from 'node:fs/promises';
import { dirname } from 'node:path';

/** Who may read a file that was not there before: its owner alone. */
const PRIVATE = 0o600;

/**
 * Replaces a file of the server's own whole, or makes it; a crash, also of the machine, leaves the old or the new one. Behind a link the file that
 * it names is replaced, not the link. The file keeps its mode; a new one is its owner's alone, as are the folders that are made for it.
 * Not for folders that a sandbox writes: there links are not followed.
 *
 * @param mode instead of the one that the file has
 * @throws what the file system says; the old file is then still there
 */
export async function replaceFile(file: string, text: string, mode?: number): Promise<void> {
  await mkdir(dirname(file), { recursive: true, mode: 0o700 });
  const target = await realpath(file).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return file;
    throw error;
  });
  const kept = await stat(target).then(
    (info) => info.mode & 0o777,
    () => PRIVATE,
  );
  const temporary = `${target}.${randomUUID()}.tmp`;
  try {
    const handle = await open(temporary, 'wx', PRIVATE);
    try {
      await handle.writeFile(text);
      // Not what the process's mask would leave of it.
      await handle.chmod(mode ?? kept);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(temporary, target);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
  // The new name is safe only when the folder is.
  const folder = await open(dirname(target), 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}
