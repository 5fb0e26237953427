import type { Violation } from './chronicle.ts';

/**
 * The product with one guard removed: a replacement of a part, never a switch in the product. What it replaces is up to its
 * world; each stands for a kind of bug that was reported in public, or for one guard of the product.
 */
export interface Mutant {
  readonly name: string;
  /** Which invariant is expected to notice. */
  readonly breaks: string;
  /** Where the hunt for a rare one begins: near a seed that has found it before. */
  readonly from?: number;
}

/** What one seed came to. */
export interface WorldResult {
  readonly violation: Violation | null;
  /** Everything that happened, line by line; empty unless it was asked for. */
  readonly trace: readonly string[];
  /** How much was tried, by name; added up over seeds. */
  readonly figures: Readonly<Record<string, number>>;
}

export interface PlayOptions<M extends Mutant = Mutant> {
  readonly mutant?: M;
  readonly trace?: boolean;
}

/**
 * A world: parts of the product under seeded trouble. A seed fixes everything that happens in it: all time is the scheduler's, all chance
 * comes from one `SeededRandom`, and nothing else is asked (no wall clock, no `Math.random`, no timers of Node).
 */
export interface World<M extends Mutant = Mutant> {
  readonly name: string;
  readonly mutants: readonly M[];
  /** Plays one seed to its end. Never rejects because of the product: what it does wrong is the result's violation. */
  play(seed: number, options?: PlayOptions<M>): Promise<WorldResult>;
}
