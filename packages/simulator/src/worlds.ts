import { batchWorld } from './batch/world.ts';
import type { World } from './frame/world.ts';
import { runsWorld } from './runs/world.ts';
import { sandboxWorld } from './sandbox/world.ts';

/**
 * Deterministic simulation: the product's own reducers and managers, several processes of them, on a virtual clock and a simulated
 * network, under crashes, pauses, outages and lost answers. Any failure is one seed.
 *
 * `frame/` is what every world stands on: `Scheduler` (virtual time), `Incarnation` (one life of a process: its clock, and its links to what
 * is shared, with the fate of each call), `Chronicle` (the trace and the first violation), `playSeeds` and `huntMutant`.
 *
 * To add a world: (1) a folder with a `World` (`frame/world.ts`): `play(seed, {mutant, trace})` makes a `seededRandom(seed)`, a `Scheduler` and a
 * `Chronicle`, builds the product's parts on `incarnation.surroundings` and `incarnation.link(…)`, lets `scheduler.step` run, first with trouble
 * (safety), then healed (liveness), and reports what a checker sees *at the door of the shared store*, never what the product
 * says of itself; (2) its mutants, one per guard, each a replacement of a store, a reducer or another part that the product takes from
 * outside; (3) a line below. Command, JSON, progress, `npm test` and the hunt for mutants then know it.
 *
 * The order is that in which `--world all` plays them.
 */
export const WORLDS: readonly World[] = [runsWorld, sandboxWorld, batchWorld];
