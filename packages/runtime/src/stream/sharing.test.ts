import { MemoryDatabase } from '@reindeer/database';
import type { Run, StreamEvent } from '@reindeer/protocol';
import { deferred, flush, testSurroundings, verifies, withFaults } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { type Fate, relays } from '../testing/relays.ts';
import type { Script } from '../testing/scripted-graph.ts';
import { collect, joined, type World, world } from '../testing/world.ts';

const WORDS = ['I ', 'see ', 'a ', 'reindeer ', 'in ', 'the ', 'snow'];
const TEXT = WORDS.join('');

/** A model that says a word whenever the test lets it. */
function speaker() {
  const words = WORDS.map(() => deferred());
  const said = WORDS.map(() => deferred());
  const finish = deferred();
  const script: Script = {
    model: async (_messages, context) => {
      for (const [index, content] of WORDS.entries()) {
        await words[index]?.promise;
        context.tokens.push({ type: 'AIMessageChunk', id: idOf(context.run, context.attempt), content }, {});
        said[index]?.resolve();
      }
      await finish.promise;
      return { text: TEXT, streamed: TEXT };
    },
  };
  return { script, words, said, finish };
}
const idOf = (run: Run, attempt: number) => `ai-${run.runId.slice(0, 8)}-${attempt}-1`;

interface Scene {
  readonly a: World;
  readonly b: World;
  readonly speech: ReturnType<typeof speaker>;
  readonly bus: ReturnType<typeof relays>;
  /** The store answers A nothing any more. */
  cutOff: boolean;
  /** Lets one more word be said and its frame go out. */
  say(upTo: number): Promise<void>;
}

async function scene(): Promise<Scene> {
  const bus = relays();
  const speech = speaker();
  const database = new MemoryDatabase(testSurroundings({ seed: 7 }).random);
  const settings = { tokenFlushMs: 10 };
  const scene = { cutOff: false };
  const a = world({
    script: speech.script,
    database,
    relay: bus.relay(),
    stores: (stores) => withFaults(stores, () => (scene.cutOff ? 'fail-before' : null)),
    settings: { ...settings, instanceId: 'a' },
  });
  const { clock } = a.surroundings;
  const b = world({
    script: speech.script,
    database,
    clock,
    seed: 2,
    relay: bus.relay(),
    settings: { ...settings, instanceId: 'b' },
  });
  await a.runtime.start();
  await b.runtime.start();
  let spoken = 0;
  const say = async (upTo: number) => {
    for (; spoken < upTo; spoken += 1) {
      speech.words[spoken]?.resolve();
      await speech.said[spoken]?.promise;
      await clock.advance(10);
      await flush();
    }
  };
  return Object.assign(scene, { a, b, speech, bus, say });
}

/** A reader whose events can be looked at while it reads. */
function reading(w: World, run: Run, lastEventId: string | null = null) {
  const events: StreamEvent[] = [];
  const over = new AbortController();
  const done = (async () => {
    for await (const item of w.read(run, { lastEventId, signal: over.signal }))
      if (item !== 'heartbeat') events.push(item);
  })();
  return { events, done, leave: () => over.abort() };
}

const text = (events: readonly StreamEvent[], already?: Map<string, string>) => [...joined(events, already).values()];
const stopBoth = async ({ a, b }: Scene) => {
  await a.runtime.stop();
  await b.runtime.stop();
  expect(b.runtime.stats().streams).toBe(0);
  expect(a.surroundings.clock.sleeping).toBe(0);
};
const tuples = { request: { streamModes: ['messages-tuple'] } };

describe('tokens of a run that is worked on another instance', () => {
  test('are read while they are written, and nothing is sent before somebody reads', verifies('RS-01'), async () => {
    const s = await scene();
    const run = await s.a.admitted(tuples);
    await s.say(2);
    expect(s.bus.sent).toEqual([]);
    const reader = reading(s.b, run);
    await flush();
    // The joiner gets what was written so far, then each word.
    expect(text(reader.events)).toEqual(['I see ']);
    await s.say(3);
    expect(text(reader.events)).toEqual(['I see a ']);
    await s.say(WORDS.length);
    expect(text(reader.events)).toEqual([TEXT]);
    s.speech.finish.resolve();
    await reader.done;
    expect(text(reader.events)).toEqual([TEXT]);
    // All of it had come as tokens: the finished message takes nothing back.
    expect(reader.events.filter(({ data }) => data.includes('"remove"'))).toEqual([]);
    await stopBoth(s);
  });

  test('a cursor in the middle of a message holds on every instance', verifies('RS-02'), async () => {
    const s = await scene();
    const run = await s.a.admitted(tuples);
    await s.say(1);
    const first = reading(s.a, run);
    await flush();
    await s.say(3);
    first.leave();
    await first.done;
    const at = first.events.findLast(({ id }) => id !== null)?.id ?? null;
    expect(at).toContain('.');
    await s.say(4);
    const there = reading(s.b, run, at);
    await flush();
    await s.say(5);
    expect(text([...first.events, ...there.events])).toEqual(['I see a reindeer in ']);
    there.leave();
    await there.done;
    const later = there.events.findLast(({ id }) => id !== null)?.id ?? null;
    const back = reading(s.a, run, later);
    await s.say(WORDS.length);
    s.speech.finish.resolve();
    await back.done;
    expect(text([...first.events, ...there.events, ...back.events])).toEqual([TEXT]);
    await stopBoth(s);
  });

  const fates: [string, Fate][] = [
    ['every frame twice', () => 'twice'],
    ['every third frame lost', ({ position, whole }) => (!whole && position.n % 3 === 0 ? 'lost' : 'arrives')],
    ['the last frames lost', ({ position }) => (position.n >= 5 ? 'lost' : 'arrives')],
    ['everything lost', () => 'lost'],
  ];
  test.each(fates)('with %s the client has each message once and whole', verifies('RS-01'), async (_name, fate) => {
    const s = await scene();
    s.bus.fate = fate;
    const run = await s.a.admitted(tuples);
    const reader = reading(s.b, run);
    await flush();
    for (let word = 1; word <= WORDS.length; word += 1) {
      await s.say(word);
      const [sofar = ''] = text(reader.events);
      expect(TEXT.startsWith(sofar)).toBe(true);
      // Long enough for a wish to be repeated.
      await s.a.surroundings.clock.advance(700);
    }
    s.speech.finish.resolve();
    await flush();
    await s.a.surroundings.clock.advance(600);
    await reader.done;
    expect(text(reader.events)).toEqual([TEXT]);
    await stopBoth(s);
  });

  test('a wish that was lost is repeated; one that is not repeated ends', async () => {
    const s = await scene();
    const run = await s.a.admitted(tuples);
    s.bus.deliver = false;
    const reader = reading(s.b, run);
    await s.say(2);
    expect(s.bus.sent).toEqual([]);
    s.bus.deliver = true;
    await s.a.surroundings.clock.advance(2_000);
    expect(text(reader.events)).toEqual(['I see ']);
    reader.leave();
    await reader.done;
    const sent = s.bus.sent.length;
    await s.a.surroundings.clock.advance(7_000);
    await s.say(5);
    expect(s.bus.sent.length).toBe(sent);
    await s.say(WORDS.length);
    s.speech.finish.resolve();
    await s.a.ended(run);
    await stopBoth(s);
  });

  test('the readers of a killed producer resume with the run, and its half message is taken back', async () => {
    const s = await scene();
    const run = await s.a.admitted(tuples);
    const reader = reading(s.b, run);
    await s.say(3);
    expect(text(reader.events)).toEqual(['I see a ']);
    // The first process renews nothing any more, and goes on speaking all the same.
    s.cutOff = true;
    const { clock } = s.a.surroundings;
    for (let second = 0; second < 25; second += 1) await clock.advance(1_000);
    await s.say(WORDS.length);
    s.speech.finish.resolve();
    await flush();
    await clock.advance(5_000);
    await reader.done;
    expect(reader.events.at(-1)?.event).toBe('end');
    expect([...joined(reader.events).entries()]).toEqual([[idOf(run, 2), TEXT]]);
    s.cutOff = false;
    await stopBoth(s);
  });

  test.each(['-1', '', 'text', '999999', 'future', 'other epoch'])(
    'an odd cursor (%j) has its one answer on the other instance too, and the words follow',
    verifies('RS-03', 'RS-15'),
    async (cursor) => {
      const s = await scene();
      const run = await s.a.admitted(tuples);
      await s.say(2);
      const epoch = await s.b.stores.log.epoch();
      const odd = { future: `${epoch}-900000`, 'other epoch': 'otherepoch-3' }[cursor] ?? cursor;
      const reader = reading(s.b, run, odd);
      await flush();
      expect(text(reader.events)).toEqual(['I see ']);
      await s.say(WORDS.length);
      s.speech.finish.resolve();
      await reader.done;
      const isGap = cursor === 'other epoch';
      expect(reader.events.map(({ event }) => event).indexOf('gap')).toBe(isGap ? 1 : -1);
      expect(text(reader.events)).toEqual([TEXT]);
      expect(await s.a.ended(run)).toMatchObject({ status: 'success' });
      await stopBoth(s);
    },
  );

  test(
    'a reader that takes nothing for a while gets the words in one piece, and costs the run nothing',
    verifies('RS-21'),
    async () => {
      const s = await scene();
      const run = await s.a.admitted(tuples);
      const slow = s.b.read(run)[Symbol.asyncIterator]();
      await slow.next();
      const fast = reading(s.b, run);
      await flush();
      await s.say(WORDS.length);
      expect(text(fast.events)).toEqual([TEXT]);
      s.speech.finish.resolve();
      await fast.done;
      const events: StreamEvent[] = [];
      for (let item = await slow.next(); item.done !== true; item = await slow.next())
        if (item.value !== 'heartbeat') events.push(item.value);
      expect(text(events)).toEqual([TEXT]);
      expect(events.filter(({ event }) => event === 'messages')).toHaveLength(1);
      await stopBoth(s);
    },
  );

  test('who only hears of the messages at their ends has each once', async () => {
    const s = await scene();
    const run = await s.a.admitted(tuples);
    await s.say(2);
    s.speech.finish.resolve();
    await s.say(WORDS.length);
    await s.a.ended(run);
    expect([...joined(await collect(s.b.read(run))).values()]).toEqual([TEXT]);
    await stopBoth(s);
  });
});
