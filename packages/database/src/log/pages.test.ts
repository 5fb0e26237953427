import { Scene, testSurroundings, verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openInline } from '../sqlite/inline.ts';
import type { SqliteStores } from '../sqlite/open.ts';

let stores: SqliteStores;
let scene: Scene;
beforeEach(async () => {
  stores = await openInline({ surroundings: testSurroundings() });
  scene = new Scene({ a: stores, b: stores, close: () => stores.close() });
});
afterEach(() => stores.close());

const message = (id: string, content: string) =>
  ({ key: id, body: { kind: 'message', ns: '', message: { type: 'human', id, content } } }) as const;
const ids = (page: { readonly facts: readonly { readonly body: object }[] }) =>
  page.facts.map(({ body }) => (body as { message?: { id?: string } }).message?.id);

test('a page of large messages is short, and the next goes on where it ended', verifies('RE-04'), async () => {
  const { fence } = await scene.running();
  const large = 'x'.repeat(3 * 1024 * 1024);
  const facts = ['a', 'b', 'c', 'd', 'e'].map((id) => message(id, large));
  await stores.log.append({ fence, threadId: 'thread', facts, now: 1 });
  const read = (before: number | null, after: number | null) =>
    stores.log.messages({ threadId: 'thread', runId: null, before, after, limit: 100 });
  const newest = await read(null, null);
  expect(ids(newest)).toEqual(['d', 'e']);
  const older = await read(newest.facts[0]?.seq ?? 0, null);
  expect(ids(older)).toEqual(['b', 'c']);
  expect(ids(await read(older.facts[0]?.seq ?? 0, null))).toEqual(['a']);
  const oldest = await read(null, 0);
  expect(ids(oldest)).toEqual(['a', 'b']);
  expect(ids(await read(null, oldest.facts.at(-1)?.seq ?? 0))).toEqual(['c', 'd']);
});

test('more facts than are fetched at once come in order, for a run as for a thread', async () => {
  const { fence } = await scene.running();
  const facts = Array.from({ length: 300 }, (_, n) => message(`m${n}`, 'x'));
  await stores.log.append({ fence, threadId: 'thread', facts, now: 1 });
  const all = facts.map((fact) => fact.key);
  for (const runId of [null, fence.runId]) {
    const read = { threadId: 'thread', runId, afterSeq: 2, limit: 1000, maxBytes: 1e6 };
    expect(ids(await stores.log.read(read))).toEqual(all);
    expect(ids(await stores.log.read({ ...read, limit: 200 }))).toEqual(all.slice(0, 200));
    const page = { threadId: 'thread', runId, before: null, after: null, limit: 200 };
    expect(ids(await stores.log.messages(page))).toEqual(all.slice(-200));
    expect(ids(await stores.log.messages({ ...page, after: 0 }))).toEqual(all.slice(0, 200));
  }
});

test('data that only looks like a reference stays as it is', async () => {
  const { fence } = await scene.running();
  const data = { $m: 'A'.repeat(22), text: `{"$m":"${'A'.repeat(22)}"}`, list: [{ $m: 'A'.repeat(22) }] };
  await stores.log.append({
    fence,
    threadId: 'thread',
    facts: [{ key: 'k', body: { kind: 'custom', ns: '', data } }],
    now: 1,
  });
  const { facts } = await stores.log.read({ threadId: 'thread', runId: null, afterSeq: 2, limit: 1, maxBytes: 1e6 });
  expect(facts[0]?.body).toEqual({ kind: 'custom', ns: '', data });
});
