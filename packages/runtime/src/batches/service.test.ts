import { MemoryDatabase, openMemory } from '@reindeer/database';
import { flush, testSurroundings } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { HeldExecutor, THREAD, USER } from '../testing/batch-scene.ts';
import { LocalBatchService } from './service.ts';

async function serving() {
  const surroundings = testSurroundings();
  const database = new MemoryDatabase(surroundings.random);
  const stores = openMemory({ surroundings, database });
  await stores.threads.create({ threadId: THREAD, userId: USER, metadata: {}, now: 0 });
  const executor = new HeldExecutor();
  const service = new LocalBatchService({
    store: stores.batches,
    surroundings,
    instanceId: 'here',
    work: { executor, files: null, runs: { create: () => Promise.reject(new Error('none')) }, assistantId: 'agent' },
  });
  await service.start();
  const answer = await service.submit({
    userId: USER,
    threadId: THREAD,
    runId: null,
    toolCallId: null,
    submissionKey: 'key',
    title: 'T',
    subagentType: 'general-purpose',
    items: ['a', 'b'].map((key) => ({ key, prompt: key })),
    spec: {},
    notify: false,
  });
  if (answer.outcome !== 'created') throw new Error(answer.outcome);
  await surroundings.clock.advance(10);
  await flush();
  const stopped = () => executor.children.map(({ work }) => work.signal.aborted);
  return { service, surroundings, database, address: { batchId: answer.batch.batchId, userId: USER }, stopped };
}

test('what is at work in the same process is stopped when it is cancelled, not at the next beat', async () => {
  const { service, surroundings, address, stopped } = await serving();
  expect(stopped()).toEqual([false, false]);
  await service.cancelItem({ ...address, itemId: `${address.batchId}.1` });
  await flush();
  expect(stopped()).toEqual([false, true]);
  await service.cancel(address);
  await flush();
  expect(stopped()).toEqual([true, true]);
  await Promise.all([service.stop({ drainMs: 0, hardMs: 0 }), surroundings.clock.advance(5_000)]);
});

test('and so it is when its conversation is deleted', async () => {
  const { service, surroundings, database, stopped } = await serving();
  database.deleteBatches(THREAD);
  // The thread of an item, of which one goes with each.
  service.threadDeleted({ userId: 'batch_x' });
  await flush();
  expect(stopped()).toEqual([false, false]);
  service.threadDeleted({ userId: USER });
  await flush();
  expect(stopped()).toEqual([true, true]);
  await Promise.all([service.stop({ drainMs: 0, hardMs: 0 }), surroundings.clock.advance(5_000)]);
});
