import { ReindeerError } from '@reindeer/protocol';
import { NO_STORAGE, SimulatedEngine, testSurroundings, verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { MemoryOwnershipStore } from './ownership/memory-store.ts';
import { LifecycleProvider } from './provider.ts';
import { DEFAULT_LIFECYCLE_SETTINGS, graceMs } from './settings.ts';
import { SharedLeases } from './shared-leases.ts';
import { coreScene } from './testing/core-scene.ts';

const THREAD = { userId: 'u', threadId: 't' };
const TTL = graceMs(DEFAULT_LIFECYCLE_SETTINGS);
const COMMAND = { command: 'true', timeoutMs: 1_000 };

function scene() {
  const surroundings = testSurroundings();
  const { clock, logger } = surroundings;
  const engine = new SimulatedEngine(clock);
  const backend = engine.backend();
  const ownership = new MemoryOwnershipStore({ ownerId: 'a', clock, ttlMs: 120_000 });
  const provider = new LifecycleProvider({ backend, ownership, storage: NO_STORAGE, surroundings });
  return { engine, provider, leases: new SharedLeases(provider, logger) };
}

test('a container that is removed under a run is replaced at the next use, for every holder', async () => {
  const { engine, provider, leases } = scene();
  const lead = { ...THREAD, owner: 'lead' };
  const child = { ...THREAD, owner: 'child' };
  const first = await leases.hold(lead);
  expect(await leases.hold(child)).toBe(first);
  engine.remove(first.id);
  // The command that met it fails and says so; nothing is repeated behind its back.
  await expect(first.exec(COMMAND)).rejects.toMatchObject({ code: 'sandbox_unavailable' });
  expect(provider.get(first.id)).toBeUndefined();
  const second = await leases.hold(lead);
  expect(second).not.toBe(first);
  expect((await second.exec(COMMAND)).exitCode).toBe(0);
  expect(await leases.hold(child)).toBe(second);
  expect(engine.created).toEqual([first.id, first.id]);
  await leases.leave('lead');
  await leases.leave('child');
  expect(leases.sizes()).toEqual({ bindings: 0, shared: 0, sections: 0 });
  expect(provider.list()).toMatchObject([{ phase: 'warm' }]);
});

test('a command that fails in a living container costs nobody the container', async () => {
  const { engine, provider, leases } = scene();
  const sandbox = await leases.hold({ ...THREAD, owner: 'lead' });
  engine.onCommand = async () => {
    throw new ReindeerError('sandbox_unavailable', 'no');
  };
  await expect(sandbox.exec(COMMAND)).rejects.toThrow('no');
  expect(provider.get(sandbox.id)).toBe(sandbox);
  expect(engine.stopped).toEqual([]);
});

test('a parked sandbox that died is let go when another container runs under its id, which waits for its grace', async () => {
  const { engine, backend, store, maintenance, table, surroundings, active } = coreScene({ seesPeers: true });
  await active('x');
  table.apply('x', { type: 'park', now: table.now });
  engine.remove('x');
  // A peer that was stopped while it started one, and gave up when it went on.
  const other = engine.run('x');
  backend.break(new Error('no answer'), 'isAlive');
  await maintenance.reconcile();
  expect(table.state('x').phase).toBe('warm');
  backend.heal();
  await maintenance.reconcile();
  expect([table.state('x').phase, await store.target.owner('x'), engine.stopped]).toEqual(['absent', null, []]);
  await maintenance.reconcile();
  surroundings.clock.skip(TTL - 1);
  await maintenance.reconcile();
  expect(table.state('x').phase).toBe('absent');
  surroundings.clock.skip(1);
  await maintenance.reconcile();
  expect(table.state('x')).toMatchObject({ phase: 'warm', info: other });
});

test.each(['cannot be claimed', 'was parked since and lives'] as const)(
  'a parked sandbox that %s keeps its container whatever a list says',
  async (how) => {
    const { engine, backend, store, maintenance, table, active } = coreScene();
    let kept = await active('x');
    table.apply('x', { type: 'park', now: table.now });
    engine.remove('x');
    engine.run('x');
    if (how === 'cannot be claimed') store.break(new Error('no answer'), 'claim');
    const list = backend.hold('listRunning', 'after');
    const looking = maintenance.reconcile();
    await list.reached;
    if (how === 'was parked since and lives') {
      table.apply('x', { type: 'forget', epoch: null });
      engine.remove('x');
      kept = await active('x');
      table.apply('x', { type: 'park', now: table.now });
    }
    list.open();
    await looking;
    expect(engine.stopped).toEqual([]);
    if (how === 'was parked since and lives') expect(table.state('x')).toMatchObject({ phase: 'warm', info: kept });
  },
);

test.each(['the store', 'the engine'] as const)(
  'the grace of an orphan begins anew when %s could not be asked meanwhile',
  verifies('SB-53', 'SB-56'),
  async (who) => {
    const { engine, backend, store, maintenance, table, surroundings } = coreScene({ seesPeers: true });
    engine.run('x');
    const look = async (after: number) => {
      surroundings.clock.skip(after);
      await maintenance.reconcile();
      return table.state('x').phase;
    };
    await look(0);
    if (who === 'the store') store.break(new Error('no answer'), 'owner');
    else backend.break(new Error('no answer'), 'listRunning');
    await look(TTL / 2);
    store.heal();
    backend.heal();
    // An owner may have come and, with the memory of the store, gone again.
    expect(await look(TTL)).toBe('absent');
    expect(await look(TTL - 1)).toBe('absent');
    expect(await look(1)).toBe('warm');
  },
);
