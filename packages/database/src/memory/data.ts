import type {
  Batch,
  BatchItem,
  CaptureKey,
  Fact,
  FactBody,
  Feedback,
  Fence,
  ItemState,
  Json,
  JsonObject,
  MemoryAudit,
  MemorySection,
  MemorySectionName,
  NewFact,
  Packed,
  PackedMessage,
  Random,
  Run,
  RunState,
  StoredMemoryFact,
  ToolCallKey,
  ToolOutcome,
} from '@reindeer/protocol';
import { ReindeerError } from '@reindeer/protocol';
import type { PendingCapture } from '../user-memory/merge.ts';
import { ChannelTables } from './channels.ts';
import type { ScheduleRow } from './schedules.ts';

/** A row of `runs` with what callers never see. `run` is replaced as a whole at every change, never edited in place. */
export interface RunRow {
  run: Run;
  /** The fence of the current holder (D1). Stays after the acknowledgement, where it opens nothing any more. null = queued. */
  token: string | null;
  /** null = no lease; counts as expired. */
  leaseExpiresAt: number | null;
  /** Admission order: decides between rows of equal times. */
  readonly order: number;
}

export interface ThreadRow {
  readonly threadId: string;
  readonly userId: string;
  metadata: JsonObject;
  title: string | null;
  readonly createdAt: number;
  updatedAt: number;
  readonly order: number;
}

export interface JournalRow {
  readonly key: ToolCallKey;
  readonly toolCallId: string | null;
  readonly name: string;
  runId: string;
  token: string;
  attempt: number;
  startedAt: number;
  readonly order: number;
  finished: { readonly outcome: ToolOutcome; readonly result: Packed } | null;
}

export interface BatchItemRow {
  readonly itemId: string;
  readonly batchId: string;
  readonly key: string;
  readonly prompt: string;
  readonly acceptance: string | null;
  readonly position: number;
  state: ItemState;
  leaseExpiresAt: number | null;
  notBefore: number;
  details: Pick<
    BatchItem,
    | 'result'
    | 'resultPreview'
    | 'resultTruncated'
    | 'resultFile'
    | 'verdict'
    | 'error'
    | 'stopReason'
    | 'modelName'
    | 'usage'
  >;
  startedAt: number | null;
  endedAt: number | null;
  updatedAt: number;
}

export interface BatchRow {
  batch: Batch;
  readonly submissionKey: string;
  readonly notify: boolean;
  /** The end that the agent read of itself. */
  heard: number;
  /** The end that was reported last. */
  told: number;
  /** Who reports the end now, and until when nobody else does. */
  reporter: { readonly owner: string; readonly until: number } | null;
  /** By position. */
  readonly items: readonly BatchItemRow[];
}

export interface UserMemoryRow {
  revision: number;
  updatedAt: number;
  sections: Partial<Record<MemorySectionName, MemorySection>>;
  /** By agent. */
  readonly facts: Map<string, readonly StoredMemoryFact[]>;
  audit: readonly MemoryAudit[];
}

export interface CaptureRow {
  readonly key: CaptureKey;
  waits: PendingCapture;
  version: number;
  token: string | null;
  leaseUntil: number | null;
  attempts: number;
  watermark: string | null;
  updatedAt: number;
}

export interface CheckpointRow {
  readonly ns: string;
  readonly checkpointId: string;
  parentId: string | null;
  checkpoint: string;
  metadata: string;
  /** The thread's newest fact when it was written, its own included; at most 0 in a copy. */
  readonly position: number;
}

export interface WriteRow {
  readonly ns: string;
  readonly checkpointId: string;
  readonly taskId: string;
  readonly taskPath: string;
  readonly index: number;
  readonly channel: string;
  readonly type: 'json' | 'bytes';
  readonly json: string;
  readonly bytes: Uint8Array | null;
  /** The run that wrote it; null outside a run. A rollback removes its run's writes from checkpoints that stay. */
  readonly runId: string | null;
}

/** Everything of one thread that is keyed by the thread alone: it exists without a row in `threads` for savers outside a run. */
export interface ThreadShelf {
  readonly facts: Fact[];
  readonly keys: Set<string>;
  head: number;
  prunedThrough: number;
  readonly journal: Map<string, JournalRow>;
  /** Message bodies by content address. */
  readonly messages: Map<string, PackedMessage>;
  /** By `ns \n checkpointId`. */
  readonly checkpoints: Map<string, CheckpointRow>;
  /** JSON of channel values by `ns \n name \n version`. */
  readonly channels: Map<string, string>;
  readonly writes: Map<string, WriteRow>;
}

/**
 * One database that lives in memory and may be opened by several handles ("processes") at once. All handles see one state;
 * each operation is one synchronous critical section, hence a transaction that is isolated and atomic by construction.
 */
export class MemoryDatabase {
  readonly epoch: string;
  readonly threads = new Map<string, ThreadRow>();
  readonly runs = new Map<string, RunRow>();
  readonly runsOfThread = new Map<string, RunRow[]>();
  /** Run ids by user and idempotency key: the unique index. */
  readonly idempotencyKeys = new Map<string, string>();
  readonly shelves = new Map<string, ThreadShelf>();
  /** In order of creation. */
  readonly batches = new Map<string, BatchRow>();
  readonly batchItems = new Map<string, BatchItemRow>();
  /** What is remembered, by user. */
  readonly memories = new Map<string, UserMemoryRow>();
  /** By user, agent and thread, as JSON. */
  readonly captures = new Map<string, CaptureRow>();
  /** By thread, run and user, as JSON. */
  readonly feedback = new Map<string, Feedback>();
  /** By id, in the order of their making. */
  readonly schedules = new Map<string, ScheduleRow>();
  readonly channels = new ChannelTables();
  readonly listeners = new Set<(threadId: string, head: number) => void>();
  #order = 0;
  #hints: Map<string, number> | null = null;

  constructor(random: Random) {
    this.epoch = random.uuid().replaceAll('-', '').slice(0, 12).toLowerCase();
  }

  nextOrder(): number {
    this.#order += 1;
    return this.#order;
  }

  /** The row of the right, if the fence is its holder's and the right still exists. Nothing else may open a holder's write. */
  held(fence: Fence): RunRow | null {
    const row = this.runs.get(fence.runId);
    return row === undefined || row.run.acknowledged || row.token !== fence.token ? null : row;
  }

  shelf(threadId: string): ThreadShelf {
    let shelf = this.shelves.get(threadId);
    if (shelf === undefined) {
      shelf = {
        facts: [],
        keys: new Set(),
        head: 0,
        prunedThrough: 0,
        journal: new Map(),
        messages: new Map(),
        checkpoints: new Map(),
        channels: new Map(),
        writes: new Map(),
      };
      this.shelves.set(threadId, shelf);
    }
    return shelf;
  }

  /** Appends what is new; a key that exists writes nothing. Answers the thread's highest sequence. */
  append(threadId: string, runId: string | null, facts: readonly NewFact[], now: number): number {
    const shelf = this.shelf(threadId);
    const before = shelf.head;
    for (const { key, body } of facts) {
      if (shelf.keys.has(key)) continue;
      shelf.keys.add(key);
      shelf.head += 1;
      shelf.facts.push({ threadId, seq: shelf.head, runId, at: now, body: copyJson(body) });
    }
    if (shelf.head > before) this.#hint(threadId, shelf.head);
    return shelf.head;
  }

  addRun(row: RunRow): void {
    this.runs.set(row.run.runId, row);
    const bucket = this.runsOfThread.get(row.run.threadId);
    if (bucket === undefined) this.runsOfThread.set(row.run.threadId, [row]);
    else bucket.push(row);
    if (row.run.idempotencyKey !== null)
      this.idempotencyKeys.set(idempotencyIndex(row.run.userId, row.run.idempotencyKey), row.run.runId);
  }

  deleteRun(row: RunRow): void {
    const { runId, threadId, userId, idempotencyKey } = row.run;
    this.runs.delete(runId);
    const rest = (this.runsOfThread.get(threadId) ?? []).filter((other) => other !== row);
    if (rest.length === 0) this.runsOfThread.delete(threadId);
    else this.runsOfThread.set(threadId, rest);
    if (idempotencyKey !== null) this.idempotencyKeys.delete(idempotencyIndex(userId, idempotencyKey));
  }

  deleteBatches(threadId: string): void {
    for (const row of this.batches.values()) {
      if (row.batch.threadId !== threadId) continue;
      this.batches.delete(row.batch.batchId);
      for (const item of row.items) this.batchItems.delete(item.itemId);
    }
  }

  deleteCaptures(threadId: string): void {
    for (const [key, row] of this.captures) if (row.key.threadId === threadId) this.captures.delete(key);
  }

  /** Hints go out after the commit, at most one per thread and turn: readers re-read the log. */
  #hint(threadId: string, head: number): void {
    if (this.listeners.size === 0) return;
    if (this.#hints !== null) {
      this.#hints.set(threadId, head);
      return;
    }
    this.#hints = new Map([[threadId, head]]);
    queueMicrotask(() => {
      const hints = this.#hints ?? new Map<string, number>();
      this.#hints = null;
      for (const [thread, newest] of hints) for (const listener of [...this.listeners]) listener(thread, newest);
    });
  }
}

export const idempotencyIndex = (userId: string, key: string): string => `${userId}\n${key}`;

/** The part of a row on which `reduceRun` decides. */
export function stateOf(row: RunRow): RunState {
  const { status, queued, attempt, acknowledged, cancelAction } = row.run;
  return { status, queued, attempt, acknowledged, cancelAction, token: row.token };
}

/** A deep copy of plain JSON, so that neither side sees the other's later edits. */
export function copyJson<T>(value: T): T {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(copyJson) as T;
  const copy: Record<string, unknown> = {};
  for (const [key, entry] of Object.entries(value)) if (entry !== undefined) copy[key] = copyJson(entry);
  return copy as T;
}

export function copyRun(row: RunRow): Run {
  return { ...row.run, request: copyJson(row.run.request), metadata: copyJson(row.run.metadata) };
}

/** The fact as a reader gets it: messages that stand elsewhere in the store are put in whole. */
export function resolveFact(shelf: ThreadShelf, fact: Fact): Fact {
  const { body } = fact;
  if (body.kind === 'message' || body.kind === 'update')
    return { ...fact, body: putMessagesIn(shelf, body as unknown as Json) as unknown as FactBody };
  return { ...fact, body: copyJson(body) };
}

function putMessagesIn(shelf: ThreadShelf, value: Json): Json {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map((entry) => putMessagesIn(shelf, entry));
  const record = value as JsonObject;
  if (typeof record.$m === 'string' && Object.keys(record).length === 1) {
    const message = shelf.messages.get(record.$m);
    if (message === undefined)
      throw new ReindeerError('internal', `The message ${record.$m} that a fact refers to is not in the store.`);
    return JSON.parse(message.body) as Json;
  }
  const copy: Record<string, Json> = {};
  for (const [key, entry] of Object.entries(record)) if (entry !== undefined) copy[key] = putMessagesIn(shelf, entry);
  return copy;
}

export function keepMessages(shelf: ThreadShelf, packed: Packed): void {
  for (const message of packed.messages)
    if (!shelf.messages.has(message.hash)) shelf.messages.set(message.hash, message);
}

/** Equal as JSON values: the order of an object's keys does not matter. */
export function sameJson(a: Json | undefined, b: Json | undefined): boolean {
  if (a === b) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return false;
  if (Array.isArray(a) || Array.isArray(b))
    return (
      Array.isArray(a) &&
      Array.isArray(b) &&
      a.length === b.length &&
      a.every((entry, index) => sameJson(entry, b[index]))
    );
  const left = a as JsonObject;
  const right = b as JsonObject;
  const keys = new Set([...Object.keys(left), ...Object.keys(right)]);
  return [...keys].every((key) => sameJson(left[key], right[key]));
}
