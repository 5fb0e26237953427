import type { Migration } from './types.ts';

/** Threads of batch items, which are looked through for those that were left behind; there are few of them at any time. */
export const itemThreads: Migration = {
  version: 7,
  statements: () => [
    `create index threads_of_batch_items on threads (thread_id) where substr(user_id, 1, 6) = 'batch_'`,
  ],
};
