import type { Migration } from './types.ts';

/** By what the result of a batch item is judged, and what came of it. */
export const acceptance: Migration = {
  version: 8,
  statements: (t) => [
    'alter table batch_item_details add column acceptance text',
    `alter table batch_item_details add column accepted ${t.integer}`,
    'alter table batch_item_details add column verdict text',
  ],
};
