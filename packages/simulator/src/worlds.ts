import { batchWorld } from './batch/world.ts';
import type { World } from './frame/world.ts';
import { runsWorld } from './runs/world.ts';
import { sandboxWorld } from './sandbox/world.ts';

/** The worlds, in the order in which `--world all` plays them. */
export const WORLDS: readonly World[] = [runsWorld, sandboxWorld, batchWorld];
