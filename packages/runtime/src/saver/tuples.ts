import type { RunnableConfig } from '@langchain/core/runnables';
import {
  type Checkpoint,
  type CheckpointMetadata,
  type CheckpointPendingWrite,
  type CheckpointTuple,
  compareWritesSortKeys,
  maxChannelVersion,
  TASKS,
  writesSortKey,
} from '@langchain/langgraph-checkpoint';
import type { CheckpointStore, LoadedCheckpoint } from '@reindeer/protocol';
import { configOf } from './address.ts';
import type { Packer } from './packer.ts';

/** What a loaded checkpoint is turned into live objects with. */
export interface Reading {
  readonly store: Pick<CheckpointStore, 'load'>;
  readonly packer: Packer;
  /** The packer may count the messages as stored. */
  readonly areStored: boolean;
  readonly nextVersion: () => string;
}

/**
 * A checkpoint as LangGraph reads it. Pending writes stand in the order in which the tasks of the step are applied, so that
 * the results of parallel tools keep their order after a restart.
 *
 * @param config what the caller asked with, when it named the checkpoint
 */
export async function tupleOf(
  loaded: LoadedCheckpoint,
  config: RunnableConfig | undefined,
  reading: Reading,
): Promise<CheckpointTuple> {
  const { threadId, ns, checkpointId, parentId } = loaded;
  const ordered = loaded.writes
    .map((row) => ({ row, key: writesSortKey(row.taskPath, row.taskId, row.index) }))
    .sort((a, b) => compareWritesSortKeys(a.key, b.key))
    .map(({ row }) => row);
  const texts = [
    loaded.metadata,
    ...loaded.channels.map(({ json }) => json),
    ...ordered.map((row) => (row.type === 'json' ? row.json : 'null')),
  ];
  const [metadata, ...values] = await reading.packer.unpackAll(texts, loaded.messages, reading.areStored);
  const channelValues: Record<string, unknown> = {};
  for (const [index, { name }] of loaded.channels.entries()) channelValues[name] = values[index];
  const rest = JSON.parse(loaded.checkpoint) as Omit<Checkpoint, 'channel_values'>;
  const checkpoint: Checkpoint = { ...rest, channel_values: channelValues };
  if (checkpoint.v < 4 && parentId !== null) await migrateSends(checkpoint, { threadId, ns, parentId }, reading);
  return {
    config: config ?? configOf(threadId, ns, checkpointId),
    checkpoint,
    metadata: metadata as CheckpointMetadata,
    ...(parentId === null ? {} : { parentConfig: configOf(threadId, ns, parentId) }),
    pendingWrites: ordered.map((row, index): CheckpointPendingWrite => {
      const value = row.type === 'bytes' ? row.bytes : values[loaded.channels.length + index];
      return [row.taskId, row.channel, value];
    }),
  };
}

/** Checkpoints of LangGraph's old formats keep their Sends among the writes of the parent. */
async function migrateSends(
  checkpoint: Checkpoint,
  at: { readonly threadId: string; readonly ns: string; readonly parentId: string },
  reading: Reading,
): Promise<void> {
  const parent = await reading.store.load({ threadId: at.threadId, ns: at.ns, checkpointId: at.parentId });
  const writes = parent === null ? [] : ((await tupleOf(parent, undefined, reading)).pendingWrites ?? []);
  const sends = writes.filter(([, channel]) => channel === TASKS).map(([, , value]) => value);
  (checkpoint.channel_values as Record<string, unknown>)[TASKS] = sends;
  const versions = Object.values(checkpoint.channel_versions);
  (checkpoint.channel_versions as Record<string, string | number>)[TASKS] =
    versions.length > 0 ? maxChannelVersion(...versions) : reading.nextVersion();
}
