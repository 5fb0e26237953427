export interface UserMemoryTables {
  memory_users: MemoryUsersTable;
  memory_sections: MemorySectionsTable;
  memory_facts: MemoryFactsTable;
  memory_captures: MemoryCapturesTable;
}

/** The row that every change of a user's memory locks, so that changes come one after another. */
export interface MemoryUsersTable {
  user_id: string;
  revision: number;
  updated_at: number;
  /** JSON list, the newest last. */
  audit: string;
}

export interface MemorySectionsTable {
  user_id: string;
  section: string;
  /** JSON list of statements. */
  statements: string;
  revision: number;
  updated_at: number;
}

export interface MemoryFactsTable {
  fact_id: string;
  user_id: string;
  agent: string;
  content_key: string;
  revision: number;
  created_at: number;
  /** JSON object: the rest of the fact. */
  body: string;
}

/** A conversation: what waits to be learned, who learns from it, how far it was learned from. */
export interface MemoryCapturesTable {
  user_id: string;
  agent: string;
  thread_id: string;
  /** JSON list of messages; null = nothing waits. */
  pending: string | null;
  /** Messages that a compaction took out; null = none. */
  leaving: string | null;
  /** JSON list. */
  signals: string;
  /** null = nothing waits. */
  due_at: number | null;
  version: number;
  token: string | null;
  lease_until: number | null;
  attempts: number;
  watermark: string | null;
  updated_at: number;
}
