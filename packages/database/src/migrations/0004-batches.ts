import type { Migration } from './types.ts';

/** Batches of work for sub-agents. What changes often (`batch_items`) is kept apart from what is long (`batch_item_details`). */
export const batches: Migration = {
  version: 4,
  statements: (t) => [
    `create table batches (
      batch_key ${t.key},
      batch_id text not null unique,
      user_id text not null,
      thread_id text not null,
      run_id text,
      tool_call_id text,
      submission_key text not null,
      title text not null,
      subagent_type text not null,
      status text not null,
      phase ${t.integer} not null,
      total_items ${t.integer} not null,
      max_live ${t.integer} not null,
      max_running ${t.integer} not null,
      max_attempts ${t.integer} not null,
      spec text not null,
      notify ${t.integer} not null,
      ends ${t.integer} not null,
      reporter text,
      reporter_until ${t.integer},
      created_at ${t.integer} not null,
      updated_at ${t.integer} not null,
      started_at ${t.integer},
      ended_at ${t.integer}
    ) ${t.table}`,
    'create unique index batches_one_per_submission on batches (user_id, submission_key)',
    'create index batches_by_thread on batches (thread_id, batch_key)',
    'create index batches_by_user on batches (user_id, batch_key)',
    'create index batches_by_phase on batches (phase, batch_key)',

    `create table batch_items (
      item_key ${t.key},
      item_id text not null unique,
      batch_key ${t.integer} not null,
      position ${t.integer} not null,
      status text not null,
      attempt ${t.integer} not null,
      owner text,
      epoch ${t.integer} not null,
      lease_expires_at ${t.integer},
      cancel_requested_at ${t.integer},
      not_before ${t.integer} not null,
      started_at ${t.integer},
      ended_at ${t.integer},
      updated_at ${t.integer} not null
    ) ${t.table}`,
    'create index batch_items_by_status on batch_items (batch_key, status, position)',
    'create index batch_items_by_lease on batch_items (lease_expires_at)',

    `create table batch_item_details (
      batch_key ${t.integer} not null,
      position ${t.integer} not null,
      name text not null,
      prompt text not null,
      result text,
      result_preview text,
      result_truncated ${t.integer} not null,
      result_file text,
      error text,
      stop_reason text,
      model_name text,
      input_tokens ${t.integer} not null,
      output_tokens ${t.integer} not null,
      primary key (batch_key, position)
    ) ${t.table}`,
    // BT-02: whatever was checked before, a key stands once in its batch.
    'create unique index batch_item_details_by_name on batch_item_details (batch_key, name)',
  ],
};
