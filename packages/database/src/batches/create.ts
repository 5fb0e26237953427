import type { BatchStore, NewBatch } from '@reindeer/protocol';
import { ReindeerError } from '@reindeer/protocol';
import { sql } from 'kysely';
import { defineScript, defineStatement, Overtaken, type Tx } from '../executor.ts';
import { canonicalJson } from '../json.ts';
import { storable } from '../sql.ts';
import { ownerOfThread } from '../threads/statements.ts';
import { type BatchRecord, findBatch, selectBatches, toBatch } from './rows.ts';
import { PHASE } from './tables.ts';

type Output = Awaited<ReturnType<BatchStore['create']>>;

const bySubmission = defineStatement((db, p: { userId: string; submissionKey: string }) =>
  selectBatches(db).where('user_id', '=', p.userId).where('submission_key', '=', p.submissionKey),
);
/** The thread's deletion waits for this, or this finds it gone. */
const holdThread = defineStatement((db, p: { threadId: string }) =>
  db.selectFrom('threads').select('thread_id').where('thread_id', '=', p.threadId).forKeyShare(),
);
const insert = defineStatement(
  (db, p: Omit<NewBatch, 'spec' | 'notify' | 'items'> & { spec: string; notify: number; total: number }) =>
    db
      .insertInto('batches')
      .values({
        batch_id: p.batchId,
        user_id: p.userId,
        thread_id: p.threadId,
        run_id: p.runId,
        tool_call_id: p.toolCallId,
        submission_key: p.submissionKey,
        title: p.title,
        subagent_type: p.subagentType,
        status: 'queued',
        phase: PHASE.open,
        total_items: p.total,
        max_live: p.maxLive,
        max_running: p.maxRunning,
        max_attempts: p.maxAttempts,
        spec: p.spec,
        notify: p.notify,
        ends: 0,
        created_at: p.now,
        updated_at: p.now,
      })
      .onConflict((c) => c.doNothing()),
);

/** One page of items as one JSON parameter: `[{i: id, p: position, k: key, t: prompt, a: acceptance}, …]`. */
interface ItemsPage {
  readonly items: string;
  readonly batchKey: number;
  readonly now: number;
}
type ItemShape = { i: string; p: number; k: string; t: string; a: string | null };
const insertItems = defineStatement((db, p: ItemsPage, dialect) =>
  db
    .insertInto('batch_items')
    .columns(['item_id', 'batch_key', 'position', 'status', 'attempt', 'epoch', 'not_before', 'updated_at'])
    .expression(
      db
        .selectFrom(shape(dialect.name, p.items).as('x'))
        .select([
          'x.i',
          sql<number>`cast(${p.batchKey} as bigint)`.as('batch_key'),
          'x.p',
          sql<string>`'pending'`.as('status'),
          sql<number>`0`.as('attempt'),
          sql<number>`0`.as('epoch'),
          sql<number>`0`.as('not_before'),
          sql<number>`cast(${p.now} as bigint)`.as('updated_at'),
        ]),
    ),
);
const insertDetails = defineStatement((db, p: ItemsPage, dialect) =>
  db
    .insertInto('batch_item_details')
    .columns([
      'batch_key',
      'position',
      'name',
      'prompt',
      'acceptance',
      'result_truncated',
      'input_tokens',
      'output_tokens',
    ])
    .expression(
      db
        .selectFrom(shape(dialect.name, p.items).as('x'))
        .select([
          sql<number>`cast(${p.batchKey} as bigint)`.as('batch_key'),
          'x.p',
          'x.k',
          'x.t',
          'x.a',
          sql<number>`0`.as('result_truncated'),
          sql<number>`0`.as('input_tokens'),
          sql<number>`0`.as('output_tokens'),
        ]),
    ),
);

function shape(dialect: 'sqlite' | 'postgres', items: string) {
  return dialect === 'sqlite'
    ? sql<ItemShape>`(select value ->> 'i' as i, value ->> 'p' as p, value ->> 'k' as k, value ->> 't' as t, value ->> 'a' as a from json_each(${items}))`
    : sql<ItemShape>`(select * from json_to_recordset(${items}::json) as y(i text, p bigint, k text, t text, a text))`;
}

/** Characters and items of one statement. */
const PAGE_CHARACTERS = 1_000_000;
const PAGE_ITEMS = 1_000;

function* pagesOf(input: NewBatch): Generator<ItemShape[]> {
  let page: ItemShape[] = [];
  let size = 0;
  for (const [position, { key, prompt, acceptance = null }] of input.items.entries()) {
    page.push({
      i: `${input.batchId}.${position}`,
      p: position,
      k: storable(key),
      t: storable(prompt),
      a: storable(acceptance),
    });
    size += prompt.length + key.length + (acceptance?.length ?? 0);
    if (page.length < PAGE_ITEMS && size < PAGE_CHARACTERS) continue;
    yield page;
    page = [];
    size = 0;
  }
  if (page.length > 0) yield page;
}

const existing = (row: BatchRecord): Output => ({ outcome: 'existing', batch: toBatch(row) });

async function create(tx: Tx, input: NewBatch): Promise<Output> {
  const { userId, submissionKey, threadId, batchId, now } = input;
  const known = await tx.first(bySubmission, { userId, submissionKey });
  if (known !== undefined) return existing(known);
  if (!tx.serial) await tx.first(holdThread, { threadId });
  if ((await ownerOfThread(tx, threadId)) !== userId) return { outcome: 'thread_not_found' };
  if (new Set(input.items.map(({ key }) => key)).size < input.items.length) return { outcome: 'duplicate_keys' };
  const inserted = await tx.run(insert, {
    ...input,
    spec: canonicalJson(input.spec),
    notify: input.notify ? 1 : 0,
    total: input.items.length,
  });
  // The same submission, committed by a peer after we looked.
  if (inserted === 0) throw new Overtaken(`The batch ${batchId} exists already.`, { detail: { batchId } });
  const row = await findBatch(tx, { batchId, userId });
  if (row === undefined) throw new ReindeerError('internal', 'A batch cannot be read back.');
  for (const page of pagesOf(input)) {
    const part = { items: JSON.stringify(page), batchKey: row.batch_key, now };
    await tx.run(insertItems, part);
    await tx.run(insertDetails, part);
  }
  return { outcome: 'created', batch: toBatch(row) };
}

export const createBatch = defineScript('batches.create', 'durable', create);
