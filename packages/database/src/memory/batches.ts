import {
  BATCH_ITEM_STATUSES,
  type Batch,
  type BatchAddress,
  type BatchControl,
  type BatchCounts,
  type BatchEvent,
  type BatchItem,
  type BatchItemStatus,
  type BatchStore,
  type ClaimedItem,
  ITEM_USERS,
  type ItemEvent,
  type ItemLease,
  type ItemState,
  isBatchOver,
  isItemHeld,
  isItemOver,
  NO_BATCH_USAGE,
  type RenewedItem,
  reduceBatch,
  reduceItem,
  shareSlots,
} from '@reindeer/protocol';
import { LEASE_OVER } from '../batches/lease-over.ts';
import type { BatchItemRow, BatchRow, MemoryDatabase } from './data.ts';
import { copyJson } from './data.ts';
import type { Transact } from './runs.ts';

/**
 * Batches of a memory database. Every transition is decided by `reduceItem` and `reduceBatch`, inside one synchronous section; so this
 * store is the executable model that the SQL stores are compared with.
 */
export function memoryBatchStore(database: MemoryDatabase, transact: Transact): BatchStore {
  const { batches, batchItems } = database;

  const owned = ({ batchId, userId, threadId }: BatchAddress): BatchRow | null => {
    const row = batches.get(batchId);
    if (row === undefined || row.batch.userId !== userId) return null;
    return threadId === undefined || row.batch.threadId === threadId ? row : null;
  };
  const itemsOf = (row: BatchRow): readonly BatchItemRow[] => row.items;
  const count = (row: BatchRow, wanted: (status: BatchItemStatus) => boolean): number =>
    itemsOf(row).reduce((sum, item) => sum + (wanted(item.state.status) ? 1 : 0), 0);

  const moveItem = (item: BatchItemRow, event: ItemEvent, now: number): ItemState | null => {
    const next = reduceItem(item.state, event);
    if (next === null) return null;
    item.state = next;
    item.updatedAt = now;
    if (!isItemHeld(next.status)) item.leaseExpiresAt = null;
    if (isItemOver(next.status)) item.endedAt = now;
    return next;
  };
  const moveBatch = (row: BatchRow, event: BatchEvent, now: number): boolean => {
    const next = reduceBatch(row.batch.status, event);
    if (next === null) return false;
    const over = isBatchOver(next);
    const ends = over && !isBatchOver(row.batch.status) ? row.batch.ends + 1 : row.batch.ends;
    row.batch = {
      ...row.batch,
      status: next,
      ends,
      filed: over && row.batch.filed,
      updatedAt: now,
      startedAt: event.kind === 'work' ? (row.batch.startedAt ?? now) : row.batch.startedAt,
      endedAt: over ? now : null,
    };
    if (ends !== row.told) row.reporter = null;
    return true;
  };
  /** The batch ends when nothing of it is open any more. */
  const settle = (row: BatchRow, now: number): void => {
    if (isBatchOver(row.batch.status) || count(row, (status) => !isItemOver(status)) > 0) return;
    const [succeeded, failed] = (['succeeded', 'failed'] as const).map((wanted) =>
      count(row, (status) => status === wanted),
    );
    moveBatch(row, { kind: 'end', succeeded: succeeded ?? 0, failed: failed ?? 0 }, now);
  };
  const holder = ({ itemId, owner, epoch }: ItemLease) => {
    const item = batchItems.get(itemId);
    const batch = item === undefined ? undefined : batches.get(item.batchId);
    return item === undefined || batch === undefined || batch.batch.status === 'cancelled'
      ? null
      : { item, row: batch, by: { owner, epoch } };
  };
  const read = (row: BatchRow): Batch => ({ ...row.batch, spec: copyJson(row.batch.spec) });
  const control = (input: BatchAddress, event: BatchEvent, now: number): BatchControl => {
    const row = owned(input);
    if (row === null) return { outcome: 'not_found' };
    const changed = moveBatch(row, event, now);
    return { outcome: changed ? 'done' : 'unchanged', batch: read(row) };
  };
  const itemOf = (input: BatchAddress & { readonly itemId: string }) => {
    const row = owned(input);
    const item = batchItems.get(input.itemId);
    return row === null || item === undefined || item.batchId !== input.batchId ? null : { row, item };
  };

  /** The batch whose end the caller reports. */
  const reporting = (by: { readonly batchId: string; readonly owner: string; readonly ends: number }) => {
    const row = batches.get(by.batchId);
    const reports = row?.reporter?.owner === by.owner && row.batch.ends === by.ends;
    return row !== undefined && reports && isBatchOver(row.batch.status) ? row : null;
  };

  return {
    create: (input) =>
      transact(() => {
        const { items, notify, submissionKey, now, ...rest } = input;
        const known = [...batches.values()].find(
          (row) => row.batch.userId === input.userId && row.submissionKey === submissionKey,
        );
        if (known !== undefined) return { outcome: 'existing', batch: read(known) };
        if (database.threads.get(input.threadId)?.userId !== input.userId) return { outcome: 'thread_not_found' };
        if (new Set(items.map(({ key }) => key)).size < items.length) return { outcome: 'duplicate_keys' };
        const row: BatchRow = {
          batch: {
            ...rest,
            spec: copyJson(rest.spec),
            status: 'queued',
            totalItems: items.length,
            ends: 0,
            filed: false,
            createdAt: now,
            updatedAt: now,
            startedAt: null,
            endedAt: null,
          },
          submissionKey,
          notify,
          heard: 0,
          told: 0,
          reporter: null,
          items: items.map(
            ({ key, prompt, acceptance = null }, position): BatchItemRow => ({
              itemId: `${input.batchId}.${position}`,
              batchId: input.batchId,
              key,
              prompt,
              acceptance,
              position,
              state: { status: 'pending', attempt: 0, owner: null, epoch: 0, cancelRequested: false },
              leaseExpiresAt: null,
              notBefore: 0,
              details: { ...NO_DETAILS },
              startedAt: null,
              endedAt: null,
              updatedAt: now,
            }),
          ),
        };
        batches.set(input.batchId, row);
        for (const item of row.items) batchItems.set(item.itemId, item);
        return { outcome: 'created', batch: read(row) };
      }),

    get: (input) =>
      transact(() => {
        const row = owned(input);
        if (row === null) return null;
        const counts = Object.fromEntries(BATCH_ITEM_STATUSES.map((status) => [status, 0])) as Record<
          BatchItemStatus,
          number
        >;
        for (const item of itemsOf(row)) counts[item.state.status] += 1;
        return { batch: read(row), counts: counts satisfies BatchCounts };
      }),

    list: ({ userId, threadId, limit }) =>
      transact(() =>
        [...batches.values()]
          .filter(({ batch }) => batch.userId === userId && (threadId === null || batch.threadId === threadId))
          .reverse()
          .slice(0, limit)
          .map(read),
      ),

    items: (input) =>
      transact(() => {
        const row = owned(input);
        if (row === null) return null;
        return itemsOf(row)
          .filter((item) => input.status === null || item.state.status === input.status)
          .slice(input.offset, input.offset + input.limit)
          .map((item): BatchItem => readItem(item, input.results));
      }),

    claim: ({ owner, leaseMs, limit, exclude, now }) =>
      transact(() => {
        const spared = new Set(exclude);
        const open = [...batches.values()].filter(({ batch }) => !isBatchOver(batch.status));
        for (const row of open) {
          for (const item of itemsOf(row)) {
            const over = isItemHeld(item.state.status) && (item.leaseExpiresAt ?? 0) <= now;
            if (!over || spared.has(item.itemId)) continue;
            const next = moveItem(item, { kind: 'expire', maxAttempts: row.batch.maxAttempts }, now);
            if (next?.status === 'failed') item.details = { ...item.details, error: LEASE_OVER };
          }
          settle(row, now);
          if (row.batch.status !== 'queued' && row.batch.status !== 'running') continue;
          let room = row.batch.maxLive - count(row, (status) => status === 'queued' || isItemHeld(status));
          for (const item of itemsOf(row)) {
            if (room <= 0) break;
            if (moveItem(item, { kind: 'promote' }, now) !== null) room -= 1;
          }
        }
        const ready = (row: BatchRow): BatchItemRow[] =>
          itemsOf(row).filter(
            (item) => item.state.status === 'queued' && item.notBefore <= now && !spared.has(item.itemId),
          );
        const takers = open.filter(({ batch }) => batch.status === 'queued' || batch.status === 'running');
        const demands = takers.map((row) => ({
          key: row.batch.batchId,
          userId: row.batch.userId,
          running: count(row, isItemHeld),
          maxRunning: row.batch.maxRunning,
          waiting: ready(row).length,
        }));
        const shares = shareSlots(demands, limit);
        const claimed: ClaimedItem[] = [];
        const touched = new Map<string, Batch>();
        for (const row of takers) {
          for (const item of ready(row).slice(0, shares.get(row.batch.batchId) ?? 0)) {
            moveItem(item, { kind: 'claim', owner }, now);
            item.leaseExpiresAt = now + leaseMs;
            item.startedAt ??= now;
            claimed.push(claimOf(item, owner));
            moveBatch(row, { kind: 'work' }, now);
            touched.set(row.batch.batchId, read(row));
          }
        }
        const left = demands.some(
          ({ key, running, maxRunning, waiting }) => Math.min(waiting, maxRunning - running) > (shares.get(key) ?? 0),
        );
        return { items: claimed, batches: touched, more: left };
      }),

    renew: ({ leases, leaseMs, now }) =>
      transact(
        () =>
          new Map(
            leases.map(({ itemId, owner, epoch }): [string, RenewedItem] => {
              const item = batchItems.get(itemId);
              const batch = item === undefined ? undefined : batches.get(item.batchId)?.batch;
              if (item === undefined || batch === undefined)
                return [itemId, { valid: false, cancelRequested: false, busy: false }];
              const { state } = item;
              const cancelRequested = state.cancelRequested || batch.status === 'cancelled';
              const valid =
                isItemHeld(state.status) && state.owner === owner && state.epoch === epoch && !cancelRequested;
              if (valid) item.leaseExpiresAt = Math.max(item.leaseExpiresAt ?? 0, now + leaseMs);
              return [itemId, { valid, cancelRequested, busy: false }];
            }),
          ),
      ),

    start: ({ lease, now }) =>
      transact(() => {
        const held = holder(lease);
        return held !== null && moveItem(held.item, { kind: 'start', ...held.by }, now) !== null;
      }),

    finish: (input) =>
      transact(() => {
        const held = holder(input.lease);
        if (held === null) return null;
        const { item, row, by } = held;
        const { maxAttempts } = row.batch;
        const next = moveItem(item, { kind: 'finish', succeeded: input.succeeded, maxAttempts, ...by }, input.now);
        if (next === null) return null;
        const { usage } = item.details;
        item.details = {
          ...item.details,
          ...(input.succeeded && next.status === 'succeeded'
            ? {
                result: input.result,
                resultPreview: input.resultPreview,
                resultTruncated: input.resultTruncated,
                resultFile: input.resultFile,
                verdict: input.verdict,
              }
            : {}),
          error: input.succeeded ? null : input.error,
          stopReason: input.stopReason,
          modelName: input.modelName,
          usage: {
            inputTokens: usage.inputTokens + input.usage.inputTokens,
            outputTokens: usage.outputTokens + input.usage.outputTokens,
          },
        };
        if (next.status === 'queued' && !input.succeeded) item.notBefore = input.notBefore;
        settle(row, input.now);
        return next.status;
      }),

    release: ({ lease, error, notBefore, now }) =>
      transact(() => {
        const held = holder(lease);
        if (held === null || moveItem(held.item, { kind: 'release', ...held.by }, now) === null) return false;
        held.item.notBefore = notBefore;
        held.item.details = { ...held.item.details, error };
        settle(held.row, now);
        return true;
      }),

    forfeit: ({ prefix, now }) =>
      transact(() => {
        let ended = 0;
        for (const item of batchItems.values()) {
          const held = isItemHeld(item.state.status) && item.state.owner?.startsWith(prefix) === true;
          if (!held || (item.leaseExpiresAt ?? 0) <= now) continue;
          item.leaseExpiresAt = now;
          ended += 1;
        }
        return ended;
      }),

    pause: (input) => transact(() => control(input, { kind: 'pause' }, input.now)),
    resume: (input) => transact(() => control(input, { kind: 'resume' }, input.now)),
    cancel: (input) =>
      transact(() => {
        const answer = control(input, { kind: 'cancel' }, input.now);
        const row = owned(input);
        if (answer.outcome === 'done' && row !== null)
          for (const item of itemsOf(row)) moveItem(item, { kind: 'cancel' }, input.now);
        return answer;
      }),

    cancelItem: (input) =>
      transact((): BatchControl => {
        const found = itemOf(input);
        if (found === null) return { outcome: 'not_found' };
        const changed = moveItem(found.item, { kind: 'request-cancel' }, input.now) !== null;
        settle(found.row, input.now);
        return { outcome: changed ? 'done' : 'unchanged', batch: read(found.row) };
      }),

    retryItem: (input) =>
      transact((): BatchControl => {
        const found = itemOf(input);
        if (found === null) return { outcome: 'not_found' };
        const { row, item } = found;
        if (row.batch.status === 'cancelled' || moveItem(item, { kind: 'retry' }, input.now) === null)
          return { outcome: 'conflict', batch: read(row) };
        item.notBefore = 0;
        item.endedAt = null;
        if (isBatchOver(row.batch.status)) moveBatch(row, { kind: 'reopen' }, input.now);
        return { outcome: 'done', batch: read(row) };
      }),

    claimEnded: ({ owner, leaseMs, limit, now }) =>
      transact(() =>
        [...batches.values()]
          .filter(({ batch, told, reporter }) => {
            const due = isBatchOver(batch.status) && told < batch.ends;
            return due && (reporter === null || reporter.until <= now);
          })
          .slice(0, limit)
          .map((row) => {
            row.reporter = { owner, until: now + leaseMs };
            return { batch: read(row), notify: row.notify && row.heard < row.batch.ends };
          }),
      ),
    filed: (input) =>
      transact(() => {
        const row = reporting(input);
        if (row === null || row.batch.filed) return false;
        row.batch = { ...row.batch, filed: true };
        row.reporter = null;
        return true;
      }),
    postpone: (input) =>
      transact(() => {
        const row = reporting(input);
        if (row === null || !row.batch.filed) return false;
        row.reporter = { owner: input.owner, until: input.until };
        return true;
      }),
    reported: (input) =>
      transact(() => {
        const row = reporting(input);
        if (row === null) return false;
        row.batch = { ...row.batch, filed: true };
        row.told = input.ends;
        row.reporter = null;
        return true;
      }),
    leftThreads: ({ before, after, limit }) =>
      transact(() =>
        [...database.threads.values()]
          .filter(({ threadId, userId, updatedAt }) => {
            if (!userId.startsWith(ITEM_USERS) || threadId <= after || updatedAt > before) return false;
            const item = batchItems.get(itemOfThread(threadId, userId));
            return item === undefined || isItemOver(item.state.status);
          })
          .sort((a, b) => (a.threadId < b.threadId ? -1 : 1))
          .slice(0, limit)
          .map(({ threadId, userId }) => {
            const itemId = itemOfThread(threadId, userId);
            return { threadId, userId, item: { itemId, epoch: batchItems.get(itemId)?.state.epoch ?? 0 } };
          }),
      ),
    told: ({ batchId, ends }) =>
      transact(() => {
        const row = batches.get(batchId);
        if (row !== undefined && row.batch.ends === ends) row.heard = ends;
      }),
  };
}

const itemOfThread = (threadId: string, userId: string): string => {
  const batchId = userId.slice(ITEM_USERS.length);
  return `${batchId}.${threadId.slice(batchId.length + 1)}`;
};

const NO_DETAILS: BatchItemRow['details'] = {
  result: null,
  resultPreview: null,
  resultTruncated: false,
  resultFile: null,
  verdict: null,
  error: null,
  stopReason: null,
  modelName: null,
  usage: NO_BATCH_USAGE,
};

function claimOf(item: BatchItemRow, owner: string): ClaimedItem {
  const { itemId, batchId, key, position, prompt, acceptance, state } = item;
  return {
    lease: { itemId, owner, epoch: state.epoch },
    batchId,
    key,
    position,
    prompt,
    acceptance,
    attempt: state.attempt,
  };
}

function readItem(item: BatchItemRow, results: boolean): BatchItem {
  const { itemId, batchId, key, position, acceptance, state, details, startedAt, endedAt, updatedAt } = item;
  return {
    itemId,
    batchId,
    key,
    position,
    status: state.status,
    attempt: state.attempt,
    cancelRequested: state.cancelRequested,
    acceptance,
    ...details,
    result: results ? details.result : null,
    startedAt,
    endedAt,
    updatedAt,
  };
}
