import { ReindeerError } from '@reindeer/protocol';
import type { DialectName } from '../executor.ts';
import { foundation } from './0001-foundation.ts';
import { checkpoints } from './0002-checkpoints.ts';
import { checkpointOrder } from './0003-checkpoint-order.ts';
import { batches } from './0004-batches.ts';
import { memory } from './0005-memory.ts';
import { feedback } from './0006-feedback.ts';
import { itemThreads } from './0007-item-threads.ts';
import { acceptance } from './0008-acceptance.ts';
import { schedules } from './0009-schedules.ts';
import { channels } from './0010-channels.ts';
import { type Migration, TYPES } from './types.ts';

/** In order of version. */
export const MIGRATIONS: readonly Migration[] = [
  foundation,
  checkpoints,
  checkpointOrder,
  batches,
  memory,
  feedback,
  itemThreads,
  acceptance,
  schedules,
  channels,
];

/** The format that this program writes. */
export const FORMAT_VERSION = Math.max(...MIGRATIONS.map((migration) => migration.version));

/**
 * The statements that lead from `current` (0 = an empty database) to the newest format.
 * @throws ReindeerError `data_too_new` when the data was written by a newer program.
 */
export function migrationsFrom(
  current: number,
  dialect: DialectName,
  migrations: readonly Migration[] = MIGRATIONS,
): readonly { readonly version: number; readonly statements: readonly string[] }[] {
  const newest = Math.max(0, ...migrations.map((migration) => migration.version));
  if (current > newest)
    throw new ReindeerError(
      'data_too_new',
      `The data was written by a newer version of Reindeer (format ${current}; this version knows up to ${newest}). ` +
        'Start the newer version, or use another data folder.',
      { detail: { format: current, supported: newest } },
    );
  return migrations
    .filter((migration) => migration.version > current)
    .map((migration) => ({ version: migration.version, statements: migration.statements(TYPES[dialect]) }));
}
