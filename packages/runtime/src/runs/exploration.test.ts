import { MemoryDatabase } from '@reindeer/database';
import type { Fact, Run, Stores } from '@reindeer/protocol';
import { flush, testSurroundings, VirtualClock, verifies, withFaults } from '@reindeer/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Script } from '../testing/scripted-graph.ts';
import { messagesOf, USER, type World, world } from '../testing/world.ts';

/**
 * One story (a model call, two tools side by side, a second model call), disturbed at each of its calls to the stores in turn: every
 * interleaving point that the runtime has.
 */
function story() {
  const bodies = new Map<string, number>();
  const script: Script = {
    model: (messages, context) => {
      context.emit({ step: messages.length });
      return messages.length % 5 === 1
        ? { text: 'working', calls: [{ name: 'one' }, { name: 'two' }] }
        : { text: 'all done' };
    },
    tool: async ({ name }) => {
      bodies.set(name, (bodies.get(name) ?? 0) + 1);
      return `${name} result`;
    },
  };
  return { script, bodies };
}
const WHOLE = ['hello', 'working', 'one result', 'two result', 'all done'];

/** Stores that call `at` before and after their k-th call. */
function disturbed(
  stores: Stores,
  k: number,
  before: () => Promise<void> | null,
  after: () => Promise<void> | null,
): Stores {
  let calls = 0;
  return withFaults(stores, () => {
    calls += 1;
    if (calls !== k) return null;
    const first = before();
    const second = after();
    return {
      ...(first === null ? {} : { delayBefore: first }),
      ...(second === null ? {} : { delayAfter: second }),
    };
  });
}

async function callsOfStory(): Promise<number> {
  let calls = 0;
  const w = world({
    script: story().script,
    stores: (stores) =>
      withFaults(stores, () => {
        calls += 1;
        return null;
      }),
  });
  await w.ended(await w.admitted());
  return calls;
}

async function factsOf(w: World, runId: string | null): Promise<readonly Fact[]> {
  return (await w.stores.log.read({ threadId: 'thread-1', runId, afterSeq: 0, limit: 1_000, maxBytes: 1e9 })).facts;
}

/** What must hold of the log whatever happened. */
async function expectSoundLog(w: World, run: Run): Promise<void> {
  const all = await factsOf(w, null);
  expect(all.map(({ seq }) => seq)).toEqual(all.map((_, index) => index + 1));
  const facts = await factsOf(w, run.runId);
  expect(facts.filter(({ body }) => body.kind === 'run' && body.terminal)).toHaveLength(1);
  expect(facts.at(-1)?.body).toMatchObject({ kind: 'run', terminal: true });
  const finished = facts.flatMap(({ body }) =>
    body.kind === 'tool-finished' ? [`${body.messageId}#${body.index}`] : [],
  );
  expect(new Set(finished).size).toBe(finished.length);
}

const unhandled: unknown[] = [];
const note = (error: unknown) => unhandled.push(error);

describe('disturbed at every call to the stores', () => {
  let calls = 0;
  beforeAll(async () => {
    process.on('unhandledRejection', note);
    calls = await callsOfStory();
    expect(calls).toBeGreaterThan(15);
  });
  afterAll(() => {
    process.off('unhandledRejection', note);
    expect(unhandled).toEqual([]);
  });

  test.each(['before', 'after'] as const)(
    'a kill %s the call: the next process finishes the run, each message and each finished tool once',
    async (when) => {
      for (let k = 2; k <= calls; k += 1) {
        const database = new MemoryDatabase(testSurroundings({ seed: 99 }).random);
        const clock = new VirtualClock();
        const s = story();
        let dead = false;
        const hang = () => {
          dead = true;
          return new Promise<void>(() => undefined);
        };
        const cut = (inner: Stores) =>
          withFaults(
            disturbed(inner, k, when === 'before' ? hang : () => null, when === 'after' ? hang : () => null),
            () => (dead ? { delayBefore: new Promise(() => undefined) } : null),
          );
        const a = world({ script: s.script, database, clock, stores: cut });
        const created = await Promise.race([a.admitted().catch(() => null), flush(20).then(() => null)]);
        await flush(30);
        const b = world({ script: s.script, database, clock, seed: 2 });
        await b.runtime.start();
        const [run] = await b.stores.runs.list({
          threadId: 'thread-1',
          userId: USER,
          status: null,
          limit: 1,
          offset: 0,
        });
        if (run === undefined) {
          expect(created).toBeNull();
          continue;
        }
        expect(await b.ended(run), `k=${k}`).toMatchObject({ status: 'success', acknowledged: true });
        const messages = await messagesOf(b);
        expect(
          messages.map((text) => (text === 'unknown outcome' ? '?' : text)).filter((text) => text !== '?'),
        ).toEqual(WHOLE.filter((text) => messages.includes(text)));
        expect(messages).toHaveLength(WHOLE.length);
        // A tool ran at most once; one whose outcome is unknown was not run again.
        for (const count of s.bodies.values()) expect(count).toBe(1);
        const facts = await factsOf(b, run.runId);
        expect(
          facts.filter(({ body }) => body.kind === 'message'),
          `k=${k}`,
        ).toHaveLength(WHOLE.length);
        await expectSoundLog(b, run);
        const next = await b.admitted();
        expect(await b.ended(next)).toMatchObject({ status: 'success' });
        await b.runtime.stop();
      }
    },
  );

  test.each(['interrupt', 'rollback'] as const)(
    'a cancel (%s) at the call: ended once, nothing pending, nothing alive',
    verifies('RA-31', 'RL-14', 'ND-01', 'RT-10'),
    async (action) => {
      for (let k = 2; k <= calls; k += 1) {
        const s = story();
        const cancelled: Promise<unknown>[] = [];
        const w: World = world({
          script: s.script,
          stores: (inner) =>
            disturbed(
              inner,
              k,
              () => {
                cancelled.push(
                  inner.runs
                    .list({ threadId: 'thread-1', userId: USER, status: null, limit: 1, offset: 0 })
                    .then(([run]) => (run === undefined ? undefined : w.cancel(run, action, true))),
                );
                return flush(2);
              },
              () => null,
            ),
        });
        await w.runtime.start();
        const run = await w.admitted();
        const end = await w.ended(run);
        await Promise.all(cancelled);
        expect(end.acknowledged).toBe(true);
        const messages = await messagesOf(w);
        if (end.status === 'error') {
          expect(end.error, `k=${k}`).toBe('Rolled back by user');
          expect(messages).toEqual([]);
        } else if (end.status === 'success') expect(messages).toEqual(WHOLE);
        else expect(WHOLE.slice(0, messages.length)).toEqual(messages);
        await expectSoundLog(w, run);
        expect(w.runtime.stats()).toEqual({ held: 0, leases: 0, streams: 0 });
        expect(w.surroundings.logger.lines.filter(({ level }) => level === 'error')).toEqual([]);
        expect(await w.ended(await w.admitted())).toMatchObject({ status: 'success' });
        await w.runtime.stop();
        expect(w.surroundings.clock.sleeping).toBe(0);
      }
    },
  );

  test.each(['fail-before', 'fail-after'] as const)(
    'an answer that is lost at the call (%s): the run ends once, with its result',
    verifies('GW-22'),
    async (fault) => {
      // The first call is recovery's, the second looks for queues, the third is the admission, whose failure is the caller's to hear.
      for (let k = 4; k <= calls; k += 1) {
        const s = story();
        let count = 0;
        const w = world({
          script: s.script,
          stores: (inner) =>
            withFaults(inner, () => {
              count += 1;
              return count === k ? fault : null;
            }),
        });
        await w.runtime.start();
        const run = await w.admitted();
        await w.surroundings.clock.advance(2_000);
        const [row] = await w.stores.runs.list({
          threadId: 'thread-1',
          userId: USER,
          status: null,
          limit: 1,
          offset: 0,
        });
        expect(row, `k=${k}`).toMatchObject({ status: 'success', acknowledged: true, attempt: 1 });
        expect(await messagesOf(w)).toEqual(WHOLE);
        for (const times of s.bodies.values()) expect(times).toBe(1);
        await expectSoundLog(w, run);
        await w.runtime.stop();
        expect(w.surroundings.clock.sleeping).toBe(0);
      }
    },
  );

  test(
    'a stop at the call: what had ended stays, the rest is interrupted or closed, and nothing is alive',
    verifies('RT-17', 'GW-26'),
    async () => {
      for (let k = 1; k <= calls; k += 1) {
        const s = story();
        let stopped: Promise<unknown> | null = null;
        const w: World = world({
          script: s.script,
          stores: (inner) =>
            disturbed(
              inner,
              k,
              () => {
                stopped = w.runtime.stop({ drainMs: 0, hardMs: 5_000 });
                return flush(2);
              },
              () => null,
            ),
        });
        const admission = w.admitted().catch(() => null);
        await flush(10);
        await w.surroundings.clock.advance(6_000);
        await stopped;
        await admission;
        const rows = await w.stores.runs.list({
          threadId: 'thread-1',
          userId: USER,
          status: null,
          limit: 5,
          offset: 0,
        });
        for (const row of rows)
          expect(row, `k=${k}`).toMatchObject({
            acknowledged: true,
            status: expect.stringMatching(/success|interrupted/),
          });
        expect(w.surroundings.clock.sleeping).toBe(0);
        expect(w.runtime.stats()).toEqual({ held: 0, leases: 0, streams: 0 });
      }
    },
  );
});
