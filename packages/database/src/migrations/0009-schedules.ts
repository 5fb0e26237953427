import type { Migration } from './types.ts';

/** Work that starts by itself. */
export const schedules: Migration = {
  version: 9,
  statements: (t) => [
    `create table schedules (
      schedule_key ${t.key},
      schedule_id text not null unique,
      user_id text not null,
      title text not null,
      prompt text not null,
      kind text not null,
      cron text,
      run_at ${t.integer},
      timezone text not null,
      context_mode text not null,
      thread_id text,
      assistant_id text not null,
      context text not null,
      status text not null,
      next_run_at ${t.integer},
      last_run_at ${t.integer},
      last_run_id text,
      last_thread_id text,
      last_error text,
      run_count ${t.integer} not null,
      revision ${t.integer} not null,
      created_at ${t.integer} not null,
      updated_at ${t.integer} not null
    ) ${t.table}`,
    'create index schedules_by_user on schedules (user_id, schedule_key)',
    "create index schedules_due on schedules (next_run_at) where status = 'enabled' and next_run_at is not null",

    `create table schedule_occurrences (
      occurrence_key ${t.key},
      occurrence_id text not null unique,
      schedule_key ${t.integer} not null,
      thread_id text not null,
      run_id text,
      work text not null,
      scheduled_for ${t.integer} not null,
      cause text not null,
      status text not null,
      error text,
      owner text,
      lease_expires_at ${t.integer},
      created_at ${t.integer} not null,
      started_at ${t.integer},
      finished_at ${t.integer}
    ) ${t.table}`,
    // Never two of one schedule at once, whatever was checked before.
    `create unique index schedule_occurrences_one_open on schedule_occurrences (schedule_key)
      where status in ('queued', 'running')`,
    'create index schedule_occurrences_by_status on schedule_occurrences (status, occurrence_key)',
    'create index schedule_occurrences_by_schedule on schedule_occurrences (schedule_key, occurrence_key)',

    // The one row that a take locks, so that the number of open occurrences holds over all instances.
    `create table schedule_gate (gate ${t.integer} primary key, takes ${t.integer} not null) ${t.table}`,
  ],
};
