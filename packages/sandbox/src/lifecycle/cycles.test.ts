import { getEventListeners } from 'node:events';
import { leakCheck, NO_STORAGE, SimulatedEngine, testSurroundings, verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { MemoryLeases, MemoryOwnershipStore } from './ownership/memory-store.ts';
import { LifecycleProvider } from './provider.ts';
import { SharedLeases } from './shared-leases.ts';

const THREADS = 100;
const CYCLES = 1_000;
const AT_ONCE = 20;
const IDLE_MS = 600_000;

/** 1,000 turns on 100 threads, twenty at a time, over fewer places than threads. */
async function turns(part: { readonly idleTimeoutMs: number }) {
  const surroundings = testSurroundings();
  const { clock, logger } = surroundings;
  const engine = new SimulatedEngine(clock);
  const leases = new MemoryLeases(clock, 120_000);
  const ownership = new MemoryOwnershipStore({ ownerId: 'a', clock, ttlMs: 120_000, leases });
  const provider = new LifecycleProvider({
    backend: engine.backend(),
    ownership,
    storage: NO_STORAGE,
    surroundings,
    settings: { replicas: 30, ...part },
  });
  const shared = new SharedLeases(provider, logger);
  const { signal } = new AbortController();
  let next = 0;
  const lane = async (): Promise<void> => {
    for (let turn = next++; turn < CYCLES; turn = next++) {
      const owner = `run-${turn}`;
      const sandbox = await shared.hold({ userId: 'u', threadId: `t${turn % THREADS}`, owner, signal });
      await sandbox.exec({ command: 'true', timeoutMs: 1_000 });
      await shared.leave(owner);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, lane));
  return { provider, shared, engine, leases, clock, signal };
}

const NOTHING = { rows: 0, clients: 0, threads: 0, sections: 0, heartbeats: 0, acquires: 0 };

describe('a thousand turns on a hundred threads', () => {
  leakCheck();

  test('leave no map, handle or container behind after the stop', verifies('ND-05', 'ND-08', 'SB-66'), async () => {
    const { provider, shared, engine, leases, signal } = await turns({ idleTimeoutMs: 0 });
    expect(shared.sizes()).toEqual({ bindings: 0, shared: 0, sections: 0 });
    // Warm ones only, and no more than there are places.
    expect(provider.list().every(({ phase, commands }) => phase === 'warm' && commands === 0)).toBe(true);
    expect(provider.list().length).toBeLessThanOrEqual(30);
    expect(engine.containers.size).toBe(provider.list().length);
    expect(getEventListeners(signal, 'abort')).toHaveLength(0);
    await provider.shutdown();
    expect(provider.sizes()).toEqual(NOTHING);
    expect([engine.containers.size, leases.size]).toEqual([0, 0]);
    expect(engine.clients.filter(({ closed }) => !closed)).toEqual([]);
    expect(engine.killedUnderCommand).toEqual([]);
    expect(engine.stopped).toHaveLength(engine.created.length);
  });

  test('leave nothing behind once they are idle, without a stop', verifies('ND-05'), async () => {
    const { provider, engine, leases, clock } = await turns({ idleTimeoutMs: IDLE_MS });
    clock.skip(IDLE_MS + 1);
    await provider.reap();
    expect(provider.sizes()).toEqual(NOTHING);
    expect([engine.containers.size, leases.size]).toEqual([0, 0]);
    const { acquires, stopped, failedAcquires } = provider.stats();
    const ways = Object.values(acquires).map(({ count }) => count);
    expect([ways.reduce((sum, count) => sum + count), failedAcquires]).toEqual([CYCLES, 0]);
    expect(acquires.create.count).toBe(engine.created.length);
    expect(stopped).toBe(engine.stopped.length);
  });
});
