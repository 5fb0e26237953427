export type { Finding, MutantReport, SeedReport, World } from './run.ts';
export { huntMutant, playSeeds, WORLDS } from './run.ts';
export { MUTANTS, type Mutant, type MutantTools } from './runs/mutants.ts';
export { simulateRuns, type WorldResult } from './runs/world.ts';
export { Chronicle, Violation } from './world/violation.ts';
