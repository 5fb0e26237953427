import {
  BATCH_ITEM_STATUSES,
  type Batch,
  type BatchAddress,
  type BatchCounts,
  type BatchItem,
  type BatchItemStatus,
  type BatchStatus,
  isItemOver,
  type JsonObject,
} from '@reindeer/protocol';
import { type Kysely, sql } from 'kysely';
import { defineStatement, type Tx } from '../executor.ts';
import type { Database } from '../schema.ts';
import { typed } from '../sql.ts';
import { PHASE } from './tables.ts';

const columns = [
  'batch_key',
  'batch_id',
  'user_id',
  'thread_id',
  'run_id',
  'tool_call_id',
  'title',
  'subagent_type',
  'status',
  'phase',
  'total_items',
  'max_live',
  'max_running',
  'max_attempts',
  'spec',
  'ends',
  'created_at',
  'updated_at',
  'started_at',
  'ended_at',
] as const;

export const selectBatches = (db: Kysely<Database>) => db.selectFrom('batches').select(columns);
export type BatchRecord = Awaited<ReturnType<ReturnType<typeof selectBatches>['execute']>>[number];

export const toBatch = (row: BatchRecord): Batch => ({
  batchId: row.batch_id,
  userId: row.user_id,
  threadId: row.thread_id,
  runId: row.run_id,
  toolCallId: row.tool_call_id,
  title: row.title,
  subagentType: row.subagent_type,
  status: row.status as BatchStatus,
  totalItems: row.total_items,
  maxLive: row.max_live,
  maxRunning: row.max_running,
  maxAttempts: row.max_attempts,
  spec: JSON.parse(row.spec) as JsonObject,
  ends: row.ends,
  filed: row.phase === PHASE.toTell || row.phase === PHASE.done,
  createdAt: row.created_at,
  updatedAt: row.updated_at,
  startedAt: row.started_at,
  endedAt: row.ended_at,
});

const byAddress = defineStatement((db, p: { batchId: string; userId: string; threadId: string | null }, dialect) =>
  selectBatches(db)
    .where('batch_id', '=', p.batchId)
    .where('user_id', '=', p.userId)
    .where(sql<boolean>`(${typed(dialect, p.threadId, 'text')} is null or thread_id = ${p.threadId})`),
);
const lockByAddress = defineStatement((db, p: { batchId: string; userId: string; threadId: string | null }, dialect) =>
  db
    .selectFrom('batches')
    .select('batch_key')
    .where('batch_id', '=', p.batchId)
    .where('user_id', '=', p.userId)
    .where(sql<boolean>`(${typed(dialect, p.threadId, 'text')} is null or thread_id = ${p.threadId})`)
    .forNoKeyUpdate(),
);

/** A batch by its address; foreign and missing ones are the same (BT-17). */
export function findBatch(tx: Tx, { batchId, userId, threadId }: BatchAddress): Promise<BatchRecord | undefined> {
  return tx.first(byAddress, { batchId, userId, threadId: threadId ?? null });
}

/** As `findBatch`; whoever else locks or changes the batch waits until this transaction ends. */
export async function lockBatch(tx: Tx, address: BatchAddress): Promise<BatchRecord | undefined> {
  if (!tx.serial) await tx.first(lockByAddress, { ...address, threadId: address.threadId ?? null });
  return findBatch(tx, address);
}

const selectItems = (db: Kysely<Database>) =>
  db
    .selectFrom('batch_items as i')
    .innerJoin('batch_item_details as d', (join) =>
      join.onRef('d.batch_key', '=', 'i.batch_key').onRef('d.position', '=', 'i.position'),
    )
    .select([
      'i.item_id',
      'd.name',
      'i.position',
      'i.status',
      'i.attempt',
      'i.cancel_requested_at',
      'd.model_name',
      'd.result_preview',
      'd.result_truncated',
      'd.result_file',
      'd.acceptance',
      'd.accepted',
      'd.verdict',
      'd.error',
      'd.stop_reason',
      'd.input_tokens',
      'd.output_tokens',
      'i.started_at',
      'i.ended_at',
      'i.updated_at',
    ]);
type ItemRecord = Awaited<ReturnType<ReturnType<typeof selectItems>['execute']>>[number];

interface Page {
  readonly batchKey: number;
  readonly limit: number;
  readonly offset: number;
}
/** Positions are 0, 1, 2, … and no item goes alone: the place of the nth is n, and a deep page begins there. */
const page = defineStatement((db, p: Page & { results: number }, dialect) =>
  selectItems(db)
    .select(sql<string | null>`case when ${typed(dialect, p.results, 'bigint')} = 1 then d.result end`.as('result'))
    .where('i.batch_key', '=', p.batchKey)
    .where('d.batch_key', '=', p.batchKey)
    .where('d.position', '>=', p.offset)
    .orderBy('d.position')
    .limit(p.limit),
);
/** What is skipped is read in the index alone. */
const pageOfStatus = defineStatement((db, p: Page & { results: number; status: string }, dialect) =>
  selectItems(db)
    .select(sql<string | null>`case when ${typed(dialect, p.results, 'bigint')} = 1 then d.result end`.as('result'))
    .where('i.batch_key', '=', p.batchKey)
    .where('i.status', '=', p.status)
    .where('i.position', '>=', (eb) =>
      eb
        .selectFrom('batch_items as s')
        .select('s.position')
        .where('s.batch_key', '=', p.batchKey)
        .where('s.status', '=', p.status)
        .orderBy('s.position')
        .limit(1)
        .offset(p.offset),
    )
    .orderBy('i.position')
    .limit(p.limit),
);
const count = defineStatement((db, p: { batchKey: number }) =>
  db
    .selectFrom('batch_items')
    .select(['status', sql<number>`cast(count(*) as integer)`.as('items')])
    .where('batch_key', '=', p.batchKey)
    .groupBy('status'),
);

export async function readItems(
  tx: Tx,
  batch: BatchRecord,
  input: {
    readonly status: BatchItemStatus | null;
    readonly offset: number;
    readonly limit: number;
    readonly results: boolean;
  },
): Promise<BatchItem[]> {
  const { status, offset, limit } = input;
  const part = { batchKey: batch.batch_key, offset, limit, results: input.results ? 1 : 0 };
  const rows = status === null ? await tx.all(page, part) : await tx.all(pageOfStatus, { ...part, status });
  return rows.map((row) => toItem(row, batch.batch_id));
}

const toItem = (row: ItemRecord & { result: string | null }, batchId: string): BatchItem => {
  const status = row.status as BatchItemStatus;
  return {
    itemId: row.item_id,
    batchId,
    key: row.name,
    position: row.position,
    status,
    attempt: row.attempt,
    cancelRequested: row.cancel_requested_at !== null,
    modelName: row.model_name,
    result: row.result,
    resultPreview: row.result_preview,
    resultTruncated: row.result_truncated === 1,
    resultFile: row.result_file,
    acceptance: row.acceptance,
    verdict: row.accepted === null ? null : { accepted: row.accepted === 1, reason: row.verdict ?? '' },
    error: row.error,
    stopReason: row.stop_reason,
    usage: { inputTokens: row.input_tokens, outputTokens: row.output_tokens },
    startedAt: row.started_at,
    endedAt: isItemOver(status) ? row.ended_at : null,
    updatedAt: row.updated_at,
  };
};

export async function countItems(tx: Tx, batchKey: number): Promise<BatchCounts> {
  const counts = Object.fromEntries(BATCH_ITEM_STATUSES.map((status) => [status, 0])) as Record<
    BatchItemStatus,
    number
  >;
  for (const row of await tx.all(count, { batchKey })) counts[row.status as BatchItemStatus] = row.items;
  return counts;
}
