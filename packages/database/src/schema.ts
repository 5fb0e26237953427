import type { Generated } from 'kysely';
import type { BatchTables } from './batches/tables.ts';
import type { ChannelTables } from './channels/tables.ts';
import type { CheckpointTables } from './checkpoints/tables.ts';
import type { FeedbackTables } from './feedback/tables.ts';
import type { ScheduleTables } from './schedules/tables.ts';
import type { UserMemoryTables } from './user-memory/tables.ts';

/**
 * Every table, as Kysely sees it. The definitions with their indexes are in `migrations/`.
 * Conventions: times are UTC milliseconds; flags are 0 or 1; `*_key` is a small integer that stands for a long id inside other rows.
 */
export interface Database
  extends CheckpointTables,
    FeedbackTables,
    BatchTables,
    ScheduleTables,
    ChannelTables,
    UserMemoryTables {
  meta: MetaTable;
  threads: ThreadsTable;
  thread_keys: ThreadKeysTable;
  run_keys: RunKeysTable;
  runs: RunsTable;
  run_details: RunDetailsTable;
  run_leases: RunLeasesTable;
  facts: FactsTable;
  tool_calls: ToolCallsTable;
}

/** Facts about the database itself: format version, epoch, instance id, how it was last stopped. */
export interface MetaTable {
  name: string;
  value: string;
}

export interface ThreadsTable {
  /** Order of creation. */
  creation: Generated<number>;
  thread_id: string;
  user_id: string;
  /** JSON object, keys sorted. */
  metadata: string;
  /** Copy of `metadata.pinned === true`, for the order of listings. */
  pinned: number;
  title: string | null;
  created_at: number;
  updated_at: number;
}

/** The thread's counter row: facts take their numbers here (D3). Also the short form of a thread id inside other rows. */
export interface ThreadKeysTable {
  thread_key: Generated<number>;
  thread_id: string;
  /** Highest fact number given out. */
  head: number;
  pruned_through: number;
}

/** Short form of a run id inside facts. Outlives the run's row, as its facts do. */
export interface RunKeysTable {
  run_key: Generated<number>;
  run_id: string;
  thread_key: number;
}

/**
 * The right to a thread: its state and the token of its holder. Kept small, because every transaction of a holder begins with an
 * update of this row; what is large or never changes stands in `run_details`.
 */
export interface RunsTable {
  /** Order of admission. */
  admission: Generated<number>;
  run_id: string;
  thread_id: string;
  user_id: string;
  kind: string;
  status: string;
  owner: string | null;
  token: string | null;
  attempt: number;
  acknowledged: number;
  cancel_action: string | null;
  cancel_requested_at: number | null;
  checkpoint_before: string | null;
  error: string | null;
  stop_reason: string | null;
  input_tokens: number;
  output_tokens: number;
  total_tokens: number;
  model_calls: number;
  created_at: number;
  updated_at: number;
  started_at: number | null;
  ended_at: number | null;
  idempotency_key: string | null;
  /** JSON of `UsageShares`. */
  usage_by: string | null;
}

export interface RunDetailsTable {
  run_id: string;
  assistant_id: string;
  multitask_strategy: string;
  on_disconnect: string;
  crash_policy: string;
  payload_hash: string;
  /** JSON of a `RunRequest`. */
  request: string;
  /** JSON object. */
  metadata: string;
}

/** Only `renew`, admission, takeover and the end of a run touch this table, so that no other write can hold up a heartbeat. */
export interface RunLeasesTable {
  run_id: string;
  expires_at: number;
}

export interface FactsTable {
  thread_key: number;
  seq: number;
  run_key: number | null;
  at: number;
  /** Of the fact's key, see `keyBytes`: unique in the thread, so that a repeat writes nothing. */
  key_hash: Uint8Array;
  is_message: number;
  /** See `log/compact.ts`; messages stand as references. */
  body: string;
}

export interface ToolCallsTable {
  /** Order of the first start. */
  call_number: Generated<number>;
  thread_key: number;
  message_id: string;
  call_index: number;
  /** The run, token and attempt that started it last. */
  run_id: string;
  token: string;
  attempt: number;
  tool_call_id: string | null;
  name: string;
  started_at: number;
  finished_at: number | null;
  outcome: string | null;
  /** JSON of the result; messages stand as `{"$m":"<hash>"}`. */
  result: string | null;
}
