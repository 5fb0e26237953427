import { defineStatement, type Tx } from '../executor.ts';
import { expandFact } from '../log/compact.ts';
import { hashText } from '../messages.ts';
import { referencesIn } from '../references.ts';
import { ContentReader, outlineOf } from './content.ts';
import { channelVersions, shapeOf } from './head.ts';
import { rangesIn } from './numbers.ts';
import { readWrites } from './read.ts';
import { namespacesOf } from './statements.ts';
import { shapeOfBody } from './writes.ts';

/**
 * Removes what a deletion of checkpoints or writes left behind: channel values that no checkpoint names, namespaces without
 * rows, and texts that nothing mentions any more — no channel, no pending write, no fact, no journalled tool call.
 */

const headsOf = defineStatement((db, p: { nsKey: number }) =>
  db.selectFrom('checkpoints').select('head').where('ns_key', '=', p.nsKey),
);
const channelsOf = defineStatement((db, p: { nsKey: number }) =>
  db.selectFrom('checkpoint_channels').select(['name', 'version', 'value']).where('ns_key', '=', p.nsKey),
);
const bodiesOf = defineStatement((db, p: { nsKey: number }) =>
  db.selectFrom('checkpoint_writes').select('body').where('ns_key', '=', p.nsKey),
);
const deleteChannel = defineStatement((db, p: { nsKey: number; name: string; version: string }) =>
  db
    .deleteFrom('checkpoint_channels')
    .where('ns_key', '=', p.nsKey)
    .where('name', '=', p.name)
    .where('version', '=', p.version),
);
const deleteNamespace = defineStatement((db, p: { nsKey: number }) =>
  db.deleteFrom('checkpoint_namespaces').where('ns_key', '=', p.nsKey),
);
const addresses = defineStatement((db, p: { key: number }) =>
  db.selectFrom('messages').select(['number', 'hash']).where('thread_key', '=', p.key),
);
const deleteText = defineStatement((db, p: { key: number; number: number }) =>
  db.deleteFrom('messages').where('thread_key', '=', p.key).where('number', '=', p.number),
);
const factBodies = defineStatement((db, p: { key: number; after: number; limit: number }) =>
  db
    .selectFrom('facts')
    .select(['seq', 'body'])
    .where('thread_key', '=', p.key)
    .where('seq', '>', p.after)
    .orderBy('seq')
    .limit(p.limit),
);
const results = defineStatement((db, p: { key: number }) =>
  db.selectFrom('tool_calls').select('result').where('thread_key', '=', p.key).where('result', 'is not', null),
);

/** Facts read at once. */
const CHUNK = 500;

/** @param key of the thread */
export async function sweep(tx: Tx, key: number): Promise<void> {
  const used = new Set<number>();
  const reader = new ContentReader(tx, key);
  const values: string[] = [];
  for (const { ns_key: nsKey } of await tx.all(namespacesOf, { key })) {
    values.push(...(await sweepNamespace(tx, reader, nsKey, used)));
  }
  await mark(reader, values, used);
  const left = new Map<string, number>();
  for (const { number, hash } of await tx.all(addresses, { key })) {
    if (!used.has(number)) left.set(hashText(hash), number);
  }
  if (left.size === 0) return;
  await spareMentioned(tx, key, left);
  for (const number of left.values()) await tx.run(deleteText, { key, number });
}

/** Deletes a namespace's unused channel values, and itself when it is empty; answers the values that stay. */
async function sweepNamespace(tx: Tx, reader: ContentReader, nsKey: number, used: Set<number>): Promise<string[]> {
  const heads = (await tx.all(headsOf, { nsKey })).map((row) => row.head);
  const shapes = [...new Set(heads.map(shapeOf))].filter((number) => number !== null);
  const texts = await reader.texts(shapes);
  const shapeTexts = new Map(shapes.map((number, index) => [number, texts[index] ?? '']));
  for (const number of shapes) used.add(number);
  const named = new Set<string>();
  for (const head of heads) {
    const shape = shapeTexts.get(shapeOf(head) ?? -1) ?? '';
    for (const [name, version] of channelVersions(head, shape)) named.add(`${name}\n${version}`);
  }
  const values: string[] = [];
  for (const { name, version, value } of await tx.all(channelsOf, { nsKey })) {
    if (named.has(`${name}\n${version}`)) values.push(value);
    else await tx.run(deleteChannel, { nsKey, name, version });
  }
  const bodies = await tx.all(bodiesOf, { nsKey });
  for (const { body } of bodies) {
    used.add(shapeOfBody(body));
    for (const write of await readWrites(reader, body)) if (write.kind === 0) values.push(write.value);
  }
  if (heads.length === 0 && bodies.length === 0) await tx.run(deleteNamespace, { nsKey });
  return values;
}

/** Marks the texts that hold values and the messages that values mention. */
async function mark(reader: ContentReader, values: readonly string[], used: Set<number>): Promise<void> {
  for (const value of values) {
    const number = outlineOf(value);
    if (number !== null) used.add(number);
  }
  for (const text of await reader.outlined(values)) {
    for (const [from, to] of rangesIn(text)) for (let number = from; number <= to; number += 1) used.add(number);
  }
}

/** Takes those out of `left` that the log or the tool journal mentions. */
async function spareMentioned(tx: Tx, key: number, left: Map<string, number>): Promise<void> {
  const spare = (texts: readonly string[]): void => {
    for (const hash of referencesIn(texts)) left.delete(hash);
  };
  spare((await tx.all(results, { key })).map((row) => row.result ?? ''));
  for (let after = 0; left.size > 0; ) {
    const rows = await tx.all(factBodies, { key, after, limit: CHUNK });
    spare(rows.map((row) => expandFact(row.body)));
    if (rows.length < CHUNK) break;
    after = rows.at(-1)?.seq ?? after;
  }
}
