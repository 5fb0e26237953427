import type { Fenced, FoundMessage, Log } from '@reindeer/protocol';
import { sql } from 'kysely';
import { defineScript, defineStatement, type Tx } from '../executor.ts';
import { fenceRun } from '../fence.ts';
import { resolveReferences } from '../references.ts';
import { typed } from '../sql.ts';
import { appendAndTell } from './append.ts';
import { expandFact } from './compact.ts';
import { findIn } from './find.ts';

type Input<M extends keyof Log> = Parameters<Log[M]>[0];
type Output<M extends keyof Log> = ReturnType<Log[M]>;

/** A fact whose body is still text: parsing is left to the receiver, for whom text is cheaper to take over than objects. */
export interface StoredFact {
  readonly seq: number;
  readonly runId: string | null;
  readonly at: number;
  readonly body: string;
}
export interface StoredPage {
  readonly facts: readonly StoredFact[];
  readonly head: number;
  readonly prunedThrough: number;
}

/** Facts fetched at once, so that a page with large bodies ends near its bound. */
const CHUNK = 64;

/** Bytes of a page of messages, about; a caller goes on from where the page ends. */
const MAX_MESSAGE_BYTES = 8 * 1024 * 1024;

const headOf = defineStatement((db, p: { threadId: string }) =>
  db.selectFrom('thread_keys').select(['thread_key', 'head', 'pruned_through']).where('thread_id', '=', p.threadId),
);
const runKeyOf = defineStatement((db, p: { runId: string; key: number }) =>
  db.selectFrom('run_keys').select('run_key').where('run_id', '=', p.runId).where('thread_key', '=', p.key),
);

/** The keys as values, so that a page is read in the order of an index and ends with its limit. */
const page = defineStatement((db, p: { threadId: string; after: number; limit: number }) =>
  db
    .selectFrom('facts')
    .leftJoin('run_keys', 'run_keys.run_key', 'facts.run_key')
    .select(['facts.seq', 'run_keys.run_id', 'facts.at', 'facts.body'])
    .where('facts.thread_key', '=', (eb) =>
      eb.selectFrom('thread_keys').select('thread_keys.thread_key').where('thread_id', '=', p.threadId),
    )
    .where('facts.seq', '>', p.after)
    .orderBy('facts.seq')
    .limit(p.limit),
);
const pageOfRun = defineStatement((db, p: { threadId: string; runId: string; after: number; limit: number }, dialect) =>
  db
    .selectFrom('facts')
    .select(['facts.seq', typed(dialect, p.runId, 'text').as('run_id'), 'facts.at', 'facts.body'])
    .where('facts.run_key', '=', (eb) =>
      eb
        .selectFrom('run_keys')
        .innerJoin('thread_keys', 'thread_keys.thread_key', 'run_keys.thread_key')
        .select('run_keys.run_key')
        .where('run_keys.run_id', '=', p.runId)
        .where('thread_keys.thread_id', '=', p.threadId),
    )
    .where('facts.seq', '>', p.after)
    .orderBy('facts.seq')
    .limit(p.limit),
);
const firstOfRun = defineStatement((db, p: { runId: string; threadId: string }) =>
  db
    .selectFrom('facts')
    .innerJoin('run_keys', 'run_keys.run_key', 'facts.run_key')
    .innerJoin('thread_keys', 'thread_keys.thread_key', 'run_keys.thread_key')
    .select('facts.seq')
    .where('run_keys.run_id', '=', p.runId)
    .where('thread_keys.thread_id', '=', p.threadId)
    .orderBy('facts.seq')
    .limit(1),
);

interface MessageRange {
  readonly key: number;
  readonly runKey: number | null;
  readonly before: number;
  readonly after: number;
  readonly limit: number;
}
const messageRange = (direction: 'asc' | 'desc') =>
  defineStatement((db, p: MessageRange, dialect) =>
    db
      .selectFrom('facts')
      .leftJoin('run_keys', 'run_keys.run_key', 'facts.run_key')
      .select(['facts.seq', 'run_keys.run_id', 'facts.at', 'facts.body'])
      .where('facts.thread_key', '=', p.key)
      .where('facts.is_message', '=', 1)
      .where('facts.seq', '<', p.before)
      .where('facts.seq', '>', p.after)
      .where(sql<boolean>`(${typed(dialect, p.runKey, 'bigint')} is null or facts.run_key = ${p.runKey})`)
      .orderBy('facts.seq', direction)
      .limit(p.limit),
  );
const oldestMessages = messageRange('asc');
const newestMessages = messageRange('desc');

interface Head {
  readonly key: number;
  readonly head: number;
  readonly prunedThrough: number;
}
async function findHead(tx: Tx, threadId: string): Promise<Head | null> {
  const row = await tx.first(headOf, { threadId });
  return row === undefined ? null : { key: row.thread_key, head: row.head, prunedThrough: row.pruned_through };
}

/** null = all runs; undefined = a run without facts in this thread. */
async function findRunKey(tx: Tx, runId: string | null, key: number): Promise<number | null | undefined> {
  return runId === null ? null : (await tx.first(runKeyOf, { runId, key }))?.run_key;
}

interface FactRow {
  readonly seq: number;
  readonly run_id: string | null;
  readonly at: number;
  readonly body: string;
}
async function resolved(tx: Tx, threadId: string, rows: readonly FactRow[]): Promise<StoredFact[]> {
  const bodies = await resolveReferences(
    tx,
    threadId,
    rows.map((row) => expandFact(row.body)),
  );
  return rows.map((row, index) => ({ seq: row.seq, runId: row.run_id, at: row.at, body: bodies[index] ?? row.body }));
}

/**
 * Adds facts to a page, chunk by chunk, until `limit` facts, or about `maxBytes` of bodies (but at least one fact), or no more.
 * @param next the next chunk after what the page holds
 */
async function fill(
  tx: Tx,
  page: StoredFact[],
  bounds: { readonly threadId: string; readonly limit: number; readonly maxBytes: number },
  next: (wanted: number) => Promise<FactRow[]>,
): Promise<void> {
  let bytes = 0;
  while (page.length < bounds.limit) {
    const wanted = Math.min(CHUNK, bounds.limit - page.length);
    const rows = await next(wanted);
    for (const fact of await resolved(tx, bounds.threadId, rows)) {
      bytes += Buffer.byteLength(fact.body);
      if (page.length > 0 && bytes > bounds.maxBytes) return;
      page.push(fact);
    }
    if (rows.length < wanted) return;
  }
}

const read = defineScript('log.read', 'read', async (tx, input: Input<'read'>): Promise<StoredPage> => {
  const { threadId, runId, afterSeq, limit, maxBytes } = input;
  const facts: StoredFact[] = [];
  const [thread] = await Promise.all([
    findHead(tx, threadId),
    fill(tx, facts, { threadId, limit, maxBytes }, (wanted) => {
      const part = { threadId, after: facts.at(-1)?.seq ?? afterSeq, limit: wanted };
      return runId === null ? tx.all(page, part) : tx.all(pageOfRun, { ...part, runId });
    }),
  ]);
  return { facts, head: thread?.head ?? 0, prunedThrough: thread?.prunedThrough ?? 0 };
});

const firstSeq = defineScript(
  'log.firstSeq',
  'read',
  async (tx, input: Input<'firstSeq'>): Promise<number | null> => (await tx.first(firstOfRun, input))?.seq ?? null,
  'alone',
);

const append = defineScript(
  'log.append',
  'write',
  async (tx, input: Input<'append'>): Promise<Fenced<{ readonly head: number }>> => {
    const { fence, threadId, facts, now } = input;
    if (!(await fenceRun(tx, fence, threadId))) return { outcome: 'fenced' };
    return { outcome: 'ok', head: await appendAndTell(tx, { threadId, runId: fence.runId, facts, now }) };
  },
);

const messages = defineScript('log.messages', 'read', async (tx, input: Input<'messages'>): Promise<StoredPage> => {
  const { threadId, runId, before, after, limit } = input;
  const thread = await findHead(tx, threadId);
  if (thread === null) return { facts: [], head: 0, prunedThrough: 0 };
  const { key, head, prunedThrough } = thread;
  const runKey = await findRunKey(tx, runId, key);
  if (runKey === undefined) return { facts: [], head, prunedThrough };
  // Forward from `after`; otherwise the page that ends at `before`, or at the head.
  const forward = after !== null && before === null;
  const facts: StoredFact[] = [];
  const range = { key, runKey, before: before ?? Number.MAX_SAFE_INTEGER, after: after ?? 0 };
  await fill(tx, facts, { threadId, limit, maxBytes: MAX_MESSAGE_BYTES }, (wanted) => {
    const last = facts.at(-1)?.seq;
    if (last !== undefined) range[forward ? 'after' : 'before'] = last;
    return tx.all(forward ? oldestMessages : newestMessages, { ...range, limit: wanted });
  });
  return { facts: forward ? facts : facts.reverse(), head, prunedThrough };
});

/** Messages fetched at once while somebody looks for one: most have large neighbours that nobody wants in memory together. */
const FIND_CHUNK = 32;

const findMessages = defineScript('log.find', 'read', async (tx, input: Input<'find'>): Output<'find'> => {
  const { threadId, words, most, limit, maxBytes } = input;
  const found: FoundMessage[] = [];
  const thread = await findHead(tx, threadId);
  if (thread === null) return { found, complete: true };
  const range = { key: thread.key, runKey: null, before: Number.MAX_SAFE_INTEGER, after: 0 };
  let bytes = 0;
  for (let looked = 0; looked < limit; ) {
    const wanted = Math.min(FIND_CHUNK, limit - looked);
    const facts = await resolved(tx, threadId, await tx.all(newestMessages, { ...range, limit: wanted }));
    for (const { seq, runId, at, body } of facts) {
      bytes += Buffer.byteLength(body);
      const hit = findIn(body, words);
      if (hit !== null) found.push({ seq, runId, at, ...hit });
      if (found.length >= most || bytes > maxBytes) return { found, complete: false };
      range.before = seq;
    }
    looked += facts.length;
    if (facts.length < wanted) return { found, complete: true };
  }
  return { found, complete: false };
});

export const logScripts = {
  'log.read': read,
  'log.firstSeq': firstSeq,
  'log.append': append,
  'log.messages': messages,
  'log.find': findMessages,
};
