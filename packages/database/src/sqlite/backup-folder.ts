import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { ReindeerError } from '@reindeer/protocol';
import { backup } from './backup.ts';
import { workerEngine } from './engine.ts';
import { DATABASE_FILE } from './open.ts';

/**
 * Copies the database of a data folder into a new file, as of one moment, without taking the folder's lock: a server may be
 * using it meanwhile.
 *
 * @throws ReindeerError `not_found` when the folder has no database; otherwise as `SqliteStores.backup`
 */
export async function backupFolder(input: {
  readonly folder: string;
  readonly to: string;
  readonly workerUrl?: URL;
  readonly signal: AbortSignal;
}): Promise<void> {
  const file = join(input.folder, DATABASE_FILE);
  const exists = await stat(file).then(
    (info) => info.isFile(),
    () => false,
  );
  if (!exists)
    throw new ReindeerError(
      'not_found',
      `There is no database in ${input.folder}. Check the data folder (REINDEER_HOME).`,
    );
  const workerUrl = input.workerUrl ?? new URL('./worker.ts', import.meta.url);
  await backup(input.to, workerEngine(workerUrl, { kind: 'backup', file, to: input.to }), input.signal);
}
