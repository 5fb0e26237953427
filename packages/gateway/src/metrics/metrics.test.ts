import type { SandboxStats } from '@reindeer/protocol';
import { createLifecycleProvider, MemoryOwnershipStore } from '@reindeer/sandbox';
import { NO_STORAGE, SimulatedEngine, testSurroundings } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { gather, LoopDelay, RunCounts } from './gather.ts';
import { metricsText } from './text.ts';

const runtime = {
  stats: () => ({ held: 2, leases: 3, streams: 4 }),
  counters: () => ({ readers: 5, renewals: { renewed: 6, refused: 7, expired: 8, failed: 9 }, recovered: 10 }),
};

test('the text has classes that add up, and escapes what could break a line', () => {
  const histogram = { bounds: [0.1, 1], counts: [2, 3], count: 6, sum: 4.5 };
  const text = metricsText([
    { name: 'a', help: 'A.', type: 'gauge', samples: [{ labels: { x: 'q"\\\n' }, value: 1.5 }] },
    { name: 'h', help: 'H.', type: 'histogram', series: [{ labels: { path: 'p' }, histogram }] },
  ]);
  expect(text.split('\n')).toEqual([
    '# HELP a A.',
    '# TYPE a gauge',
    'a{x="q\\"\\\\\\n"} 1.5',
    '# HELP h H.',
    '# TYPE h histogram',
    'h_bucket{path="p",le="0.1"} 2',
    'h_bucket{path="p",le="1"} 5',
    'h_bucket{path="p",le="+Inf"} 6',
    'h_sum{path="p"} 4.5',
    'h_count{path="p"} 6',
    '',
  ]);
});

test('what happens to runs and sandboxes is counted, without a label for any of them', async () => {
  const surroundings = testSurroundings();
  const { clock } = surroundings;
  const engine = new SimulatedEngine(clock);
  const provider = createLifecycleProvider({
    backend: engine.backend(),
    ownership: new MemoryOwnershipStore({ ownerId: 'a', clock, ttlMs: 120_000 }),
    surroundings,
    storage: NO_STORAGE,
    settings: { idleTimeoutMs: 1_000 },
  });
  const runs = new RunCounts();
  const threads = Array.from({ length: 50 }, (_, index) => `secret-thread-${index}`);
  for (const threadId of threads) {
    runs.admitted += 1;
    runs.finished({ status: 'success' });
    await provider.release((await provider.acquire({ userId: 'secret-user', threadId })).id);
  }
  runs.finished({ status: 'error' });
  await provider.acquire({ userId: 'secret-user', threadId: threads[49] ?? '' });
  engine.run('orphan');
  await provider.reconcile();
  clock.skip(1_001);
  await provider.reap();
  const text = metricsText(
    gather({ runtime, runs, loop: new LoopDelay(), uptimeSeconds: () => 12, sandboxes: provider }),
  );
  const created = engine.created.length;
  for (const line of [
    'reindeer_uptime_seconds 12',
    'reindeer_runs_active 2',
    'reindeer_runs_total{state="admitted"} 50',
    'reindeer_runs_total{state="success"} 50',
    'reindeer_runs_total{state="error"} 1',
    'reindeer_runs_recovered_total 10',
    'reindeer_leases 3',
    'reindeer_lease_renewals_total{outcome="failed"} 9',
    'reindeer_stream_readers 5',
    'reindeer_sandboxes{state="warm"} 0',
    `reindeer_sandbox_acquire_seconds_count{path="create"} ${created}`,
    'reindeer_sandbox_acquire_seconds_count{path="reclaim"} 1',
    'reindeer_sandbox_adoptions_total 1',
    `reindeer_sandbox_stops_total{outcome="stopped"} ${engine.stopped.length}`,
    'reindeer_sandbox_refused_claims_total 0',
  ])
    expect(text.split('\n')).toContain(line);
  expect(text).not.toContain('secret');
  // As many lines after fifty threads as after none.
  const nothing: SandboxStats = { ...provider.stats() };
  const before = metricsText(
    gather({
      runtime,
      runs: new RunCounts(),
      loop: new LoopDelay(),
      uptimeSeconds: () => 0,
      sandboxes: { stats: () => nothing },
    }),
  );
  expect(text.split('\n').length - before.split('\n').length).toBe(2);
  await provider.shutdown();
});

test('a stall of the loop shows once', async () => {
  const loop = new LoopDelay();
  loop.start();
  await new Promise<void>((resolve) => setTimeout(resolve, 20));
  const until = performance.now() + 60;
  while (performance.now() < until);
  await new Promise<void>((resolve) => setTimeout(resolve, 20));
  expect(loop.read().get(100)).toBeGreaterThan(0.03);
  expect(loop.read().get(100)).toBeLessThan(0.03);
  loop.stop();
  loop.stop();
});
