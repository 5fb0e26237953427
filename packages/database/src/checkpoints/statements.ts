import { sql } from 'kysely';
import { defineStatement, lasting, type Tx } from '../executor.ts';
import { typed } from '../sql.ts';

const findNs = lasting(
  defineStatement((db, p: { key: number; ns: string }) =>
    db.selectFrom('checkpoint_namespaces').select('ns_key').where('thread_key', '=', p.key).where('ns', '=', p.ns),
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

export async function findNamespace(tx: Tx, key: number, ns: string): Promise<number | null> {
  return (await tx.first(findNs, { key, ns }))?.ns_key ?? null;
}

export async function namespaceKey(tx: Tx, key: number, ns: string): Promise<number> {
  const found = await findNamespace(tx, key, ns);
  if (found !== null) return found;
  await tx.run(createNs, { key, ns });
  return (await findNamespace(tx, key, ns)) ?? 0;
}

const findRun = lasting(
  defineStatement((db, p: { runId: string }) =>
    db.selectFrom('run_keys').select('run_key').where('run_id', '=', p.runId),
  ),
);
const createRun = defineStatement((db, p: { runId: string; key: number }) =>
  db
    .insertInto('run_keys')
    .values({ run_id: p.runId, thread_key: p.key })
    .onConflict((c) => c.column('run_id').doNothing()),
);

/** The short form of a run id in rows of writes; 0 = outside a run. */
export async function findRunKey(tx: Tx, runId: string): Promise<number | null> {
  return (await tx.first(findRun, { runId }))?.run_key ?? null;
}

export async function runKeyOf(tx: Tx, runId: string | null, key: number): Promise<number> {
  if (runId === null) return 0;
  const found = await findRunKey(tx, runId);
  if (found !== null) return found;
  await tx.run(createRun, { runId, key });
  return (await findRunKey(tx, runId)) ?? 0;
}

interface Position {
  readonly nsKey: number;
  readonly checkpointId: Uint8Array;
}

/** LangGraph writes a checkpoint again under its id when a run ends with it: the newer text stays. */
export const putCheckpoint = defineStatement(
  (db, p: Position & { parentId: Uint8Array | null; head: string; metadata: string; position: number }) =>
    db
      .insertInto('checkpoints')
      .values({
        ns_key: p.nsKey,
        checkpoint_id: p.checkpointId,
        parent_id: p.parentId,
        head: p.head,
        metadata: p.metadata,
        position: p.position,
      })
      .onConflict((c) =>
        c
          .columns(['ns_key', 'checkpoint_id'])
          .doUpdateSet({ parent_id: p.parentId, head: p.head, metadata: p.metadata }),
      ),
);
export const putChannel = defineStatement((db, p: { nsKey: number; name: string; version: string; value: string }) =>
  db
    .insertInto('checkpoint_channels')
    .values({ ns_key: p.nsKey, name: p.name, version: p.version, value: p.value })
    .onConflict((c) => c.columns(['ns_key', 'name', 'version']).doNothing()),
);
export const channelOf = defineStatement((db, p: { nsKey: number; name: string; version: string }) =>
  db
    .selectFrom('checkpoint_channels')
    .select('value')
    .where('ns_key', '=', p.nsKey)
    .where('name', '=', p.name)
    .where('version', '=', p.version),
);
export const putWrites = defineStatement(
  (db, p: Position & { taskId: Uint8Array; runKey: number; taskPath: string; body: string }) =>
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
      .onConflict((c) =>
        c
          .columns(['ns_key', 'checkpoint_id', 'task_id', 'run_key'])
          .doUpdateSet({ task_path: p.taskPath, body: p.body }),
      ),
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
