import type { Generated } from 'kysely';

export interface ChannelTables {
  channel_leases: ChannelLeasesTable;
  channel_messages: ChannelMessagesTable;
  channel_conversations: ChannelConversationsTable;
  channel_codes: ChannelCodesTable;
  channel_connections: ChannelConnectionsTable;
}

export interface ChannelLeasesTable {
  channel: string;
  owner: string;
  token: string;
  expires_at: number;
}

export interface ChannelMessagesTable {
  /** Order of arrival. */
  message_key: Generated<number>;
  channel: string;
  message_id: string;
  round: number;
  state: string;
  /** JSON of a `ChannelMessage`; '' once it is over. */
  message: string;
  user_id: string | null;
  /** JSON of a `ChannelWork`. */
  work: string | null;
  shown_id: string | null;
  /** JSON of a `ChannelReply`. */
  reply: string | null;
  tries: number;
  due_at: number;
  received_at: number;
  updated_at: number;
}

export interface ChannelConversationsTable {
  channel: string;
  chat_id: string;
  topic: string;
  user_id: string;
  thread_id: string;
  updated_at: number;
}

export interface ChannelCodesTable {
  provider: string;
  user_id: string;
  slot: number;
  /** SHA-256, hexadecimal: who reads the database cannot use a code. */
  code_hash: string;
  expires_at: number;
}

export interface ChannelConnectionsTable {
  provider: string;
  workspace_id: string;
  external_id: string;
  connection_id: string;
  external_name: string;
  user_id: string;
  created_at: number;
}
