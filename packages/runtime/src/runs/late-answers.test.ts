import { MemoryDatabase } from '@reindeer/database';
import { NO_USAGE } from '@reindeer/protocol';
import { deferred, flush, testSurroundings, VirtualClock, verifies, withFaults } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import type { Script } from '../testing/scripted-graph.ts';
import { gated, human, messagesOf, USER, type World, world } from '../testing/world.ts';

const own = { threadId: 'thread-1', userId: USER };

describe('answers that come late', () => {
  test(
    'a cancel of a run that a peer has ended meanwhile tells that end, and changes nothing',
    verifies('RL-26', 'RL-15'),
    async () => {
      const g = gated();
      const w = world({ script: g.script, settings: { sweepMs: 1_000_000 } });
      const { clock } = w.surroundings;
      await w.runtime.start();
      const run = await w.admitted();
      await g.asked;
      // Taken over and ended by a peer; this process has not heard of it yet.
      await w.stores.runs.claimOrphans({
        owner: 'peer',
        tokens: ['p'],
        leaseExpiresAt: clock.now() + 12_000,
        graceMs: 0,
        deadOwners: ['local'],
        skipRunIds: [],
        now: clock.now(),
      });
      await w.stores.runs.finalize({
        fence: { runId: run.runId, token: 'p' },
        status: 'error',
        error: 'The process that held this run ended before the run did.',
        stopReason: 'orphan_recovered',
        usage: NO_USAGE,
        unlessCancelled: false,
        now: clock.now(),
      });
      const row = await w.stores.runs.get(run.runId);
      expect(w.runtime.stats().held).toBe(1);
      for (const wait of [false, true])
        expect(await w.cancel(run, 'interrupt', wait)).toEqual({ outcome: 'terminal', run: row });
      await clock.advance(10_000);
      expect(await w.stores.runs.get(run.runId)).toEqual(row);
      expect(w.runtime.stats()).toMatchObject({ held: 0, leases: 0 });
      await w.runtime.stop();
    },
  );

  test(
    'a stop that runs out of time while the answer to a success is on its way leaves the success as it is',
    verifies('RT-26', 'RT-18', 'RT-01'),
    async () => {
      const stored = deferred();
      const answer = deferred();
      const finished: string[] = [];
      const w: World = world({
        script: { model: () => ({ text: 'done' }) },
        hooks: { onFinished: (run) => void finished.push(run.status) },
        stores: (inner) =>
          withFaults(inner, ({ method }) => {
            if (method !== 'finalize') return null;
            stored.resolve();
            return { delayAfter: answer.promise };
          }),
      });
      const { clock } = w.surroundings;
      await w.runtime.start();
      const run = await w.admitted();
      await stored.promise;
      await flush();
      const row = await w.stores.runs.get(run.runId);
      expect(row).toMatchObject({ status: 'success', acknowledged: true });
      const stopped = w.runtime.stop({ drainMs: 100, hardMs: 1_000 });
      await clock.advance(2_500);
      // It cannot tell: the answer is not here. What is stored is not touched.
      expect(await stopped).toMatchObject({ unfinished: [{ runId: run.runId }] });
      expect(await w.stores.runs.get(run.runId)).toEqual(row);
      answer.resolve();
      await clock.advance(30_000);
      expect(await w.stores.runs.get(run.runId)).toEqual(row);
      const next = world({ opened: w.stores, clock, seed: 2 });
      expect(await next.runtime.start()).toEqual({ recovered: 0 });
      expect(await next.stores.runs.get(run.runId)).toEqual(row);
      await next.runtime.stop();
    },
  );
});

describe('a cancel of a run whose process is dead', () => {
  /** Two processes; the first one is cut off its stores while its run is at work, as by `kill -9`. */
  async function orphaned() {
    const database = new MemoryDatabase(testSurroundings({ seed: 99 }).random);
    const clock = new VirtualClock();
    const g = gated();
    let dead = false;
    const a = world({
      database,
      clock,
      script: g.script,
      settings: { instanceId: 'a' },
      stores: (inner) => withFaults(inner, () => (dead ? { delayBefore: new Promise<void>(() => undefined) } : null)),
    });
    const b = world({ database, clock, seed: 2, settings: { instanceId: 'b', cancelWaitMs: 60_000 } });
    await a.runtime.start();
    await b.runtime.start();
    const run = await a.admitted();
    await g.asked;
    dead = true;
    return { b, clock, run };
  }

  test.each(['interrupt', 'rollback'] as const)(
    'ends it (%s) as soon as its lease is over, and frees the thread',
    verifies('RL-13', 'RL-30'),
    async (action) => {
      const { b, clock, run } = await orphaned();
      const waiting = b.cancel(run, action, true);
      const at = clock.now();
      let answered = 0;
      void waiting.then(() => {
        answered = clock.now() - at;
      });
      expect(await b.cancel(run, 'interrupt')).toMatchObject({ outcome: 'accepted', stopped: false });
      await clock.advance(18_000);
      expect(await waiting).toMatchObject({
        outcome: 'accepted',
        stopped: true,
        // The first action won, whichever came after it.
        run: { acknowledged: true, attempt: 1, cancelAction: action },
      });
      expect(answered).toBeLessThanOrEqual(12_000 + 3_000 + 2_000 + 500);
      expect(await b.stores.runs.get(run.runId)).toMatchObject(
        action === 'rollback'
          ? { status: 'error', error: 'Rolled back by user' }
          : { status: 'interrupted', error: 'Cancelled by user' },
      );
      expect(await b.ended(await b.admitted())).toMatchObject({ status: 'success' });
      await b.runtime.stop();
    },
  );

  test('whose lease is over ends it at once', verifies('RL-13'), async () => {
    const { b, clock, run } = await orphaned();
    // Between two sweeps.
    clock.skip(15_500);
    const waiting = b.cancel(run, 'interrupt', true);
    await clock.advance(600);
    expect(await waiting).toMatchObject({ outcome: 'accepted', stopped: true, run: { status: 'interrupted' } });
    await b.runtime.stop();
  });
});

describe('one writer of a thread at a time', () => {
  test(
    'a graph reads its thread from inside its own run; what would write it beside the run is refused',
    verifies('RB-07', 'RA-08'),
    async () => {
      const seen: unknown[] = [];
      let w: World;
      const script: Script = {
        model: async (messages) => {
          const state = await w.runtime.threads.state({ ...own, checkpointId: null, subgraphs: false });
          const write = { ...own, values: { title: 'other' }, checkpointId: null, asNode: 'model' };
          seen.push(
            (state?.values.messages as unknown[] | undefined)?.length,
            await w.runtime.threads.updateState(write),
          );
          return { text: `answer to ${messages.length}` };
        },
      };
      w = world({ script });
      await w.runtime.start();
      expect(await w.ended(await w.admitted())).toMatchObject({ status: 'success' });
      expect(seen).toEqual([1, { outcome: 'busy' }]);
      // Writers that come at once take turns or are told: none of them is lost silently.
      const writes = await Promise.all(
        ['a', 'b', 'c'].map((text) =>
          w.runtime.threads.updateState({
            ...own,
            values: { messages: [human(text, text)] },
            checkpointId: null,
            asNode: 'tools',
          }),
        ),
      );
      const stored = (await messagesOf(w)).slice(2);
      expect(stored).toHaveLength(writes.filter(({ outcome }) => outcome === 'updated').length);
      expect(writes.every(({ outcome }) => outcome === 'updated' || outcome === 'busy')).toBe(true);
      await w.runtime.stop();
    },
  );
});

describe('what sub-agents report of their steps', () => {
  test(
    'is neither lost nor put in another order by a store that fails for a while',
    verifies('RT-28', 'RE-08'),
    async () => {
      const sent = 400;
      let calls = 0;
      const w = world({
        script: {
          model: async (_messages, context) => {
            for (let n = 0; n < sent; n += 1) {
              context.emit({ step: n }, ['task', 'sub-1']);
              if (n % 50 === 0) await w.surroundings.clock.sleep(10);
            }
            return { text: 'done' };
          },
        },
        stores: (inner) =>
          withFaults(inner, ({ port, method }) => {
            if (port !== 'log' || method !== 'append') return null;
            calls += 1;
            // Lost before, lost after, through, over and over.
            return calls % 3 === 0 ? null : calls % 3 === 1 ? 'fail-before' : 'fail-after';
          }),
      });
      await w.runtime.start();
      const run = await w.admitted();
      await w.surroundings.clock.advance(20_000);
      expect(await w.ended(run)).toMatchObject({ status: 'success' });
      const steps: number[] = [];
      for (let afterSeq = 0; ; ) {
        const read = { threadId: 'thread-1', runId: run.runId, afterSeq, limit: 500, maxBytes: 1e9 };
        const { facts } = await w.stores.log.read(read);
        for (const { body } of facts)
          if (body.kind === 'custom' && body.ns === 'task|sub-1') steps.push((body.data as { step: number }).step);
        const last = facts.at(-1);
        if (last === undefined) break;
        afterSeq = last.seq;
      }
      expect(calls).toBeGreaterThan(5);
      expect(steps).toEqual(Array.from({ length: sent }, (_, n) => n));
      await w.runtime.stop();
    },
  );
});

describe('a reader that pulls no more', () => {
  test('keeps no timer behind the stop of its process', verifies('ND-03', 'GW-26'), async () => {
    const g = gated();
    const w = world({ script: g.script });
    const { clock } = w.surroundings;
    await w.runtime.start();
    const run = await w.admitted();
    await g.asked;
    const reader = w.read(run, { modes: ['updates'] })[Symbol.asyncIterator]();
    expect(await reader.next()).toMatchObject({ value: { event: 'metadata' } });
    // It waits for more, gets it, and takes nothing further.
    const more = reader.next();
    g.answer.resolve('done');
    await more;
    const stopped = w.runtime.stop({ drainMs: 100, hardMs: 1_000 });
    await clock.advance(3_000);
    await stopped;
    expect(clock.sleeping).toBe(0);
  });
});
