import type { Run, Stores } from '@reindeer/protocol';
import { ReindeerError } from '@reindeer/protocol';
import { flush, verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { world } from '../testing/world.ts';

const lost = () => new ReindeerError('store_unavailable', 'The store did not answer.', { retryable: true });

/** The first terminal write of the process fails as `instead` says; the next one is answered by the store. */
const once =
  (instead: (stores: Stores, input: Parameters<Stores['runs']['finalize']>[0]) => Promise<unknown>) =>
  (stores: Stores): Stores => {
    let calls = 0;
    return {
      ...stores,
      runs: {
        ...stores.runs,
        finalize: async (input) => {
          calls += 1;
          if (calls === 1) {
            await instead(stores, input);
            throw lost();
          }
          return stores.runs.finalize(input);
        },
      },
    };
  };

async function toldEnds(stores: (stores: Stores) => Stores): Promise<{ run: Run; told: readonly Run[] }> {
  const told: Run[] = [];
  const w = world({ stores, hooks: { onFinished: (run) => void told.push(run) } });
  await w.runtime.start();
  const { runId } = await w.admitted();
  for (let turn = 0; turn < 8; turn += 1) {
    await flush();
    await w.surroundings.clock.advance(500);
  }
  const run = await w.stores.runs.get(runId);
  if (run === null) throw new Error('The run is gone.');
  const stopped = w.runtime.stop({ drainMs: 0, hardMs: 1_000 });
  await w.surroundings.clock.advance(2_000);
  await stopped;
  return { run, told };
}

test('an end whose answer was lost is told once, by who wrote it', verifies('RT-27'), async () => {
  const { run, told } = await toldEnds(once((stores, input) => stores.runs.finalize(input)));
  expect(run).toMatchObject({ status: 'success', acknowledged: true });
  expect(told.map(({ runId }) => runId)).toEqual([run.runId]);
});

test('an end that another holder wrote meanwhile is not told as ours', async () => {
  const { run, told } = await toldEnds(
    once(async (stores, input) => {
      const { runId } = input.fence;
      const { owner } = (await stores.runs.get(runId)) ?? {};
      const [claimed] = await stores.runs.claimOrphans({
        owner: 'peer',
        tokens: ['token-of-the-peer'],
        leaseExpiresAt: input.now + 12_000,
        graceMs: 0,
        deadOwners: owner == null ? [] : [owner],
        skipRunIds: [],
        now: input.now,
      });
      const fence = { runId, token: claimed?.token ?? '' };
      await stores.runs.finalize({ ...input, fence, status: 'error', error: 'by the peer', now: input.now + 1 });
    }),
  );
  expect(run).toMatchObject({ status: 'error', error: 'by the peer', acknowledged: true });
  expect(told).toEqual([]);
});
