import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ReindeerError } from '@reindeer/protocol';

/** Names the database to which the files of a folder belong. */
const FILE = 'reindeer.database';

/**
 * Instances on one database share one folder for files, and a folder belongs to one database (D12): files under ids that another
 * database gave out would be served to the wrong people. The first instance writes the database's id into the folder.
 *
 * @throws ReindeerError `configuration` when the folder belongs to another database or cannot be written
 */
export async function claimFolder(folder: string, databaseId: string): Promise<void> {
  const file = join(folder, FILE);
  let found: string;
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    await writeFile(file, `${databaseId}\n`, { flag: 'wx', mode: 0o600 }).catch((error: unknown) => {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    });
    found = (await readFile(file, 'utf8')).trim();
  } catch (cause) {
    throw new ReindeerError('configuration', `The data folder ${folder} cannot be written. Check its permissions.`, {
      cause,
      detail: { folder },
    });
  }
  if (found === databaseId) return;
  throw new ReindeerError(
    'configuration',
    `The data folder ${folder} belongs to another database (${found === '' ? 'its id is empty' : found}; this one is ${databaseId}). ` +
      `Use the folder of this database, or a new one. If the database was replaced on purpose, remove ${file}.`,
    { detail: { folder, found, databaseId } },
  );
}
