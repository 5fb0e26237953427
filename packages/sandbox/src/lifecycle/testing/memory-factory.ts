import type { Clock } from '@reindeer/protocol';
import { NO_STORAGE, type SandboxLifecycleFactory } from '@reindeer/testkit';
import { sandboxIdOf } from '../identity.ts';
import { MemoryLeases, MemoryOwnershipStore } from '../ownership/memory-store.ts';
import type { LifecycleParts } from '../parts.ts';
import { LifecycleProvider } from '../provider.ts';

/** Our provider over our memory store, for the contract suites. */
export function memoryFactory(part: Partial<Pick<LifecycleParts, 'machine'>> = {}): SandboxLifecycleFactory {
  return {
    ownership: ({ clock, ttlMs }: { clock: Clock; ttlMs: number }) => {
      const leases = new MemoryLeases(clock, ttlMs);
      return {
        store: (ownerId) => new MemoryOwnershipStore({ ownerId, clock, ttlMs, leases }),
        alone: (ownerId) => new MemoryOwnershipStore({ ownerId, clock, ttlMs }),
        clear: () => leases.clear(),
      };
    },
    provider: (parts) => new LifecycleProvider({ ...parts, ...part, storage: NO_STORAGE }),
    idOf: sandboxIdOf,
  };
}
