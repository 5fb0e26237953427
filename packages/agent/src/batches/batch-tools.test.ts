import { BATCH_ITEM_STATUSES, type Batch, type BatchProgress, type BatchService } from '@reindeer/protocol';
import { flush } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { delegation, results } from '../test-support/delegation.ts';

const BATCH: Batch = {
  batchId: 'b1',
  userId: 'default',
  threadId: 'thread-1',
  runId: null,
  toolCallId: null,
  title: 'Cities',
  subagentType: 'general-purpose',
  status: 'completed',
  totalItems: 1,
  maxLive: 1,
  maxRunning: 1,
  maxAttempts: 1,
  spec: {},
  ends: 1,
  filed: false,
  createdAt: 0,
  updatedAt: 0,
  startedAt: 0,
  endedAt: 0,
};

/** One call of a tool in a run whose batch is over; its results are in files from the `filedAt`th look on. */
async function call(name: string, args: Record<string, unknown>, filedAt = Number.POSITIVE_INFINITY) {
  let looks = 0;
  const told: boolean[] = [];
  const progress = (): BatchProgress => ({
    batch: { ...BATCH, filed: looks >= filedAt },
    counts: { ...Object.fromEntries(BATCH_ITEM_STATUSES.map((status) => [status, 0])), succeeded: 1 } as never,
  });
  const service: Partial<BatchService> = {
    working: true,
    get: async () => {
      looks += 1;
      return progress();
    },
    async *watch() {
      yield progress();
    },
    items: async () => [],
    told: async () => void told.push(looks >= filedAt),
  };
  const made = delegation({
    lead: [{ calls: [{ name, args }] }, { text: 'Done.' }],
    child: () => ({}),
    agent: { batches: () => service as BatchService },
  });
  let ended = false;
  const running = made.run().finally(() => {
    ended = true;
  });
  const { clock } = made.surroundings;
  const begun = clock.monotonic();
  while (!ended) {
    await flush();
    await clock.advance(100);
  }
  const [result] = results(await running);
  return { text: result?.text ?? '', told, waited: clock.monotonic() - begun };
}

test('the files that an answer names are there', async () => {
  const { text, told } = await call('batch_wait', { batch_id: 'b1' }, 5);
  expect(text).toContain('All results: /mnt/user-data/outputs/batches/b1/results.csv');
  // Nor counts the end as heard of before.
  expect(told).toEqual([true]);
});

test('files that nobody can write are waited for a while, and the answer says so', async () => {
  const { text, told, waited } = await call('batch_wait', { batch_id: 'b1' });
  expect(text).toContain('All results are being written to /mnt/user-data/outputs/batches/b1/results.csv');
  expect(told).toEqual([false]);
  expect(waited).toBeGreaterThanOrEqual(20_000);
  expect(waited).toBeLessThan(40_000);
  expect((await call('batch_status', { batch_id: 'b1' })).text).toContain('are being written to');
});

test('what is wrong with one item is said with its number', async () => {
  const items = [{ values: { city: 'Oslo' } }, { values: { town: 'Lima' } }];
  const { text } = await call('batch_task', { title: 'T', prompt: 'About {{city}}', items });
  expect(text).toMatch(/Item 2: The template names \{\{city\}\}, which is no column/);
});
