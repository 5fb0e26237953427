import { MemoryDatabase } from '@reindeer/database';
import { NO_USAGE } from '@reindeer/protocol';
import { deferred, faultOnce, flush, testSurroundings, verifies, withFaults } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { scriptedFactory } from '../testing/scripted-graph.ts';
import { gated, USER, type World, world } from '../testing/world.ts';

describe('admission', () => {
  test(
    'a run has its worker when its admission is answered: no turn lies between',
    verifies('RA-21', 'RA-03'),
    async () => {
      const seen: number[] = [];
      const w: World = world({
        stores: (stores) => ({
          ...stores,
          runs: {
            ...stores.runs,
            admit: async (input) => {
              const answer = await stores.runs.admit(input);
              // The next turn of the event loop: whatever else waits for the loop comes after this.
              setImmediate(() => seen.push(w.runtime.stats().held));
              return answer;
            },
          },
        }),
      });
      await w.runtime.start();
      const gate = w.surroundings.probe.hold('run.attached');
      const run = await w.admitted();
      await flush();
      expect(seen).toEqual([1]);
      expect(w.runtime.stats()).toMatchObject({ held: 1, leases: 1 });
      gate.release();
      await w.ended(run);
      await w.runtime.stop();
    },
  );

  test('a second run of a busy thread is a conflict; the first is untouched', verifies('RA-08', 'RA-27'), async () => {
    const g = gated();
    const w = world({ script: g.script });
    await w.runtime.start();
    const run = await w.admitted();
    await g.asked;
    expect(await w.create()).toMatchObject({ outcome: 'conflict', reason: 'busy', active: { runId: run.runId } });
    expect(await w.create({ threadId: 'other' })).toMatchObject({ outcome: 'admitted' });
    g.answer.resolve('done');
    expect(await w.ended(run)).toMatchObject({ status: 'success' });
    await w.runtime.stop();
  });

  test(
    'the same key is the same run, without a second worker; for another payload it is a conflict',
    verifies('RA-14', 'RA-15'),
    async () => {
      const g = gated();
      const w = world({ script: g.script });
      await w.runtime.start();
      const run = await w.admitted({ idempotencyKey: 'k' });
      await g.asked;
      expect(await w.create({ idempotencyKey: 'k' })).toMatchObject({ outcome: 'reused', run: { runId: run.runId } });
      expect(w.runtime.stats().held).toBe(1);
      expect(await w.create({ idempotencyKey: 'k', metadata: { other: true } })).toMatchObject({
        outcome: 'conflict',
        reason: 'key_reused',
      });
      expect(await w.create({ idempotencyKey: 'k', threadId: 'other' })).toMatchObject({
        outcome: 'conflict',
        reason: 'key_reused',
      });
      g.answer.resolve('done');
      await w.ended(run);
      await w.runtime.stop();
    },
  );

  test('a strategy that is not supported is refused before anything is written', verifies('RA-29'), async () => {
    const w = world();
    await w.runtime.start();
    const later = 'later' as 'reject';
    await expect(w.create({ multitaskStrategy: later })).rejects.toMatchObject({ code: 'not_implemented' });
    expect(await w.runtime.threads.get({ threadId: 'thread-1', userId: USER })).toBeNull();
    await w.runtime.stop();
  });

  test('an unknown assistant is named, and nothing is written', async () => {
    const w = world();
    await expect(w.create({ assistantId: 'nobody' })).rejects.toThrow('choose one of: scripted');
    expect(await w.runtime.threads.get({ threadId: 'thread-1', userId: USER })).toBeNull();
  });

  test('an admission that the store refuses leaves no trace', verifies('RA-04'), async () => {
    const w = world({ stores: (stores) => withFaults(stores, faultOnce('fail-before', 'runs.admit')) });
    await w.runtime.start();
    await expect(w.create()).rejects.toMatchObject({ code: 'store_unavailable' });
    expect(w.runtime.stats()).toEqual({ held: 0, leases: 0, streams: 0 });
    expect(
      await w.runtime.runs.list({ threadId: 'thread-1', userId: USER, status: null, limit: 10, offset: 0 }),
    ).toEqual([]);
    await w.runtime.stop();
  });

  test('an admission whose answer is lost is found by its ids and goes on', async () => {
    const w = world({ stores: (stores) => withFaults(stores, faultOnce('fail-after', 'runs.admit')) });
    await w.runtime.start();
    const run = await w.admitted();
    expect(await w.ended(run)).toMatchObject({ status: 'success', attempt: 1 });
    await w.runtime.stop();
  });

  test(
    'when nobody can tell whether it happened, what may stand there is closed as soon as the store answers',
    verifies('RA-04'),
    async () => {
      let down = false;
      const w = world({
        stores: (stores) =>
          withFaults(stores, ({ port, method }) => {
            if (method === 'admit') {
              down = true;
              return 'fail-after';
            }
            return down && port === 'runs' ? 'fail-before' : null;
          }),
      });
      await w.runtime.start();
      const admission = w.create();
      const refused = expect(admission).rejects.toMatchObject({ code: 'store_unavailable' });
      await w.surroundings.clock.advance(1_000);
      await refused;
      down = false;
      await w.surroundings.clock.advance(1_000);
      const runs = await w.runtime.runs.list({
        threadId: 'thread-1',
        userId: USER,
        status: null,
        limit: 10,
        offset: 0,
      });
      expect(runs).toMatchObject([{ status: 'interrupted', acknowledged: true, attempt: 0 }]);
      await w.runtime.stop();
    },
  );

  test(
    'a caller who leaves during the admission leaves nothing pending, however often it leaves',
    verifies('RA-17', 'RA-18'),
    async () => {
      const held = deferred();
      const w = world({
        stores: (stores) => withFaults(stores, faultOnce({ delayAfter: held.promise }, 'runs.admit')),
      });
      await w.runtime.start();
      const caller = new AbortController();
      const admission = w.create({ onDisconnect: 'cancel' }, caller.signal);
      const left = expect(admission).rejects.toThrow('first');
      await flush();
      caller.abort(new Error('first'));
      caller.abort(new Error('second'));
      held.resolve();
      await left;
      const runs = await w.runtime.runs.list({
        threadId: 'thread-1',
        userId: USER,
        status: null,
        limit: 10,
        offset: 0,
      });
      expect(runs).toMatchObject([{ status: 'interrupted', acknowledged: true }]);
      expect(w.runtime.stats().held).toBe(0);
      await w.runtime.stop();
    },
  );

  test(
    'a replacement that a peer has ended already keeps the status that the peer gave it',
    verifies('RA-20'),
    async () => {
      const held = deferred();
      const caller = new AbortController();
      const w = world({
        stores: (stores) => withFaults(stores, faultOnce({ delayAfter: held.promise }, 'runs.admit')),
      });
      const left = expect(w.create({}, caller.signal)).rejects.toThrow('gone');
      await flush();
      const { clock } = w.surroundings;
      const [claimed] = await w.stores.runs.claimOrphans({
        owner: 'peer',
        tokens: ['p'],
        leaseExpiresAt: clock.now() + 9_000,
        graceMs: 0,
        deadOwners: ['local'],
        skipRunIds: [],
        now: clock.now(),
      });
      const runId = claimed?.run.runId ?? '';
      await w.stores.runs.finalize({
        fence: { runId, token: 'p' },
        status: 'error',
        error: 'by the peer',
        stopReason: null,
        usage: NO_USAGE,
        unlessCancelled: false,
        now: clock.now(),
      });
      caller.abort(new Error('gone'));
      held.resolve();
      await left;
      expect(await w.stores.runs.get(runId)).toMatchObject({ status: 'error', error: 'by the peer' });
    },
  );

  test('a run whose graph cannot be made ends as error, never pending', verifies('RA-22'), async () => {
    const factory = scriptedFactory({ model: () => ({ text: '' }) });
    const w = world({ factory: { ...factory, forAttempt: () => Promise.reject(new Error('no model is configured')) } });
    await w.runtime.start();
    expect(await w.ended(await w.admitted())).toMatchObject({ status: 'error', error: 'no model is configured' });
    await w.runtime.stop();
  });

  test('the caller hears its own abort, not the failure of the clean-up', verifies('RA-19'), async () => {
    const held = deferred();
    const caller = new AbortController();
    const w = world({
      stores: (stores) =>
        withFaults(stores, ({ method }) =>
          method === 'admit' ? { delayAfter: held.promise } : method === 'finalize' ? 'fail-before' : null,
        ),
    });
    const admission = w.create({ onDisconnect: 'cancel' }, caller.signal);
    const left = expect(admission).rejects.toThrow('caller left');
    await flush();
    caller.abort(new Error('caller left'));
    held.resolve();
    await w.surroundings.clock.advance(10_000);
    await left;
  });

  test(
    'a replacement waits until the run it replaces is finalized; a finalizing run is not interrupted again',
    verifies('RA-10', 'RA-11', 'RA-09'),
    async () => {
      const g = gated();
      const w = world({ script: g.script });
      await w.runtime.start();
      const first = await w.admitted();
      await g.asked;
      const end = w.surroundings.probe.hold('run.before-finalize', ({ runId }) => runId === first.runId);
      const second = await w.admitted({ multitaskStrategy: 'interrupt' });
      await end.reached;
      expect(await w.stores.runs.get(first.runId)).toMatchObject({ status: 'interrupted', acknowledged: false });
      expect(await w.create()).toMatchObject({ outcome: 'conflict', reason: 'busy' });
      await w.surroundings.clock.advance(30_000);
      expect(await w.stores.runs.get(second.runId)).toMatchObject({ status: 'pending' });
      // Replaced again: the new one supersedes the second, and waits for both.
      const third = await w.admitted({ multitaskStrategy: 'interrupt' });
      expect(await w.ended(second)).toMatchObject({ status: 'interrupted', attempt: 0 });
      await flush();
      expect(await w.stores.runs.get(third.runId)).toMatchObject({ status: 'pending' });
      g.answer.resolve('late');
      end.release();
      expect(await w.ended(third)).toMatchObject({ status: 'success' });
      expect(await w.stores.runs.get(first.runId)).toMatchObject({
        status: 'interrupted',
        acknowledged: true,
        error: 'Cancelled by newer run',
      });
      await w.runtime.stop();
    },
  );

  test('too many runs are refused, and room is made when one ends', async () => {
    const g = gated();
    const w = world({ script: g.script, settings: { maxActiveRuns: 1 } });
    await w.runtime.start();
    const run = await w.admitted();
    await expect(w.create({ threadId: 'other' })).rejects.toMatchObject({ code: 'over_capacity' });
    g.answer.resolve('done');
    await w.ended(run);
    expect(await w.create({ threadId: 'other' })).toMatchObject({ outcome: 'admitted' });
    await w.runtime.stop();
  });

  test(
    'a run of a live peer is not superseded; one whose holder is gone is, and its successor runs',
    verifies('RA-05', 'RA-06'),
    async () => {
      const database = new MemoryDatabase(testSurroundings({ seed: 7 }).random);
      const g = gated();
      let dead = false;
      const a = world({
        script: g.script,
        database,
        settings: { instanceId: 'a' },
        stores: (stores) => withFaults(stores, () => (dead ? 'fail-before' : null)),
      });
      const { clock } = a.surroundings;
      const b = world({ database, clock, seed: 2, settings: { instanceId: 'b' } });
      await a.runtime.start();
      await b.runtime.start();
      const first = await a.admitted();
      await g.asked;
      expect(await b.create({ multitaskStrategy: 'interrupt' })).toMatchObject({
        outcome: 'conflict',
        reason: 'live_elsewhere',
      });
      expect(await b.stores.runs.get(first.runId)).toMatchObject({ status: 'running', cancelAction: null });
      dead = true;
      await clock.advance(12_001);
      const second = await b.admitted({ multitaskStrategy: 'interrupt' });
      await clock.advance(10_000);
      expect(await b.stores.runs.get(first.runId)).toMatchObject({ status: 'interrupted', acknowledged: true });
      expect(await b.stores.runs.get(second.runId)).toMatchObject({ status: 'success' });
      await b.runtime.stop();
      const stopped = a.runtime.stop({ drainMs: 10, hardMs: 20 });
      await clock.advance(1_000);
      await stopped;
    },
  );
});
