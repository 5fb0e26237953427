import { describe } from 'vitest';
import { admissionContract } from './admission.ts';
import { leaseContract } from './leases.ts';
import { listingContract } from './listing.ts';
import { modelContract } from './model.ts';
import { queueContract } from './queue.ts';
import type { StoresFactory } from './scene.ts';
import { transitionContract } from './transitions.ts';

/**
 * What every run store must do. Call it in a test file of the implementation.
 *
 * @param factory opens a fresh, empty database per call.
 * @param options.modelRuns how many random sequences are compared with the state machine (default 100).
 */
export function runStoreContract(name: string, factory: StoresFactory, options: { modelRuns?: number } = {}): void {
  describe(`run store: ${name}`, () => {
    admissionContract(factory);
    queueContract(factory);
    transitionContract(factory);
    leaseContract(factory);
    listingContract(factory);
    modelContract(factory, options.modelRuns ?? 100);
  });
}
