import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { huntMutant, playSeeds } from '../frame/play.ts';
import { BATCH_MUTANTS } from './mutants.ts';
import { batchWorld } from './world.ts';

/** Long runs are for `npm run simulate`; this is what every push pays for. */
const SEEDS = 300;
const PER_MUTANT = 1_000;

describe('the world of batches', () => {
  test(`${SEEDS} seeds break no invariant, and every item ends`, {
    timeout: 120_000,
    ...verifies(
      'BT-03',
      'BT-04',
      'BT-05',
      'BT-08',
      'BT-09',
      'BT-12',
      'BT-13',
      'BT-21',
      'BT-22',
      'BT-24',
      'BT-25',
      'BT-26',
    ),
  }, async () => {
    const report = await playSeeds(batchWorld, 1, SEEDS);
    expect(report.findings).toEqual([]);
    expect(report).toMatchObject({ seeds: SEEDS, failing: 0 });
    // The world is worth its name: plenty happened.
    expect(report.figures.items).toBeGreaterThan(4 * SEEDS);
    expect(report.figures.children).toBeGreaterThan(4 * SEEDS);
    expect(report.figures.crashes).toBeGreaterThan(2 * SEEDS);
  });

  test('a seed fixes everything that happens', async () => {
    const one = await batchWorld.play(7, { trace: true });
    expect(one.trace.length).toBeGreaterThan(100);
    expect((await batchWorld.play(7, { trace: true })).trace).toEqual(one.trace);
    expect((await batchWorld.play(8, { trace: true })).trace).not.toEqual(one.trace);
  });
});

describe('mutants of the world of batches', () => {
  for (const mutant of BATCH_MUTANTS)
    test(`${mutant.name} is found`, { timeout: 120_000 }, async () => {
      expect(await huntMutant(batchWorld, mutant, 1, PER_MUTANT)).toMatchObject({ name: mutant.name, found: true });
    });
});
