/** The tables of messages and checkpoints. */
export interface CheckpointTables {
  messages: MessagesTable;
}

/** Message bodies, each once per thread. */
export interface MessagesTable {
  thread_key: number;
  /** 1, 2, 3, … in order of arrival. */
  number: number;
  /** Content address, see `PackedMessage`. */
  hash: string;
  message_id: string | null;
  body: string;
}
