import type { CheckpointStore, Json, JsonObject, LoadedCheckpoint } from '@reindeer/protocol';
import { defineScript, type Tx } from '../executor.ts';
import { canonicalJson } from '../json.ts';
import { ContentReader } from './content.ts';
import { channelVersions, decodeHead, decodeMetadata, shapeOf } from './head.ts';
import { idFromBytes, idToBytes } from './ids.ts';
import { channelsOf, checkpointAt, findPlace, listCheckpoints, newestCheckpoint, writesOf } from './statements.ts';
import { decodeWrites, longPath, mergeWrites, type StoredWrite, shapeOfBody } from './writes.ts';

type Input<M extends keyof CheckpointStore> = CheckpointStore[M] extends
  | ((input: infer I) => Promise<unknown>)
  | undefined
  ? I
  : never;

interface Row {
  readonly checkpoint_id: Uint8Array;
  readonly parent_id: Uint8Array | null;
  readonly head: string;
  readonly metadata: string;
}
interface Place {
  readonly threadId: string;
  readonly ns: string;
  readonly nsKey: number;
}

export const load = defineScript(
  'checkpoints.load',
  'read',
  async (tx, { threadId, ns, checkpointId }: Input<'load'>): Promise<LoadedCheckpoint | null> => {
    const place = await findPlace(tx, threadId, ns);
    if (place === undefined) return null;
    const { thread_key: key, ns_key: nsKey } = place;
    const row =
      checkpointId === null
        ? await tx.first(newestCheckpoint, { nsKey })
        : await tx.first(checkpointAt, { nsKey, checkpointId: idToBytes(checkpointId) });
    return row === undefined ? null : assemble(tx, new ContentReader(tx, key), { threadId, ns, nsKey }, row);
  },
);

/** Rows looked at together when a filter decides in the program. */
const CHUNK = 200;

export const list = defineScript(
  'checkpoints.list',
  'read',
  async (tx, input: Input<'list'>): Promise<LoadedCheckpoint[]> => {
    const limit = input.limit ?? Number.MAX_SAFE_INTEGER;
    const wanted = Object.entries(input.filter);
    const found: LoadedCheckpoint[] = [];
    // One reader per thread: a message that many checkpoints mention is read and answered once.
    const readers = new Map<number, ContentReader>();
    let after: { id: Uint8Array | null; ns: number } = { id: null, ns: 0 };
    while (found.length < limit) {
      const size = wanted.length === 0 ? Math.min(CHUNK, limit - found.length) : CHUNK;
      const rows = await tx.all(listCheckpoints, {
        threadId: input.threadId,
        ns: input.ns,
        checkpointId: input.checkpointId === null ? null : idToBytes(input.checkpointId),
        before: input.before === null ? null : idToBytes(input.before),
        afterId: after.id,
        afterNs: after.ns,
        limit: size,
      });
      for (const row of rows) {
        if (found.length >= limit) break;
        if (!matches(decodeMetadata(row.metadata), wanted)) continue;
        let reader = readers.get(row.thread_key);
        if (reader === undefined) {
          reader = new ContentReader(tx, row.thread_key);
          readers.set(row.thread_key, reader);
        }
        found.push(await assemble(tx, reader, { threadId: row.thread_id, ns: row.ns, nsKey: row.ns_key }, row));
      }
      const last = rows.at(-1);
      if (last === undefined || rows.length < size) break;
      after = { id: last.checkpoint_id, ns: last.ns_key };
    }
    return found;
  },
);

function matches(metadata: string, wanted: readonly (readonly [string, JsonObject[string]])[]): boolean {
  if (wanted.length === 0) return true;
  const has = JSON.parse(metadata) as Record<string, Json>;
  return wanted.every(([key, value]) => Object.hasOwn(has, key) && canonicalJson(has[key]) === canonicalJson(value));
}

/** Reads everything that belongs to a row. */
async function assemble(tx: Tx, reader: ContentReader, place: Place, row: Row): Promise<LoadedCheckpoint> {
  const { threadId, ns, nsKey } = place;
  const number = shapeOf(row.head);
  const shape = number === null ? '' : ((await reader.texts([number]))[0] ?? '');
  const checkpointId = idFromBytes(row.checkpoint_id);

  const named = channelVersions(row.head, shape);
  const [stored, writes] = await Promise.all([
    channelValues(tx, nsKey, named),
    pendingWrites(tx, reader, nsKey, row.checkpoint_id),
  ]);
  const channels = named.flatMap(([name, version]) => {
    const value = stored.get(`${name}\n${version}`);
    return value === undefined ? [] : [{ name, version, value }];
  });
  const { jsons, messages } = await reader.read([
    ...channels.map(({ value }) => value),
    ...writes.map(({ write }) => (write.kind === 0 ? write.value : 'null')),
  ]);
  return {
    threadId,
    ns,
    checkpointId,
    parentId: row.parent_id === null ? null : idFromBytes(row.parent_id),
    checkpoint: decodeHead(row.head, shape, checkpointId),
    metadata: decodeMetadata(row.metadata),
    channels: channels.map(({ name, version }, index) => ({ name, version, json: jsons[index] ?? 'null' })),
    writes: writes.map(({ taskId, taskPath, write }, index) => ({
      taskId,
      taskPath,
      index: write.index,
      channel: write.channel,
      type: write.kind === 0 ? 'json' : 'bytes',
      json: write.kind === 0 ? (jsons[channels.length + index] ?? 'null') : '',
      bytes: write.kind === 0 ? null : new Uint8Array(Buffer.from(write.value, 'base64')),
    })),
    messages,
  };
}

/** The values of channels that are there, by name and version. */
async function channelValues(
  tx: Tx,
  nsKey: number,
  named: readonly (readonly [name: string, version: string])[],
): Promise<Map<string, string>> {
  const versions = JSON.stringify([...new Set(named.map(([, version]) => version))]);
  // Of one version there are few channels: what was written together has it.
  const rows = named.length === 0 ? [] : await tx.all(channelsOf, { nsKey, versions });
  return new Map(rows.map(({ name, version, value }) => [`${name}\n${version}`, value]));
}

interface PendingWrite {
  readonly taskId: string;
  readonly taskPath: string;
  readonly write: StoredWrite;
}

/** Writes beside a checkpoint, those of later runs over those of earlier ones, in the order of task path, task and index. */
async function pendingWrites(
  tx: Tx,
  reader: ContentReader,
  nsKey: number,
  checkpointId: Uint8Array,
): Promise<PendingWrite[]> {
  const tasks = new Map<string, { taskPath: string; writes: readonly StoredWrite[] }>();
  for (const row of await tx.all(writesOf, { nsKey, checkpointId })) {
    const taskId = idFromBytes(row.task_id);
    const standing = tasks.get(taskId)?.writes ?? [];
    const writes = mergeWrites(standing, await readWrites(reader, row.body), false);
    tasks.set(taskId, { taskPath: longPath(row.task_path), writes });
  }
  return [...tasks]
    .map(([taskId, { taskPath, writes }]) => ({ taskId, taskPath, writes }))
    .sort((a, b) => compareText(a.taskPath, b.taskPath) || compareText(a.taskId, b.taskId))
    .flatMap(({ taskId, taskPath, writes }) => writes.map((write) => ({ taskId, taskPath, write })));
}

/** The writes of one row. */
export async function readWrites(reader: ContentReader, body: string): Promise<StoredWrite[]> {
  const [shape = '[]'] = await reader.texts([shapeOfBody(body)]);
  return decodeWrites(body, shape);
}

const compareText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
