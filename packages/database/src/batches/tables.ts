import type { Generated } from 'kysely';

export interface BatchTables {
  batches: BatchesTable;
  batch_items: BatchItemsTable;
  batch_item_details: BatchItemDetailsTable;
}

/** Phases of a batch, for the scheduler: what is to be done with it. `toTell`: its results stand in files. */
export const PHASE = { open: 0, toReport: 1, done: 2, toTell: 3 } as const;

/** Is the agent to be told of the end? `heard`: it was to be, and has read of this end itself. */
export const NOTIFY = { no: 0, yes: 1, heard: 2 } as const;

export interface BatchesTable {
  /** Order of creation. */
  batch_key: Generated<number>;
  batch_id: string;
  user_id: string;
  thread_id: string;
  run_id: string | null;
  tool_call_id: string | null;
  submission_key: string;
  title: string;
  subagent_type: string;
  status: string;
  /** See `PHASE`. */
  phase: number;
  total_items: number;
  max_live: number;
  max_running: number;
  max_attempts: number;
  /** JSON object. */
  spec: string;
  /** See `NOTIFY`. */
  notify: number;
  /** Times that the batch came to its end. */
  ends: number;
  /** Token of the one that reports the end, and until when nobody else does. */
  reporter: string | null;
  reporter_until: number | null;
  created_at: number;
  updated_at: number;
  started_at: number | null;
  ended_at: number | null;
}

/** The right to an item: its state and the token of its holder. Small, because it changes four times per item. */
export interface BatchItemsTable {
  item_key: Generated<number>;
  item_id: string;
  batch_key: number;
  position: number;
  status: string;
  attempt: number;
  owner: string | null;
  /** Grows with every claim. */
  epoch: number;
  lease_expires_at: number | null;
  cancel_requested_at: number | null;
  /** Backoff: not claimed before. */
  not_before: number;
  started_at: number | null;
  /** Of the last attempt; counts only when the item is over. */
  ended_at: number | null;
  updated_at: number;
}

export interface BatchItemDetailsTable {
  batch_key: number;
  position: number;
  /** The item's key. */
  name: string;
  prompt: string;
  result: string | null;
  result_preview: string | null;
  result_truncated: number;
  result_file: string | null;
  error: string | null;
  stop_reason: string | null;
  model_name: string | null;
  /** By what the result is judged; null = it is not. */
  acceptance: string | null;
  /** What the check said; null = nobody judged it. */
  accepted: number | null;
  verdict: string | null;
  input_tokens: number;
  output_tokens: number;
}
