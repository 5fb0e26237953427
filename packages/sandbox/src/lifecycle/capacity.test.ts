import { flush, NO_STORAGE, SimulatedEngine, testSurroundings, verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { MemoryOwnershipStore } from './ownership/memory-store.ts';
import { LifecycleProvider } from './provider.ts';
import type { LifecycleSettings } from './settings.ts';

function scene(settings: Partial<LifecycleSettings>) {
  const surroundings = testSurroundings();
  const { clock, logger } = surroundings;
  const engine = new SimulatedEngine(clock);
  const ownership = new MemoryOwnershipStore({ ownerId: 'a', clock, ttlMs: 120_000 });
  const backend = engine.backend();
  const provider = new LifecycleProvider({ backend, ownership, storage: NO_STORAGE, surroundings, settings });
  const acquire = (threadId: string, signal?: AbortSignal) =>
    provider.acquire({ userId: 'u', threadId, ...(signal === undefined ? {} : { signal }) });
  return { clock, logger, engine, backend, provider, acquire };
}

test('the number of sandboxes is a soft bound: past it one more is started, and said', verifies('SB-45'), async () => {
  const { acquire, engine, logger } = scene({ replicas: 2 });
  await Promise.all(['a', 'b', 'c', 'd'].map((threadId) => acquire(threadId)));
  expect([engine.created.length, engine.stopped]).toEqual([4, []]);
  expect(logger.lines.filter((line) => line.message.includes('sandbox.replicas'))).toHaveLength(2);
});

test('a burst has its own bound', async () => {
  const { acquire, engine } = scene({ replicas: 1, burstLimit: 1 });
  await Promise.all([acquire('a'), acquire('b')]);
  await expect(acquire('c')).rejects.toMatchObject({ code: 'over_capacity', retryable: true });
  expect(engine.created).toHaveLength(2);
  // Whoever has a sandbox keeps getting it.
  await acquire('a');
});

test('with "reject" the next one is refused at once, and many at once never take one place twice', async () => {
  const { acquire, engine } = scene({ replicas: 2, overflow: 'reject' });
  const answers = await Promise.allSettled(['a', 'b', 'c', 'd', 'e'].map((threadId) => acquire(threadId)));
  expect(answers.map(({ status }) => status).sort()).toEqual([
    'fulfilled',
    'fulfilled',
    'rejected',
    'rejected',
    'rejected',
  ]);
  expect(engine.created).toHaveLength(2);
});

test('with "wait" the next one gets the place of the first who leaves', async () => {
  const { acquire, engine, provider } = scene({ replicas: 1, overflow: 'wait' });
  const first = await acquire('a');
  const waiting = acquire('b');
  await flush();
  expect(engine.created).toEqual([first.id]);
  await provider.release(first.id);
  const second = await waiting;
  expect([engine.stopped, engine.created]).toEqual([[first.id], [first.id, second.id]]);
});

test('a wait for a place is bounded, and ends with its caller', async () => {
  const { acquire, clock } = scene({ replicas: 1, overflow: 'wait', acquireTimeoutMs: 30_000 });
  await acquire('a');
  const late = acquire('b');
  late.catch(() => {});
  await clock.advance(29_999);
  const controller = new AbortController();
  const aborted = acquire('c', controller.signal);
  aborted.catch(() => {});
  await flush();
  controller.abort();
  await expect(aborted).rejects.toMatchObject({ code: 'aborted' });
  await clock.advance(2);
  await expect(late).rejects.toMatchObject({ code: 'over_capacity' });
  expect(clock.sleeping).toBe(0);
});

test('a wait for a place ends with the provider, and starts nothing after it', verifies('SB-66'), async () => {
  const { acquire, engine, provider, clock } = scene({ replicas: 1, overflow: 'wait' });
  const first = await acquire('a');
  const waiting = acquire('b');
  waiting.catch(() => {});
  await flush();
  await provider.shutdown();
  await expect(waiting).rejects.toMatchObject({ code: 'shutting_down' });
  await flush();
  expect([engine.created, engine.stopped, clock.sleeping]).toEqual([[first.id], [first.id], 0]);
});

test('an engine that fails in its own words is "unavailable" in ours', async () => {
  const { acquire, backend } = scene({});
  const cause = new Error('ECONNREFUSED');
  backend.discover = () => Promise.reject(cause);
  await expect(acquire('a')).rejects.toMatchObject({ code: 'sandbox_unavailable', retryable: true, cause });
});

test('a thousand turns of a hundred threads leave nothing behind', verifies('ND-05', 'SQ-02'), async () => {
  const { acquire, engine, provider, clock } = scene({ replicas: 5, idleTimeoutMs: 1_000 });
  for (let round = 0; round < 10; round += 1) {
    await Promise.all(
      Array.from({ length: 100 }, async (_, n) => {
        const sandbox = await acquire(`thread-${n}`);
        await sandbox.exec({ command: 'true', timeoutMs: 1_000 });
        await provider.release(sandbox.id);
      }),
    );
    clock.skip(100);
  }
  clock.skip(1_001);
  await provider.reap();
  await flush();
  expect(engine.containers.size).toBe(0);
  expect(engine.killedUnderCommand).toEqual([]);
  expect(engine.clients.every((client) => client.closed)).toBe(true);
  expect(Object.values(provider.sizes()).every((size) => size === 0)).toBe(true);
  expect(clock.sleeping).toBe(0);
});
