import type { Migration } from './types.ts';

/**
 * The order in which checkpoints were written. Their ids follow the clock of whoever made them, and clocks jump and differ. Rows of
 * before stand at 0, where their ids order them, as they did until now.
 */
export const checkpointOrder: Migration = {
  version: 3,
  statements: (t) => [
    `alter table checkpoints add column position ${t.integer} not null default 0`,
    'create index checkpoints_by_position on checkpoints (ns_key, position, checkpoint_id)',
  ],
};
