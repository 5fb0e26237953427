import { DEFAULT_MEMORY, Learner, Memory, type MemorySettings } from '@reindeer/agent';
import { MemoryDatabase, openMemory } from '@reindeer/database';
import { DEFAULT_MEMORY_AGENT, type MemoryStore, ReindeerError } from '@reindeer/protocol';
import { type Deferred, deferred, flush, testSurroundings, verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { Lifecycle } from './life/lifecycle.ts';
import { type FlushingMemory, memoryStep } from './life/memory-step.ts';

const GOOD = { scope: 'user', durability: 'durable', authority: 'descriptive' };
const OWNER = { userId: 'user', agentName: null };
const answer = (...contents: string[]): string =>
  JSON.stringify({ newFacts: contents.map((content) => ({ content, category: 'context', confidence: 0.9, ...GOOD })) });

function world(
  options: {
    settings?: Partial<MemorySettings>;
    store?: (inner: MemoryStore) => MemoryStore;
    active?: () => boolean;
  } = {},
) {
  const surroundings = testSurroundings();
  const database = new MemoryDatabase(surroundings.random);
  const inner = openMemory({ surroundings, database }).memory;
  const store = options.store?.(inner) ?? inner;
  const asked: { question: string; signal: AbortSignal | undefined; reply: Deferred<string> }[] = [];
  const settings = { ...DEFAULT_MEMORY, ...options.settings };
  const memory = new Memory({ store, settings, learns: true, defaultAgent: 'Reindeer', surroundings });
  const learner = new Learner({
    store,
    memory,
    surroundings,
    ...(options.active === undefined ? {} : { active: options.active }),
    ask: (question, signal) => {
      const reply = deferred<string>();
      signal?.addEventListener('abort', () => reply.reject(signal.reason), { once: true });
      asked.push({ question, signal, reply });
      return reply.promise;
    },
  });
  const note = (text: string, threadId = 'thread', id = text) =>
    inner.enqueue({
      userId: 'user',
      agent: DEFAULT_MEMORY_AGENT,
      threadId,
      messages: [{ id, role: 'user', text }],
      leaving: false,
      signals: [],
      dueAt: surroundings.clock.now(),
      maxPending: 100,
      maxMessages: 50,
      now: surroundings.clock.now(),
    });
  const facts = async () => (await memory.document(OWNER)).facts.map((fact) => fact.content);
  const { clock } = surroundings;
  return { surroundings, clock, inner, memory, learner, asked, note, facts };
}

describe('learning', () => {
  test(
    'what waits stays while nothing is learned, and is learned once that is switched on',
    verifies('CFG-4a'),
    async () => {
      let on = false;
      const { clock, learner, asked, note } = world({ active: () => on });
      await note('first');
      learner.start();
      await clock.advance(20_000);
      expect(asked).toHaveLength(0);
      on = true;
      await clock.advance(5_000);
      expect(asked).toHaveLength(1);
      asked[0]?.reply.resolve(answer('one'));
      await learner.close();
    },
  );

  test(
    'one question per conversation; what came meanwhile is learned afterwards, once',
    verifies('MEM-3'),
    async () => {
      const { clock, learner, asked, note, facts } = world();
      await note('first');
      learner.start();
      await clock.advance(5_000);
      expect(asked).toHaveLength(1);
      await note('second');
      await clock.advance(20_000);
      expect(asked).toHaveLength(1);
      asked[0]?.reply.resolve(answer('fact one'));
      await clock.advance(10_000);
      expect(await facts()).toEqual(['fact one']);
      expect(asked).toHaveLength(2);
      expect(asked[1]?.question).toContain('User: second');
      expect(asked[1]?.question).not.toContain('User: first');
      expect(asked[1]?.question).toContain('fact one');
      asked[1]?.reply.resolve('{}');
      await clock.advance(60_000);
      expect(asked).toHaveLength(2);
      await learner.close();
      expect(clock.sleeping).toBe(0);
    },
  );

  test('an answer that is none saves nothing; it is asked for again, then given up', verifies('MEM-4a'), async () => {
    const { clock, learner, asked, note, facts, inner, surroundings } = world();
    await note('first');
    learner.start();
    for (let n = 0; n < 10; n += 1) {
      await clock.advance(1_000_000);
      asked.at(-1)?.reply.resolve('I would remember that the user likes tea.');
    }
    await clock.advance(1_000_000);
    expect(asked).toHaveLength(5);
    expect(await facts()).toEqual([]);
    expect(await inner.pending({ userId: null })).toBe(0);
    expect(surroundings.logger.lines.filter(({ level }) => level === 'error')).toHaveLength(1);
    await learner.close();
  });

  test('what a user forgets while it is learned from does not come back in a summary', verifies('MEM-5'), async () => {
    const { clock, learner, memory, asked, note } = world();
    const tea = await memory.create(OWNER, { content: 'Drinks tea', category: 'preference', confidence: 0.9 });
    await note('first');
    learner.start();
    await clock.advance(5_000);
    expect(asked[0]?.question).toContain('Drinks tea');
    await memory.delete(OWNER, tea.id);
    const section = { shouldUpdate: true, ...GOOD, statements: [{ text: 'A friend of tea.', from: ['F1'] }] };
    asked[0]?.reply.resolve(JSON.stringify({ sections: { personalContext: section } }));
    await clock.advance(5_000);
    expect((await memory.document(OWNER)).sections).toEqual({});
    expect(asked).toHaveLength(2);
    expect(asked[1]?.question).not.toContain('tea');
    asked[1]?.reply.resolve('{}');
    await clock.advance(5_000);
    expect((await memory.document(OWNER)).sections).toEqual({});
    await learner.close();
  });

  test('a place that is found by two at once is given to one', verifies('MEM-4c'), async () => {
    const { memory, facts } = world({ settings: { maxFacts: 2 } });
    const add = (content: string, confidence: number) =>
      memory.create(OWNER, { content, category: 'context', confidence }).then(
        () => 'stored',
        (error: unknown) => (ReindeerError.is(error) ? error.code : 'unknown'),
      );
    expect(await Promise.all([add('a', 0.5), add('b', 0.6), add('c', 0.7)])).toContain('stored');
    expect(await facts()).toHaveLength(2);
    expect(await facts()).toContain('c');
    expect(await add('weak', 0.1)).toBe('conflict');
  });

  test('conversations wait for no model, and are not kept where none learns', verifies('MW-22'), async () => {
    const { memory, inner, surroundings } = world();
    const messages: never[] = [];
    const mute = new Memory({
      store: inner,
      settings: DEFAULT_MEMORY,
      learns: false,
      defaultAgent: 'Reindeer',
      surroundings,
    });
    const { HumanMessage } = await import('@langchain/core/messages');
    const said = (text: string) => [...messages, new HumanMessage({ id: text, content: text })];
    const input = { userId: 'user', threadId: 'thread', agentName: 'Reindeer', leaving: false };
    await mute.capture({ ...input, messages: said('I sail') });
    await memory.capture({ ...input, messages: said('Thanks!') });
    expect(await inner.pending({ userId: null })).toBe(0);
    await memory.capture({ ...input, messages: said('I sail') });
    await memory.capture({ ...input, agentName: 'writer', messages: said('I sail') });
    const claimed = await inner.claim({
      tokens: ['a', 'b', 'c'],
      leaseUntil: surroundings.clock.now() + 60_000,
      now: surroundings.clock.now() + 30_000,
    });
    expect(claimed.map(({ userId, agent }) => [userId, agent])).toEqual([
      ['user', DEFAULT_MEMORY_AGENT],
      ['user', 'writer'],
    ]);
  });

  test('what leaves a conversation is learned at once', verifies('MEM-3'), async () => {
    const { memory, learner, clock, asked } = world();
    learner.start();
    await clock.advance(0);
    const { HumanMessage } = await import('@langchain/core/messages');
    const messages = [new HumanMessage({ id: 'm', content: 'I sail' })];
    const input = { userId: 'user', threadId: 'thread', agentName: 'Reindeer', messages };
    await memory.capture({ ...input, leaving: true });
    await flush();
    expect(asked).toHaveLength(1);
    await learner.close();
  });
});

describe('the stop', () => {
  test('what is being learned ends within its time; what waits stays', verifies('MEM-3', 'GW-17'), async () => {
    const { clock, learner, asked, note, facts, inner } = world();
    await note('first');
    learner.start();
    await clock.advance(5_000);
    await note('second', 'other');
    const flushed = learner.flush(30_000);
    await clock.advance(29_000);
    expect(asked).toHaveLength(1);
    asked[0]?.reply.resolve(answer('fact one'));
    expect(await flushed).toEqual({ complete: true, waiting: 1 });
    expect(await facts()).toEqual(['fact one']);
    await learner.close();
    await learner.close();
    expect(await inner.pending({ userId: null })).toBe(1);
    expect(clock.sleeping).toBe(0);
  });

  test('what does not end in time is cut short and due again at once', verifies('MEM-3', 'GW-17'), async () => {
    const { clock, learner, asked, note, facts, inner } = world();
    await note('first');
    learner.start();
    await clock.advance(5_000);
    const flushed = learner.flush(10_000);
    await clock.advance(10_000);
    expect(await flushed).toMatchObject({ complete: false });
    expect(asked[0]?.signal?.aborted).toBe(true);
    await learner.close();
    const [again] = await inner.claim({ tokens: ['t'], leaseUntil: clock.now() + 1_000, now: clock.now() });
    expect(again).toMatchObject({ attempts: 0, messages: [{ id: 'first' }] });
    expect(await facts()).toEqual([]);
    expect(clock.sleeping).toBe(0);
  });

  test('a claim that is answered after the stop was asked for is given back', async () => {
    const held = deferred();
    const { clock, learner, asked, note, inner } = world({
      store: (store) => ({
        ...store,
        claim: async (input) => {
          const claimed = await store.claim(input);
          await held.promise;
          return claimed;
        },
      }),
    });
    await note('first');
    learner.start();
    await clock.advance(0);
    const flushed = learner.flush(10_000);
    held.resolve();
    expect(await flushed).toEqual({ complete: true, waiting: 1 });
    expect(asked).toEqual([]);
    expect(await inner.claim({ tokens: ['t'], leaseUntil: clock.now() + 1, now: clock.now() })).toHaveLength(1);
    await learner.close();
  });

  test(
    'the flush has all of its time while the store of the first look hangs, and the start waited for neither',
    verifies('GW-02', 'GW-05', 'GW-17'),
    async () => {
      const hang = deferred<never>();
      const { clock, learner, surroundings } = world({ store: (store) => ({ ...store, claim: () => hang.promise }) });
      const lifecycle = new Lifecycle(surroundings);
      await lifecycle.start(memoryStep(() => learner, 30_000, surroundings.logger));
      learner.start();
      const stopping = lifecycle.stop();
      let over = false;
      void stopping.then(() => {
        over = true;
      });
      await clock.advance(29_999);
      expect(over).toBe(false);
      await clock.advance(2_001);
      // The look that hangs is left behind with its connection; the step counts as unfinished.
      expect(await stopping).toEqual({ unfinished: ['memory'], failed: [] });
      expect(surroundings.logger.lines).toContainEqual(
        expect.objectContaining({ level: 'warn', message: expect.stringContaining('did not end in time') }),
      );
      hang.reject(new Error('over'));
      await learner.close();
    },
  );

  test(
    'a store that is away at the start is asked again, and the server does not notice',
    verifies('GW-02'),
    async () => {
      let away = true;
      const { clock, learner, asked, note } = world({
        store: (store) => ({
          ...store,
          claim: (input) =>
            away ? Promise.reject(new ReindeerError('store_unavailable', 'away')) : store.claim(input),
        }),
      });
      await note('first');
      learner.start();
      await clock.advance(10_000);
      expect(asked).toEqual([]);
      away = false;
      await clock.advance(5_000);
      expect(asked).toHaveLength(1);
      await learner.close();
    },
  );

  test('nothing to flush is skipped; a flush that fails leaves the memory closed', verifies('GW-17'), async () => {
    const { surroundings } = world();
    const none = new Lifecycle(surroundings);
    await none.start(memoryStep(() => null, 30_000, surroundings.logger));
    expect(await none.stop()).toEqual({ unfinished: [], failed: [] });
    let closed = 0;
    const failing: FlushingMemory = {
      start: () => {},
      flush: () => Promise.reject(new Error('no')),
      close: async () => {
        closed += 1;
      },
    };
    const lifecycle = new Lifecycle(surroundings);
    await lifecycle.start(memoryStep(() => failing, 30_000, surroundings.logger));
    expect(await lifecycle.stop()).toEqual({ unfinished: [], failed: ['memory'] });
    expect(closed).toBe(1);
  });
});
