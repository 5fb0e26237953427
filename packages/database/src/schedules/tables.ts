import type { Generated } from 'kysely';

export interface ScheduleTables {
  schedules: SchedulesTable;
  schedule_occurrences: OccurrencesTable;
  schedule_gate: GateTable;
}

export interface SchedulesTable {
  /** Order of creation. */
  schedule_key: Generated<number>;
  schedule_id: string;
  user_id: string;
  title: string;
  prompt: string;
  /** `once` or `cron`. */
  kind: string;
  cron: string | null;
  run_at: number | null;
  timezone: string;
  context_mode: string;
  thread_id: string | null;
  assistant_id: string;
  /** JSON object. */
  context: string;
  status: string;
  next_run_at: number | null;
  last_run_at: number | null;
  last_run_id: string | null;
  last_thread_id: string | null;
  last_error: string | null;
  run_count: number;
  revision: number;
  created_at: number;
  updated_at: number;
}

export interface OccurrencesTable {
  /** Order of creation. */
  occurrence_key: Generated<number>;
  occurrence_id: string;
  schedule_key: number;
  thread_id: string;
  run_id: string | null;
  /** JSON of `ScheduledWork`. */
  work: string;
  scheduled_for: number;
  /** `scheduled` or `manual`. */
  cause: string;
  status: string;
  error: string | null;
  /** Who launches it, while it is queued. */
  owner: string | null;
  lease_expires_at: number | null;
  created_at: number;
  started_at: number | null;
  finished_at: number | null;
}

export interface GateTable {
  gate: number;
  takes: number;
}
