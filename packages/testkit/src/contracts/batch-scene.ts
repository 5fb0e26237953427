import type { BatchItem, BatchStore, ClaimedItem, NewBatch, ThreadStore } from '@reindeer/protocol';
import { expect } from 'vitest';
import { T0 } from './scene.ts';

/**
 * The same statements on the same kind of database, but without transactions around them: `held` stops before its nth statement, and
 * `peer` acts meanwhile. What must hold in between has to stand in the statements themselves.
 */
export interface UnisolatedBatches {
  readonly threads: ThreadStore;
  readonly held: BatchStore;
  readonly peer: BatchStore;
  /** Holds `held` before its nth statement from now, 1 = the first. `reached` answers false when it never came that far. */
  holdBefore(nth: number): { readonly reached: Promise<boolean>; release(): void };
  /** `held` has come to the end of its call: a hold that was not reached will not be. */
  ended(): void;
  /** Everything that is stored of an item, the holder's token included. */
  row(itemId: string): Promise<unknown>;
  /** Sets a column of an item or its batch behind the store's back. */
  mark(what: 'item_cancelled' | 'batch_cancelled', itemId: string, now: number): Promise<void>;
  close(): Promise<void>;
}

export const BATCH_LEASE = 10_000;
export const SECOND = 1_000;

export const newBatch = (part: Partial<NewBatch> & { readonly count?: number } = {}): NewBatch => {
  const { count = 1, ...rest } = part;
  return {
    batchId: 'batch-lease-test',
    userId: 'user-1',
    threadId: 'thread-1',
    runId: 'run-1',
    toolCallId: 'call-1',
    submissionKey: `run-1:${rest.batchId ?? 'call-1'}`,
    title: 'Lease recovery',
    subagentType: 'general-purpose',
    maxLive: count,
    maxRunning: 1,
    maxAttempts: 3,
    spec: { model: null },
    notify: false,
    items: Array.from({ length: count }, (_, n) => ({ key: `record-${n}`, prompt: `Process ${n}` })),
    now: T0,
    ...rest,
  };
};

export const thread = { threadId: 'thread-1', userId: 'user-1', metadata: {}, now: T0 } as const;
export const address = { batchId: 'batch-lease-test', userId: 'user-1' } as const;
export const firstItem = 'batch-lease-test.0';

export const claim = (part: Partial<Parameters<BatchStore['claim']>[0]> = {}) => ({
  owner: 'claim',
  leaseMs: BATCH_LEASE,
  limit: 1,
  exclude: [] as string[],
  now: T0,
  ...part,
});

/** Claims exactly one item. */
export async function claimOne(
  store: BatchStore,
  part: Partial<Parameters<BatchStore['claim']>[0]> = {},
): Promise<ClaimedItem> {
  const { items } = await store.claim(claim(part));
  expect(items).toHaveLength(1);
  return items[0] as ClaimedItem;
}

export async function itemsOf(store: BatchStore, batchId: string = address.batchId): Promise<readonly BatchItem[]> {
  return (await store.items({ batchId, userId: 'user-1', status: null, offset: 0, limit: 500, results: true })) ?? [];
}

export const succeeded = (part: Partial<{ result: string; now: number }> = {}) => ({
  succeeded: true as const,
  result: part.result ?? 'done',
  resultPreview: part.result ?? 'done',
  resultTruncated: false,
  resultFile: null,
  verdict: null,
  stopReason: null,
  modelName: 'model',
  usage: { inputTokens: 1, outputTokens: 2 },
  now: part.now ?? T0 + SECOND,
});

export const failed = (part: Partial<{ error: string; notBefore: number; now: number }> = {}) => ({
  succeeded: false as const,
  error: part.error ?? 'broken',
  notBefore: part.notBefore ?? 0,
  stopReason: null,
  modelName: 'model',
  usage: { inputTokens: 1, outputTokens: 2 },
  now: part.now ?? T0 + SECOND,
});
