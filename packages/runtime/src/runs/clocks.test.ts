import { MemoryDatabase } from '@reindeer/database';
import type { Stores } from '@reindeer/protocol';
import { testSurroundings, VirtualClock, verifies, withFaults } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { gated, world } from '../testing/world.ts';

const GRACE = 3_000;

/** Two processes whose clocks show different times and go at the same pace. `ahead`: how far the second one's is, in ms. */
function machines(ahead: number) {
  const database = new MemoryDatabase(testSurroundings({ seed: 99 }).random);
  const [ofA, ofB] = [new VirtualClock(), new VirtualClock()];
  ofB.jump(ahead);
  const g = gated();
  let cut = false;
  const stores = (inner: Stores) =>
    withFaults(inner, ({ method }) => (cut && method === 'renew' ? 'fail-before' : null));
  // On its own it would take back what it lost.
  const a = world({
    database,
    clock: ofA,
    script: g.script,
    stores,
    settings: { instanceId: 'a', sweepMs: 1_000_000 },
  });
  const b = world({ database, clock: ofB, seed: 2, settings: { instanceId: 'b', graceMs: GRACE, sweepMs: 100 } });
  const pass = async (milliseconds: number): Promise<void> => {
    for (let left = milliseconds; left > 0; left -= 100) {
      await ofA.advance(100);
      await ofB.advance(100);
    }
  };
  return { a, b, g, pass, cutOff: () => (cut = true) };
}

describe('clocks that differ', () => {
  test.each([GRACE, -GRACE, 0])(
    'by the grace (%i ms): nobody takes a run whose holder is alive, and a holder that is cut off has stopped when it is taken',
    verifies('RL-17', 'RL-04'),
    async (ahead) => {
      const { a, b, g, pass, cutOff } = machines(ahead);
      await a.runtime.start();
      await b.runtime.start();
      const run = await a.admitted();
      await g.asked;
      await pass(30_000);
      expect(await b.stores.runs.get(run.runId)).toMatchObject({ owner: 'a', attempt: 1, status: 'running' });
      cutOff();
      let both = 0;
      for (let row = await b.stores.runs.get(run.runId); row?.owner === 'a'; row = await b.stores.runs.get(run.runId)) {
        await pass(100);
        const taken = (await b.stores.runs.get(run.runId))?.owner !== 'a';
        if (taken && a.runtime.stats().held > 0) both += 1;
      }
      expect(both).toBe(0);
      g.answer.resolve('late');
      await pass(1_000);
      expect(await b.ended(run)).toMatchObject({ status: 'success', attempt: 2 });
      await a.runtime.stop();
      await b.runtime.stop();
    },
  );

  test('by more than that, a run may be taken while its holder still works; what it writes is refused', async () => {
    const { a, b, g, pass, cutOff } = machines(GRACE + 2_000);
    await a.runtime.start();
    await b.runtime.start();
    const run = await a.admitted();
    await g.asked;
    cutOff();
    while ((await b.stores.runs.get(run.runId))?.owner === 'a') await pass(100);
    expect(a.runtime.stats().held).toBe(1);
    await pass(1_000);
    const end = await b.ended(run);
    expect(end).toMatchObject({ status: 'success', attempt: 2 });
    g.answer.resolve('from the former holder');
    await pass(20_000);
    expect(await b.stores.runs.get(run.runId)).toEqual(end);
    await a.runtime.stop();
    await b.runtime.stop();
  });
});
