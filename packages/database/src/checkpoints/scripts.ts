import type { CheckpointPut, CheckpointStore, Fenced, Incomplete } from '@reindeer/protocol';
import { defineScript, type Tx } from '../executor.ts';
import { fenceRun } from '../fence.ts';
import { counterOf, findRunKey, lockCounter, runKeyOf } from '../keys.ts';
import { appendFacts } from '../log/append.ts';
import { textOf } from '../messages.ts';
import { mirrorTitle } from '../threads/title.ts';
import { ContentReader, ContentWriter } from './content.ts';
import { encodeHead, encodeMetadata } from './head.ts';
import { idToBytes } from './ids.ts';
import { copy, prune, remove, rollback } from './maintenance.ts';
import { appendList, isMessageList } from './numbers.ts';
import { list, load, readWrites } from './read.ts';
import {
  channelValue,
  insertWrites,
  makeNamespace,
  namespaceOf,
  putCheckpoint,
  storeChannels,
  updateWrites,
  writesOfTask,
} from './statements.ts';
import { encodeWrites, mergeWrites, type StoredWrite, shapeOfWrites, shortPath } from './writes.ts';

type Outcome = Fenced<object> | Incomplete;
type Channel = CheckpointPut['channels'][number];

/** The thread's rows that a write needs, behind its fence. Asked for together. */
async function openPlace(
  tx: Tx,
  { fence, threadId, ns }: Pick<CheckpointPut, 'fence' | 'threadId' | 'ns'>,
): Promise<{ readonly key: number; readonly nsKey: number } | null> {
  const [held, , nsKey] = await Promise.all([
    fence === null || fenceRun(tx, fence, threadId),
    lockCounter(tx, threadId),
    namespaceOf(tx, threadId, ns),
  ]);
  if (!held) return null;
  const { key } = await counterOf(tx, threadId);
  return { key, nsKey: nsKey ?? (await makeNamespace(tx, key, threadId, ns)) };
}

/**
 * Every write begins with the fence, then looks whether the store has all that the input only mentions, and only then writes: with
 * another outcome than `ok` neither content nor facts are stored (D1, D4). Facts are appended in the same transaction (D3).
 */
const put = defineScript('checkpoints.put', 'write', async (tx, input: CheckpointPut): Promise<Outcome> => {
  const { fence, threadId, facts, now } = input;
  const place = await openPlace(tx, input);
  if (place === null) return { outcome: 'fenced' };
  const { key, nsKey } = place;
  const content = new ContentWriter(tx, key);
  const values = input.channels.map(({ value }) => value);
  const encoded = encodeHead(input.checkpoint, input.checkpointId);
  const shapes = 'whole' in encoded ? [] : [textOf(encoded.shape)];
  const [complete, bases] = await Promise.all([
    content.isComplete(values, shapes),
    basesOf(tx, key, nsKey, input.channels),
  ]);
  if (!complete || bases === null) return { outcome: 'incomplete' };

  await content.storeMessages(values, shapes);
  const channels: { n: string; v: string; x: string }[] = [];
  for (const [index, { name, version, value, base }] of input.channels.entries()) {
    const own = content.inside(value.json);
    const text = base === undefined ? own : (appendList(bases[index] ?? '[]', base.keep, own) ?? own);
    channels.push({ n: name, v: version, x: await content.outline(text) });
  }
  await storeChannels(tx, nsKey, channels);
  await appendFacts(tx, { threadId, runId: fence?.runId ?? null, facts, now });
  tx.send(putCheckpoint, {
    key,
    nsKey,
    checkpointId: idToBytes(input.checkpointId),
    parentId: input.parentId === null ? null : idToBytes(input.parentId),
    head: 'whole' in encoded ? encoded.whole : encoded.head(await content.store(encoded.shape)),
    metadata: encodeMetadata(input.metadata),
    position: (await counterOf(tx, threadId)).head,
  });
  mirrorTitle(tx, input);
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
    const stored = await channelValue(tx, { nsKey, name, version: base.version });
    if (stored === undefined || !isMessageList(value.json)) return null;
    const [text = ''] = await new ContentReader(tx, key).outlined([stored]);
    if (appendList(text, base.keep, '[]') === null) return null;
    bases.push(text);
  }
  return bases;
}

type PutWrites = Parameters<CheckpointStore['putWrites']>[0];

const putWrites = defineScript('checkpoints.putWrites', 'write', async (tx, input: PutWrites): Promise<Outcome> => {
  const { fence, threadId, facts, now } = input;
  const runId = fence?.runId ?? null;
  const [place] = await Promise.all([openPlace(tx, input), runId === null ? null : findRunKey(tx, runId)]);
  if (place === null) return { outcome: 'fenced' };
  const { key, nsKey } = place;
  const row = {
    nsKey,
    checkpointId: idToBytes(input.checkpointId),
    taskId: idToBytes(input.taskId),
    runKey: runId === null ? 0 : await runKeyOf(tx, runId, key),
  };
  const content = new ContentWriter(tx, key);
  const values = input.writes.flatMap(({ value }) => (value instanceof Uint8Array ? [] : [value]));
  // What it is, unless writes of this task stand there already, which is rare.
  const likely = textOf(shapeOfWrites(mergeWrites([], input.writes.map(placeOf), input.replace)));
  if (!(await content.isComplete(values, [likely]))) return { outcome: 'incomplete' };

  await content.storeMessages(values, [likely]);
  const added: StoredWrite[] = [];
  for (const write of input.writes) {
    const { value } = write;
    added.push({
      ...placeOf(write),
      value:
        value instanceof Uint8Array
          ? Buffer.from(value).toString('base64')
          : await content.outline(content.inside(value.json)),
    });
  }
  const taskPath = shortPath(input.taskPath);
  const merge = (standing: readonly StoredWrite[]) => mergeWrites(standing, added, input.replace);
  const fresh = encodeWrites(merge([]), await content.store(likely.body, likely));
  if ((await tx.run(insertWrites, { ...row, taskPath, body: fresh })) === 0) {
    const before = await tx.first(writesOfTask, row);
    const merged = merge(before === undefined ? [] : await readWrites(new ContentReader(tx, key), before.body));
    const shape = await content.store(shapeOfWrites(merged), likely);
    tx.send(updateWrites, { ...row, taskPath, body: encodeWrites(merged, shape) });
  }
  await appendFacts(tx, { threadId, runId, facts, now });
  return { outcome: 'ok' };
});

const placeOf = ({ index, channel, value }: PutWrites['writes'][number]): StoredWrite => ({
  index,
  channel,
  kind: value instanceof Uint8Array ? 1 : 0,
  value: '',
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
