import type { SandboxProvider } from '@reindeer/protocol';
import type { ThreadStorage } from './parts.ts';

/**
 * The files of threads as a provider without containers keeps them (`createSandboxProvider`): the same folders, the same safe access,
 * below the same data folder, so that a thread keeps its files when the way to run commands changes.
 */
export function storageOf(provider: SandboxProvider): ThreadStorage {
  return {
    files: (identity) => provider.files(identity),
    prepare: async (identity) => {
      await provider.acquire(identity);
    },
    remove: (identity) => provider.removeThread(identity),
    close: () => provider.shutdown(),
  };
}
