import { sql } from 'kysely';
import { defineStatement, lasting, memoryOf, type Tx } from '../executor.ts';
import { isOneOf, storable, typed } from '../sql.ts';

const findNs = lasting(
  defineStatement((db, p: { threadId: string; ns: string }) =>
    db
      .selectFrom('thread_keys as t')
      .innerJoin('checkpoint_namespaces as n', 'n.thread_key', 't.thread_key')
      .select(['n.ns_key', 't.thread_key'])
      .where('t.thread_id', '=', p.threadId)
      .where('n.ns', '=', p.ns),
  ),
);
const createNs = defineStatement((db, p: { key: number; ns: string }) =>
  db
    .insertInto('checkpoint_namespaces')
    .values({ thread_key: p.key, ns: p.ns })
    .onConflict((c) => c.columns(['thread_key', 'ns']).doNothing()),
);
export const namespacesOf = defineStatement((db, p: { key: number }) =>
  db.selectFrom('checkpoint_namespaces').select(['ns_key', 'ns']).where('thread_key', '=', p.key),
);

/** The short form of a namespace with that of its thread; undefined = it has no rows. */
export const findPlace = (tx: Tx, threadId: string, ns: string) => tx.first(findNs, { threadId, ns });

/** The short form of a namespace, or null when it has no rows. */
export async function namespaceOf(tx: Tx, threadId: string, ns: string): Promise<number | null> {
  return (await findPlace(tx, threadId, ns))?.ns_key ?? null;
}

/** As `namespaceOf`, made when it is missing. @param key of the thread */
export async function makeNamespace(tx: Tx, key: number, threadId: string, ns: string): Promise<number> {
  await tx.run(createNs, { key, ns });
  return (await namespaceOf(tx, threadId, ns)) ?? 0;
}

interface Position {
  readonly nsKey: number;
  readonly checkpointId: Uint8Array;
}

/**
 * LangGraph writes a checkpoint again under its id when a run ends with it: the newer text stays. Its position is the thread's newest fact
 * by now, so that its own facts are appended before.
 */
export const putCheckpoint = defineStatement(
  (
    db,
    p: Position & { key: number; parentId: Uint8Array | null; head: string; metadata: string; position: number },
    dialect,
  ) =>
    db
      .insertInto('checkpoints')
      .values({
        ns_key: p.nsKey,
        checkpoint_id: p.checkpointId,
        parent_id: p.parentId,
        head: p.head,
        metadata: p.metadata,
        // What is known on SQLite is only in the row where facts are numbered by the statement that writes them.
        position:
          dialect.name === 'sqlite'
            ? p.position
            : sql<number>`(select head from thread_keys where thread_key = ${p.key})`,
      })
      .onConflict((c) =>
        c
          .columns(['ns_key', 'checkpoint_id'])
          .doUpdateSet({ parent_id: p.parentId, head: p.head, metadata: p.metadata }),
      ),
);
const putChannel = defineStatement((db, p: { nsKey: number; name: string; version: string; value: string }) =>
  db
    .insertInto('checkpoint_channels')
    .values({ ns_key: p.nsKey, name: p.name, version: p.version, value: p.value })
    .onConflict((c) => c.columns(['ns_key', 'name', 'version']).doNothing()),
);
/** `channels` is JSON: `[{n: name, v: version, x: value}, …]`. For Postgres, where each statement is a way over a network. */
const putChannels = defineStatement((db, p: { nsKey: number; channels: string }) =>
  db
    .insertInto('checkpoint_channels')
    .columns(['ns_key', 'name', 'version', 'value'])
    .expression(
      db
        .selectFrom(
          sql<{ n: string; v: string; x: string }>`json_to_recordset(${p.channels}::json)`.as(
            sql`c(n text, v text, x text)`,
          ),
        )
        .select([sql<number>`${p.nsKey}::bigint`.as('ns_key'), 'c.n', 'c.v', 'c.x']),
    )
    .onConflict((c) => c.columns(['ns_key', 'name', 'version']).doNothing()),
);

const WRITTEN = { begin: () => new Map<string, string>() };
const channelName = (nsKey: number, name: string, version: string): string => `${nsKey}\n${name}\n${version}`;

/** The value of a channel; undefined = it is not there. What this transaction has written is not asked for. */
export async function channelValue(
  tx: Tx,
  place: { readonly nsKey: number; readonly name: string; readonly version: string },
): Promise<string | undefined> {
  const written = memoryOf(tx, WRITTEN).get(channelName(place.nsKey, place.name, place.version));
  return written ?? (await tx.first(channelOf, place))?.value;
}

/** Stores values of channels, each once per version. */
export async function storeChannels(
  tx: Tx,
  nsKey: number,
  channels: readonly { readonly n: string; readonly v: string; readonly x: string }[],
): Promise<void> {
  if (tx.serial)
    for (const { n, v, x } of channels) {
      const inserted = await tx.run(putChannel, { nsKey, name: n, version: v, value: x });
      if (inserted === 1) memoryOf(tx, WRITTEN).set(channelName(nsKey, n, v), x);
    }
  else if (channels.length === 1)
    for (const { n, v, x } of channels) tx.send(putChannel, { nsKey, name: n, version: v, value: x });
  else if (channels.length > 0)
    tx.send(putChannels, { nsKey, channels: JSON.stringify(channels.map((one) => ({ ...one, x: storable(one.x) }))) });
}

const channelOf = defineStatement((db, p: { nsKey: number; name: string; version: string }) =>
  db
    .selectFrom('checkpoint_channels')
    .select('value')
    .where('ns_key', '=', p.nsKey)
    .where('name', '=', p.name)
    .where('version', '=', p.version),
);
/** `versions` is a JSON array. */
export const channelsOf = defineStatement((db, p: { nsKey: number; versions: string }, dialect) =>
  db
    .selectFrom('checkpoint_channels')
    .select(['name', 'version', 'value'])
    .where('ns_key', '=', p.nsKey)
    .where(isOneOf(dialect, 'version', p.versions, 'text')),
);
interface Writes extends Position {
  readonly taskId: Uint8Array;
  readonly runKey: number;
  readonly taskPath: string;
  readonly body: string;
}
export const insertWrites = defineStatement((db, p: Writes) =>
  db
    .insertInto('checkpoint_writes')
    .values({
      ns_key: p.nsKey,
      checkpoint_id: p.checkpointId,
      task_id: p.taskId,
      run_key: p.runKey,
      task_path: p.taskPath,
      body: p.body,
    })
    .onConflict((c) => c.columns(['ns_key', 'checkpoint_id', 'task_id', 'run_key']).doNothing()),
);
export const updateWrites = defineStatement((db, p: Writes) =>
  db
    .updateTable('checkpoint_writes')
    .set({ task_path: p.taskPath, body: p.body })
    .where('ns_key', '=', p.nsKey)
    .where('checkpoint_id', '=', p.checkpointId)
    .where('task_id', '=', p.taskId)
    .where('run_key', '=', p.runKey),
);
export const writesOfTask = defineStatement((db, p: Position & { taskId: Uint8Array; runKey: number }) =>
  db
    .selectFrom('checkpoint_writes')
    .select('body')
    .where('ns_key', '=', p.nsKey)
    .where('checkpoint_id', '=', p.checkpointId)
    .where('task_id', '=', p.taskId)
    .where('run_key', '=', p.runKey),
);
/** In the order in which runs lie over each other. */
export const writesOf = defineStatement((db, p: Position) =>
  db
    .selectFrom('checkpoint_writes')
    .select(['task_id', 'task_path', 'body'])
    .where('ns_key', '=', p.nsKey)
    .where('checkpoint_id', '=', p.checkpointId)
    .orderBy('task_id')
    .orderBy('run_key'),
);

export const checkpointAt = defineStatement((db, p: Position) =>
  db
    .selectFrom('checkpoints')
    .select(['checkpoint_id', 'parent_id', 'head', 'metadata', 'position'])
    .where('ns_key', '=', p.nsKey)
    .where('checkpoint_id', '=', p.checkpointId),
);
/** The last one that was written. */
export const newestCheckpoint = defineStatement((db, p: { nsKey: number }) =>
  db
    .selectFrom('checkpoints')
    .select(['checkpoint_id', 'parent_id', 'head', 'metadata'])
    .where('ns_key', '=', p.nsKey)
    .orderBy('position', 'desc')
    .orderBy('checkpoint_id', 'desc')
    .limit(1),
);

/** By id, the highest first, before a position in that order; null bounds are open. */
export const listCheckpoints = defineStatement(
  (
    db,
    p: {
      threadId: string | null;
      ns: string | null;
      checkpointId: Uint8Array | null;
      before: Uint8Array | null;
      afterId: Uint8Array | null;
      afterNs: number;
      limit: number;
    },
    dialect,
  ) =>
    db
      .selectFrom('checkpoints as c')
      .innerJoin('checkpoint_namespaces as n', 'n.ns_key', 'c.ns_key')
      .innerJoin('thread_keys as t', 't.thread_key', 'n.thread_key')
      .select([
        't.thread_id',
        't.thread_key',
        'n.ns',
        'c.ns_key',
        'c.checkpoint_id',
        'c.parent_id',
        'c.head',
        'c.metadata',
      ])
      .where(sql<boolean>`(${typed(dialect, p.threadId, 'text')} is null or t.thread_id = ${p.threadId})`)
      .where(sql<boolean>`(${typed(dialect, p.ns, 'text')} is null or n.ns = ${p.ns})`)
      .where(sql<boolean>`(${typed(dialect, p.checkpointId, 'bytea')} is null or c.checkpoint_id = ${p.checkpointId})`)
      .where(sql<boolean>`(${typed(dialect, p.before, 'bytea')} is null or c.checkpoint_id < ${p.before})`)
      .where(
        sql<boolean>`(${typed(dialect, p.afterId, 'bytea')} is null or c.checkpoint_id < ${p.afterId} or (c.checkpoint_id = ${p.afterId} and c.ns_key > ${p.afterNs}))`,
      )
      .orderBy('c.checkpoint_id', 'desc')
      .orderBy('c.ns_key')
      .limit(p.limit),
);
