import { MemoryDatabase } from '@reindeer/database';
import { flush, testSurroundings, verifies, withFaults } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { gated, USER, world } from '../testing/world.ts';

describe('waiting for a run', () => {
  test('needs no stream: facts that were pruned change nothing', verifies('RS-19'), async () => {
    const g = gated();
    const database = new MemoryDatabase(testSurroundings({ seed: 7 }).random);
    const a = world({ script: g.script, database, settings: { instanceId: 'a' } });
    const { clock } = a.surroundings;
    // Another instance, whose log begins behind everything that the run has told.
    const b = world({
      database,
      clock,
      seed: 2,
      settings: { instanceId: 'b' },
      stores: (stores) => ({
        ...stores,
        log: {
          ...stores.log,
          read: async (input) => ({ ...(await stores.log.read(input)), facts: [], prunedThrough: 1_000 }),
        },
      }),
    });
    await a.runtime.start();
    const run = await a.admitted();
    await g.asked;
    const waiting = b.ended(run);
    await flush();
    g.answer.resolve('done');
    await flush();
    await clock.advance(1_000);
    expect(await waiting).toMatchObject({ status: 'success', acknowledged: true });
    await a.runtime.stop();
    await b.runtime.stop();
  });

  test('a client that leaves gets no state', verifies('RS-19'), async () => {
    const g = gated();
    const w = world({ script: g.script });
    await w.runtime.start();
    const run = await w.admitted();
    await g.asked;
    const client = new AbortController();
    const { runId, threadId } = run;
    const waiting = w.runtime.runs.join({ runId, threadId, userId: USER, signal: client.signal });
    const gone = new Error('gone');
    const refused = expect(waiting).rejects.toBe(gone);
    await flush();
    client.abort(gone);
    await refused;
    g.answer.resolve('done');
    expect(await w.ended(run)).toMatchObject({ status: 'success' });
    await w.runtime.stop();
  });

  test('a store that is away for a moment is borne, one that stays away is not', async () => {
    let failures = 0;
    const w = world({
      stores: (stores) =>
        withFaults(stores, ({ port, method }) => {
          if (port !== 'runs' || method !== 'get' || failures === 0) return null;
          failures -= 1;
          return 'fail-before';
        }),
    });
    await w.runtime.start();
    const run = await w.admitted();
    await w.ended(run);
    const { runId, threadId } = run;
    const join = () => w.runtime.runs.join({ runId, threadId, userId: USER });
    failures = 3;
    const borne = join();
    await w.surroundings.clock.advance(5_000);
    expect(await borne).toMatchObject({ status: 'success' });
    failures = 4;
    const given = expect(join()).rejects.toMatchObject({ code: 'store_unavailable' });
    await w.surroundings.clock.advance(5_000);
    await given;
    await w.runtime.stop();
  });
});
