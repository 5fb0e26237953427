import type { Clock, OwnershipStore, SandboxBackend, SandboxMachine } from '@reindeer/protocol';
import type { MemoryLeases } from '@reindeer/sandbox';
import type { SeededRandom } from '@reindeer/testkit';
import type { Mutant } from '../frame/world.ts';
import type { Engine } from './engine.ts';

/** What a process is given: its client of the ownership store, and of the engine. */
export interface NearParts {
  readonly ownership: OwnershipStore;
  readonly backend: SandboxBackend;
}

export interface NearTools {
  readonly random: SeededRandom;
  readonly engine: Engine;
  /** The process's own clock. */
  readonly clock: Clock;
}

/** `near` replaces what a process calls, `far` what the store does, `machine` the reducer of the lifecycle. */
export interface SandboxMutant extends Mutant {
  /** The guard that is removed, as tests of seed 001. */
  readonly races: string;
  readonly near?: (parts: NearParts, tools: NearTools) => Partial<NearParts>;
  readonly far?: (store: OwnershipStore, leases: MemoryLeases) => OwnershipStore;
  readonly machine?: SandboxMachine;
}

export const SANDBOX_MUTANTS: readonly SandboxMutant[] = [];
