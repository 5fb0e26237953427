import { type Dictionary, isDictionary, listOf, textOr } from '../chat/wire.ts';

export const ITEM_STATES = ['succeeded', 'failed', 'cancelled', 'running', 'waiting'] as const;
/** The states of an item as they are shown: those before it is at work are one. */
export type ItemState = (typeof ITEM_STATES)[number];
export type BatchStatus = 'queued' | 'running' | 'paused' | 'completed' | 'failed' | 'cancelled';
const STATUSES = ['queued', 'running', 'paused', 'completed', 'failed', 'cancelled'] as const;

export interface BatchView {
  readonly batchId: string;
  readonly threadId: string;
  readonly title: string;
  readonly status: BatchStatus;
  readonly total: number;
  /** Items at work at once. */
  readonly atOnce: number;
  /** null = not counted here: a list of batches does not. */
  readonly counts: Readonly<Record<ItemState, number>> | null;
  /** Milliseconds since 1970; null = not yet. */
  readonly createdAt: number | null;
  readonly startedAt: number | null;
  readonly endedAt: number | null;
}

export interface BatchItemView {
  readonly itemId: string;
  readonly key: string;
  readonly state: ItemState;
  readonly attempt: number;
  readonly error: string | null;
  readonly preview: string | null;
  readonly tokens: number;
}

export const isOver = (status: BatchStatus): boolean =>
  status === 'completed' || status === 'failed' || status === 'cancelled';

/** The head that a tool call answers, before anything is asked of the server. null = it is none. */
export function readHead(value: unknown, threadId: string): BatchView | null {
  return isDictionary(value) ? readBatch({ thread_id: threadId, ...value }) : null;
}

export function readBatch(value: unknown): BatchView | null {
  if (!isDictionary(value)) return null;
  const batchId = textOr(value.batch_id, '');
  if (batchId === '') return null;
  return {
    batchId,
    threadId: textOr(value.thread_id, ''),
    title: textOr(value.title, batchId),
    status: STATUSES.find((status) => status === value.status) ?? 'queued',
    total: numberOf(value.total_items),
    atOnce: numberOf(value.max_running_items),
    counts: isDictionary(value.counts) ? readCounts(value.counts) : null,
    createdAt: timeOf(value.created_at),
    startedAt: timeOf(value.started_at),
    endedAt: timeOf(value.ended_at),
  };
}

export function readBatches(value: unknown): readonly BatchView[] {
  return listOf(value)
    .map(readBatch)
    .filter((batch) => batch !== null);
}

export function readItems(value: unknown): readonly BatchItemView[] {
  return listOf(value)
    .filter(isDictionary)
    .map((item) => ({
      itemId: textOr(item.item_id, ''),
      key: textOr(item.key, ''),
      state: stateOf(textOr(item.status, '')),
      attempt: numberOf(item.attempt),
      error: textOr(item.error, null),
      preview: textOr(item.result_preview, null),
      tokens: isDictionary(item.token_usage) ? numberOf(item.token_usage.total_tokens) : 0,
    }));
}

function readCounts(counts: Dictionary): Readonly<Record<ItemState, number>> {
  const result = { succeeded: 0, failed: 0, cancelled: 0, running: 0, waiting: 0 };
  for (const [status, count] of Object.entries(counts)) result[stateOf(status)] += numberOf(count);
  return result;
}

/** What the server calls each state. Those that are about to begin come first. */
export const WIRE: Readonly<Record<ItemState, readonly string[]>> = {
  succeeded: ['succeeded'],
  failed: ['failed'],
  cancelled: ['cancelled'],
  running: ['running'],
  waiting: ['leased', 'queued', 'pending'],
};

export function stateOf(status: string): ItemState {
  return ITEM_STATES.find((state) => state === status) ?? 'waiting';
}

export const doneOf = ({ counts }: BatchView): number =>
  counts === null ? 0 : counts.succeeded + counts.failed + counts.cancelled;

/** One look at how far a batch was. */
export interface Look {
  /** Milliseconds on any clock that only goes forward. */
  readonly at: number;
  readonly done: number;
}

/** Looks older than this say nothing about the rate of now. */
const WINDOW_MS = 60_000;
const MOST_LOOKS = 60;

export function addLook(looks: readonly Look[], look: Look): readonly Look[] {
  // A retry takes items back: what was measured before it does not count.
  const before = looks.filter((old) => look.at - old.at <= WINDOW_MS && old.done <= look.done);
  return [...before, look].slice(-MOST_LOOKS);
}

/** Items per minute and milliseconds that are left, from what was seen lately. null = cannot tell yet. */
export function paceOf(
  looks: readonly Look[],
  left: number,
): { readonly perMinute: number; readonly leftMs: number } | null {
  const first = looks[0];
  const last = looks.at(-1);
  if (first === undefined || last === undefined) return null;
  const time = last.at - first.at;
  const done = last.done - first.done;
  if (time < 1_000 || done <= 0) return null;
  return { perMinute: (done * 60_000) / time, leftMs: (left * time) / done };
}

export const batchPath = (batch: Pick<BatchView, 'threadId' | 'batchId'>): string =>
  `/threads/${encodeURIComponent(batch.threadId)}/subagent-batches/${encodeURIComponent(batch.batchId)}`;

const numberOf = (value: unknown): number => (typeof value === 'number' && Number.isFinite(value) ? value : 0);

function timeOf(value: unknown): number | null {
  const at = typeof value === 'string' ? Date.parse(value) : Number.NaN;
  return Number.isNaN(at) ? null : at;
}
