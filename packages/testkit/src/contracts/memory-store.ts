import {
  type CapturedMessage,
  MEMORY_AUDIT_LIMIT,
  type MemoryChange,
  type MemoryFact,
  type MemoryStore,
} from '@reindeer/protocol';
import { describe, expect, test } from 'vitest';
import { verifies } from '../verifies.ts';
import type { Scene, StoresFactory } from './scene.ts';
import { scenes, T0 } from './scene.ts';

export const memoryFact = (id: string, part: Partial<MemoryFact> = {}): MemoryFact & { contentKey: string } => {
  const content = part.content ?? `content of ${id}`;
  return {
    id,
    content,
    category: 'context',
    confidence: 0.9,
    createdAt: T0,
    confirmedAt: T0,
    accessedAt: null,
    source: 'manual',
    sourceError: null,
    reviewAfter: null,
    consolidatedFrom: [],
    ...part,
    contentKey: content.trim().toLowerCase(),
  };
};
export const memoryChange = (part: Partial<MemoryChange> = {}): MemoryChange => ({
  seen: { facts: {}, sections: {} },
  put: [],
  remove: [],
  sections: {},
  audit: [],
  maxFacts: null,
  ...part,
});

const own = { userId: 'user', agent: '_default' };
const words = (...ids: string[]): CapturedMessage[] => ids.map((id) => ({ id, role: 'user', text: `text of ${id}` }));

/** What every store of memories must do (MEM-3, MEM-5). */
export function memoryStoreContract(name: string, factory: StoresFactory): void {
  describe(`memory: ${name}`, () => {
    const scene = scenes(factory);
    const put = (store: MemoryStore, ids: readonly string[], part: Partial<typeof own> = {}) =>
      store.change({
        ...own,
        ...part,
        change: memoryChange({ put: ids.map((id) => memoryFact(id)) }),
        now: T0,
      });
    const factsOf = async (store: MemoryStore, part: Partial<typeof own> = {}) =>
      (await store.read({ ...own, ...part })).facts.map((fact) => fact.id);
    type Enqueue = Partial<Parameters<MemoryStore['enqueue']>[0]>;
    const enqueue = (s: Scene, part: Enqueue = {}) =>
      s.a.memory.enqueue({
        ...own,
        threadId: 'thread',
        messages: words('m1', 'm2'),
        leaving: false,
        signals: [],
        dueAt: T0 + 10,
        maxPending: 100,
        maxMessages: 50,
        now: T0,
        ...part,
      });
    const claim = (s: Scene, now = T0 + 10, tokens = [s.id('token')], store = s.a.memory) =>
      store.claim({ tokens, leaseUntil: now + 100, now });
    const one = async (s: Scene, now?: number) => {
      const [claimed] = await claim(s, now);
      if (claimed === undefined) throw new Error('Nothing was due.');
      return claimed;
    };
    const settling = { change: null, watermark: null, maxWatermarks: 100, now: T0 + 20 };

    test('facts belong to user and agent, summaries to the user', verifies('MEM-2'), async () => {
      const s = await scene();
      expect(await s.a.memory.read(own)).toEqual({ revision: 0, updatedAt: null, sections: {}, facts: [] });
      await put(s.a.memory, ['one']);
      await put(s.a.memory, ['two'], { agent: 'writer' });
      await put(s.a.memory, ['three'], { userId: 'other' });
      const statements = [{ text: 'Works on lathes.', sources: ['one', 'two'] }];
      await s.a.memory.change({ ...own, change: memoryChange({ sections: { workContext: statements } }), now: T0 + 5 });
      expect(await factsOf(s.b.memory)).toEqual(['one']);
      expect(await factsOf(s.b.memory, { agent: 'writer' })).toEqual(['two']);
      expect(await factsOf(s.b.memory, { userId: 'other' })).toEqual(['three']);
      for (const agent of ['_default', 'writer'])
        expect(await s.b.memory.read({ userId: 'user', agent })).toMatchObject({
          revision: 3,
          updatedAt: T0 + 5,
          sections: { workContext: { statements, updatedAt: T0 + 5 } },
        });
      expect((await s.b.memory.read({ ...own, userId: 'other' })).sections).toEqual({});
      const all: MemoryFact = {
        ...memoryFact('all', { content: 'Prefers tea', category: 'correction', confidence: 0.25, createdAt: T0 + 9 }),
        confirmedAt: T0 + 10,
        accessedAt: T0 + 11,
        source: 'thread-9',
        sourceError: 'Prefers coffee',
        reviewAfter: T0 + 12,
        consolidatedFrom: ['x', 'y'],
      };
      await s.a.memory.change({ ...own, change: memoryChange({ put: [{ ...all, contentKey: 'tea' }] }), now: T0 });
      expect((await s.b.memory.read(own)).facts.at(-1)).toEqual({ ...all, contentKey: 'tea', revision: 4 });
    });

    test('what was changed meanwhile is a conflict, what was not is written beside it', verifies('MEM-5'), async () => {
      const s = await scene();
      await put(s.a.memory, ['one', 'two']);
      const { facts } = await s.a.memory.read(own);
      const [first = 0, second = 0] = facts.map((fact) => fact.revision);
      const rewrite = (id: string, revision: number, content: string) =>
        s.b.memory.change({
          ...own,
          change: memoryChange({
            seen: { facts: { [id]: revision }, sections: {} },
            put: [memoryFact(id, { content })],
          }),
          now: T0 + 1,
        });
      expect((await rewrite('one', first, 'newer')).outcome).toBe('ok');
      const before = await s.a.memory.read(own);
      expect(await rewrite('one', first, 'late')).toEqual({ outcome: 'conflict' });
      expect(await s.a.memory.read(own)).toEqual(before);
      // Disjoint: worked out on the same reading, and no conflict.
      expect((await rewrite('two', second, 'also newer')).outcome).toBe('ok');
      expect((await s.a.memory.read(own)).facts.map((fact) => fact.content)).toEqual(['newer', 'also newer']);
      // Removed and made again is another one.
      await s.a.memory.change({ ...own, change: memoryChange({ remove: ['two'] }), now: T0 });
      await put(s.a.memory, ['two']);
      expect(await rewrite('two', second, 'late')).toEqual({ outcome: 'conflict' });

      const section = (revision: number, text: string) =>
        s.b.memory.change({
          ...own,
          change: memoryChange({
            seen: { facts: {}, sections: { topOfMind: revision } },
            sections: { topOfMind: text === '' ? [] : [{ text, sources: [] }] },
          }),
          now: T0 + 2,
        });
      expect((await section(0, 'first')).outcome).toBe('ok');
      expect(await section(0, 'second')).toEqual({ outcome: 'conflict' });
      const { revision } = await s.a.memory.read(own);
      expect((await section(revision, '')).outcome).toBe('ok');
      expect((await s.a.memory.read(own)).sections).toEqual({});
      expect((await section(0, 'again')).outcome).toBe('ok');
      expect(await section(revision, 'late')).toEqual({ outcome: 'conflict' });
    });

    test('two changes at once on one reading: one is written', verifies('MEM-5'), async () => {
      const s = await scene();
      await put(s.a.memory, ['one']);
      const [fact] = (await s.a.memory.read(own)).facts;
      const answers = await Promise.all(
        Array.from({ length: 8 }, (_, n) =>
          (n % 2 === 0 ? s.a : s.b).memory.change({
            ...own,
            change: memoryChange({
              seen: { facts: { one: fact?.revision ?? 0 }, sections: {} },
              put: [memoryFact('one', { content: `by ${n}` })],
            }),
            now: T0,
          }),
        ),
      );
      expect(answers.map((answer) => answer.outcome).sort()).toEqual([...Array(7).fill('conflict'), 'ok']);
      const written = answers.findIndex((answer) => answer.outcome === 'ok');
      expect((await s.a.memory.read(own)).facts.map(({ content }) => content)).toEqual([`by ${written}`]);
    });

    test('one fact per content, user and agent', verifies('MEM-5'), async () => {
      const s = await scene();
      const say = (id: string, part: Partial<typeof own> = {}, remove: string[] = []) =>
        s.a.memory.change({
          ...own,
          ...part,
          change: memoryChange({ put: [memoryFact(id, { content: 'Likes tea' })], remove }),
          now: T0,
        });
      expect((await say('one')).outcome).toBe('ok');
      expect(await say('two')).toEqual({ outcome: 'duplicate', factId: 'one' });
      expect((await say('three', { agent: 'writer' })).outcome).toBe('ok');
      expect((await say('four', {}, ['one'])).outcome).toBe('ok');
      expect(await factsOf(s.a.memory)).toEqual(['four']);
      const both = memoryChange({ put: [memoryFact('a', { content: 'same' }), memoryFact('b', { content: 'same' })] });
      expect(await s.a.memory.change({ ...own, change: both, now: T0 })).toEqual({ outcome: 'duplicate', factId: 'a' });
      expect(await factsOf(s.a.memory)).toEqual(['four']);
      const answers = await Promise.all(
        ['x', 'y', 'z'].map((id, n) =>
          (n === 1 ? s.b : s.a).memory.change({
            ...own,
            change: memoryChange({ put: [memoryFact(id, { content: 'at once' })] }),
            now: T0,
          }),
        ),
      );
      expect(answers.map((answer) => answer.outcome).sort()).toEqual(['duplicate', 'duplicate', 'ok']);
    });

    test('no more facts than there may be, however many are added at once', verifies('MEM-4c'), async () => {
      const s = await scene();
      const add = (id: string, remove: string[] = [], maxFacts = 2) =>
        s.a.memory.change({ ...own, change: memoryChange({ put: [memoryFact(id)], remove, maxFacts }), now: T0 });
      expect((await add('one')).outcome).toBe('ok');
      expect((await Promise.all([add('two'), add('three')])).map(({ outcome }) => outcome).sort()).toEqual([
        'conflict',
        'ok',
      ]);
      expect(await factsOf(s.a.memory)).toHaveLength(2);
      expect((await add('four', ['one'])).outcome).toBe('ok');
      // A limit that was lowered stands in the way of no other change.
      expect((await add('four', [], 1)).outcome).toBe('ok');
    });

    test('the list of what went is bounded and says nothing of the content', async () => {
      const s = await scene();
      for (let n = 0; n < 3; n += 1)
        await s.a.memory.change({
          ...own,
          change: memoryChange({
            audit: Array.from({ length: 90 }, (_, m) => ({ at: T0, factId: `f${n}.${m}`, act: 'evicted' as const })),
          }),
          now: T0,
        });
      const audit = await s.b.memory.audit({ userId: 'user' });
      expect(audit).toHaveLength(MEMORY_AUDIT_LIMIT);
      expect(audit.at(-1)).toEqual({ at: T0, factId: 'f2.89', act: 'evicted' });
      expect(await s.b.memory.audit({ userId: 'other' })).toEqual([]);
    });

    test('clear takes everything of a user, also from under those who learn', async () => {
      const s = await scene();
      await put(s.a.memory, ['one']);
      await put(s.a.memory, ['two'], { agent: 'writer' });
      await put(s.a.memory, ['three'], { userId: 'other' });
      await enqueue(s);
      const right = await one(s);
      await s.b.memory.clear({ userId: 'user', now: T0 + 5 });
      expect(
        await s.a.memory.settle({ ...settling, right, change: memoryChange({ put: [memoryFact('late')] }) }),
      ).toEqual({ outcome: 'fenced' });
      expect(await factsOf(s.a.memory)).toEqual([]);
      expect(await factsOf(s.a.memory, { agent: 'writer' })).toEqual([]);
      expect(await factsOf(s.a.memory, { userId: 'other' })).toEqual(['three']);
      expect(await s.a.memory.pending({ userId: null })).toBe(0);
      // No revision comes again: what was read before the clearing stays a conflict.
      expect((await s.a.memory.read(own)).revision).toBe(3);
    });

    test(
      'newer messages replace older ones, signals are added up, the time starts anew',
      verifies('MEM-3'),
      async () => {
        const s = await scene();
        expect(await enqueue(s, { signals: ['correction'] })).toBe('queued');
        await enqueue(s, { messages: words('m1', 'm2', 'm3'), signals: ['goal', 'correction'], dueAt: T0 + 30 });
        await enqueue(s, { threadId: 'second', dueAt: T0 + 40 });
        await enqueue(s, { agent: 'writer', dueAt: T0 + 50 });
        expect(await s.b.memory.pending({ userId: 'user' })).toBe(3);
        expect(await s.b.memory.pending({ userId: 'other' })).toBe(0);
        expect(await claim(s, T0 + 29)).toEqual([]);
        const claimed = await claim(s, T0 + 60, ['t1', 't2', 't3', 't4'], s.b.memory);
        expect(claimed).toMatchObject([
          { ...own, threadId: 'thread', token: 't1', partial: false, watermark: null, attempts: 0 },
          { threadId: 'second', token: 't2' },
          { agent: 'writer', token: 't3' },
        ]);
        expect(claimed[0]?.messages).toEqual(words('m1', 'm2', 'm3'));
        expect([...(claimed[0]?.signals ?? [])].sort()).toEqual(['correction', 'goal']);
      },
    );

    test('what leaves a conversation is kept beside what replaces it', verifies('MEM-3'), async () => {
      const s = await scene();
      await enqueue(s, { messages: words('m1', 'm2'), leaving: true, dueAt: T0 });
      expect(await one(s, T0)).toMatchObject({ messages: words('m1', 'm2'), partial: true });
      await enqueue(s, { messages: words('m2', 'm3'), leaving: true, dueAt: T0 });
      // What is urgent stays so.
      await enqueue(s, { messages: words('m3', 'm4', 'm5'), dueAt: T0 + 900 });
      const [claimed] = await claim(s, T0 + 200);
      expect(claimed).toMatchObject({ messages: words('m1', 'm2', 'm3', 'm4', 'm5'), partial: false });
      await s.a.memory.settle({ ...settling, right: claimed ?? (await one(s)), watermark: 'm5' });
      await enqueue(s, { messages: words('a', 'b', 'c', 'd'), maxMessages: 2, dueAt: T0 + 300 });
      await enqueue(s, { messages: words('x', 'y', 'z'), leaving: true, maxMessages: 2, dueAt: T0 + 300 });
      expect(await one(s, T0 + 300)).toMatchObject({ messages: words('y', 'z', 'c', 'd'), watermark: 'm5' });
    });

    test(
      'one holder at a time; newer messages wait for its end and are learned from once',
      verifies('MEM-3'),
      async () => {
        const s = await scene();
        await enqueue(s);
        const answers = await Promise.all([claim(s), claim(s, T0 + 10, ['b1', 'b2'], s.b.memory), claim(s)]);
        const held = answers.flat();
        expect(held).toHaveLength(1);
        const [right] = held;
        if (right === undefined) throw new Error('Nothing was claimed.');
        await enqueue(s, { messages: words('m1', 'm2', 'm3'), dueAt: T0 + 15 });
        expect(await claim(s, T0 + 50)).toEqual([]);
        const learned = memoryChange({ put: [memoryFact('learned')] });
        expect(await s.a.memory.settle({ ...settling, right, change: learned, watermark: 'm2' })).toMatchObject({
          outcome: 'ok',
        });
        // A repeat of the same answer changes nothing.
        expect(
          await s.a.memory.settle({ ...settling, right, change: memoryChange({ put: [memoryFact('twice')] }) }),
        ).toEqual({ outcome: 'fenced' });
        const again = await one(s, T0 + 50);
        expect(again).toMatchObject({ messages: words('m1', 'm2', 'm3'), watermark: 'm2' });
        await s.a.memory.settle({ ...settling, right: again, watermark: 'm3' });
        expect(await s.a.memory.pending({ userId: null })).toBe(0);
        expect(await claim(s, T0 + 1_000)).toEqual([]);
        expect(await factsOf(s.a.memory)).toEqual(['learned']);
      },
    );

    test('a holder that died is followed when its lease is over, and writes nothing any more', async () => {
      const s = await scene();
      await enqueue(s);
      const dead = await one(s, T0 + 10);
      expect(await claim(s, T0 + 109)).toEqual([]);
      const next = await one(s, T0 + 110);
      expect(next).toMatchObject({ messages: words('m1', 'm2') });
      expect(
        await s.a.memory.settle({ ...settling, right: dead, change: memoryChange({ put: [memoryFact('late')] }) }),
      ).toEqual({ outcome: 'fenced' });
      await s.a.memory.postpone({ right: dead, dueAt: T0, failed: true });
      expect(await factsOf(s.a.memory)).toEqual([]);
      // A conflict leaves the right with its holder.
      await put(s.a.memory, ['one']);
      const stale = memoryChange({ seen: { facts: { one: 99 }, sections: {} } });
      expect(await s.b.memory.settle({ ...settling, right: next, change: stale })).toEqual({ outcome: 'conflict' });
      await s.b.memory.postpone({ right: next, dueAt: T0 + 500, failed: true });
      expect(await claim(s, T0 + 499)).toEqual([]);
      expect(await one(s, T0 + 500)).toMatchObject({ attempts: 1 });
    });

    test('as many wait as may; a signal gets twice the room', verifies('MEM-3'), async () => {
      const s = await scene();
      for (const threadId of ['a', 'b']) expect(await enqueue(s, { threadId, maxPending: 2 })).toBe('queued');
      expect(await enqueue(s, { threadId: 'c', maxPending: 2 })).toBe('dropped');
      expect(await enqueue(s, { threadId: 'a', maxPending: 2 })).toBe('queued');
      for (const threadId of ['c', 'd'])
        expect(await enqueue(s, { threadId, maxPending: 2, signals: ['goal'] })).toBe('queued');
      expect(await enqueue(s, { threadId: 'e', maxPending: 2, signals: ['goal'] })).toBe('dropped');
      expect(await s.a.memory.pending({ userId: null })).toBe(4);
    });

    test('watermarks are bounded, the oldest go', async () => {
      const s = await scene();
      for (let n = 0; n < 6; n += 1) {
        await enqueue(s, { threadId: `t${n}`, now: T0 + n });
        await s.a.memory.settle({
          ...settling,
          right: await one(s, T0 + 50),
          watermark: `w${n}`,
          maxWatermarks: 3,
          now: T0 + 100 + n,
        });
      }
      for (let n = 0; n < 6; n += 1) await enqueue(s, { threadId: `t${n}`, dueAt: T0 + 500 + n });
      const claimed = await claim(s, T0 + 600, ['1', '2', '3', '4', '5', '6']);
      expect(claimed.map((item) => item.watermark)).toEqual([null, null, null, 'w3', 'w4', 'w5']);
    });

    test('a thread that is deleted is not learned from any more', async () => {
      const s = await scene();
      await s.ended('success');
      await enqueue(s);
      await enqueue(s, { threadId: 'stays' });
      const [right] = await claim(s);
      const { fence } = await s.admit({ kind: 'delete' });
      await s.a.threads.delete({ fence, threadId: 'thread', userId: 'user' });
      expect(await s.a.memory.pending({ userId: null })).toBe(1);
      expect(
        await s.a.memory.settle({
          ...settling,
          right: { ...own, threadId: 'thread', token: '', version: 1, ...right },
        }),
      ).toEqual({
        outcome: 'fenced',
      });
    });
  });
}
