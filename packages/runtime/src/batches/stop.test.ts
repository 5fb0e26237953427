import { MemoryDatabase, openMemory } from '@reindeer/database';
import { deferred, flush, testSurroundings, verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { HeldExecutor, USER } from '../testing/batch-scene.ts';
import { LocalBatchService } from './service.ts';
import { BatchWorker } from './worker.ts';

test(
  'nothing is submitted from the first moment of the stop on, nor after one that failed; what else runs is stopped all the same',
  verifies('GW-19'),
  async () => {
    const surroundings = testSurroundings();
    const stores = openMemory({ surroundings, database: new MemoryDatabase(surroundings.random) });
    const service = new LocalBatchService({
      store: stores.batches,
      surroundings,
      instanceId: 'here',
      work: {
        executor: new HeldExecutor(),
        files: null,
        runs: { create: () => Promise.reject(new Error('none')) },
        assistantId: 'agent',
      },
    });
    await service.start();
    await flush();
    const submit = () =>
      service.submit({ userId: USER, threadId: 't', items: [{ key: 'a', prompt: 'x' }] } as never).then(
        () => 'taken',
        (error: { code?: string }) => error.code,
      );
    const worker = deferred();
    const { stop } = BatchWorker.prototype;
    BatchWorker.prototype.stop = async function (this: BatchWorker, bounds) {
      const ended = stop.call(this, bounds);
      await worker.promise;
      void ended.catch(() => {});
      throw new Error('the store is away');
    };
    const stopping = service.stop({ drainMs: 0, hardMs: 0 });
    const failed = expect(stopping).rejects.toThrow('the store is away');
    BatchWorker.prototype.stop = stop;
    expect(await submit()).toBe('shutting_down');
    worker.resolve();
    for (let turn = 0; turn < 5; turn += 1) {
      await flush();
      await surroundings.clock.advance(1_000);
    }
    await failed;
    expect(await submit()).toBe('shutting_down');
    // The reporter waits for nothing any more.
    expect(surroundings.clock.sleeping).toBe(0);
  },
);
