import type { Mutant, World } from './world.ts';

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
  readonly figures: Readonly<Record<string, number>>;
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
  world: World,
  first: number,
  count: number,
  options: { readonly until?: () => boolean } = {},
): Promise<SeedReport> {
  const figures: Record<string, number> = {};
  const findings: Finding[] = [];
  let seeds = 0;
  let failing = 0;
  await withoutStacks(async () => {
    for (let seed = first; seed < first + count; seed += 1) {
      if (options.until?.() === true) break;
      const result = await world.play(seed);
      seeds += 1;
      for (const [name, value] of Object.entries(result.figures)) figures[name] = (figures[name] ?? 0) + value;
      if (result.violation === null) continue;
      failing += 1;
      const { invariant, message } = result.violation;
      if (findings.length < FINDINGS) findings.push({ seed, invariant, message });
    }
  });
  return { seeds, failing, findings, figures };
}

/** Plays seeds of a mutant until it is found out, at most `count` of them, beginning with `first` unless the mutant names a better one. */
export async function huntMutant(world: World, mutant: Mutant, first: number, count: number): Promise<MutantReport> {
  const { name, from = first } = mutant;
  return withoutStacks(async () => {
    for (let seed = from; seed < from + count; seed += 1) {
      const { violation } = await world.play(seed, { mutant });
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
