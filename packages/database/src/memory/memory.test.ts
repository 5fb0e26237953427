import { deferred, flush, Scene, T0, testSurroundings, verifies, withFaults } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { MemoryDatabase, openMemory } from './index.ts';

const open = () => {
  const surroundings = testSurroundings();
  const database = new MemoryDatabase(surroundings.random);
  const a = openMemory({ surroundings, database });
  const b = openMemory({ surroundings, database });
  return { a, b, scene: new Scene({ a, b, close: async () => {} }) };
};

describe('a memory database', () => {
  test('is one for all its handles, also for their hints', async () => {
    const { a, b, scene } = open();
    const heard: number[] = [];
    b.log.onAppend((_threadId, head) => heard.push(head));
    const { run } = await scene.running();
    await flush();
    expect(heard.at(-1)).toBe(2);
    expect(await b.runs.get(run.runId)).toEqual(await a.runs.get(run.runId));
    expect(await a.log.epoch()).toBe(await b.log.epoch());
  });

  test('outlives a handle that is closed; the handle answers no more, and hears nothing', async () => {
    const { a, b, scene } = open();
    const heard: number[] = [];
    b.log.onAppend((_threadId, head) => heard.push(head));
    await b.close();
    await b.close();
    await expect(b.runs.active('thread')).rejects.toMatchObject({ code: 'store_unavailable' });
    await scene.running();
    await flush();
    expect(heard).toEqual([]);
    expect(await a.runs.active('thread')).toHaveLength(1);
  });

  test('is not reached by what callers do with their objects afterwards', async () => {
    const { a, scene } = open();
    const metadata = { list: [1] };
    const input = scene.admission({ metadata });
    await a.runs.admit(input);
    metadata.list.push(2);
    const read = await a.runs.get(input.runId);
    (read?.metadata as { list: number[] } | undefined)?.list.push(3);
    expect((await a.runs.get(input.runId))?.metadata).toEqual({ list: [1] });
  });

  test('no effect is there before the answer', async () => {
    const { a, scene } = open();
    const input = scene.admission();
    const admitted = a.runs.admit(input);
    const looked = a.runs.get(input.runId);
    expect((await admitted).outcome).toBe('admitted');
    expect(await looked).not.toBeNull();
  });
});

describe('behind faults', () => {
  test('a claim that arrives late finds the renewal that came before it', verifies('RL-17', 'RL-19'), async () => {
    const { a, b, scene } = open();
    const { run, fence } = await scene.running();
    const now = T0 + 1_000_000;
    const way = deferred();
    const slow = withFaults(b, ({ method }) => (method === 'claimOrphans' ? { delayBefore: way.promise } : null));
    const claim = scene.claim({ now }, slow);
    await a.runs.renew({ holders: [{ ...fence, expiresAt: now + 1, allowInterrupted: false }], now: T0 });
    way.resolve();
    expect(await claim).toEqual([]);
    expect(await a.runs.get(run.runId)).toMatchObject({ status: 'running', owner: 'owner-a' });
  });

  test('an answer that is late tells what was, not what is', async () => {
    const { a, b, scene } = open();
    const { run, fence } = await scene.running();
    const way = deferred();
    const slow = withFaults(b, () => ({ delayAfter: way.promise }));
    const looking = slow.runs.get(run.runId);
    await flush();
    await scene.finalize(fence, 'success');
    way.resolve();
    expect(await looking).toMatchObject({ status: 'running' });
    expect(await a.runs.get(run.runId)).toMatchObject({ status: 'success' });
  });

  test('counts the calls of each method for its plan', async () => {
    const { a, scene } = open();
    const { run } = await scene.admit();
    const second = withFaults(a, ({ method, count }) => (method === 'get' && count === 2 ? 'fail-before' : null));
    expect(await second.runs.get(run.runId)).not.toBeNull();
    expect(await second.runs.active('thread')).toHaveLength(1);
    await expect(second.runs.get(run.runId)).rejects.toMatchObject({ code: 'store_unavailable' });
    expect(await second.runs.get(run.runId)).not.toBeNull();
  });
});
