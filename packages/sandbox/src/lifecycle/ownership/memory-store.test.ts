import { ownershipFaultContract, ownershipStoreContract, VirtualClock, verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { MemoryLeases, MemoryOwnershipStore } from './memory-store.ts';

const TTL_MS = 120_000;

const scene = async () => {
  const clock = new VirtualClock();
  const leases = new MemoryLeases(clock, TTL_MS);
  const store = (ownerId: string) => new MemoryOwnershipStore({ ownerId, clock, ttlMs: TTL_MS, leases });
  const pass = async (ms: number) => clock.skip(ms);
  const forget = async () => leases.clear();
  return { a: store('a'), b: store('b'), ttlMs: TTL_MS, pass, forget, close: async () => {} };
};
ownershipStoreContract('memory', scene);
ownershipFaultContract('memory', scene);

test('a store of its own sees nobody else', verifies('SO-20'), async () => {
  const clock = new VirtualClock();
  const one = new MemoryOwnershipStore({ ownerId: 'one', clock, ttlMs: TTL_MS });
  const two = new MemoryOwnershipStore({ ownerId: 'two', clock, ttlMs: TTL_MS });
  expect([one.seesPeers, two.seesPeers]).toEqual([false, false]);
  await one.take('x');
  expect(await two.owner('x')).toBeNull();
});

test('leases that nobody asks about again do not pile up', verifies('ND-05'), async () => {
  const clock = new VirtualClock();
  const leases = new MemoryLeases(clock, TTL_MS);
  const store = new MemoryOwnershipStore({ ownerId: 'a', clock, ttlMs: TTL_MS, leases });
  for (let n = 0; n < 10_000; n += 1) {
    await store.take(`id-${n}`);
    clock.skip(TTL_MS / 10);
  }
  expect(leases.size).toBeLessThan(1_000);
});
