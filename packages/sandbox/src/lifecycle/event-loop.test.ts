import type { OwnershipStore, SandboxLifecycle } from '@reindeer/protocol';
import { NO_STORAGE, SimulatedEngine, testSurroundings, verifies, withEventLoopGate } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { MemoryLeases, MemoryOwnershipStore } from './ownership/memory-store.ts';
import { LifecycleProvider } from './provider.ts';
import { probeStore } from './testing/probe-store.ts';

const FILE = new URL(import.meta.url).pathname;
const THREAD = { userId: 'u', threadId: 't' };
const TTL_MS = 120_000;

function scene(wrap: (store: OwnershipStore) => OwnershipStore) {
  const surroundings = testSurroundings();
  const { clock } = surroundings;
  const engine = new SimulatedEngine(clock);
  const leases = new MemoryLeases(clock, TTL_MS);
  const store = wrap(new MemoryOwnershipStore({ ownerId: 'a', clock, ttlMs: TTL_MS, leases }));
  const settings = { idleTimeoutMs: 1_000, replicas: 2 };
  const backend = engine.backend();
  const provider = new LifecycleProvider({ backend, ownership: store, storage: NO_STORAGE, surroundings, settings });
  return { provider, engine, clock, leases };
}

/** Every hot path of the provider, once. */
const paths: Readonly<Record<string, (s: ReturnType<typeof scene>) => Promise<unknown>>> = {
  acquire: ({ provider }) => provider.acquire(THREAD),
  reuse: async ({ provider }) => {
    await provider.acquire(THREAD);
    await provider.acquire(THREAD);
  },
  release: async ({ provider }) => {
    const { id } = await provider.acquire(THREAD);
    expect(provider.get(id)).toBeDefined();
    await provider.release(id);
    expect(provider.list()).toMatchObject([{ id, phase: 'warm' }]);
  },
  reclaim: async ({ provider }) => {
    await provider.release((await provider.acquire(THREAD)).id);
    await provider.acquire(THREAD);
  },
  discover: async ({ provider, engine }) => {
    const { id } = await provider.acquire(THREAD);
    await provider.destroy(id);
    engine.run(id);
    await provider.acquire(THREAD);
    expect(engine.created).toHaveLength(1);
  },
  command: async ({ provider }) => {
    await (await provider.acquire(THREAD)).exec({ command: 'true', timeoutMs: 1_000 });
  },
  renew: async ({ provider, leases }) => {
    await provider.acquire(THREAD);
    leases.clear();
    await provider.renew();
  },
  reap: async ({ provider, engine, clock }) => {
    await provider.acquire(THREAD);
    clock.skip(1_001);
    await provider.reap();
    expect(engine.stopped).toHaveLength(1);
  },
  evict: async ({ provider, engine }) => {
    for (const threadId of ['a', 'b', 'c'])
      await provider.release((await provider.acquire({ userId: 'u', threadId })).id);
    expect(engine.stopped).toHaveLength(1);
  },
  reconcile: async ({ provider, engine, clock }) => {
    engine.run('orphan');
    await provider.reconcile();
    clock.skip(TTL_MS);
    await provider.reconcile();
    expect(provider.list()).toMatchObject([{ id: 'orphan', phase: 'warm' }]);
  },
  shutdown: async ({ provider, engine }) => {
    await provider.acquire(THREAD);
    await provider.shutdown();
    expect(engine.containers.size).toBe(0);
  },
};

for (const [name, path] of Object.entries(paths)) {
  test(`${name} never blocks the loop`, verifies('BL-01', 'BL-07', 'SB-25', 'SL-25'), async () => {
    const made = scene((store) => probeStore(store, FILE, false));
    await withEventLoopGate(() => path(made));
  });

  test(`${name} by a blocking store trips the gate`, verifies('BL-02'), async () => {
    const made = scene((store) => probeStore(store, FILE, true));
    // Some paths take a store that throws for one that cannot answer, and go on; the gate is not fooled by that.
    const guarded = withEventLoopGate(() => path(made).catch(() => null));
    await expect(guarded).rejects.toMatchObject({ name: 'BlockingCallError', call: 'fs.readFileSync' });
  });
}

test('a look-up never blocks the loop, and asks nobody', verifies('BL-07', 'SB-24'), async () => {
  const { provider }: { provider: SandboxLifecycle } = scene((store) => store);
  const { id } = await provider.acquire(THREAD);
  await withEventLoopGate(async () => expect(provider.get(id)).toBeDefined());
});
