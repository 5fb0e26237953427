import type { Stores } from '@reindeer/protocol';
import { testSurroundings } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { openMemory, openSqlite } from '../index.ts';

const surroundings = testSurroundings();
const openings: [string, () => Promise<Stores>][] = [
  ['SQLite', () => openSqlite({ folder: ':memory:', surroundings })],
  ['memory', async () => openMemory({ surroundings })],
];

describe.each(openings)('titles on %s', (_, openStores) => {
  test('a row follows the title channel of the root graph, and nothing else', async () => {
    const stores = await openStores();
    const key = { threadId: 't', userId: 'u' };
    await stores.threads.create({ ...key, metadata: {}, now: 1 });
    const put = (checkpointId: string, ns: string, name: string, json: string) =>
      stores.checkpoints.put({
        fence: null,
        threadId: 't',
        ns,
        checkpointId,
        parentId: null,
        checkpoint: '{}',
        metadata: '{}',
        channels: [{ name, version: checkpointId, value: { json, messages: [] } }],
        facts: [],
        now: 2,
      });
    const title = async () => (await stores.threads.get(key))?.title;
    await put('1ef00000-0000-6000-8000-000000000001', '', 'title', '"First"');
    expect(await title()).toBe('First');
    await put('1ef00000-0000-6000-8000-000000000002', '', 'other', '"Second"');
    await put('1ef00000-0000-6000-8000-000000000003', 'sub', 'title', '"Third"');
    await put('1ef00000-0000-6000-8000-000000000004', '', 'title', '{"not":"a title"}');
    expect(await title()).toBe('First');
    await put('1ef00000-0000-6000-8000-000000000005', '', 'title', 'null');
    expect(await title()).toBeNull();
    await stores.close();
  });
});
