import { MUTANTS, type Mutant } from './runs/mutants.ts';
import type { WorldResult } from './runs/world.ts';
import { simulateRuns } from './runs/world.ts';

/** A world plays one seed to its end. */
export type World = (
  seed: number,
  options?: { readonly mutant?: Mutant; readonly trace?: boolean },
) => Promise<WorldResult>;

/** The worlds by name; each has its own mutants. */
export const WORLDS: Readonly<Record<string, { readonly play: World; readonly mutants: readonly Mutant[] }>> = {
  runs: { play: simulateRuns, mutants: MUTANTS },
};

export interface Finding {
  readonly seed: number;
  readonly invariant: string;
  readonly message: string;
}

/** Most findings that a report names. */
const FINDINGS = 50;

/** What many seeds of the product came to. */
export interface SeedReport {
  readonly seeds: number;
  readonly failing: number;
  /** The first of them, in the order of the seeds. */
  readonly findings: readonly Finding[];
  /** Totals over all seeds: how much was tried. */
  readonly events: number;
  readonly runs: number;
  readonly effects: number;
  readonly crashes: number;
}

/** What became of one mutant. */
export interface MutantReport {
  readonly name: string;
  readonly found: boolean;
  readonly seed: number | null;
  readonly invariant: string | null;
  readonly message: string | null;
}

/**
 * Plays the seeds `first`, `first + 1`, … Stack traces are off meanwhile: the product aborts thousands of timers per second here.
 *
 * @param options.until stops before the next seed once it answers true, for a bound in time.
 */
export async function playSeeds(
  play: World,
  first: number,
  count: number,
  options: { readonly until?: () => boolean } = {},
): Promise<SeedReport> {
  const totals = { seeds: 0, failing: 0, events: 0, runs: 0, effects: 0, crashes: 0 };
  const findings: Finding[] = [];
  await withoutStacks(async () => {
    for (let seed = first; seed < first + count; seed += 1) {
      if (options.until?.() === true) break;
      const result = await play(seed);
      totals.seeds += 1;
      totals.events += result.events;
      totals.runs += result.runs;
      totals.effects += result.effects;
      totals.crashes += result.crashes;
      if (result.violation === null) continue;
      totals.failing += 1;
      if (findings.length < FINDINGS)
        findings.push({ seed, invariant: result.violation.invariant, message: result.violation.message });
    }
  });
  return { ...totals, findings };
}

/** Plays seeds of a mutant until one of them is found out, at most `count` of them. */
export async function huntMutant(play: World, mutant: Mutant, first: number, count: number): Promise<MutantReport> {
  const { name } = mutant;
  return withoutStacks(async () => {
    for (let seed = first; seed < first + count; seed += 1) {
      const { violation } = await play(seed, { mutant });
      if (violation !== null)
        return { name, found: true, seed, invariant: violation.invariant, message: violation.message };
    }
    return { name, found: false, seed: null, invariant: null, message: null };
  });
}

async function withoutStacks<T>(work: () => Promise<T>): Promise<T> {
  const before = Error.stackTraceLimit;
  Error.stackTraceLimit = 0;
  try {
    return await work();
  } finally {
    Error.stackTraceLimit = before;
  }
}
