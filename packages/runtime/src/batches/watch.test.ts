import type { BatchProgress } from '@reindeer/protocol';
import { flush } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { Bell } from '../common/waiting.ts';
import { address, BatchScene } from '../testing/batch-scene.ts';
import { BatchWatch } from './watch.ts';

/** A batch, somebody who counts the looks at it, and looks that take as long as the test says. */
async function watchedScene(lookMs = 0) {
  const s = new BatchScene();
  await s.create({ count: 2 });
  const changes = new Bell();
  let looks = 0;
  const watch = new BatchWatch({
    clock: s.clock,
    changes,
    store: {
      get: async (input) => {
        looks += 1;
        if (lookMs > 0) await s.clock.sleep(lookMs);
        return s.stores.batches.get(input);
      },
    },
  });
  const seen: string[][] = [];
  const left = new AbortController();
  const follow = async (by: Parameters<BatchWatch['watch']>[0] = address) => {
    const mine: string[] = [];
    seen.push(mine);
    for await (const { batch } of watch.watch(by, left.signal) as AsyncIterable<BatchProgress>) mine.push(batch.status);
  };
  const pause = async () => {
    await s.stores.batches.pause({ ...address, now: s.clock.now() });
    changes.ring();
  };
  return { s, seen, left, follow, pause, looks: () => looks };
}

test('a hundred watchers of a batch cost what one does, and each hears of a change soon', async () => {
  const { s, seen, left, follow, pause, looks } = await watchedScene();
  const all = Array.from({ length: 100 }, () => follow());
  await flush();
  expect(looks()).toBe(1);
  // A change between two looks is not waited for longer than the shortest rest.
  await pause();
  await s.clock.advance(200);
  expect(seen.every((mine) => mine.join() === 'queued,paused')).toBe(true);
  expect(looks()).toBe(2);
  await s.clock.advance(10_000);
  expect(looks()).toBeLessThan(12);
  left.abort();
  await Promise.all(all);
  expect(s.clock.sleeping).toBe(0);
});

test('however large a batch is, looking at it takes a twentieth of the time at most', async () => {
  const { s, left, follow, looks } = await watchedScene(100);
  const one = follow();
  await s.clock.advance(63_000);
  // 100 ms each, 2 s of rest, and at most 1 s until something changes.
  expect(looks()).toBeGreaterThan(15);
  expect(looks()).toBeLessThan(31);
  left.abort();
  await s.clock.advance(3_000);
  await one;
});

test('the answer for one user is not given to another', async () => {
  const { seen, left, follow } = await watchedScene();
  const all = [follow(), follow({ ...address, userId: 'eve' }), follow({ ...address, threadId: 'other' })];
  await flush();
  expect(seen).toEqual([['queued'], [], []]);
  left.abort();
  await Promise.all(all);
});
