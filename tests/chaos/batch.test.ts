import { postgresMissing, verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { batchUnderKills } from './batch.ts';

const missing = await postgresMissing();

/** The long version, with 5,000 items, is `npm run chaos -- --batch`. */
test('three instances, one killed again and again: each item ends once', verifies('BT-26', 'BT-03'), async (ctx) => {
  if (missing !== null) return ctx.skip(missing);
  const result = await batchUnderKills({
    items: 60,
    concurrency: 12,
    killEveryMs: 2_000,
    maxAttempts: 10,
    say: () => {},
  });
  expect(result.problems).toEqual([]);
  expect(result.end.counts).toMatchObject({ succeeded: 60, leased: 0, running: 0, queued: 0, pending: 0 });
  return undefined;
});
