import type { Json } from '@reindeer/protocol';
import type { SeededRandom } from '@reindeer/testkit';

/** One tool call of a simulated run. Times in milliseconds. */
export interface Tool {
  readonly repeatable: boolean;
  readonly duration: number;
}
/** One step: the model thinks, then its tools act, all at once. */
export interface Step {
  readonly thinking: number;
  readonly tools: readonly Tool[];
}
/** What a simulated run does: the input of its request. */
export interface Program {
  readonly steps: readonly Step[];
  /** The graph throws after this many steps; null = it comes to its end. */
  readonly failsAfter: number | null;
}

/** A tool that does not listen may work for longer than a lease, and nearly as long as its holder waits for it. */
const STUBBORN = 28_000;

/** The longest that a program may take by itself, in milliseconds. */
export const LONGEST = 8 * (2_000 + 2_500) + STUBBORN;

export function randomProgram(random: SeededRandom): Program {
  // Most runs are short; some outlive their lease several times.
  const long = random.chance(0.15);
  const unhurried = long ? 0.8 : 0.3;
  const steps = Array.from(
    { length: long ? 4 + random.below(5) : 1 + random.below(3) },
    (): Step => ({
      thinking: 20 + random.below(random.chance(unhurried) ? 1_980 : 200),
      tools: Array.from(
        { length: random.below(3) },
        (): Tool => ({
          repeatable: random.chance(0.4),
          duration: 10 + random.below(random.chance(unhurried) ? 2_490 : 200),
        }),
      ),
    }),
  );
  const [first, ...others] = steps;
  if (first !== undefined && random.chance(0.08)) {
    const tool = { repeatable: random.chance(0.4), duration: STUBBORN / 2 + random.below(STUBBORN / 2) };
    steps.splice(0, steps.length, { ...first, tools: [tool] }, ...others);
  }
  return { steps, failsAfter: random.chance(0.08) ? random.below(steps.length) : null };
}

export const asInput = (program: Program): Json => program as unknown as Json;
export const asProgram = (input: Json): Program => input as unknown as Program;
