import type { AttemptStore, AttemptWrite, Fence } from '@reindeer/protocol';
import { describe, expect, test } from 'vitest';
import type { Scene, StoresFactory } from './scene.ts';
import { checkpointPut, packed, scenes, T0 } from './scene.ts';

/** What a store that takes several writes of an attempt at once must do (D1, D3, D7). */
export function attemptStoreContract(name: string, factory: StoresFactory): void {
  describe(`writes of an attempt: ${name}`, () => {
    const scene = scenes(factory);
    const key = (index: number) => ({ threadId: 'thread', messageId: 'm', index });
    const begin = (fence: Fence, index = 0): AttemptWrite => ({
      kind: 'begin',
      input: { fence, key: key(index), toolCallId: null, name: 'bash', attempt: 1, again: false, now: T0 },
    });
    const finish = (fence: Fence, index = 0, value: unknown = 'done'): AttemptWrite => ({
      kind: 'finish',
      input: { fence, key: key(index), outcome: 'ok', result: packed(value), now: T0 + 1 },
    });
    const idOf = (number: number) => `1f000000-0000-6000-8000-${String(number).padStart(12, '0')}`;
    const put = (fence: Fence, number: number, part: object = {}): AttemptWrite => ({
      kind: 'put',
      input: { ...checkpointPut(fence, idOf(number)), ...part },
    });
    const storeOf = (s: Scene): AttemptStore => {
      if (s.a.attempts === undefined) throw new Error('this store takes writes one by one only');
      return s.a.attempts;
    };
    const head = async (s: Scene) =>
      (await s.a.checkpoints.load({ threadId: 'thread', ns: '', checkpointId: null }))?.checkpointId ?? null;

    test('all of them are stored, in their order, and each has the answer of its port', async () => {
      const s = await scene();
      const { run, fence } = await s.running();
      const writes = [put(fence, 1), begin(fence), finish(fence), put(fence, 2), begin(fence, 1)];
      expect(await storeOf(s).write(writes)).toEqual([
        { outcome: 'ok' },
        { outcome: 'begin' },
        { outcome: 'ok', result: packed('done') },
        { outcome: 'ok' },
        { outcome: 'begin' },
      ]);
      expect(await head(s)).toBe(idOf(2));
      expect(await s.a.journal.unfinished('thread')).toMatchObject([{ key: key(1) }]);
      const tools = (await s.history()).filter((line) => line.includes('bash'));
      expect(tools).toEqual([
        `${run.runId} bash started 1`,
        `${run.runId} bash finished ok`,
        `${run.runId} bash started 1`,
      ]);
    });

    test('a repeat after a lost answer changes nothing, and answers what it answered', async () => {
      const s = await scene();
      const { fence } = await s.running();
      const writes = [put(fence, 1), begin(fence), finish(fence), put(fence, 2)];
      const first = await storeOf(s).write(writes);
      const history = await s.history();
      const again = await storeOf(s).write(writes);
      expect(again.map(({ outcome }) => outcome)).toEqual(['ok', 'finished', 'ok', 'ok']);
      expect(first).toHaveLength(4);
      expect(await s.history()).toEqual(history);
    });

    test('when one fails nothing of them is stored', async () => {
      const s = await scene();
      const { fence } = await s.running();
      const before = await s.history();
      // A call that never began cannot end.
      await expect(storeOf(s).write([put(fence, 1), begin(fence), finish(fence, 7)])).rejects.toThrow();
      expect(await head(s)).toBeNull();
      expect(await s.a.journal.unfinished('thread')).toEqual([]);
      expect(await s.history()).toEqual(before);
      expect(await storeOf(s).write([put(fence, 1)])).toEqual([{ outcome: 'ok' }]);
    });

    test('what stands before an incomplete one is stored, what stands behind it is not tried', async () => {
      const s = await scene();
      const { fence } = await s.running();
      const missing = {
        channels: [
          {
            name: 'messages',
            version: '2',
            value: { json: '[{"$m":"AAAAAAAAAAAAAAAAAAAAAA"}]', messages: [] },
          },
        ],
      };
      const answers = await storeOf(s).write([put(fence, 1), put(fence, 2, missing), begin(fence)]);
      expect(answers).toEqual([{ outcome: 'ok' }, { outcome: 'incomplete' }]);
      expect(await head(s)).toBe(idOf(1));
      expect(await s.a.journal.unfinished('thread')).toEqual([]);
    });

    test('a stale fence changes nothing', async () => {
      const s = await scene();
      const { run, fence } = await s.running();
      await s.claim({ deadOwners: [run.owner ?? ''], owner: s.id('owner') });
      const before = await s.history();
      expect(await storeOf(s).write([put(fence, 1), begin(fence)])).toEqual([{ outcome: 'fenced' }]);
      expect(await head(s)).toBeNull();
      expect(await s.history()).toEqual(before);
    });
  });
}
