import { createHash } from 'node:crypto';
import type { CheckpointPut, Fence, PackedMessage } from '@reindeer/protocol';
import { Scene, T0, testSurroundings } from '@reindeer/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openInline } from '../sqlite/inline.ts';
import type { SqliteStores } from '../sqlite/open.ts';

/** What a deletion of checkpoints leaves in the tables. */
describe('sweeping', () => {
  let stores: SqliteStores;
  beforeEach(async () => {
    stores = await openInline({ surroundings: testSurroundings() });
  });
  afterEach(() => stores.close());

  const idOf = (number: number): string => `1f000000-0000-6000-8000-${String(number).padStart(12, '0')}`;
  const messageOf = (number: number): PackedMessage => {
    const body = JSON.stringify({ type: 'human', id: `m${number}`, content: `message ${number}` });
    return {
      hash: createHash('sha256').update(body).digest().subarray(0, 16).toString('base64url'),
      id: `m${number}`,
      body,
    };
  };

  /** A checkpoint with one message and one large value of its own. */
  async function put(number: number, part: { fence?: Fence; threadId?: string } = {}): Promise<void> {
    const message = messageOf(number);
    const mention = { $m: message.hash };
    const version = `v${number}`;
    const place = { fence: null, threadId: 'thread', ns: '', checkpointId: idOf(number), facts: [], now: T0, ...part };
    const input: CheckpointPut = {
      ...place,
      parentId: null,
      checkpoint: JSON.stringify({
        v: 4,
        id: idOf(number),
        ts: new Date(T0).toISOString(),
        channel_versions: { messages: version, doc: version },
        versions_seen: {},
      }),
      metadata: '{"source":"loop","step":1,"parents":{}}',
      channels: [
        { name: 'messages', version, value: { json: JSON.stringify([mention]), messages: [message] } },
        {
          name: 'doc',
          version,
          value: { json: JSON.stringify({ text: `${number}`.repeat(2000), mention }), messages: [message] },
        },
      ],
    };
    await stores.checkpoints.put(input);
    const value = { json: JSON.stringify(mention), messages: [message] };
    const writes = [{ index: 0, channel: 'messages', type: 'json' as const, value }];
    await stores.checkpoints.putWrites({ ...place, taskId: 'task', taskPath: '', replace: false, writes });
  }

  const TABLES = ['messages', 'checkpoints', 'checkpoint_channels', 'checkpoint_writes', 'checkpoint_namespaces'];
  async function rows(): Promise<Record<string, number>> {
    const { tables } = await stores.stats();
    return Object.fromEntries(
      tables.filter(({ name }) => TABLES.includes(name)).map(({ name, rows: count }) => [name, count]),
    );
  }
  const NOTHING = Object.fromEntries(TABLES.map((name) => [name, 0]));

  test('pruning leaves as much as if only what is kept had ever been', async () => {
    await put(9);
    const one = await rows();
    expect(one).toEqual({
      messages: 4,
      checkpoints: 1,
      checkpoint_channels: 2,
      checkpoint_writes: 1,
      checkpoint_namespaces: 1,
    });
    for (const number of [1, 2, 3]) await put(number);
    expect((await rows()).messages).toBe(4 + 3 * 2);
    await stores.checkpoints.prune({ threadId: 'thread', keep: 1 });
    expect(await rows()).toEqual(one);
    expect((await stores.checkpoints.load({ threadId: 'thread', ns: '', checkpointId: null }))?.checkpointId).toBe(
      idOf(9),
    );
  });

  test('a rollback to nothing and a deleted thread leave nothing', async () => {
    const scene = new Scene({ a: stores, b: stores, close: () => stores.close() });
    const { fence } = await scene.running();
    await put(1, { fence });
    await stores.checkpoints.rollback({ fence, threadId: 'thread', checkpointId: '', now: T0 });
    expect(await rows()).toEqual(NOTHING);
    await put(2, { threadId: 'other' });
    await stores.checkpoints.deleteThread('other');
    expect(await rows()).toEqual(NOTHING);
  });

  test('numbers that were given free and given out again mean the new texts', async () => {
    for (const number of [1, 2]) await put(number);
    await stores.checkpoints.prune({ threadId: 'thread', keep: 1 });
    await put(3);
    for (const number of [2, 3]) {
      const loaded = await stores.checkpoints.load({ threadId: 'thread', ns: '', checkpointId: idOf(number) });
      expect(loaded?.messages).toEqual([messageOf(number)]);
    }
  });
});
