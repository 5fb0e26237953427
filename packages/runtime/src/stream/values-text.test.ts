import { AIMessage, HumanMessage } from '@langchain/core/messages';
import type { CheckpointStore, GraphFactory, LoadedCheckpoint } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { Packer } from '../saver/index.ts';
import { ValuesCache, valuesText } from './values-text.ts';

const packer = new Packer();

function loaded(values: Record<string, unknown>): LoadedCheckpoint {
  const packed = Object.entries(values).map(([name, value]) => ({ name, packed: packer.pack(value) }));
  return {
    threadId: 't',
    ns: '',
    checkpointId: 'c',
    parentId: null,
    checkpoint: '{}',
    metadata: '{}',
    channels: packed.map(({ name, packed: { json } }) => ({ name, version: '1', json })),
    writes: [],
    messages: packed.flatMap(({ packed: { messages } }) => messages),
  };
}

describe('states as text', () => {
  test('messages stand whole, special values as clients see them, other channels not at all', () => {
    const text = valuesText(
      loaded({
        messages: [
          new HumanMessage({ id: 'h', content: 'a "quoted" {"$m":"x"} text' }),
          new AIMessage({ id: 'a', content: [{ type: 'text', text: 'b' }] }),
        ],
        tags: new Set(['x']),
        nested: { list: [1, { message: new HumanMessage({ id: 'n', content: 'inner' }) }] },
        hidden: 'not for clients',
      }),
      ['messages', 'tags', 'nested'],
    );
    expect(JSON.parse(text)).toEqual({
      messages: [
        { type: 'human', id: 'h', content: 'a "quoted" {"$m":"x"} text' },
        { type: 'ai', id: 'a', content: [{ type: 'text', text: 'b' }] },
      ],
      tags: ['x'],
      nested: { list: [1, { message: { type: 'human', id: 'n', content: 'inner' } }] },
    });
  });

  test(
    'a failed load is a miss, a deleted thread leaves nothing, and memory is bounded',
    verifies('RB-13'),
    async () => {
      let fail = true;
      let loads = 0;
      const checkpoints = {
        load: async ({ threadId }: { threadId: string }) => {
          loads += 1;
          if (fail) throw new Error('down');
          return { ...loaded({ title: 'x'.repeat(100) }), threadId };
        },
      } as unknown as CheckpointStore;
      const cache = new ValuesCache({ checkpoints, limit: 1_000, keysOf: async () => ['title'] });
      const factory = { assistantId: 'a' } as GraphFactory;
      await expect(cache.text('t', 'c', factory)).rejects.toThrow('down');
      fail = false;
      const [one, two] = await Promise.all([cache.text('t', 'c', factory), cache.text('t', 'c', factory)]);
      expect(one).toBe(two);
      expect(loads).toBe(2);
      for (let i = 0; i < 50; i += 1) await cache.text('other', `c${i}`, factory);
      expect(cache.size.characters).toBeLessThanOrEqual(1_000);
      await cache.text('t', 'c', factory);
      cache.purge('other');
      expect(cache.size.states).toBe(1);
      cache.purge('t');
      expect(cache.size).toEqual({ states: 0, characters: 0 });
    },
  );
});
