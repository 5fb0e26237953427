import type { Generated } from 'kysely';

/** The tables of messages and checkpoints. */
export interface CheckpointTables {
  messages: MessagesTable;
  checkpoint_namespaces: CheckpointNamespacesTable;
  checkpoints: CheckpointsTable;
  checkpoint_channels: CheckpointChannelsTable;
  checkpoint_writes: CheckpointWritesTable;
}

/**
 * Content of a thread, each text once: message bodies, large channel values, and the shapes of checkpoints. Other rows mention a
 * text by its number; a message list is a few ranges of numbers, however long it is (D4).
 */
export interface MessagesTable {
  thread_key: number;
  /** 1, 2, 3, … in order of arrival. Never given out twice while the row exists. */
  number: number;
  /** First 16 bytes of SHA-256 of `body`; of a message, its content address (`PackedMessage.hash`) as bytes. */
  hash: Uint8Array;
  body: string;
}

/** Short form of a (thread, namespace) inside the rows below. */
export interface CheckpointNamespacesTable {
  ns_key: Generated<number>;
  thread_key: number;
  ns: string;
}

export interface CheckpointsTable {
  ns_key: number;
  /** See `ids.ts`: bytes that sort as the ids do. */
  checkpoint_id: Uint8Array;
  parent_id: Uint8Array | null;
  /** See `head.ts`. */
  head: string;
  metadata: string;
  /**
   * The thread's newest fact when it was written, its own included: later ones stand higher, whatever their ids say. In a copy, where
   * no facts are yet, at most 0.
   */
  position: number;
}

/** A channel's value, once per version. */
export interface CheckpointChannelsTable {
  ns_key: number;
  name: string;
  version: string;
  /** See `content.ts`. */
  value: string;
}

/**
 * Pending writes of one task, by one run (0 = outside a run). What a later run writes for the same task lies over what an earlier one
 * wrote, so that taking back a run is deleting its rows (RB-01).
 */
export interface CheckpointWritesTable {
  ns_key: number;
  checkpoint_id: Uint8Array;
  task_id: Uint8Array;
  run_key: number;
  task_path: string;
  /** See `writes.ts`. */
  body: string;
}
