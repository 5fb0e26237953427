import { hash as digest } from 'node:crypto';
import type { NewFact } from '@reindeer/protocol';
import { sql } from 'kysely';
import { defineStatement, type Tx } from '../executor.ts';
import { type Counter, counterOf, raiseHead, runKeyOf } from '../keys.ts';
import { storable, typed } from '../sql.ts';
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

interface Append {
  readonly threadId: string;
  readonly runId: string | null;
  readonly facts: readonly NewFact[];
  readonly now: number;
}

/**
 * Appends facts to a thread's log in the caller's transaction (D3), behind the lock of its counter row. Numbers are dense; a fact whose
 * key exists in the thread is skipped, so that a repeated call writes nothing. The caller has passed its fence before.
 */
export async function appendFacts(tx: Tx, input: Append): Promise<void> {
  if (input.facts.length === 0) return;
  const counter = await counterOf(tx, input.threadId);
  if (tx.serial) await appendEach(tx, input, counter);
  else tx.send(appendAll, allOf(input), (row) => raised(tx, input.threadId, counter, row?.head ?? 0));
}

/** As `appendFacts`. @returns the thread's highest number afterwards */
export async function appendAndTell(tx: Tx, input: Append): Promise<number> {
  const counter = await counterOf(tx, input.threadId);
  if (tx.serial) await appendEach(tx, input, counter);
  else raised(tx, input.threadId, counter, (await tx.first(appendAll, allOf(input)))?.head ?? 0);
  return counter.head;
}

/** The statement has raised it in the row. */
function raised(tx: Tx, threadId: string, counter: Counter, head: number): void {
  if (head <= counter.head) return;
  counter.head = head;
  counter.stored = head;
  tx.appended(threadId, head);
}

const isMessage = ({ body }: NewFact): number => (body.kind === 'message' ? 1 : 0);

async function appendEach(tx: Tx, { threadId, runId, facts, now }: Append, counter: Counter): Promise<void> {
  const { key } = counter;
  const runKey = runId === null ? null : await runKeyOf(tx, runId, key);
  let { head } = counter;
  for (const fact of facts) {
    head += await tx.run(insert, {
      key,
      seq: head + 1,
      runKey,
      at: now,
      hash: keyBytes(fact.key),
      isMessage: isMessage(fact),
      body: compactFact(fact.body),
    });
  }
  if (head === counter.head) return;
  raiseHead(tx, counter, head);
  tx.appended(threadId, head);
}

/**
 * The same in one statement, for Postgres, where each is a way over a network and others append beside it. Whoever sends it has locked the
 * counter row: what it reads is what the one before left. Each key is looked up as a value: as a join the planner may read all facts of
 * the thread.
 *
 * `facts` is JSON: `[{n: place, h: hash in hexadecimal, m: 1 for a message, b: body}, …]`.
 */
const appendAll = defineStatement(
  (db, p: { threadId: string; runId: string | null; at: number; facts: string }, dialect) => {
    const runId = typed(dialect, p.runId, 'text');
    const query = sql<{ head: number }>`
      with thread as materialized (
        select thread_key, head from thread_keys where thread_id = ${p.threadId}
      ), run as materialized (
        select run_key from run_keys where run_id = ${runId}
      ), made as (
        insert into run_keys (run_id, thread_key)
        select ${runId}, thread_key from thread where ${runId} is not null and not exists (select 1 from run)
        returning run_key
      ), fresh as materialized (
        select thread.thread_key, thread.head + row_number() over (order by f.n) as seq, decode(f.h, 'hex') as hash, f.m, f.b
        from thread, json_to_recordset(${p.facts}::json) as f(n bigint, h text, m bigint, b text)
        where (select 1 from facts
          where facts.thread_key = thread.thread_key and facts.key_hash = decode(f.h, 'hex') limit 1) is null
      ), written as (
        insert into facts (thread_key, seq, run_key, at, key_hash, is_message, body)
        select thread_key, seq, coalesce((select run_key from run), (select run_key from made)), ${p.at}::bigint, hash, m, b
        from fresh
      ), raised as (
        update thread_keys set head = (select max(seq) from fresh)
        where thread_key = (select thread_key from fresh limit 1)
      )
      select coalesce((select max(seq) from fresh), thread.head) as head from thread`;
    return { compile: () => query.compile(db) };
  },
);

function allOf({ threadId, runId, facts, now }: Append) {
  const rows = new Map<string, { n: number; h: string; m: number; b: string }>();
  for (const fact of facts) {
    const h = Buffer.from(keyBytes(fact.key)).toString('hex');
    if (!rows.has(h)) rows.set(h, { n: rows.size, h, m: isMessage(fact), b: storable(compactFact(fact.body)) });
  }
  return { threadId, runId, at: now, facts: JSON.stringify([...rows.values()]) };
}
