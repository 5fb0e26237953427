import type { Migration } from './types.ts';

/** What is remembered about users, and the conversations from which something may still be learned. */
export const memory: Migration = {
  version: 5,
  statements: (t) => [
    `create table memory_users (
      user_id text primary key,
      revision ${t.integer} not null,
      updated_at ${t.integer} not null,
      audit text not null
    ) ${t.table}`,
    `create table memory_sections (
      user_id text not null,
      section text not null,
      statements text not null,
      revision ${t.integer} not null,
      updated_at ${t.integer} not null,
      primary key (user_id, section)
    ) ${t.table}`,
    `create table memory_facts (
      fact_id text primary key,
      user_id text not null,
      agent text not null,
      content_key text not null,
      revision ${t.integer} not null,
      created_at ${t.integer} not null,
      body text not null
    ) ${t.table}`,
    'create unique index memory_facts_once on memory_facts (user_id, agent, content_key)',
    `create table memory_captures (
      user_id text not null,
      agent text not null,
      thread_id text not null,
      pending text,
      leaving text,
      signals text not null,
      due_at ${t.integer},
      version ${t.integer} not null,
      token text,
      lease_until ${t.integer},
      attempts ${t.integer} not null,
      watermark text,
      updated_at ${t.integer} not null,
      primary key (user_id, agent, thread_id)
    ) ${t.table}`,
    'create index memory_captures_by_due on memory_captures (due_at, updated_at)',
    'create index memory_captures_by_thread on memory_captures (thread_id)',
  ],
};
