import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { huntMutant, playSeeds } from '../frame/play.ts';
import { SANDBOX_MUTANTS } from './mutants.ts';
import { sandboxWorld } from './world.ts';

/** Long runs are for `npm run simulate`; this is what every push pays for. */
const SEEDS = 150;
const PER_MUTANT = 300;

/** A few that a handful of seeds finds; all of them in the suite `simulation`. */
const SAMPLE = [
  'stop-although-refused',
  'handed-out-although-unknown',
  'marker-without-heartbeat',
  'lapsed-means-lost',
  'forgotten-is-not-noticed',
];

describe('the world of sandboxes', () => {
  test(`${SEEDS} seeds break no invariant`, {
    timeout: 120_000,
    ...verifies('SB-26', 'SB-29', 'SB-47', 'SB-51', 'SB-54', 'SB-64', 'SB-65'),
  }, async () => {
    const report = await playSeeds(sandboxWorld, 1, SEEDS);
    expect(report.findings).toEqual([]);
    expect(report).toMatchObject({ seeds: SEEDS, failing: 0 });
    // The world is worth its name: plenty happened.
    expect(report.figures.turns).toBeGreaterThan(10 * SEEDS);
    expect(report.figures['containers stopped']).toBeGreaterThan(4 * SEEDS);
    expect(report.figures.crashes).toBeGreaterThan(SEEDS / 2);
  });

  test('a seed fixes everything that happens', async () => {
    const [one, two] = [await sandboxWorld.play(3, { trace: true }), await sandboxWorld.play(3, { trace: true })];
    expect(one.trace.length).toBeGreaterThan(20);
    expect(one.trace).toEqual(two.trace);
  });

  test('every mutant names the races that it stands for, and no two are called the same', () => {
    expect(new Set(SANDBOX_MUTANTS.map(({ name }) => name)).size).toBe(SANDBOX_MUTANTS.length);
    for (const { races } of SANDBOX_MUTANTS) expect(races).toMatch(/^\d+(, \d+)*$/);
  });
});

describe('mutants of the world of sandboxes', () => {
  for (const name of SAMPLE)
    test(`${name} is found`, { timeout: 120_000 }, async () => {
      const mutant = SANDBOX_MUTANTS.find((one) => one.name === name);
      if (mutant === undefined) throw new Error(`There is no mutant ${name}.`);
      expect(await huntMutant(sandboxWorld, mutant, 1, PER_MUTANT)).toMatchObject({ name, found: true });
    });
});
