import type { Fact, FactBody, Fence } from '@reindeer/protocol';
import { NO_DELIVERY, parseCursor } from '@reindeer/protocol';
import { describe, expect, test } from 'vitest';
import { deferred } from '../deferred.ts';
import { verifies } from '../verifies.ts';
import type { Scene, StoresFactory } from './scene.ts';
import { checkpointPut, scenes, T0 } from './scene.ts';

/** What every log of facts must do (D3). */
export function logContract(name: string, factory: StoresFactory): void {
  describe(`log of facts: ${name}`, () => {
    const scene = scenes(factory);
    const append = (s: Scene, fence: Fence, keys: readonly string[], stores = s.a, threadId = 'thread') =>
      stores.log.append({ fence, threadId, facts: keys.map((key) => s.fact(key)), now: T0 });
    const read = (s: Scene, part: Partial<Parameters<typeof s.a.log.read>[0]> = {}) =>
      s.a.log.read({ threadId: 'thread', runId: null, afterSeq: 0, limit: 10_000, maxBytes: 1e9, ...part });
    const texts = (facts: readonly Fact[]) => facts.flatMap(({ body }) => (body.kind === 'custom' ? [body.data] : []));

    test(
      'numbers are dense and unique under 100 appends at once, by several runs and processes',
      verifies('RE-01', 'RE-02'),
      async () => {
        const s = await scene();
        const one = await s.running();
        const two = await s.admit({ multitaskStrategy: 'interrupt' });
        const other = await s.running({ threadId: 'other' });
        const start = (await read(s)).head;
        const answers = await Promise.all(
          Array.from({ length: 100 }, (_, n) => {
            const keys = Array.from({ length: 1 + (n % 3) }, (_x, part) => `${n}.${part}`);
            const stores = n % 2 === 0 ? s.a : s.b;
            return n % 5 === 4
              ? append(s, other.fence, keys, stores, 'other')
              : append(s, n % 3 === 0 ? one.fence : two.fence, keys, stores);
          }),
        );
        for (const answer of answers) expect(answer.outcome).toBe('ok');
        for (const threadId of ['thread', 'other']) {
          const { facts, head } = await read(s, { threadId });
          expect(facts.map((fact) => fact.seq)).toEqual(Array.from({ length: head }, (_, n) => n + 1));
          const order = texts(facts).map(String);
          expect(new Set(order).size).toBe(order.length);
          // Each batch stands together and in its own order.
          for (const [position, key] of order.entries()) {
            const [batch, part] = key.split('.');
            if (part !== '0') expect(order[position - 1]).toBe(`${batch}.${Number(part) - 1}`);
          }
        }
        const appended = (await read(s)).head - start;
        expect(appended).toBe(
          Array.from({ length: 100 }, (_, n) => (n % 5 === 4 ? 0 : 1 + (n % 3))).reduce((sum, count) => sum + count, 0),
        );
      },
    );

    test('a key that exists writes nothing, alone, within a batch and at once', verifies('RE-03'), async () => {
      const s = await scene();
      const { fence } = await s.running();
      const first = await append(s, fence, ['x', 'y']);
      expect(await append(s, fence, ['x', 'y'])).toEqual(first);
      await append(s, fence, ['w', 'x', 'z', 'y', 'z']);
      await Promise.all(Array.from({ length: 10 }, (_, n) => append(s, fence, ['same'], n % 2 === 0 ? s.a : s.b)));
      const { facts } = await read(s);
      expect(texts(facts)).toEqual(['x', 'y', 'w', 'z', 'same']);
      expect(await s.history()).toHaveLength(7);
    });

    test('the first body under a key stays', async () => {
      const s = await scene();
      const { fence } = await s.running();
      await s.a.log.append({ fence, threadId: 'thread', facts: [s.fact('key', 'first')], now: T0 });
      await s.a.log.append({ fence, threadId: 'thread', facts: [s.fact('key', 'second')], now: T0 + 1 });
      expect(texts((await read(s)).facts)).toEqual(['first']);
    });

    test('messages are found by their words, newest first and within bounds', async () => {
      const s = await scene();
      const { run, fence } = await s.running();
      const texts: [string, string, unknown, object?, string?][] = [
        ['human', 'q1', 'Wo steht das ÄRGERLICHE "Blatt"?'],
        [
          'ai',
          'a1',
          [{ type: 'text', text: `${'x '.repeat(100)}Das Blatt\nist nicht ärgerlich. ${'y '.repeat(100)}` }],
        ],
        ['tool', 't1', 'ärgerlich blatt'],
        ['human', 'h1', 'ärgerlich blatt', { additional_kwargs: { hide_from_ui: true } }],
        ['ai', 's1', 'ärgerlich blatt', {}, 'task:1'],
        ['ai', 'a2', '', { tool_calls: [{ id: 'c', name: 'ärgerlich', args: { blatt: 1 } }] }],
        ['ai', 'a3', 'Nothing of it.'],
      ];
      const facts = texts.map(([type, id, content, more, ns = '']) => ({
        key: id,
        body: { kind: 'message', ns, message: { type, id, content: content as string, ...more } } as const,
      }));
      await s.a.log.append({ fence, threadId: 'thread', facts, now: T0 + 5 });
      const find = async (words: readonly string[], part: object = {}) =>
        await s.b.log.find({ threadId: 'thread', words, most: 10, limit: 100, maxBytes: 1e6, ...part });
      const ids = async (words: readonly string[], part: object = {}) => {
        const { found, complete } = await find(words, part);
        return [...found.map(({ messageId }) => messageId), complete];
      };
      expect(await ids(['blatt', 'ärgerlich'])).toEqual(['a1', 'q1', true]);
      expect(await ids(['"blatt"'])).toEqual(['q1', true]);
      expect(await ids(['ärgerlich', 'fehlt'])).toEqual([true]);
      expect(await ids(['content'])).toEqual([true]);
      expect(await ids(['blatt'], { most: 1 })).toEqual(['a1', false]);
      expect(await ids(['blatt'], { limit: 6 })).toEqual(['a1', false]);
      expect(await ids(['blatt'], { maxBytes: 1 })).toEqual([false]);
      expect(await ids(['blatt'], { threadId: 'nowhere' })).toEqual([true]);
      const [newest, oldest] = (await find(['blatt'])).found;
      expect(newest?.snippet).toMatch(/^….* Das Blatt ist nicht ärgerlich\. .*…$/);
      expect(newest?.snippet.length).toBeLessThan(200);
      expect(oldest).toEqual({
        seq: expect.any(Number),
        runId: run.runId,
        at: T0 + 5,
        messageId: 'q1',
        role: 'human',
        snippet: 'Wo steht das ÄRGERLICHE "Blatt"?',
      });
    });

    test('keys are unique in their thread only', async () => {
      const s = await scene();
      const one = await s.running({ threadId: 'one' });
      const two = await s.running({ threadId: 'two' });
      await append(s, one.fence, ['key'], s.a, 'one');
      await append(s, two.fence, ['key'], s.a, 'two');
      for (const threadId of ['one', 'two']) expect(texts((await read(s, { threadId })).facts)).toEqual(['key']);
    });

    test('bodies come back as they went in', verifies('RE-05'), async () => {
      const s = await scene();
      const { fence, run } = await s.running();
      const data = {
        text: 'Ünïcødé 🦌 \u0000 \n " \\ </script>',
        numbers: [0, -1, 1.5, 1e21, 9_007_199_254_740_991],
        nothing: null,
        flags: [true, false],
        deep: { a: { b: { c: [[], {}] } } },
        empty: '',
      };
      await s.a.log.append({
        fence,
        threadId: 'thread',
        facts: [
          { key: 'custom', body: { kind: 'custom', ns: 'a|b', data } },
          {
            key: 'message',
            body: {
              kind: 'message',
              ns: '',
              message: { type: 'ai', id: 'm', content: [{ type: 'text', text: 'x' }], extra: data },
            },
          },
        ],
        now: T0 + 77,
      });
      const { facts } = await s.b.log.read({ threadId: 'thread', runId: null, afterSeq: 2, limit: 10, maxBytes: 1e6 });
      expect(facts).toEqual([
        { threadId: 'thread', seq: 3, runId: run.runId, at: T0 + 77, body: { kind: 'custom', ns: 'a|b', data } },
        {
          threadId: 'thread',
          seq: 4,
          runId: run.runId,
          at: T0 + 77,
          body: {
            kind: 'message',
            ns: '',
            message: { type: 'ai', id: 'm', content: [{ type: 'text', text: 'x' }], extra: data },
          },
        },
      ]);
    });

    test('every kind of fact comes back as it was given', verifies('RE-10'), async () => {
      const s = await scene();
      const { run, fence } = await s.running();
      const before = await s.history();
      // One of each: a kind that is added to the catalogue and not here does not compile.
      const all: { readonly [kind in FactBody['kind']]: Extract<FactBody, { kind: kind }> } = {
        run: { kind: 'run', status: 'running', attempt: 7, terminal: false },
        message: { kind: 'message', ns: 'sub', message: { type: 'human', id: 'm', content: 'hi' } },
        'workspace-before': {
          kind: 'workspace-before',
          snapshot: { version: 1, files: [['/mnt/user-data/outputs/a', 1, 2, 0]] },
        },
        'workspace-changes': {
          kind: 'workspace-changes',
          changes: {
            version: 1,
            summary: {
              created: 0,
              modified: 0,
              deleted: 0,
              symlink_created: 0,
              additions: 0,
              deletions: 0,
              truncated: true,
            },
            files: [],
          },
        },
        delivery: { kind: 'delivery', receipt: NO_DELIVERY },
        'message-removed': { kind: 'message-removed', ns: '', messageId: 'm' },
        'tool-started': {
          kind: 'tool-started',
          messageId: 'm',
          index: 0,
          toolCallId: null,
          name: 'bash',
          attempt: 1,
        },
        'tool-finished': {
          kind: 'tool-finished',
          messageId: 'm',
          index: 0,
          toolCallId: 'call',
          name: 'bash',
          outcome: 'unknown',
        },
        update: { kind: 'update', ns: '', node: 'model', taskId: 'task', values: { n: 1 } },
        checkpoint: { kind: 'checkpoint', ns: '', checkpointId: 'c2', parentId: 'c1', source: 'loop', step: 3 },
        interrupt: { kind: 'interrupt', ns: '', interrupts: [{ id: 'i', value: 'Really?' }] },
        custom: { kind: 'custom', ns: 'a|b', data: [null, true, 'x', { y: 1.5 }] },
        frame: { kind: 'frame', ns: '', mode: 'debug', data: { type: 'task' } },
      };
      const facts = Object.values(all).map((body) => ({ key: `one:${body.kind}`, body }));
      await s.a.log.append({ fence, threadId: 'thread', facts, now: T0 + 3 });
      const page = await s.b.log.read({
        threadId: 'thread',
        runId: null,
        afterSeq: before.length,
        limit: 100,
        maxBytes: 1e6,
      });
      expect(page.facts).toEqual(
        Object.values(all).map((body, index) => ({
          threadId: 'thread',
          seq: before.length + 1 + index,
          runId: run.runId,
          at: T0 + 3,
          body,
        })),
      );
    });

    test('messages that stand elsewhere in the store are whole when read', async () => {
      const s = await scene();
      const { fence } = await s.running();
      const message = { type: 'ai', id: 'm1', content: 'hello' };
      const hash = 'AAAAAAAAAAAAAAAAAAAAAA';
      const put = checkpointPut(fence, 'c1');
      await s.a.checkpoints.put({
        ...put,
        channels: [
          {
            name: 'text',
            version: 'c1',
            value: {
              json: JSON.stringify([{ $m: hash }]),
              messages: [{ hash, id: 'm1', body: JSON.stringify(message) }],
            },
          },
        ],
        facts: [
          { key: 'm', body: { kind: 'message', ns: '', message: { $m: hash } } },
          {
            key: 'u',
            body: { kind: 'update', ns: '', node: 'model', taskId: 't', values: { messages: [{ $m: hash }], n: 1 } },
          },
        ],
      });
      const { facts } = await read(s, { afterSeq: 2 });
      expect(facts.map((fact) => fact.body)).toEqual([
        { kind: 'message', ns: '', message },
        { kind: 'update', ns: '', node: 'model', taskId: 't', values: { messages: [message], n: 1 } },
      ]);
      const page = await s.a.log.messages({ threadId: 'thread', runId: null, before: null, after: null, limit: 5 });
      expect(page.facts.map((fact) => fact.body)).toEqual([{ kind: 'message', ns: '', message }]);
    });

    test('reads pages by count and by bytes, each with at least one fact', async () => {
      const s = await scene();
      const { fence } = await s.running();
      await append(
        s,
        fence,
        Array.from({ length: 9 }, (_, n) => `${n}${'x'.repeat(1000)}`),
      );
      const { head } = await read(s);
      for (const part of [{ limit: 2 }, { maxBytes: 2500 }, { maxBytes: 1 }, { limit: 1 }]) {
        const seen: number[] = [];
        for (let after = 0, pages = 0; ; pages += 1) {
          expect(pages).toBeLessThan(20);
          const page = await read(s, { afterSeq: after, ...part });
          expect(page.head).toBe(head);
          expect(page.facts.length).toBeLessThanOrEqual('limit' in part ? part.limit : 11);
          const last = page.facts.at(-1);
          if (last === undefined) break;
          seen.push(...page.facts.map((fact) => fact.seq));
          after = last.seq;
        }
        expect(seen).toEqual(Array.from({ length: head }, (_, n) => n + 1));
      }
      expect((await read(s, { maxBytes: 1 })).facts).toHaveLength(1);
      expect((await read(s, { afterSeq: head })).facts).toEqual([]);
      expect(await read(s, { afterSeq: head + 100 })).toEqual({ facts: [], head, prunedThrough: 0 });
    });

    test('of an unknown thread is empty', async () => {
      const s = await scene();
      const nothing = { facts: [], head: 0, prunedThrough: 0 };
      expect(await read(s, { threadId: 'nowhere' })).toEqual(nothing);
      expect(await s.a.log.firstSeq({ threadId: 'nowhere', runId: 'x' })).toBeNull();
      expect(await s.a.log.messages({ threadId: 'nowhere', runId: null, before: null, after: null, limit: 5 })).toEqual(
        nothing,
      );
    });

    test('knows which facts are a run’s, and the first of them', async () => {
      const s = await scene();
      const first = await s.ended('success');
      const second = await s.running();
      await append(s, second.fence, ['x']);
      const { facts } = await read(s, { runId: second.run.runId });
      expect(facts.map((fact) => [fact.seq, fact.runId])).toEqual([5, 6, 7].map((seq) => [seq, second.run.runId]));
      expect((await read(s, { runId: second.run.runId, afterSeq: 6, limit: 1 })).facts.map((fact) => fact.seq)).toEqual(
        [7],
      );
      expect(await s.a.log.firstSeq({ threadId: 'thread', runId: first.run.runId })).toBe(1);
      expect(await s.a.log.firstSeq({ threadId: 'thread', runId: second.run.runId })).toBe(5);
      expect(await s.a.log.firstSeq({ threadId: 'thread', runId: 'nobody' })).toBeNull();
    });

    test('lists messages by page: the newest, before, after', verifies('RE-04'), async () => {
      const s = await scene();
      const { fence, run } = await s.running();
      for (let n = 1; n <= 6; n += 1)
        await s.a.log.append({
          fence,
          threadId: 'thread',
          facts: [
            { key: `m${n}`, body: { kind: 'message', ns: '', message: { type: 'ai', id: `m${n}`, content: `${n}` } } },
            s.fact(`between ${n}`),
          ],
          now: T0,
        });
      // Facts 3, 5, 7, 9, 11, 13 are the messages.
      const page = async (part: { before?: number; after?: number; limit?: number; runId?: string }) => {
        const input = { threadId: 'thread', runId: null, before: null, after: null, limit: 2, ...part };
        return (await s.a.log.messages(input)).facts.map((fact) => fact.seq);
      };
      expect(await page({})).toEqual([11, 13]);
      expect(await page({ before: 11 })).toEqual([7, 9]);
      expect(await page({ before: 12 })).toEqual([9, 11]);
      expect(await page({ after: 3 })).toEqual([5, 7]);
      expect(await page({ after: 13 })).toEqual([]);
      expect(await page({ before: 3 })).toEqual([]);
      expect(await page({ limit: 100 })).toEqual([3, 5, 7, 9, 11, 13]);
      expect(await page({ after: 3, before: 9, limit: 100 })).toEqual([5, 7]);
      expect(await page({ runId: run.runId })).toEqual([11, 13]);
      expect(await page({ runId: 'nobody' })).toEqual([]);
    });

    test('hints after the commit, to every listener, and not for repeats', async () => {
      const s = await scene();
      const { fence } = await s.running();
      const heads: number[] = [];
      let next = deferred<number>();
      const leave = s.a.log.onAppend((threadId, head) => {
        if (threadId !== 'thread') return;
        heads.push(head);
        next.resolve(head);
      });
      const before = heads.length;
      const appended = await append(s, fence, ['x', 'y']);
      const hinted = await next.promise;
      expect(appended).toEqual({ outcome: 'ok', head: hinted });
      // What was hinted at can be read: the hint came after the commit.
      expect((await read(s)).head).toBe(hinted);
      next = deferred<number>();
      await append(s, fence, ['x', 'y']);
      await append(s, fence, ['z']);
      expect(await next.promise).toBe(hinted + 1);
      expect(heads.length - before).toBeLessThanOrEqual(3);
      leave();
      leave();
      const count = heads.length;
      await append(s, fence, ['after leaving']);
      await read(s);
      expect(heads).toHaveLength(count);
    });

    test('has an epoch that ids can carry, and keeps it', async () => {
      const s = await scene();
      const epoch = await s.a.log.epoch();
      expect(parseCursor(`${epoch}-12.3`)).toEqual({ epoch, seq: 12, frame: 3 });
      await s.running();
      expect(await s.b.log.epoch()).toBe(epoch);
    });
  });
}
