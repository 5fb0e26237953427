import { ReindeerError } from '@reindeer/protocol';
import { type Kysely, sql } from 'kysely';
import { defineStatement, type Tx } from '../executor.ts';
import { lockThreadKey, threadKey } from '../keys.ts';
import type { Database } from '../schema.ts';
import { makeNamespace, namespacesOf } from './statements.ts';

const ofThread = (db: Kysely<Database>, key: number) =>
  db.selectFrom('checkpoint_namespaces').select('ns_key').where('thread_key', '=', key);

const deleteRows = [
  defineStatement((db, p: { key: number }) => db.deleteFrom('checkpoints').where('ns_key', 'in', ofThread(db, p.key))),
  defineStatement((db, p: { key: number }) =>
    db.deleteFrom('checkpoint_channels').where('ns_key', 'in', ofThread(db, p.key)),
  ),
  defineStatement((db, p: { key: number }) =>
    db.deleteFrom('checkpoint_writes').where('ns_key', 'in', ofThread(db, p.key)),
  ),
  defineStatement((db, p: { key: number }) => db.deleteFrom('checkpoint_namespaces').where('thread_key', '=', p.key)),
];
const deleteMessages = defineStatement((db, p: { key: number }) =>
  db.deleteFrom('messages').where('thread_key', '=', p.key),
);

const hasContent = defineStatement((db, p: { key: number }) =>
  db.selectFrom('messages').select('number').where('thread_key', '=', p.key).limit(1),
);
const copyMessages = defineStatement((db, p: { from: number; to: number }) =>
  db
    .insertInto('messages')
    .columns(['thread_key', 'number', 'hash', 'body'])
    .expression(
      db
        .selectFrom('messages')
        .select([sql<number>`${p.to}`.as('to'), 'number', 'hash', 'body'])
        .where('thread_key', '=', p.from),
    ),
);
const lastPosition = defineStatement((db, p: { key: number }) =>
  db
    .selectFrom('checkpoints')
    .select((eb) => eb.fn.max('position').as('last'))
    .where('ns_key', 'in', ofThread(db, p.key)),
);
/** In their order, and before everything that will be written to the copy, whose facts begin at 1. */
const copyCheckpoints = defineStatement((db, p: { from: number; to: number; last: number }) =>
  db
    .insertInto('checkpoints')
    .columns(['ns_key', 'checkpoint_id', 'parent_id', 'head', 'metadata', 'position'])
    .expression(
      db
        .selectFrom('checkpoints')
        .select([
          sql<number>`${p.to}`.as('to'),
          'checkpoint_id',
          'parent_id',
          'head',
          'metadata',
          sql<number>`position - ${p.last}`.as('position'),
        ])
        .where('ns_key', '=', p.from),
    ),
);
const copyRows = [
  defineStatement((db, p: { from: number; to: number }) =>
    db
      .insertInto('checkpoint_channels')
      .columns(['ns_key', 'name', 'version', 'value'])
      .expression(
        db
          .selectFrom('checkpoint_channels')
          .select([sql<number>`${p.to}`.as('to'), 'name', 'version', 'value'])
          .where('ns_key', '=', p.from),
      ),
  ),
  // Runs are not copied; the number keeps the order in which their writes lie over each other.
  defineStatement((db, p: { from: number; to: number }) =>
    db
      .insertInto('checkpoint_writes')
      .columns(['ns_key', 'checkpoint_id', 'task_id', 'run_key', 'task_path', 'body'])
      .expression(
        db
          .selectFrom('checkpoint_writes')
          .select([sql<number>`${p.to}`.as('to'), 'checkpoint_id', 'task_id', 'run_key', 'task_path', 'body'])
          .where('ns_key', '=', p.from),
      ),
  ),
];

/** Deletes the checkpoints of a thread, not its messages. */
export async function deleteCheckpointRows(tx: Tx, key: number): Promise<void> {
  for (const statement of deleteRows) await tx.run(statement, { key });
}

/** The checkpoints and messages of a thread. */
export const deletionsOfContent = [...deleteRows, deleteMessages] as const;

/**
 * Copies the checkpoints and messages of a thread into another.
 * @throws ReindeerError `conflict` when the other thread has some
 */
export async function copyThreadContent(tx: Tx, fromThreadId: string, toThreadId: string): Promise<void> {
  const from = await lockThreadKey(tx, fromThreadId);
  if (from === null) return;
  const to = await threadKey(tx, toThreadId);
  if ((await tx.first(hasContent, { key: to })) !== undefined) {
    throw new ReindeerError('conflict', 'A thread can only be copied into a new thread: this one has messages.', {
      detail: { threadId: toThreadId },
    });
  }
  await tx.run(copyMessages, { from, to });
  const last = Number((await tx.first(lastPosition, { key: from }))?.last ?? 0);
  for (const { ns_key: fromNs, ns } of await tx.all(namespacesOf, { key: from })) {
    const toNs = await makeNamespace(tx, to, toThreadId, ns);
    await tx.run(copyCheckpoints, { from: fromNs, to: toNs, last });
    for (const statement of copyRows) await tx.run(statement, { from: fromNs, to: toNs });
  }
}
