import {
  type CheckpointStore,
  type Fence,
  type JsonObject,
  type LoadedCheckpoint,
  type PackedMessage,
  ReindeerError,
} from '@reindeer/protocol';
import { titleIn } from '../threads/title.ts';
import type { CheckpointRow, MemoryDatabase, RunRow, ThreadShelf, WriteRow } from './data.ts';
import { keepMessages, sameJson } from './data.ts';
import type { Transact } from './runs.ts';

const MENTION = /"\$m":"([^"\\]+)"/g;
const checkpointKey = (ns: string, checkpointId: string): string => `${ns}\n${checkpointId}`;

/**
 * Checkpoints of a memory database. A channel's value is stored once per version and a message once per thread (D4); which
 * versions belong to a checkpoint stands in its own `channel_versions`.
 */
export function memoryCheckpointStore(database: MemoryDatabase, transact: Transact): CheckpointStore {
  /** null = the write is fenced; a write without a fence is allowed outside a run only. */
  const allowed = (fence: Fence | null, threadId: string): { readonly row: RunRow | null } | null => {
    if (fence === null) return { row: null };
    const row = database.held(fence);
    return row === null || row.run.threadId !== threadId ? null : { row };
  };

  return {
    put: (input) =>
      transact(() => {
        if (allowed(input.fence, input.threadId) === null) return { outcome: 'fenced' };
        const shelf = database.shelf(input.threadId);
        database.append(input.threadId, input.fence?.runId ?? null, input.facts, input.now);
        const key = checkpointKey(input.ns, input.checkpointId);
        shelf.checkpoints.set(key, {
          ns: input.ns,
          checkpointId: input.checkpointId,
          parentId: input.parentId,
          checkpoint: input.checkpoint,
          metadata: input.metadata,
          position: shelf.checkpoints.get(key)?.position ?? shelf.head,
        });
        for (const { name, version, value } of input.channels) {
          const channel = `${input.ns}\n${name}\n${version}`;
          if (!shelf.channels.has(channel)) shelf.channels.set(channel, value.json);
          keepMessages(shelf, value);
        }
        const title = titleIn(input);
        const thread = database.threads.get(input.threadId);
        if (title !== undefined && thread !== undefined) thread.title = title;
        return { outcome: 'ok' };
      }),

    putWrites: (input) =>
      transact(() => {
        if (allowed(input.fence, input.threadId) === null) return { outcome: 'fenced' };
        const shelf = database.shelf(input.threadId);
        const { ns, checkpointId, taskId, taskPath } = input;
        for (const { index, channel, type, value } of input.writes) {
          // A later run's writes lie over those of an earlier one, so that taking it back lays them open again (RB-01).
          const runId = input.fence?.runId ?? null;
          const key = `${ns}\n${checkpointId}\n${taskId}\n${index}\n${runId ?? ''}`;
          if (shelf.writes.has(key) && !input.replace) continue;
          const bytes = value instanceof Uint8Array ? value.slice() : null;
          const json = value instanceof Uint8Array ? '' : value.json;
          if (!(value instanceof Uint8Array)) keepMessages(shelf, value);
          shelf.writes.set(key, { ns, checkpointId, taskId, taskPath, index, channel, type, json, bytes, runId });
        }
        database.append(input.threadId, input.fence?.runId ?? null, input.facts, input.now);
        return { outcome: 'ok' };
      }),

    load: ({ threadId, ns, checkpointId }) =>
      transact(() => {
        const shelf = database.shelves.get(threadId);
        if (shelf === undefined) return null;
        const row =
          checkpointId === null ? newestFirst(shelf, ns)[0] : shelf.checkpoints.get(checkpointKey(ns, checkpointId));
        return row === undefined ? null : loadRow(threadId, shelf, row);
      }),

    list: ({ threadId, ns, checkpointId, before, limit, filter }) =>
      transact(() => {
        const found: { readonly threadId: string; readonly shelf: ThreadShelf; readonly row: CheckpointRow }[] = [];
        for (const [id, shelf] of database.shelves) {
          if (threadId !== null && id !== threadId) continue;
          for (const row of newestFirst(shelf, ns)) {
            if (checkpointId !== null && row.checkpointId !== checkpointId) continue;
            if (before !== null && row.checkpointId >= before) continue;
            if (matchesFilter(row, filter)) found.push({ threadId: id, shelf, row });
          }
        }
        found.sort((a, b) => compareText(b.row.checkpointId, a.row.checkpointId));
        return found.slice(0, limit ?? undefined).map(({ threadId: id, shelf, row }) => loadRow(id, shelf, row));
      }),

    rollback: ({ fence, threadId, checkpointId }) =>
      transact(() => {
        if (allowed(fence, threadId) === null) return { outcome: 'fenced' };
        const shelf = database.shelf(threadId);
        const target = checkpointId === '' ? null : shelf.checkpoints.get(checkpointKey('', checkpointId));
        if (target === undefined)
          throw new ReindeerError(
            'precondition_failed',
            'The checkpoint to return to does not exist; nothing was changed.',
            {
              detail: { threadId, checkpointId },
            },
          );
        for (const row of [...shelf.checkpoints.values()])
          if (target === null || byPosition(row, target) > 0) deleteCheckpoint(shelf, row);
        // A resumed run also wrote beside checkpoints that stay; the state before it did not have those writes (RB-01).
        for (const [key, write] of shelf.writes) if (write.runId === fence.runId) shelf.writes.delete(key);
        dropUnmentioned(shelf);
        return { outcome: 'ok' };
      }),

    prune: ({ threadId, keep }) =>
      transact(() => {
        const shelf = database.shelves.get(threadId);
        if (shelf === undefined) return 0;
        let removed = 0;
        for (const ns of new Set([...shelf.checkpoints.values()].map((row) => row.ns)))
          for (const row of newestFirst(shelf, ns).slice(keep)) {
            deleteCheckpoint(shelf, row);
            removed += 1;
          }
        dropUnmentioned(shelf);
        return removed;
      }),

    deleteThread: (threadId) =>
      transact(() => {
        const shelf = database.shelves.get(threadId);
        if (shelf === undefined) return;
        shelf.checkpoints.clear();
        shelf.channels.clear();
        shelf.writes.clear();
        dropUnmentioned(shelf);
      }),

    copyThread: ({ fromThreadId, toThreadId }) => transact(() => copyCheckpoints(database, fromThreadId, toThreadId)),
  };
}

/** Copies checkpoints with their channels, writes and messages; what the target thread has under equal keys is replaced. */
export function copyCheckpoints(database: MemoryDatabase, fromThreadId: string, toThreadId: string): void {
  const from = database.shelves.get(fromThreadId);
  if (from === undefined) return;
  const to = database.shelf(toThreadId);
  const last = Math.max(0, ...[...from.checkpoints.values()].map(({ position }) => position));
  for (const [key, row] of from.checkpoints) to.checkpoints.set(key, { ...row, position: row.position - last });
  for (const [key, json] of from.channels) to.channels.set(key, json);
  for (const [key, row] of from.writes) to.writes.set(key, { ...row, runId: null });
  for (const [hash, message] of from.messages) to.messages.set(hash, message);
  dropUnmentioned(to);
}

const compareText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

/** In the order in which they were written; ids follow clocks, which jump and differ. */
const byPosition = (a: CheckpointRow, b: CheckpointRow): number =>
  a.position - b.position || compareText(a.checkpointId, b.checkpointId);

function newestFirst(shelf: ThreadShelf, ns: string | null): CheckpointRow[] {
  return [...shelf.checkpoints.values()].filter((row) => ns === null || row.ns === ns).sort((a, b) => byPosition(b, a));
}

function matchesFilter(row: CheckpointRow, filter: JsonObject): boolean {
  const wanted = Object.entries(filter);
  if (wanted.length === 0) return true;
  const metadata = JSON.parse(row.metadata) as JsonObject;
  return wanted.every(([key, value]) => sameJson(metadata[key], value));
}

function versionsOf(row: CheckpointRow): readonly (readonly [string, string])[] {
  const { channel_versions: versions } = JSON.parse(row.checkpoint) as { channel_versions?: Record<string, unknown> };
  return Object.entries(versions ?? {}).map(([name, version]) => [name, String(version)] as const);
}

function writesOf(shelf: ThreadShelf, row: CheckpointRow): WriteRow[] {
  const merged = new Map<string, WriteRow>();
  for (const write of shelf.writes.values()) {
    if (write.ns !== row.ns || write.checkpointId !== row.checkpointId) continue;
    const key = `${write.taskId}\n${write.index}`;
    if (write.index < 0 || !merged.has(key)) merged.set(key, write);
  }
  return [...merged.values()].sort(
    (a, b) => compareText(a.taskPath, b.taskPath) || compareText(a.taskId, b.taskId) || a.index - b.index,
  );
}

function loadRow(threadId: string, shelf: ThreadShelf, row: CheckpointRow): LoadedCheckpoint {
  const channels = versionsOf(row).flatMap(([name, version]) => {
    const json = shelf.channels.get(`${row.ns}\n${name}\n${version}`);
    return json === undefined ? [] : [{ name, version, json }];
  });
  const writes = writesOf(shelf, row).map(({ taskId, taskPath, index, channel, type, json, bytes }) => ({
    taskId,
    taskPath,
    index,
    channel,
    type,
    json,
    bytes: bytes?.slice() ?? null,
  }));
  const messages = new Map<string, PackedMessage>();
  for (const { json } of [...channels, ...writes])
    for (const [, hash] of json.matchAll(MENTION)) {
      const message = hash === undefined ? undefined : shelf.messages.get(hash);
      if (message !== undefined) messages.set(message.hash, message);
    }
  const { ns, checkpointId, parentId, checkpoint, metadata } = row;
  return {
    threadId,
    ns,
    checkpointId,
    parentId,
    checkpoint,
    metadata,
    channels,
    writes,
    messages: [...messages.values()],
  };
}

function deleteCheckpoint(shelf: ThreadShelf, row: CheckpointRow): void {
  shelf.checkpoints.delete(checkpointKey(row.ns, row.checkpointId));
  for (const [key, write] of shelf.writes)
    if (write.ns === row.ns && write.checkpointId === row.checkpointId) shelf.writes.delete(key);
}

/** Drops channel values of no remaining checkpoint, then messages that no channel, write, fact or journal row mentions. */
function dropUnmentioned(shelf: ThreadShelf): void {
  const used = new Set<string>();
  for (const row of shelf.checkpoints.values())
    for (const [name, version] of versionsOf(row)) used.add(`${row.ns}\n${name}\n${version}`);
  for (const key of shelf.channels.keys()) if (!used.has(key)) shelf.channels.delete(key);

  const mentioned = new Set<string>();
  const look = (json: string): void => {
    for (const [, hash] of json.matchAll(MENTION)) if (hash !== undefined) mentioned.add(hash);
  };
  for (const json of shelf.channels.values()) look(json);
  for (const write of shelf.writes.values()) look(write.json);
  for (const fact of shelf.facts)
    if (fact.body.kind === 'message' || fact.body.kind === 'update') look(JSON.stringify(fact.body));
  for (const row of shelf.journal.values()) look(row.finished?.result.json ?? '');
  for (const hash of shelf.messages.keys()) if (!mentioned.has(hash)) shelf.messages.delete(hash);
}
