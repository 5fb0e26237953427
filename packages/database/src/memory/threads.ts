import type { Json, JsonObject, Thread, ThreadStatus, ThreadStore } from '@reindeer/protocol';
import { isTerminal } from '@reindeer/protocol';
import { copyCheckpoints } from './checkpoints.ts';
import type { MemoryDatabase, ThreadRow } from './data.ts';
import { copyJson, sameJson } from './data.ts';
import type { Transact } from './runs.ts';

/** Threads of a memory database. A thread's status is derived at every read, so it cannot disagree with its runs (S5). */
export function memoryThreadStore(database: MemoryDatabase, transact: Transact): ThreadStore {
  const owned = (threadId: string, userId: string): ThreadRow | null => {
    const row = database.threads.get(threadId);
    return row !== undefined && row.userId === userId ? row : null;
  };

  const statusOf = (threadId: string): ThreadStatus => {
    const runs = (database.runsOfThread.get(threadId) ?? []).filter((row) => row.run.kind === 'run');
    if (runs.some((row) => !isTerminal(row.run.status))) return 'busy';
    let newest: (typeof runs)[number] | null = null;
    for (const row of runs) {
      if (!row.run.acknowledged) continue;
      if (newest === null || row.run.createdAt >= newest.run.createdAt) newest = row;
    }
    if (newest === null) return 'idle';
    if (newest.run.status === 'success') return newest.run.stopReason === 'interrupt' ? 'interrupted' : 'idle';
    return newest.run.status === 'interrupted' ? 'interrupted' : 'error';
  };

  const read = (row: ThreadRow): Thread => ({
    threadId: row.threadId,
    userId: row.userId,
    metadata: copyJson(row.metadata),
    title: row.title,
    status: statusOf(row.threadId),
    createdAt: row.createdAt,
    updatedAt: row.updatedAt,
  });

  const insert = (input: Pick<ThreadRow, 'threadId' | 'userId' | 'metadata' | 'title'>, now: number): ThreadRow => {
    const row: ThreadRow = {
      ...input,
      metadata: copyJson(input.metadata),
      createdAt: now,
      updatedAt: now,
      order: database.nextOrder(),
    };
    database.threads.set(row.threadId, row);
    return row;
  };

  return {
    create: ({ threadId, userId, metadata, now }) =>
      transact(() => {
        const row = database.threads.get(threadId);
        if (row === undefined)
          return { outcome: 'created', thread: read(insert({ threadId, userId, metadata, title: null }, now)) };
        return row.userId === userId ? { outcome: 'exists', thread: read(row) } : { outcome: 'not_found' };
      }),

    get: ({ threadId, userId }) =>
      transact(() => {
        const row = owned(threadId, userId);
        return row === null ? null : read(row);
      }),

    search: ({ userId, metadata, status, limit, offset }) =>
      transact(() =>
        [...database.threads.values()]
          .filter((row) => row.userId === userId && matches(row.metadata, metadata))
          .filter((row) => status === null || statusOf(row.threadId) === status)
          .sort((a, b) => pinned(b) - pinned(a) || b.updatedAt - a.updatedAt || b.order - a.order)
          .slice(offset, offset + limit)
          .map(read),
      ),

    update: ({ threadId, userId, metadata, title, touch, now }) =>
      transact(() => {
        const row = owned(threadId, userId);
        if (row === null) return null;
        const merged: Record<string, Json | undefined> = { ...row.metadata };
        for (const [key, value] of Object.entries(metadata)) {
          if (value === null) delete merged[key];
          else if (value !== undefined) merged[key] = copyJson(value);
        }
        row.metadata = merged;
        if (title !== undefined) row.title = title;
        if (touch) row.updatedAt = now;
        return read(row);
      }),

    delete: ({ fence, threadId, userId, item }) =>
      transact(() => {
        const right = database.held(fence);
        const row = owned(threadId, userId);
        if (right === null || row === null || right.run.threadId !== threadId || right.run.kind !== 'delete')
          return { outcome: 'fenced' };
        const epoch = item === undefined ? undefined : database.batchItems.get(item.itemId)?.state.epoch;
        if (epoch !== undefined && epoch !== item?.epoch) return { outcome: 'fenced' };
        for (const run of [...(database.runsOfThread.get(threadId) ?? [])]) database.deleteRun(run);
        database.deleteBatches(threadId);
        database.deleteCaptures(threadId);
        database.channels.deleteConversations(threadId);
        for (const [key, one] of database.feedback) if (one.threadId === threadId) database.feedback.delete(key);
        database.shelves.delete(threadId);
        database.threads.delete(threadId);
        return { outcome: 'ok' };
      }),

    copy: ({ fromThreadId, toThreadId, userId, now }) =>
      transact(() => {
        const from = owned(fromThreadId, userId);
        if (from === null || database.threads.has(toThreadId)) return null;
        copyCheckpoints(database, fromThreadId, toThreadId);
        return read(insert({ threadId: toThreadId, userId, metadata: from.metadata, title: from.title }, now));
      }),
  };
}

const pinned = (row: ThreadRow): number => (row.metadata.pinned === true ? 1 : 0);

function matches(metadata: JsonObject, wanted: JsonObject): boolean {
  return Object.entries(wanted).every(([key, value]) => value === undefined || sameJson(metadata[key], value));
}
