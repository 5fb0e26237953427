import type { Migration } from './types.ts';

/** Conversations in messengers. */
export const channels: Migration = {
  version: 10,
  statements: (t) => [
    // The right to a channel, and the token of its holder.
    `create table channel_leases (
      channel text primary key not null,
      owner text not null,
      token text not null,
      expires_at ${t.integer} not null
    ) ${t.table}`,

    `create table channel_messages (
      message_key ${t.key},
      channel text not null,
      message_id text not null,
      round ${t.integer} not null,
      state text not null,
      message text not null,
      user_id text,
      work text,
      shown_id text,
      reply text,
      tries ${t.integer} not null,
      due_at ${t.integer} not null,
      received_at ${t.integer} not null,
      updated_at ${t.integer} not null
    ) ${t.table}`,
    // The provider's id is what makes a second delivery the same message.
    'create unique index channel_messages_by_id on channel_messages (channel, message_id)',
    `create index channel_messages_open on channel_messages (channel, message_key)
      where state in ('received', 'running', 'answering')`,
    `create index channel_messages_over on channel_messages (channel, updated_at)
      where state in ('done', 'failed')`,

    `create table channel_conversations (
      channel text not null,
      chat_id text not null,
      topic text not null,
      user_id text not null,
      thread_id text not null,
      updated_at ${t.integer} not null,
      primary key (channel, chat_id, topic, user_id)
    ) ${t.table}`,
    'create index channel_conversations_by_thread on channel_conversations (thread_id)',

    // A slot each, so that no race gives a user more codes than there are slots.
    `create table channel_codes (
      provider text not null,
      user_id text not null,
      slot ${t.integer} not null,
      code_hash text not null unique,
      expires_at ${t.integer} not null,
      primary key (provider, user_id, slot)
    ) ${t.table}`,

    // The account is the key: it acts for one user at most.
    `create table channel_connections (
      provider text not null,
      workspace_id text not null,
      external_id text not null,
      connection_id text not null unique,
      external_name text not null,
      user_id text not null,
      created_at ${t.integer} not null,
      primary key (provider, workspace_id, external_id)
    ) ${t.table}`,
    'create index channel_connections_by_user on channel_connections (user_id, created_at)',
  ],
};
