import type { Migration } from './types.ts';

/** Messages, each stored once per thread, and checkpoints. */
export const checkpoints: Migration = {
  version: 2,
  statements: (t) => [
    `create table messages (
      thread_key ${t.integer} not null,
      number ${t.integer} not null,
      hash text not null,
      message_id text,
      body text not null,
      primary key (thread_key, number)
    ) ${t.table}`,
    'create unique index messages_by_hash on messages (thread_key, hash)',
  ],
};
