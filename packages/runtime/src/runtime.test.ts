import { MemoryDatabase } from '@reindeer/database';
import type { StreamItem } from '@reindeer/protocol';
import { deferred, flush, testSurroundings, verifies, withFaults } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { collect, gated, USER, world } from './testing/world.ts';

describe('starting and stopping', () => {
  test(
    'a run that ends during the drain keeps its status, and its reader hears the end',
    verifies('RT-17', 'GW-09'),
    async () => {
      const g = gated();
      const w = world({ script: g.script });
      await w.runtime.start();
      const run = await w.admitted();
      const slowly = async () => {
        const events: StreamItem[] = [];
        for await (const item of w.read(run)) {
          events.push(item);
          await flush();
        }
        return events;
      };
      const reading = slowly();
      await g.asked;
      const stopped = w.runtime.stop({ drainMs: 5_000, hardMs: 10_000 });
      await w.surroundings.clock.advance(3_000);
      g.answer.resolve('just in time');
      expect(await stopped).toEqual({ unfinished: [] });
      expect(await w.stores.runs.get(run.runId)).toMatchObject({ status: 'success', acknowledged: true });
      expect((await reading).at(-1)).toMatchObject({ event: 'end' });
    },
  );

  test('after the drain the rest is interrupted, and that is stored', verifies('RT-17'), async () => {
    const g = gated();
    const w = world({ script: g.script });
    await w.runtime.start();
    const run = await w.admitted();
    await g.asked;
    const stopped = w.runtime.stop({ drainMs: 5_000, hardMs: 10_000 });
    await w.surroundings.clock.advance(4_999);
    expect(await w.stores.runs.get(run.runId)).toMatchObject({ status: 'running' });
    await w.surroundings.clock.advance(1);
    expect(await stopped).toEqual({ unfinished: [] });
    expect(await w.stores.runs.get(run.runId)).toMatchObject({
      status: 'interrupted',
      error: 'Interrupted: the server was stopped',
    });
    expect(w.surroundings.clock.sleeping).toBe(0);
  });

  test(
    'a run that ignores everything is left to recovery after the hard bound, and named',
    verifies('RT-18', 'RT-19', 'GW-12', 'GW-24'),
    async () => {
      const started = deferred();
      const w = world({
        script: {
          model: () => ({ text: '', calls: [{ name: 'deaf' }] }),
          tool: () => {
            started.resolve();
            return new Promise(() => undefined);
          },
        },
      });
      await w.runtime.start();
      const run = await w.admitted();
      await started.promise;
      const stopped = w.runtime.stop({ drainMs: 2_000, hardMs: 5_000 });
      await w.surroundings.clock.advance(5_000);
      expect(await stopped).toEqual({ unfinished: [{ runId: run.runId, threadId: 'thread-1', effects: ['deaf'] }] });
      expect(w.surroundings.logger.lines).toContainEqual(
        expect.objectContaining({ level: 'error', fields: expect.objectContaining({ runId: run.runId }) }),
      );
      const row = await w.stores.runs.get(run.runId);
      expect(row).toMatchObject({ acknowledged: false });
      await w.surroundings.clock.advance(60_000);
      expect(await w.stores.runs.get(run.runId)).toEqual(row);
    },
  );

  test(
    'a terminal status that cannot be stored at the stop is logged with its ids',
    verifies('RT-19', 'GW-22'),
    async () => {
      const g = gated();
      const w = world({
        script: g.script,
        stores: (stores) => withFaults(stores, ({ method }) => (method === 'finalize' ? 'fail-before' : null)),
      });
      await w.runtime.start();
      const run = await w.admitted();
      await g.asked;
      const stopped = w.runtime.stop({ drainMs: 100, hardMs: 5_000 });
      await w.surroundings.clock.advance(5_000);
      await stopped;
      expect(w.surroundings.logger.lines.filter(({ level }) => level === 'error')).toContainEqual(
        expect.objectContaining({ fields: expect.objectContaining({ runId: run.runId, threadId: 'thread-1' }) }),
      );
    },
  );

  test('nothing is admitted once the stop has begun, reservations neither', verifies('GW-20'), async () => {
    const g = gated();
    const w = world({ script: g.script });
    await w.runtime.start();
    await w.admitted();
    await g.asked;
    const stopped = w.runtime.stop({ drainMs: 5_000, hardMs: 10_000 });
    await expect(w.create({ threadId: 'other' })).rejects.toMatchObject({ code: 'shutting_down', retryable: true });
    await expect(w.runtime.threads.delete({ threadId: 'thread-1', userId: USER })).rejects.toMatchObject({
      code: 'shutting_down',
    });
    g.answer.resolve('done');
    await stopped;
  });

  test('an admission that crosses the stop is closed, not lost', verifies('GW-20', 'RA-17'), async () => {
    const answer = deferred();
    const w = world({
      stores: (stores) =>
        withFaults(stores, ({ method }) => (method === 'admit' ? { delayAfter: answer.promise } : null)),
    });
    await w.runtime.start();
    const crossing = expect(w.create()).rejects.toMatchObject({ code: 'shutting_down' });
    await flush();
    const stopped = w.runtime.stop({ drainMs: 1_000, hardMs: 2_000 });
    answer.resolve();
    await crossing;
    await stopped;
    const runs = await w.stores.runs.list({ threadId: 'thread-1', userId: USER, status: null, limit: 5, offset: 0 });
    expect(runs).toMatchObject([{ status: 'interrupted', acknowledged: true }]);
  });

  test('a reservation that crosses the stop does nothing, and its slot is free again', verifies('GW-20'), async () => {
    const answer = deferred();
    let admissions = 0;
    const w = world({
      stores: (stores) =>
        withFaults(stores, ({ method }) => {
          if (method !== 'admit') return null;
          admissions += 1;
          return admissions === 2 ? { delayAfter: answer.promise } : null;
        }),
    });
    await w.runtime.start();
    await w.ended(await w.admitted());
    const crossing = expect(
      w.runtime.threads.updateState({
        threadId: 'thread-1',
        userId: USER,
        values: { title: 'late' },
        checkpointId: null,
        asNode: null,
      }),
    ).rejects.toMatchObject({ code: 'shutting_down' });
    await flush();
    const stopped = w.runtime.stop({ drainMs: 1_000, hardMs: 2_000 });
    await w.surroundings.clock.advance(5_000);
    await stopped;
    answer.resolve();
    await crossing;
    expect(await w.stores.runs.active('thread-1')).toEqual([]);
    const state = await w.stores.checkpoints.load({ threadId: 'thread-1', ns: '', checkpointId: null });
    expect(state?.channels.find(({ name }) => name === 'title')).toBeUndefined();
  });

  test('a claim that crosses the stop starts nothing here, and a peer has it at once', async () => {
    const database = new MemoryDatabase(testSurroundings({ seed: 7 }).random);
    const answer = deferred();
    const g = gated();
    const a = world({ script: g.script, database, settings: { instanceId: 'a' } });
    const { clock } = a.surroundings;
    let calls = 0;
    const b = world({
      database,
      clock,
      seed: 2,
      settings: { instanceId: 'b', deadOwners: ['a'] },
      script: {
        model: () => {
          calls += 1;
          return { text: 'too late' };
        },
      },
      stores: (stores) =>
        withFaults(stores, ({ method }) => (method === 'claimOrphans' ? { delayAfter: answer.promise } : null)),
    });
    await a.runtime.start();
    const run = await a.admitted();
    await g.asked;
    const starting = b.runtime.start();
    await flush();
    const stopped = b.runtime.stop({ drainMs: 0, hardMs: 0 });
    answer.resolve();
    await Promise.all([starting, stopped]);
    await flush();
    expect(calls).toBe(0);
    expect(b.runtime.stats()).toEqual({ held: 0, leases: 0, streams: 0 });
    const c = world({ database, clock, seed: 3, settings: { instanceId: 'c' } });
    await c.runtime.start();
    expect(await c.ended(run)).toMatchObject({ status: 'success', attempt: 2 });
    await c.runtime.stop();
    await clock.advance(20_000);
    await a.runtime.stop();
  });

  test(
    'stopping is one execution for all who ask, also before the start and without runs',
    verifies('GW-15', 'GW-23', 'RT-18'),
    async () => {
      const w = world();
      const first = w.runtime.stop();
      expect(w.runtime.stop({ drainMs: 1 })).toBe(first);
      expect(await first).toEqual({ unfinished: [] });
      expect(w.surroundings.clock.sleeping).toBe(0);
    },
  );

  test(
    'nothing is alive afterwards: no timer, no lease, no reader, no record',
    verifies('GW-26', 'ND-03', 'ND-05'),
    async () => {
      const w = world();
      await w.runtime.start();
      const runs = await Promise.all(Array.from({ length: 30 }, (_, i) => w.admitted({ threadId: `thread-${i}` })));
      await Promise.all(runs.map((run) => collect(w.read(run))));
      const left = new AbortController();
      const leaver = collect(w.read(runs[0] ?? (await w.admitted()), { signal: left.signal }));
      left.abort();
      await leaver;
      expect(w.runtime.stats()).toEqual({ held: 0, leases: 0, streams: 0 });
      await w.runtime.stop();
      expect(w.surroundings.clock.sleeping).toBe(0);
    },
  );

  test('the predecessor is settled before the first admission', verifies('GW-06'), async () => {
    const order: string[] = [];
    const w = world({
      stores: (stores) =>
        withFaults(stores, ({ method }) => {
          if (method === 'claimOrphans' || method === 'admit' || method === 'renew') order.push(method);
          return null;
        }),
    });
    await w.runtime.start();
    await w.ended(await w.admitted());
    expect(order.slice(0, 2)).toEqual(['claimOrphans', 'admit']);
    await w.runtime.stop();
  });

  test('hooks that fail or hang change nothing', verifies('RT-11', 'GW-21'), async () => {
    const w = world({
      hooks: {
        onAdmitted: () => {
          throw new Error('prewarm failed');
        },
        onFinished: () => new Promise(() => undefined),
      },
    });
    await w.runtime.start();
    expect(await w.ended(await w.admitted())).toMatchObject({ status: 'success' });
    await w.surroundings.clock.advance(4_999);
    expect(w.surroundings.logger.lines.map(({ message }) => message)).not.toContain(
      'a hook takes long and is no longer waited for',
    );
    await w.surroundings.clock.advance(1);
    const logged = w.surroundings.logger.lines.map(({ message }) => message);
    expect(logged).toEqual(expect.arrayContaining(['a hook failed', 'a hook takes long and is no longer waited for']));
    await w.runtime.stop();
    expect(w.surroundings.clock.sleeping).toBe(0);
  });
});
