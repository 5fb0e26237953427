import { createHash } from 'node:crypto';
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

    test('one goes on with what the one before it wrote, and the next call with both', async () => {
      const s = await scene();
      const { run, fence } = await s.running();
      const message = (n: number) => {
        const body = JSON.stringify({ type: 'human', id: `m${n}`, content: 'x'.repeat(600) });
        return {
          hash: createHash('sha256').update(body).digest().subarray(0, 16).toString('base64url'),
          id: `m${n}`,
          body,
        };
      };
      const grown = (number: number): AttemptWrite =>
        put(fence, number, {
          checkpoint: JSON.stringify({ v: 4, id: idOf(number), channel_versions: { messages: `v${number}` } }),
          channels: [
            {
              name: 'messages',
              version: `v${number}`,
              value: { json: JSON.stringify([{ $m: message(number).hash }]), messages: [message(number)] },
              ...(number === 1 ? {} : { base: { version: `v${number - 1}`, keep: number - 1 } }),
            },
          ],
        });
      const ok = { outcome: 'ok' };
      expect(await storeOf(s).write([grown(1), grown(2)])).toEqual([ok, ok]);
      expect(await storeOf(s).write([grown(3), begin(fence), grown(4)])).toEqual([ok, { outcome: 'begin' }, ok]);
      const loaded = await s.a.checkpoints.load({ threadId: 'thread', ns: '', checkpointId: null });
      expect(loaded?.checkpointId).toBe(idOf(4));
      const list = JSON.parse(loaded?.channels[0]?.json ?? '') as { $m: string }[];
      expect(list.map(({ $m }) => $m)).toEqual([1, 2, 3, 4].map((n) => message(n).hash));
      expect(loaded?.messages).toHaveLength(4);
      const page = await s.a.log.read({
        threadId: 'thread',
        runId: run.runId,
        afterSeq: 0,
        limit: 99,
        maxBytes: 99_999,
      });
      expect(page.facts.map(({ seq }) => seq)).toEqual(page.facts.map((_, index) => index + 1));
      expect(page.head).toBe(page.facts.length);
    });

    const beginning = (s: Scene, { runId, token }: Fence) =>
      storeOf(s).begin({ fence: { runId, token }, threadId: 'thread', now: T0 });

    test('an admitted run begins at the head of its thread; sent behind the admission, it finds it', async () => {
      const s = await scene();
      const first = await s.admit();
      expect(await beginning(s, first.fence)).toMatchObject({
        outcome: 'begun',
        run: { runId: first.run.runId, status: 'running', attempt: 1, checkpointBefore: '' },
        head: null,
      });
      await storeOf(s).write([put(first.fence, 1)]);
      await s.finalize(first.fence, 'success');

      const admission = s.admission();
      const fence = { runId: admission.runId, token: admission.token };
      const [admitted, begun] = await Promise.all([s.a.runs.admit(admission), beginning(s, fence)]);
      expect(admitted).toMatchObject({ outcome: 'admitted', run: { status: 'pending', attempt: 0 } });
      expect(begun).toMatchObject({
        outcome: 'begun',
        run: { status: 'running', attempt: 1, checkpointBefore: idOf(1) },
        head: { checkpointId: idOf(1) },
      });
      const { runId } = admission;
      const page = await s.a.log.read({ threadId: 'thread', runId, afterSeq: 0, limit: 10, maxBytes: 65_536 });
      expect(begun).toMatchObject({ log: page });
      expect(await s.a.runs.get(admission.runId)).toMatchObject({ status: 'running', checkpointBefore: idOf(1) });
      const mine = (await s.history()).filter((line) => line.includes(admission.runId));
      expect(mine.map((line) => line.replace(`${admission.runId} `, ''))).toEqual(['pending 0', 'running 1']);
    });

    test('nothing begins beside another run, without an admission, after a cancel, twice, or under another token', async () => {
      const s = await scene();
      const notNow = { outcome: 'not_now' };
      expect(await beginning(s, { runId: 'nobody', token: 'token' })).toEqual(notNow);
      const older = await s.running();
      const newer = await s.admit({ multitaskStrategy: 'interrupt' });
      // The older one has been superseded, but its holder may still write.
      expect(await beginning(s, newer.fence)).toEqual(notNow);
      await s.finalize(older.fence, 'interrupted');
      expect(await beginning(s, { ...newer.fence, token: 'another' })).toEqual(notNow);
      await s.a.runs.requestCancel({ runId: newer.run.runId, action: 'interrupt', now: T0 });
      const before = await s.history();
      expect(await beginning(s, newer.fence)).toEqual(notNow);
      expect(await s.history()).toEqual(before);
      expect(await s.a.runs.get(newer.run.runId)).toMatchObject({ status: 'pending', attempt: 0 });
      await s.finalize(newer.fence, 'interrupted');

      const last = await s.admit();
      expect(await beginning(s, last.fence)).toMatchObject({ outcome: 'begun' });
      expect(await beginning(s, last.fence)).toEqual(notNow);
      expect(await s.a.runs.get(last.run.runId)).toMatchObject({ status: 'running', attempt: 1 });
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
