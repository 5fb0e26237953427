import type { CheckpointPut, CheckpointStore, Fenced, Incomplete } from '@reindeer/protocol';
import { defineScript, type Tx } from '../executor.ts';
import { fenceRun } from '../fence.ts';
import { threadKey } from '../keys.ts';
import { appendFacts } from '../log/append.ts';
import { storeText } from '../messages.ts';
import { mirrorTitle } from '../threads/title.ts';
import { ContentReader, ContentWriter } from './content.ts';
import { encodeHead, encodeMetadata } from './head.ts';
import { idToBytes } from './ids.ts';
import { copy, prune, remove, rollback } from './maintenance.ts';
import { appendList, isMessageList } from './numbers.ts';
import { list, load, readWrites } from './read.ts';
import {
  channelOf,
  namespaceKey,
  putChannel,
  putCheckpoint,
  putWrites as putWritesOf,
  runKeyOf,
  writesOfTask,
} from './statements.ts';
import { encodeWrites, mergeWrites, type StoredWrite, shapeOfWrites, shortPath } from './writes.ts';

type Outcome = Fenced<object> | Incomplete;
type Channel = CheckpointPut['channels'][number];

/**
 * Every write begins with the fence, then looks whether the store has all that the input only mentions, and only then writes: with
 * another outcome than `ok` neither content nor facts are stored (D1, D4). Facts are appended in the same transaction (D3).
 */
const put = defineScript('checkpoints.put', 'write', async (tx, input: CheckpointPut): Promise<Outcome> => {
  const { fence, threadId, facts, now } = input;
  if (fence !== null && !(await fenceRun(tx, fence, threadId))) return { outcome: 'fenced' };
  const key = await threadKey(tx, threadId);
  const nsKey = await namespaceKey(tx, key, input.ns);
  const content = new ContentWriter(tx, key);
  const values = input.channels.map(({ value }) => value);
  if (!(await content.isComplete(values))) return { outcome: 'incomplete' };
  const bases = await basesOf(tx, key, nsKey, input.channels);
  if (bases === null) return { outcome: 'incomplete' };

  await content.storeMessages(values);
  for (const [index, { name, version, value, base }] of input.channels.entries()) {
    const own = content.inside(value.json);
    const text = base === undefined ? own : (appendList(bases[index] ?? '[]', base.keep, own) ?? own);
    await tx.run(putChannel, { nsKey, name, version, value: await content.outline(text) });
  }
  const { head: position } = await appendFacts(tx, { threadId, runId: fence?.runId ?? null, facts, now });
  const encoded = encodeHead(input.checkpoint, input.checkpointId);
  await tx.run(putCheckpoint, {
    nsKey,
    checkpointId: idToBytes(input.checkpointId),
    parentId: input.parentId === null ? null : idToBytes(input.parentId),
    head: 'whole' in encoded ? encoded.whole : encoded.head(await storeText(tx, key, encoded.shape)),
    metadata: encodeMetadata(input.metadata),
    position,
  });
  await mirrorTitle(tx, input);
  return { outcome: 'ok' };
});

/** The lists that channels continue, '' for those that continue none; null when one is not there or not long enough. */
async function basesOf(
  tx: Tx,
  key: number,
  nsKey: number,
  channels: readonly Channel[],
): Promise<readonly string[] | null> {
  const bases: string[] = [];
  for (const { name, base, value } of channels) {
    if (base === undefined) {
      bases.push('');
      continue;
    }
    const stored = await tx.first(channelOf, { nsKey, name, version: base.version });
    if (stored === undefined || !isMessageList(value.json)) return null;
    const [text = ''] = await new ContentReader(tx, key).outlined([stored.value]);
    if (appendList(text, base.keep, '[]') === null) return null;
    bases.push(text);
  }
  return bases;
}

type PutWrites = Parameters<CheckpointStore['putWrites']>[0];

const putWrites = defineScript('checkpoints.putWrites', 'write', async (tx, input: PutWrites): Promise<Outcome> => {
  const { fence, threadId, facts, now } = input;
  if (fence !== null && !(await fenceRun(tx, fence, threadId))) return { outcome: 'fenced' };
  const key = await threadKey(tx, threadId);
  const content = new ContentWriter(tx, key);
  const values = input.writes.flatMap(({ value }) => (value instanceof Uint8Array ? [] : [value]));
  if (!(await content.isComplete(values))) return { outcome: 'incomplete' };

  await content.storeMessages(values);
  const added: StoredWrite[] = [];
  for (const { index, channel, value } of input.writes) {
    added.push(
      value instanceof Uint8Array
        ? { index, channel, kind: 1, value: Buffer.from(value).toString('base64') }
        : { index, channel, kind: 0, value: await content.outline(content.inside(value.json)) },
    );
  }
  const place = {
    nsKey: await namespaceKey(tx, key, input.ns),
    checkpointId: idToBytes(input.checkpointId),
    taskId: idToBytes(input.taskId),
    runKey: await runKeyOf(tx, fence?.runId ?? null, key),
  };
  const standing = await tx.first(writesOfTask, place);
  const merged = mergeWrites(
    standing === undefined ? [] : await readWrites(new ContentReader(tx, key), standing.body),
    added,
    input.replace,
  );
  const shape = await storeText(tx, key, shapeOfWrites(merged));
  await tx.run(putWritesOf, { ...place, taskPath: shortPath(input.taskPath), body: encodeWrites(merged, shape) });
  if (facts.length > 0) await appendFacts(tx, { threadId, runId: fence?.runId ?? null, facts, now });
  return { outcome: 'ok' };
});

export const checkpointScripts = {
  'checkpoints.put': put,
  'checkpoints.putWrites': putWrites,
  'checkpoints.load': load,
  'checkpoints.list': list,
  'checkpoints.rollback': rollback,
  'checkpoints.prune': prune,
  'checkpoints.deleteThread': remove,
  'checkpoints.copyThread': copy,
};
