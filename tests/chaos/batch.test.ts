import { postgresMissing, verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { batchUnderKills } from './batch.ts';
import { workersUnderKills } from './batch-workers.ts';

const missing = await postgresMissing();

/** The long versions, with 5,000 items, are `npm run chaos -- --batch`, with and without `--servers`. */
test(
  'three workers, one killed again and again: no two attempts of an item overlap',
  verifies('BT-22', 'BT-26'),
  async (ctx) => {
    if (missing !== null) return ctx.skip(missing);
    const { problems, counts } = await workersUnderKills({
      items: 400,
      killEveryMs: 1_500,
      maxAttempts: 10,
      say: () => {},
    });
    expect(problems).toEqual([]);
    expect(counts).toMatchObject({ succeeded: 400, leased: 0, running: 0 });
    return undefined;
  },
);

test('three instances, one killed again and again: each item ends once', verifies('BT-26', 'BT-03'), async (ctx) => {
  if (missing !== null) return ctx.skip(missing);
  const result = await batchUnderKills({
    items: 30,
    concurrency: 12,
    killEveryMs: 2_000,
    maxAttempts: 10,
    swept: false,
    say: () => {},
  });
  expect(result.problems).toEqual([]);
  expect(result.end.counts).toMatchObject({ succeeded: 30, leased: 0, running: 0, queued: 0, pending: 0 });
  return undefined;
});
