import type { Migration } from './types.ts';

/** Threads, runs, the log of facts, the tool journal. */
export const foundation: Migration = {
  version: 1,
  statements: (t) => [
    `create table threads (
      creation ${t.key},
      thread_id text not null unique,
      user_id text not null,
      metadata text not null,
      pinned ${t.integer} not null,
      title text,
      created_at ${t.integer} not null,
      updated_at ${t.integer} not null
    ) ${t.table}`,
    'create index threads_by_user on threads (user_id, pinned, updated_at, creation)',

    `create table thread_keys (
      thread_key ${t.key},
      thread_id text not null unique,
      head ${t.integer} not null,
      pruned_through ${t.integer} not null
    ) ${t.table}`,
    `create table run_keys (
      run_key ${t.key},
      run_id text not null unique,
      thread_key ${t.integer} not null
    ) ${t.table}`,
    'create index run_keys_by_thread on run_keys (thread_key)',

    `create table runs (
      admission ${t.key},
      run_id text not null unique,
      thread_id text not null,
      user_id text not null,
      kind text not null,
      status text not null,
      owner text,
      token text,
      attempt ${t.integer} not null,
      acknowledged ${t.integer} not null,
      cancel_action text,
      cancel_requested_at ${t.integer},
      checkpoint_before text,
      error text,
      stop_reason text,
      input_tokens ${t.integer} not null,
      output_tokens ${t.integer} not null,
      total_tokens ${t.integer} not null,
      model_calls ${t.integer} not null,
      created_at ${t.integer} not null,
      updated_at ${t.integer} not null,
      started_at ${t.integer},
      ended_at ${t.integer},
      idempotency_key text
    ) ${t.table}`,
    // RA-01: the database itself allows one active run or reservation per thread.
    `create unique index runs_one_active on runs (thread_id) where status in ('pending', 'running')`,
    'create unique index runs_one_per_idempotency_key on runs (user_id, idempotency_key) where idempotency_key is not null',
    'create index runs_by_thread on runs (thread_id, created_at, admission)',
    'create index runs_unacknowledged on runs (admission) where acknowledged = 0',
    'create index runs_unacknowledged_by_thread on runs (thread_id, admission) where acknowledged = 0',
    `create table run_details (
      run_id text primary key not null,
      assistant_id text not null,
      multitask_strategy text not null,
      on_disconnect text not null,
      crash_policy text not null,
      payload_hash text not null,
      request text not null,
      metadata text not null
    ) ${t.table}`,
    `create table run_leases (
      run_id text primary key not null,
      expires_at ${t.integer} not null
    ) ${t.clustered}`,

    `create table facts (
      thread_key ${t.integer} not null,
      seq ${t.integer} not null,
      run_key ${t.integer},
      at ${t.integer} not null,
      key_hash ${t.bytes} not null,
      is_message ${t.integer} not null,
      body text not null,
      primary key (thread_key, seq)
    ) ${t.clustered}`,
    'create unique index facts_one_per_key on facts (thread_key, key_hash)',
    'create index facts_by_run on facts (run_key, seq)',

    `create table tool_calls (
      call_number ${t.key},
      thread_key ${t.integer} not null,
      message_id text not null,
      call_index ${t.integer} not null,
      run_id text not null,
      token text not null,
      attempt ${t.integer} not null,
      tool_call_id text,
      name text not null,
      started_at ${t.integer} not null,
      finished_at ${t.integer},
      outcome text,
      result text,
      unique (thread_key, message_id, call_index)
    ) ${t.table}`,
  ],
};
