import { hash as digest } from 'node:crypto';
import type { NewFact } from '@reindeer/protocol';
import { sql } from 'kysely';
import { defineStatement, type Tx } from '../executor.ts';
import { threadKey } from '../keys.ts';
import { compactFact } from './compact.ts';

/** Of a key's SHA-256: 96 bits tell the keys of one thread apart. */
const KEY_BYTES = 12;

/** Locks the thread's counter row until the end of the transaction, so that numbers are dense under any concurrency. */
const lockHead = defineStatement((db, p: { key: number }, dialect) =>
  dialect.name === 'sqlite'
    ? db.updateTable('thread_keys').set({ head: sql<number>`head` }).where('thread_key', '=', p.key).returning('head')
    : db.selectFrom('thread_keys').select('head').where('thread_key', '=', p.key).forNoKeyUpdate(),
);
const setHead = defineStatement((db, p: { key: number; head: number }) =>
  db.updateTable('thread_keys').set({ head: p.head }).where('thread_key', '=', p.key),
);
const findRun = defineStatement((db, p: { runId: string }) =>
  db.selectFrom('run_keys').select('run_key').where('run_id', '=', p.runId),
);
const createRun = defineStatement((db, p: { runId: string; key: number }) =>
  db
    .insertInto('run_keys')
    .values({ run_id: p.runId, thread_key: p.key })
    .onConflict((c) => c.column('run_id').doNothing()),
);
const insert = defineStatement(
  (
    db,
    p: {
      key: number;
      seq: number;
      runKey: number | null;
      at: number;
      hash: Uint8Array;
      isMessage: number;
      body: string;
    },
  ) =>
    db
      .insertInto('facts')
      .values({
        thread_key: p.key,
        seq: p.seq,
        run_key: p.runKey,
        at: p.at,
        key_hash: p.hash,
        is_message: p.isMessage,
        body: p.body,
      })
      .onConflict((c) => c.columns(['thread_key', 'key_hash']).doNothing()),
);

/**
 * Appends facts to a thread's log in the caller's transaction (D3). Numbers are dense; a fact whose key exists in the thread is
 * skipped, so that a repeated call writes nothing. The caller has passed its fence before.
 *
 * @returns the thread's highest number afterwards, and how many facts are new.
 */
export async function appendFacts(
  tx: Tx,
  input: {
    readonly threadId: string;
    readonly runId: string | null;
    readonly facts: readonly NewFact[];
    readonly now: number;
  },
): Promise<{ readonly head: number; readonly appended: number }> {
  const key = await threadKey(tx, input.threadId);
  const before = (await tx.first(lockHead, { key }))?.head ?? 0;
  if (input.facts.length === 0) return { head: before, appended: 0 };
  const runKey = input.runId === null ? null : await keyOfRun(tx, input.runId, key);
  let head = before;
  for (const fact of input.facts) {
    head += await tx.run(insert, {
      key,
      seq: head + 1,
      runKey,
      at: input.now,
      hash: digest('sha256', fact.key, 'buffer').subarray(0, KEY_BYTES),
      isMessage: fact.body.kind === 'message' ? 1 : 0,
      body: compactFact(fact.body),
    });
  }
  if (head > before) {
    await tx.run(setHead, { key, head });
    tx.appended(input.threadId, head);
  }
  return { head, appended: head - before };
}

async function keyOfRun(tx: Tx, runId: string, key: number): Promise<number | null> {
  const found = await tx.first(findRun, { runId });
  if (found !== undefined) return found.run_key;
  await tx.run(createRun, { runId, key });
  return (await tx.first(findRun, { runId }))?.run_key ?? null;
}
