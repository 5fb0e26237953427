import type { Migration } from './types.ts';

/** What users think of answers, and who used which tokens in a run. */
export const feedback: Migration = {
  version: 6,
  statements: (t) => [
    'alter table runs add column usage_by text',
    `create table feedback (
      thread_id text not null,
      run_id text not null,
      user_id text not null,
      feedback_id text not null,
      message_id text,
      rating ${t.integer} not null,
      comment text,
      created_at ${t.integer} not null,
      primary key (thread_id, run_id, user_id)
    ) ${t.table}`,
  ],
};
