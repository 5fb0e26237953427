import type { Migration } from './types.ts';

/** Content of threads, each text stored once, and checkpoints. */
export const checkpoints: Migration = {
  version: 2,
  statements: (t) => [
    `create table messages (
      thread_key ${t.integer} not null,
      number ${t.integer} not null,
      hash ${t.bytes} not null,
      body text not null,
      primary key (thread_key, number)
    ) ${t.table}`,
    'create unique index messages_by_hash on messages (thread_key, hash)',

    `create table checkpoint_namespaces (
      ns_key ${t.key},
      thread_key ${t.integer} not null,
      ns text not null,
      unique (thread_key, ns)
    ) ${t.table}`,

    `create table checkpoints (
      ns_key ${t.integer} not null,
      checkpoint_id ${t.bytes} not null,
      parent_id ${t.bytes},
      head text not null,
      metadata text not null,
      primary key (ns_key, checkpoint_id)
    ) ${t.clustered}`,

    `create table checkpoint_channels (
      ns_key ${t.integer} not null,
      name text not null,
      version text not null,
      value text not null,
      primary key (ns_key, version, name)
    ) ${t.clustered}`,

    `create table checkpoint_writes (
      ns_key ${t.integer} not null,
      checkpoint_id ${t.bytes} not null,
      task_id ${t.bytes} not null,
      run_key ${t.integer} not null,
      task_path text not null,
      body text not null,
      primary key (ns_key, checkpoint_id, task_id, run_key)
    ) ${t.clustered}`,
  ],
};
