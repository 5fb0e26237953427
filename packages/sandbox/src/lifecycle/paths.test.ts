import { reduceSandbox, type SandboxMachine } from '@reindeer/protocol';
import { flush, verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { REDIS_OPERATION_MS } from './ownership/redis-store.ts';
import { DEFAULT_LIFECYCLE_SETTINGS, STORE_OPERATION_MS } from './settings.ts';
import { coreScene, ME } from './testing/core-scene.ts';

const EXPIRED = DEFAULT_LIFECYCLE_SETTINGS.idleTimeoutMs + 1;

test(
  'a stop waits for its heartbeat longer than two operations of a slow store',
  verifies('SEED-001-50', 'SB-32'),
  () => {
    expect(STORE_OPERATION_MS).toBeGreaterThanOrEqual(REDIS_OPERATION_MS);
    expect(DEFAULT_LIFECYCLE_SETTINGS.teardownWaitMs).toBeGreaterThan(2 * STORE_OPERATION_MS);
  },
);

test(
  'the drop of a dead sandbox refuses discovery of the container that it is stopping',
  verifies('SEED-001-70', 'SB-42'),
  async () => {
    const { stops, acquires, store, engine, table, active } = coreScene();
    const info = await active('sick');
    // Held before the claim: the store still says "ours", so only the reservation refuses.
    const claim = store.hold('claim', 'before');
    const dropping = stops.dropUnhealthy('sick', info);
    await claim.reached;
    expect(table.state('sick').phase).toBe('absent');
    expect(await store.target.owner('sick')).toBe('a');
    expect(await acquires.discovered(ME, info)).toBe('being_destroyed');
    await flush();
    expect(engine.openClients('sick')).toEqual([]);
    claim.open();
    expect(await dropping).toBe('destroyed');
    expect([table.state('sick').phase, engine.stopped]).toEqual(['absent', ['sick']]);
  },
);

test('a drop leaves another container of the same id alone', verifies('SB-41'), async () => {
  const { stops, engine, table, active, acquires } = coreScene();
  const old = await active('x');
  engine.remove('x');
  const info = engine.run('x');
  await acquires.discovered(ME, info);
  expect(await stops.dropUnhealthy('x', old)).toBe('refused');
  expect([table.state('x').info, engine.stopped]).toEqual([info, []]);
});

test(
  'reuse whose entry goes between the last look and the mark hands out nothing',
  verifies('SEED-001-76', 'SB-14'),
  async () => {
    const { acquires, maintenance, store, surroundings, table, active } = coreScene();
    await active('x');
    // A peer has taken it.
    await store.target.release('x');
    const verdict = store.hold('renew', 'before');
    const renewing = maintenance.renew();
    await verdict.reached;
    const gap = surroundings.probe.hold('sandbox.before-publish');
    const reusing = acquires.reuse(ME);
    await gap.reached;
    table.apply('x', { type: 'forget', epoch: table.state('x').epoch });
    gap.release();
    expect(await reusing).toBeNull();
    verdict.open();
    await renewing;
    expect(table.client('x')).toBeUndefined();
  },
);

test(
  'forgetting without an epoch is refused while an acquire publishes',
  verifies('SEED-001-82', 'SB-60'),
  async () => {
    const { acquires, store, table, active } = coreScene();
    await active('x');
    const take = store.hold('take', 'before');
    const reusing = acquires.reuse(ME);
    await take.reached;
    expect(table.apply('x', { type: 'forget', epoch: null })).toEqual({ outcome: 'refused', reason: 'publishing' });
    take.open();
    expect(await reusing).toBe(table.client('x'));
  },
);

test(
  'a stop leaves no reservation, mark, row or heartbeat behind',
  verifies('SEED-001-78', 'SB-36', 'ND-05'),
  async () => {
    const { stops, core, table, engine, surroundings, active, backend } = coreScene();
    for (const way of ['works', 'fails'] as const) {
      const info = await active('x');
      table.apply('x', { type: 'park', now: table.now });
      if (way === 'fails') backend.break(new Error('the engine is unreachable'), 'stop');
      const outcome = await stops.destroyWarm('x', info, { kind: 'warm', info });
      expect(outcome).toBe(way === 'works' ? 'destroyed' : 'failed');
      expect(table.state('x')).toMatchObject({ reserved: false, publishing: 0, creating: false });
      expect([stops.ending('x'), core.teardowns.size, surroundings.clock.sleeping]).toEqual([undefined, 0, 0]);
      if (way === 'works') expect(table.sizes()).toEqual({ rows: 0, clients: 0, threads: 0 });
    }
    expect(engine.stopped).toEqual(['x']);
  },
);

test(
  'a warm entry goes before its reservation does, and after its container',
  verifies('SEED-001-80', 'SB-35'),
  async () => {
    const order: string[] = [];
    const machine: SandboxMachine = (state, event) => {
      if (event.type === 'untrack' || event.type === 'teardown-ended') order.push(`${event.type} ${state.phase}`);
      return reduceSandbox(state, event);
    };
    const { stops, engine, table, active } = coreScene({ machine });
    const info = await active('x');
    table.apply('x', { type: 'park', now: table.now });
    const inner = engine.stopped.push.bind(engine.stopped);
    engine.stopped.push = (...ids) => {
      order.push('stopped');
      return inner(...ids);
    };
    await stops.destroyWarm('x', info, { kind: 'warm', info });
    expect(order).toEqual(['stopped', 'untrack warm', 'teardown-ended absent']);
  },
);

describe('registering ends a stale warm entry of the same id', () => {
  test.each(['discovered', 'created'] as const)('%s', verifies('SEED-001-83', 'SB-19'), async (path) => {
    const { acquires, engine, maintenance, surroundings, table } = coreScene();
    const info = engine.run('stale');
    table.apply('stale', { type: 'adopt', info, now: table.now, epoch: table.nextEpoch() });
    const client = await (path === 'created' ? acquires.created(ME, info, table.now) : acquires.discovered(ME, info));
    expect([table.client('stale'), table.ids('warm'), table.ids('active')]).toEqual([client, [], ['stale']]);
    surroundings.clock.skip(EXPIRED);
    table.apply('stale', { type: 'touch', now: table.now });
    await maintenance.reap();
    expect(engine.stopped).toEqual([]);
  });
});

test('an id that is held for somebody else is handed out to nobody', verifies('SB-09'), async () => {
  const { acquires, engine, table, active, store } = coreScene();
  const info = await active('x');
  const before = table.state('x');
  await expect(acquires.discovered({ ...ME, threadId: 'other' }, info)).rejects.toMatchObject({
    code: 'conflict',
    detail: { reason: 'identity_collision' },
  });
  table.apply('x', { type: 'park', now: table.now });
  await expect(acquires.reclaim({ ...ME, userId: 'other' }, 'x')).rejects.toMatchObject({
    detail: { reason: 'identity_collision' },
  });
  expect([table.state('x').identity, table.state('x').phase]).toEqual([before.identity, 'warm']);
  expect([engine.stopped, await store.target.owner('x')]).toEqual([[], 'a']);
});

test('a sandbox that is reserved during its health check is not published again', verifies('SB-15'), async () => {
  const { acquires, backend, store, stops, active } = coreScene();
  await active('x');
  const health = backend.hold('isAlive', 'after');
  const reusing = acquires.reuse(ME);
  await health.reached;
  const claim = store.hold('claim', 'before');
  const stopping = stops.destroyTracked('x', { kind: 'tracked' });
  await claim.reached;
  const before = store.of('take').length;
  health.open();
  expect(await reusing).toBeNull();
  // A lease that is taken for a doomed sandbox would be the store's work for nothing.
  expect(store.of('take')).toHaveLength(before);
  claim.open();
  expect(await stopping).toBe('destroyed');
});
