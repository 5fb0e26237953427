import { hash as digest } from 'node:crypto';
import type { NewFact } from '@reindeer/protocol';
import { sql } from 'kysely';
import { defineStatement, lasting, type Tx } from '../executor.ts';
import { threadKey } from '../keys.ts';
import { compactFact } from './compact.ts';

const UUID = /([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f])[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}/g;

/**
 * What stands for a fact's key in the index that keeps it unique: four bytes that facts of one time share, then eight of its SHA-256. A
 * step of an agent writes eight facts; with the hash alone each would touch a page of its own. The common part comes from the last
 * id in the key that carries a time (of a checkpoint), else from its last id.
 */
export function keyBytes(key: string): Uint8Array {
  const bytes = digest('sha256', key, 'buffer').subarray(0, 12);
  let near: string | null = null;
  let timed: string | null = null;
  for (const [, first = '', second = '', version] of key.matchAll(UUID)) {
    near = first;
    // Version 6 begins with its time, the coarse part in front: these are units of 0.4 ms, for twenty days.
    if (version === '6') timed = `${first.slice(4)}${second}`;
  }
  const prefix = timed ?? near;
  if (prefix !== null) bytes.writeUInt32BE(Number.parseInt(prefix, 16));
  return bytes;
}

/** Locks the thread's counter row until the end of the transaction, so that numbers are dense under any concurrency. */
const lockHead = defineStatement((db, p: { key: number }, dialect) =>
  dialect.name === 'sqlite'
    ? db.updateTable('thread_keys').set({ head: sql<number>`head` }).where('thread_key', '=', p.key).returning('head')
    : db.selectFrom('thread_keys').select('head').where('thread_key', '=', p.key).forNoKeyUpdate(),
);
const setHead = defineStatement((db, p: { key: number; head: number }) =>
  db.updateTable('thread_keys').set({ head: p.head }).where('thread_key', '=', p.key),
);
const findRun = lasting(
  defineStatement((db, p: { runId: string }) =>
    db.selectFrom('run_keys').select('run_key').where('run_id', '=', p.runId),
  ),
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
  if (!tx.serial) return appendBeside(tx, input);
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
      hash: keyBytes(fact.key),
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

const lockThread = defineStatement((db, p: { threadId: string }) =>
  db.selectFrom('thread_keys').select(['thread_key', 'head']).where('thread_id', '=', p.threadId).forNoKeyUpdate(),
);
const createThread = defineStatement((db, p: { threadId: string }) =>
  db
    .insertInto('thread_keys')
    .values({ thread_id: p.threadId, head: 0, pruned_through: 0 })
    .onConflict((c) => c.column('thread_id').doNothing()),
);
const createRunBeside = defineStatement((db, p: { runId: string; threadId: string }) =>
  db
    .insertInto('run_keys')
    .columns(['run_id', 'thread_key'])
    .expression((eb) =>
      eb
        .selectFrom('thread_keys')
        .select([sql<string>`cast(${p.runId} as text)`.as('run_id'), 'thread_key'])
        .where('thread_id', '=', p.threadId),
    )
    .onConflict((c) => c.column('run_id').doNothing()),
);
const knownKeys = defineStatement((db, p: { threadId: string; hashes: string }) =>
  db
    .selectFrom('facts')
    .select('key_hash')
    .where(sql<boolean>`thread_key = (select k.thread_key from thread_keys k where k.thread_id = ${p.threadId})`)
    .where(
      sql<boolean>`key_hash = any(array(select decode(value, 'hex') from jsonb_array_elements_text(${p.hashes}::jsonb)))`,
    ),
);

/**
 * The same where each statement is a way over a network and others append beside it: what is needed is asked for together, behind the
 * lock of the counter row, and everything is written together. Two waits where everything has been there before.
 */
async function appendBeside(
  tx: Tx,
  { threadId, runId, facts, now }: Parameters<typeof appendFacts>[1],
): Promise<{ readonly head: number; readonly appended: number }> {
  const hashed = facts.map((fact) => {
    const hash = keyBytes(fact.key);
    return { fact, hash, name: Buffer.from(hash).toString('hex') };
  });
  const hashes = JSON.stringify(hashed.map(({ name }) => name));
  const keysThere = (): Promise<{ key_hash: Uint8Array }[]> => tx.all(knownKeys, { threadId, hashes });
  let [thread, run, there] = await Promise.all([
    tx.first(lockThread, { threadId }),
    runId === null ? undefined : tx.first(findRun, { runId }),
    keysThere(),
  ]);
  if (thread === undefined || (runId !== null && run === undefined)) {
    const made = await Promise.all([
      tx.run(createThread, { threadId }),
      tx.first(lockThread, { threadId }),
      runId === null ? 0 : tx.run(createRunBeside, { runId, threadId }),
      runId === null ? undefined : tx.first(findRun, { runId }),
      keysThere(),
    ]);
    [, thread, , run, there] = made;
  }
  const key = thread?.thread_key ?? 0;
  const before = thread?.head ?? 0;
  const known = new Set(there.map((row) => Buffer.from(row.key_hash).toString('hex')));
  const writes: Promise<unknown>[] = [];
  let head = before;
  for (const { fact, hash, name } of hashed) {
    if (known.has(name)) continue;
    known.add(name);
    head += 1;
    const isMessage = fact.body.kind === 'message' ? 1 : 0;
    const row = { key, seq: head, runKey: run?.run_key ?? null, at: now, hash, isMessage };
    writes.push(tx.run(insert, { ...row, body: compactFact(fact.body) }));
  }
  if (head > before) {
    writes.push(tx.run(setHead, { key, head }));
    tx.appended(threadId, head);
  }
  await Promise.all(writes);
  return { head, appended: head - before };
}

async function keyOfRun(tx: Tx, runId: string, key: number): Promise<number | null> {
  const found = await tx.first(findRun, { runId });
  if (found !== undefined) return found.run_key;
  await tx.run(createRun, { runId, key });
  return (await tx.first(findRun, { runId }))?.run_key ?? null;
}
