import { MessageTupleManager } from '@langchain/langgraph-sdk/ui';
import { MemoryDatabase } from '@reindeer/database';
import type { Run, Stores, StreamEvent, StreamItem } from '@reindeer/protocol';
import { deferred, flush, testSurroundings, verifies, withFaults } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import type { Script } from '../testing/scripted-graph.ts';
import { collect, gated, joined, texts, type World, world } from '../testing/world.ts';

const MODES = ['values', 'messages-tuple', 'updates', 'custom'];

/** A run of three steps with tokens, custom events and a tool, whose second model call waits for the test. */
function story() {
  const more = deferred();
  const waiting = deferred();
  const script: Script = {
    model: async (messages, context) => {
      context.emit({ step: messages.length });
      if (messages.length === 1) return { text: 'let me look around', calls: [{ name: 'look' }] };
      context.tokens.push(
        { type: 'AIMessageChunk', id: idOf(context.run, context.attempt, messages.length), content: 'I see ' },
        {},
      );
      waiting.resolve();
      await more.promise;
      return { text: 'I see a reindeer', streamed: 'I see ' };
    },
    tool: async () => 'snow',
  };
  return { script, more, waiting: waiting.promise };
}
const idOf = (run: Run, attempt: number, length: number) => `ai-${run.runId.slice(0, 8)}-${attempt}-${length}`;

/** Reads until `enough`, then leaves. */
async function readUntil(
  stream: AsyncIterable<StreamItem>,
  enough: (events: StreamEvent[]) => boolean,
): Promise<StreamEvent[]> {
  const events: StreamEvent[] = [];
  for await (const item of stream) {
    if (item === 'heartbeat') continue;
    events.push(item);
    if (enough(events)) break;
  }
  return events;
}

const lastId = (events: readonly StreamEvent[]) => events.findLast(({ id }) => id !== null)?.id ?? null;

/** What the official client makes of the events: the text of each message. */
function official(events: readonly StreamEvent[]): string[] {
  const manager = new MessageTupleManager();
  const ids: string[] = [];
  for (const { event, data } of events) {
    if (event !== 'messages') continue;
    const [message, metadata] = JSON.parse(data);
    const id = manager.add(message, metadata);
    if (id === null) throw new Error('the client ignored a message');
    if (!ids.includes(id)) ids.push(id);
  }
  return ids.map((id) => String(manager.get(id)?.chunk?.content));
}

async function finishedStory(stores?: (stores: Stores) => Stores): Promise<{ w: World; run: Run }> {
  const s = story();
  const w = world({ script: s.script, ...(stores === undefined ? {} : { stores }) });
  await w.runtime.start();
  const run = await w.admitted({ request: { streamModes: MODES } });
  s.more.resolve();
  await w.ended(run);
  return { w, run };
}

describe('a stream', () => {
  test(
    'gives every reader the same events in the order of the log, each once',
    verifies('RS-01', 'RE-01'),
    async () => {
      const s = story();
      const w = world({ script: s.script });
      await w.runtime.start();
      const run = await w.admitted({ request: { streamModes: MODES } });
      const live = [collect(w.read(run)), collect(w.read(run)), collect(w.read(run))];
      await s.waiting;
      await flush();
      s.more.resolve();
      const [first, ...others] = await Promise.all(live);
      for (const other of others) expect(joined(other)).toEqual(joined(first ?? []));
      const ids = (first ?? []).flatMap(({ id }) => (id === null ? [] : [id]));
      expect(new Set(ids).size).toBe(ids.length);
      const order = ids.map((id) => id.split('-')[1]?.split('.').map(Number) ?? []);
      expect(order).toEqual([...order].sort(([a = 0, b = 0], [c = 0, d = 0]) => a - c || b - d));
      expect(official(first ?? [])).toEqual(['let me look around', 'snow', 'I see a reindeer']);
      expect((first ?? []).filter(({ event }) => event === 'custom').map(({ data }) => JSON.parse(data))).toEqual([
        { step: 1 },
        { step: 3 },
      ]);
      expect(
        (first ?? []).filter(({ event }) => event === 'updates').map(({ data }) => Object.keys(JSON.parse(data))[0]),
      ).toEqual(['model', 'tools', 'model']);
      await w.runtime.stop();
    },
  );

  test(
    'resumed at any event it gives exactly what follows, and the client ends with the same messages',
    verifies('RS-02'),
    async () => {
      const { w, run } = await finishedStory();
      const whole = await collect(w.read(run, { modes: MODES }));
      for (let cut = 1; cut < whole.length; cut += 1) {
        const before = whole.slice(0, cut);
        const at = lastId(before);
        const after = await collect(w.read(run, { modes: MODES, lastEventId: at }));
        expect(after[0]?.event).toBe('metadata');
        const fresh = after.slice(1).filter(({ event }) => event !== 'values');
        const expected = whole
          .slice(at === null ? 1 : whole.findIndex(({ id }) => id === at) + 1)
          .filter(({ event }) => event !== 'values');
        if (expected.length > 0) expect(fresh).toEqual(expected);
      }
      await w.runtime.stop();
    },
  );

  test(
    'a client that leaves in the middle of a message and comes back has its text once',
    verifies('RS-02'),
    async () => {
      const s = story();
      const w = world({ script: s.script });
      await w.runtime.start();
      const run = await w.admitted({ request: { streamModes: MODES } });
      const before = await readUntil(w.read(run), (events) => official(events).includes('I see '));
      const back = collect(w.read(run, { lastEventId: lastId(before) }));
      await flush();
      s.more.resolve();
      expect(official([...before, ...(await back)])).toEqual(['let me look around', 'snow', 'I see a reindeer']);
      // And when it comes back only after the end, when nobody remembers the tokens any more.
      await w.ended(run);
      expect(official([...before, ...(await collect(w.read(run, { lastEventId: lastId(before) })))])).toEqual([
        'let me look around',
        'snow',
        'I see a reindeer',
      ]);
      await w.runtime.stop();
    },
  );

  test('a joiner in the middle of a message gets what was written so far, then the rest', async () => {
    const s = story();
    const w = world({ script: s.script });
    await w.runtime.start();
    const run = await w.admitted({ request: { streamModes: ['messages-tuple'] } });
    await s.waiting;
    await w.surroundings.clock.advance(100);
    const joining = collect(w.read(run));
    await flush();
    s.more.resolve();
    const events = await joining;
    expect(official(events)).toEqual(['let me look around', 'snow', 'I see a reindeer']);
    await w.runtime.stop();
  });

  test.each(['-1', '', 'text', '999999', 'abc-1-2'])(
    'an id that means nothing (%j) replays the whole run',
    verifies('RS-08'),
    async (lastEventId) => {
      const { w, run } = await finishedStory();
      const events = await collect(w.read(run, { modes: MODES, lastEventId }));
      expect(events.some(({ event }) => event === 'gap')).toBe(false);
      expect(official(events)).toEqual(['let me look around', 'snow', 'I see a reindeer']);
      await w.runtime.stop();
    },
  );

  test(
    'an id of the future replays, an id of another epoch gets a gap first; the run is not touched',
    verifies('RS-03', 'RS-15', 'RS-08'),
    async () => {
      const s = story();
      const w = world({ script: s.script });
      await w.runtime.start();
      const run = await w.admitted({ request: { streamModes: MODES } });
      await s.waiting;
      const epoch = await w.stores.log.epoch();
      const future = await readUntil(w.read(run, { lastEventId: `${epoch}-900000` }), (events) => events.length > 1);
      expect(future.map(({ event }) => event)).not.toContain('gap');
      const reading = collect(w.read(run, { lastEventId: 'otherepoch-3' }));
      await flush();
      s.more.resolve();
      const events = await reading;
      expect(events.slice(0, 2).map(({ event }) => event)).toEqual(['metadata', 'gap']);
      const gap = JSON.parse(events[1]?.data ?? '{}');
      expect(gap).toMatchObject({
        code: 'stream_replay_gap',
        run_id: run.runId,
        requested_event_id: 'otherepoch-3',
        recovery: 'reload_durable_state',
      });
      expect(gap.latest_available_event_id).toMatch(new RegExp(`^${epoch}-\\d+$`));
      expect(events[1]?.id).toBeNull();
      // Whatever the client had, it starts each message over.
      const had = new Map([[idOf(run, 1, 1), 'stale ']]);
      expect(joined(events, had).get(idOf(run, 1, 1))).toBe('let me look around');
      expect(await w.ended(run)).toMatchObject({ status: 'success' });
      await w.runtime.stop();
    },
  );

  test('a cursor at the end ends at once', verifies('RS-06'), async () => {
    const { w, run } = await finishedStory();
    const whole = await collect(w.read(run));
    const after = await collect(w.read(run, { lastEventId: lastId(whole) }));
    expect(after.map(({ event }) => event)).toEqual(['metadata', 'end']);
    await w.runtime.stop();
  });

  test(
    'a reader that stops pulling costs nothing and misses nothing: it re-reads the log',
    verifies('RS-04', 'RS-05', 'RS-21', 'ND-09'),
    async () => {
      const go = deferred();
      const w = world({
        script: {
          model: async (_messages, context) => {
            await go.promise;
            for (let i = 0; i < 1_500; i += 1) {
              context.emit({ i });
              if (i % 100 === 0) await flush(1);
            }
            return { text: 'done' };
          },
        },
      });
      await w.runtime.start();
      const run = await w.admitted({ request: { streamModes: ['custom'] } });
      const slow = w.read(run)[Symbol.asyncIterator]();
      await slow.next();
      const fast = collect(w.read(run));
      await flush();
      go.resolve();
      const numbers = (events: readonly StreamEvent[]) =>
        events.filter(({ event }) => event === 'custom').map(({ data }) => JSON.parse(data).i);
      const all = Array.from({ length: 1_500 }, (_, i) => i);
      expect(numbers(await fast)).toEqual(all);
      await w.ended(run);
      const events: StreamEvent[] = [];
      for (let item = await slow.next(); item.done !== true; item = await slow.next())
        if (item.value !== 'heartbeat') events.push(item.value);
      expect(numbers(events)).toEqual(all);
      expect(events.at(-1)?.event).toBe('end');
      await w.runtime.stop();
      expect(w.runtime.stats().streams).toBe(0);
    },
  );

  test(
    'three failures of the store in a row are borne, the fourth ends the stream with its error',
    verifies('RS-12'),
    async () => {
      let failures = 0;
      const { w, run } = await finishedStory((stores) =>
        withFaults(stores, ({ port, method, input }) => {
          const page = input as { runId?: string | null; limit?: number };
          if (port !== 'log' || method !== 'read' || page.limit === 1 || failures === 0) return null;
          failures -= 1;
          return 'fail-before';
        }),
      );
      failures = 3;
      const borne = collect(w.read(run));
      await w.surroundings.clock.advance(5_000);
      expect((await borne).at(-1)?.event).toBe('end');
      failures = 4;
      const ended = expect(collect(w.read(run))).rejects.toMatchObject({ code: 'store_unavailable' });
      await w.surroundings.clock.advance(5_000);
      await ended;
      expect(w.runtime.stats().streams).toBe(0);
      await w.runtime.stop();
    },
  );

  test(
    'what was pruned is a gap before anything is replayed; the rest follows',
    verifies('RS-03', 'RS-15'),
    async () => {
      let pruned = 0;
      const { w, run } = await finishedStory((stores) => ({
        ...stores,
        log: {
          ...stores.log,
          read: async (input) => {
            const page = await stores.log.read({ ...input, afterSeq: Math.max(input.afterSeq, pruned) });
            return { ...page, prunedThrough: pruned };
          },
        },
      }));
      const whole = await collect(w.read(run, { modes: MODES }));
      pruned = 6;
      const epoch = await w.stores.log.epoch();
      for (const lastEventId of [null, `${epoch}-2`]) {
        const events = await collect(w.read(run, { modes: MODES, lastEventId }));
        expect(events[1]).toMatchObject({ event: 'gap', id: null });
        expect(JSON.parse(events[1]?.data ?? '{}')).toMatchObject({
          earliest_available_event_id: `${epoch}-7`,
          requested_event_id: lastEventId,
        });
        expect(events.at(-1)?.event).toBe('end');
        expect(texts(events)).toEqual(texts(whole));
      }
      const kept = await collect(w.read(run, { modes: MODES, lastEventId: `${epoch}-6` }));
      expect(kept.map(({ event }) => event)).not.toContain('gap');
      await w.runtime.stop();
    },
  );

  test('a reader that is behind gets the newest state only, and always the last one', async () => {
    const { w, run } = await finishedStory();
    const events = await collect(w.read(run, { modes: ['values'] }));
    expect(events.filter(({ event }) => event === 'values')).toHaveLength(1);
    expect(texts(events)).toEqual(['hello', 'let me look around', 'snow', 'I see a reindeer']);
    await w.runtime.stop();
  });

  test('states are loaded once for all readers', async () => {
    let loads = 0;
    const s = story();
    const w = world({
      script: s.script,
      stores: (stores) =>
        withFaults(stores, ({ port, method }) => {
          if (port === 'checkpoints' && method === 'load') loads += 1;
          return null;
        }),
    });
    await w.runtime.start();
    const run = await w.admitted();
    const readers = Array.from({ length: 50 }, () => collect(w.read(run)));
    await s.waiting;
    await flush();
    s.more.resolve();
    const all = await Promise.all(readers);
    for (const events of all)
      expect(texts(events)).toEqual(['hello', 'let me look around', 'snow', 'I see a reindeer']);
    // The run itself loads twice (capture and start); each of the five states is loaded at most once for the readers.
    expect(loads).toBeLessThanOrEqual(2 + 5);
    await w.runtime.stop();
  });

  test('heartbeats come when it is idle, and are no events', verifies('RS-07'), async () => {
    const g = gated();
    const w = world({ script: g.script });
    await w.runtime.start();
    const run = await w.admitted();
    const items: StreamItem[] = [];
    const reading = (async () => {
      for await (const item of w.read(run)) items.push(item);
    })();
    await g.asked;
    await w.surroundings.clock.advance(45_000);
    expect(items.filter((item) => item === 'heartbeat')).toHaveLength(3);
    g.answer.resolve('done');
    await reading;
    expect(items.at(-1)).toMatchObject({ event: 'end' });
    await w.runtime.stop();
    expect(w.surroundings.clock.sleeping).toBe(0);
  });

  test('a run of another process is followed through the log alone, to its end', async () => {
    const s = story();
    const database = new MemoryDatabase(testSurroundings({ seed: 7 }).random);
    const a = world({ script: s.script, database, settings: { instanceId: 'a' } });
    const { clock } = a.surroundings;
    const deaf = world({
      database,
      clock,
      seed: 2,
      settings: { instanceId: 'b' },
      stores: (stores) => ({ ...stores, log: { ...stores.log, onAppend: () => () => undefined } }),
    });
    await a.runtime.start();
    const run = await a.admitted({ request: { streamModes: MODES } });
    const reading = collect(deaf.read(run));
    await s.waiting;
    await clock.advance(1_000);
    s.more.resolve();
    await flush();
    await clock.advance(1_000);
    const events = await reading;
    expect(texts(events)).toEqual(['hello', 'let me look around', 'snow', 'I see a reindeer']);
    expect([...joined(events).values()]).toEqual(['let me look around', 'snow', 'I see a reindeer']);
    expect(await deaf.ended(run)).toMatchObject({ status: 'success' });
    await a.runtime.stop();
    await deaf.runtime.stop();
    expect(clock.sleeping).toBe(0);
  });

  test('without hints every message still arrives, once', async () => {
    const s = story();
    const w = world({
      script: s.script,
      stores: (stores) => ({ ...stores, log: { ...stores.log, onAppend: () => () => undefined } }),
    });
    await w.runtime.start();
    const run = await w.admitted({ request: { streamModes: MODES } });
    const reading = collect(w.read(run));
    await s.waiting;
    await w.surroundings.clock.advance(6_000);
    s.more.resolve();
    await w.surroundings.clock.advance(10_000);
    expect(official(await reading).sort()).toEqual(['I see a reindeer', 'let me look around', 'snow']);
    await w.runtime.stop();
  });

  test('the older messages mode: metadata, partial and complete messages', async () => {
    const s = story();
    const w = world({ script: s.script });
    await w.runtime.start();
    const run = await w.admitted({ request: { streamModes: ['messages'] } });
    const reading = collect(w.read(run));
    await s.waiting;
    await flush();
    s.more.resolve();
    const events = await reading;
    const of = (event: string) => events.filter((one) => one.event === event).map(({ data }) => JSON.parse(data));
    expect(of('messages/metadata').length).toBeGreaterThan(0);
    expect(of('messages/partial').at(-1)).toMatchObject([{ type: 'ai', content: 'I see a reindeer' }]);
    expect(of('messages/complete').map(([message]) => message.type)).toEqual(['ai', 'tool', 'ai']);
    await w.runtime.stop();
  });

  test('checkpoints carry what the API shows of a state', async () => {
    const { w, run } = await finishedStory();
    const events = await collect(w.read(run, { modes: ['checkpoints'] }));
    const checkpoints = events.filter(({ event }) => event === 'checkpoints').map(({ data }) => JSON.parse(data));
    expect(checkpoints.map(({ metadata }) => metadata.step)).toEqual([-1, 0, 1, 2, 3]);
    expect(checkpoints.at(-1)).toMatchObject({
      next: [],
      values: { messages: [{}, {}, {}, {}] },
      checkpoint: { thread_id: 'thread-1', checkpoint_ns: '' },
    });
    await w.runtime.stop();
  });

  test('debug and tasks frames exist for runs that asked', async () => {
    const w = world();
    await w.runtime.start();
    const run = await w.admitted({ request: { streamModes: ['tasks', 'debug'] } });
    const events = await collect(w.read(run));
    const tasks = events.filter(({ event }) => event === 'tasks').map(({ data }) => JSON.parse(data));
    expect(tasks[0]).toMatchObject({ name: 'model', input: { messages: [{ type: 'human', content: 'hello' }] } });
    expect(events.some(({ event }) => event === 'debug')).toBe(true);
    await w.runtime.stop();
  });

  test('readers of a stopped process end quietly; nothing stays', verifies('RS-14', 'GW-16'), async () => {
    const g = gated();
    const database = new MemoryDatabase(testSurroundings({ seed: 7 }).random);
    const a = world({ script: g.script, database, settings: { instanceId: 'a' } });
    const b = world({ database, clock: a.surroundings.clock, seed: 2, settings: { instanceId: 'b' } });
    await a.runtime.start();
    const run = await a.admitted();
    await g.asked;
    const reading = collect(b.read(run));
    await flush();
    await b.runtime.stop();
    expect((await reading).some(({ event }) => event === 'end')).toBe(false);
    expect(b.runtime.stats().streams).toBe(0);
    g.answer.resolve('done');
    await a.ended(run);
    await a.runtime.stop();
    expect(a.surroundings.clock.sleeping).toBe(0);
  });

  test('an unknown run is not found, also for another user', async () => {
    const { w, run } = await finishedStory();
    await expect(collect(w.read({ ...run, userId: 'eve' }))).rejects.toMatchObject({ code: 'not_found' });
    await expect(collect(w.read({ ...run, runId: 'nothing' }))).rejects.toMatchObject({ code: 'not_found' });
    await w.runtime.stop();
  });
});
