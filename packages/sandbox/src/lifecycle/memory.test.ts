import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { NO_STORAGE, SimulatedEngine, testSurroundings, withEventLoopGate } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { availableMemory } from './memory.ts';
import { MemoryOwnershipStore } from './ownership/memory-store.ts';
import { LifecycleProvider } from './provider.ts';
import type { LifecycleSettings } from './settings.ts';

const RESERVE = 100;

function scene(settings: Partial<LifecycleSettings>) {
  const surroundings = testSurroundings();
  const { clock } = surroundings;
  const engine = new SimulatedEngine(clock);
  const free: { bytes: number | null; afterAStop?: number } = { bytes: RESERVE };
  const provider = new LifecycleProvider({
    backend: engine.backend(),
    ownership: new MemoryOwnershipStore({ ownerId: 'a', clock, ttlMs: 120_000 }),
    storage: NO_STORAGE,
    surroundings,
    settings: { memoryReserveBytes: RESERVE, ...settings },
    availableMemory: async () => (engine.stopped.length > 0 ? (free.afterAStop ?? free.bytes) : free.bytes),
  });
  return { clock, engine, provider, free, acquire: (threadId: string) => provider.acquire({ userId: 'u', threadId }) };
}

test('a machine without memory starts no container, whatever the policy; a thread keeps the one that it has', async () => {
  for (const overflow of ['burst', 'reject'] as const) {
    const { acquire, engine, free } = scene({ overflow, replicas: 5 });
    const first = await acquire('a');
    free.bytes = RESERVE - 1;
    const refusal = { code: 'over_capacity', retryable: true, detail: { reason: 'memory' } };
    await expect(acquire('b')).rejects.toMatchObject(refusal);
    expect(await acquire('a')).toBe(first);
    expect(engine.created).toEqual([first.id]);
  }
});

test('those that are being started count: two do not take the memory of one', async () => {
  const { acquire, engine, free } = scene({ overflow: 'reject', replicas: 5 });
  free.bytes = 2 * RESERVE - 1;
  const answers = await Promise.allSettled([acquire('a'), acquire('b')]);
  expect(answers.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
  expect(engine.created).toHaveLength(1);
});

test('warm ones are given up first', async () => {
  const { acquire, engine, provider, free } = scene({ overflow: 'reject', replicas: 5 });
  const first = await acquire('a');
  await provider.release(first.id);
  free.bytes = 0;
  free.afterAStop = RESERVE;
  await acquire('b');
  expect(engine.stopped).toEqual([first.id]);
});

test('"wait" looks again until there is memory, or its time is up', async () => {
  const { acquire, clock, engine, free } = scene({ overflow: 'wait', acquireTimeoutMs: 30_000 });
  free.bytes = 0;
  const waiting = acquire('a');
  await clock.advance(10_000);
  expect(engine.created).toEqual([]);
  free.bytes = RESERVE;
  await clock.advance(1_000);
  await waiting;
  free.bytes = 0;
  const late = acquire('b');
  late.catch(() => {});
  await clock.advance(31_000);
  await expect(late).rejects.toMatchObject({ detail: { reason: 'memory' } });
});

test('a machine that does not tell refuses nobody', async () => {
  const { acquire, free } = scene({ overflow: 'reject' });
  free.bytes = null;
  await acquire('a');
});

test('the memory of this machine is read without blocking the loop', async () => {
  await withEventLoopGate(async () => {
    const bytes = await availableMemory();
    if (process.platform === 'linux') expect(bytes).toBeGreaterThan(1024 * 1024);
  });
  const folder = await mkdtemp(join(tmpdir(), 'reindeer-memory-'));
  try {
    await writeFile(join(folder, 'meminfo'), 'MemTotal:  9 kB\nMemFree: 1 kB\nMemAvailable:      7 kB\n');
    expect(await availableMemory(join(folder, 'meminfo'))).toBe(7 * 1024);
    expect(await availableMemory(join(folder, 'none'))).toBeNull();
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
