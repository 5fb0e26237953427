import { itemThread, itemUser } from '@reindeer/protocol';
import { flush } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { address, BatchScene } from '../testing/batch-scene.ts';
import { ItemThreadSweeper, QUIET_MS, SWEEP_MS } from './sweeper.ts';

async function sceneWithThreads() {
  const s = new BatchScene();
  await s.create({ count: 2 });
  for (const position of [0, 1])
    await s.stores.threads.create({
      threadId: itemThread('batch', position),
      userId: itemUser('batch'),
      metadata: {},
      now: s.clock.now(),
    });
  const asked: string[] = [];
  const items: unknown[] = [];
  const busy = new Set<string>();
  const sweeper = new ItemThreadSweeper({
    store: s.stores.batches,
    surroundings: s.surroundings,
    threads: {
      delete: async ({ threadId, item }) => {
        asked.push(threadId);
        items.push(item);
        if (busy.has(threadId)) return 'busy';
        s.database.threads.delete(threadId);
        return 'deleted';
      },
    },
  });
  return { s, sweeper, asked, items, busy };
}

test('what a cancelled batch or a deleted conversation leaves behind is deleted; what a run still uses, later', async () => {
  const { s, sweeper, asked, busy } = await sceneWithThreads();
  sweeper.start();
  await s.clock.advance(2 * SWEEP_MS);
  // Its items are open: they need their threads.
  expect(asked).toEqual([]);
  await s.stores.batches.cancel({ ...address, now: s.clock.now() });
  busy.add('batch-0');
  await s.clock.advance(2 * SWEEP_MS);
  expect(s.database.threads.has('batch-1')).toBe(false);
  expect(s.database.threads.has('batch-0')).toBe(true);
  busy.clear();
  await s.clock.advance(2 * SWEEP_MS);
  expect(s.database.threads.has('batch-0')).toBe(false);
  await Promise.all([sweeper.stop(0), sweeper.stop(0), flush()]);
  expect(s.clock.sleeping).toBe(0);
});

test('a thread that was touched a moment ago is left alone', async () => {
  const { s, sweeper, items } = await sceneWithThreads();
  await s.stores.batches.cancel({ ...address, now: s.clock.now() });
  expect(await sweeper.pass()).toBe(0);
  s.clock.jump(QUIET_MS);
  expect(await sweeper.pass()).toBe(2);
  // As they were seen: an item that somebody begins before its thread is deleted keeps it.
  expect(items).toEqual([0, 1].map((n) => ({ itemId: `batch.${n}`, epoch: 0 })));
});
