import { describe } from 'vitest';
import { sandboxAdoptionContract } from './sandbox/adoption.ts';
import { sandboxHandingOutContract } from './sandbox/handing-out.ts';
import { sandboxSameInstanceContract } from './sandbox/races.ts';
import { sandboxRenewalContract } from './sandbox/renewal.ts';
import type { SandboxLifecycleFactory } from './sandbox/scene.ts';
import { sandboxTeardownContract } from './sandbox/teardown.ts';

/** The part of `sandboxRacesContract` in which one instance races with itself; for engines on which the whole takes too long. */
export function sandboxSameInstanceRacesContract(name: string, factory: SandboxLifecycleFactory): void {
  describe(`sandbox lifecycle: ${name}`, () => sandboxSameInstanceContract(factory));
}

/**
 * What every provider of living sandboxes must do, races included, over every ownership store: it speaks to the provider by its port, and
 * holds the store and the engine open at the awaits where one path can overtake another. Time passes by the scene's clock only, for the
 * leases too; so a store that is a server of its own is judged by `ownershipStoreContract` instead.
 *
 * @param factory somebody's provider, somebody's ownership store, or both
 */
export function sandboxRacesContract(name: string, factory: SandboxLifecycleFactory): void {
  describe(`sandbox lifecycle: ${name}`, () => {
    sandboxHandingOutContract(factory);
    sandboxTeardownContract(factory);
    sandboxRenewalContract(factory);
    sandboxAdoptionContract(factory);
    sandboxSameInstanceContract(factory);
  });
}
