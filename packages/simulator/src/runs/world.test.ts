import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { huntMutant, playSeeds } from '../frame/play.ts';
import { RUNS_MUTANTS } from './mutants.ts';
import { runsWorld } from './world.ts';

/** Long runs are for `npm run simulate`; this is what every push pays for. */
const SEEDS = 200;
const PER_MUTANT = 1_000;

describe('the world of runs', () => {
  test(`${SEEDS} seeds break no invariant`, {
    timeout: 120_000,
    ...verifies(
      'RA-01',
      'RL-04',
      'RL-08',
      'RL-14',
      'RL-17',
      'RL-19',
      'RT-01',
      'RT-27',
      'RE-01',
      'RL-32',
      'ND-07',
      'RS-01',
      'RS-02',
      'RS-11',
    ),
  }, async () => {
    const report = await playSeeds(runsWorld, 1, SEEDS);
    expect(report.findings).toEqual([]);
    expect(report).toMatchObject({ seeds: SEEDS, failing: 0 });
    // The world is worth its name: plenty happened.
    expect(report.figures.runs).toBeGreaterThan(5 * SEEDS);
    expect(report.figures['tool effects']).toBeGreaterThan(5 * SEEDS);
    expect(report.figures.crashes).toBeGreaterThan(SEEDS / 2);
  });

  test('a seed fixes everything that happens', async () => {
    const [one, two, other] = [
      await runsWorld.play(7, { trace: true }),
      await runsWorld.play(7, { trace: true }),
      await runsWorld.play(8, { trace: true }),
    ];
    expect(one.trace.length).toBeGreaterThan(100);
    expect(one.trace).toEqual(two.trace);
    expect(one.trace).not.toEqual(other.trace);
  });
});

/** A few that a handful of seeds finds; all of them in the suite `simulation`. */
const SAMPLE = [
  'scan-then-act-claim',
  'terminal-overwritten',
  'cancel-not-delivered',
  'keys-kept-in-memory',
  'reader-skips-what-follows-its-place',
  'superseded-loses-its-authority',
];

describe('mutants of the world of runs', () => {
  for (const name of SAMPLE)
    test(`${name} is found`, { timeout: 120_000 }, async () => {
      const mutant = RUNS_MUTANTS.find((one) => one.name === name);
      if (mutant === undefined) throw new Error(`There is no mutant ${name}.`);
      expect(await huntMutant(runsWorld, mutant, 1, PER_MUTANT)).toMatchObject({ name, found: true });
    });
});
