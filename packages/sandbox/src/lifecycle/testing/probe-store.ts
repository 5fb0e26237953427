import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { OwnershipStore } from '@reindeer/protocol';

/**
 * An ownership store whose every operation reads a file first: in the way that serving code must, or (`blocking`) in the way that it
 * must not, to prove that a gate sees the operations at all.
 */
export function probeStore(inner: OwnershipStore, file: string, blocking: boolean): OwnershipStore {
  const touch = async (): Promise<void> => {
    if (blocking) readFileSync(file);
    else await readFile(file);
  };
  return {
    ownerId: inner.ownerId,
    seesPeers: inner.seesPeers,
    take: async (id) => {
      await touch();
      return inner.take(id);
    },
    claim: async (id, options) => {
      await touch();
      return inner.claim(id, options);
    },
    renew: async (id) => {
      await touch();
      return inner.renew(id);
    },
    release: async (id) => {
      await touch();
      return inner.release(id);
    },
    owner: async (id) => {
      await touch();
      return inner.owner(id);
    },
    memory: async () => {
      await touch();
      return (await inner.memory?.()) ?? '';
    },
    close: () => inner.close(),
  };
}
