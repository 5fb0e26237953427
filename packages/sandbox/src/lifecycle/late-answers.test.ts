import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { DEFAULT_LIFECYCLE_SETTINGS, graceMs } from './settings.ts';
import { type CoreScene, coreScene, ME } from './testing/core-scene.ts';

const TTL = graceMs(DEFAULT_LIFECYCLE_SETTINGS);

test('a marker whose answer comes after it may have run out is asked for again', verifies('SB-26'), async () => {
  const { stops, store, engine, surroundings, active } = coreScene();
  await active('x');
  const late = store.hold('claim', 'after');
  const stopping = stops.destroyTracked('x', { kind: 'tracked' });
  await late.reached;
  surroundings.clock.skip(TTL);
  expect(await store.target.owner('x')).toBeNull();
  const again = store.hold('claim', 'before');
  late.open();
  await again.reached;
  expect(engine.stopped).toEqual([]);
  again.open();
  expect(await stopping).toBe('destroyed');
});

test('a claim whose answers are always late stops nothing', async () => {
  const { stops, store, engine, surroundings, table, active } = coreScene();
  await active('x');
  const answers = [1, 2, 3].map(() => store.hold('claim', 'after'));
  const stopping = stops.destroyTracked('x', { kind: 'tracked' });
  for (const answer of answers) {
    await answer.reached;
    surroundings.clock.skip(TTL);
    answer.open();
  }
  expect([await stopping, engine.stopped, table.state('x').phase]).toEqual(['refused', [], 'active']);
});

test('a new container is taken back without a marker only soon after its start', async () => {
  for (const [late, stopped] of [
    [TTL - 1, ['x']],
    [TTL, []],
  ] as const) {
    const { acquires, store, engine, surroundings, table } = coreScene();
    const askedAt = table.now;
    const info = engine.run('x');
    surroundings.clock.skip(late);
    store.break(new Error('out of reach'), 'take', 'claim');
    await expect(acquires.created(ME, info, askedAt)).rejects.toMatchObject({ code: 'store_unavailable' });
    expect([engine.stopped, engine.openClients('x')]).toEqual([stopped, []]);
  }
});

test.each(['a store that answers again', 'a marker that has run out'] as const)(
  'a container that is taken back without a marker gets one from %s',
  verifies('SB-29'),
  async (from) => {
    const { acquires, store, backend, engine, surroundings, table } = coreScene();
    const info = engine.run('x');
    if (from === 'a store that answers again') store.break(new Error('out of reach'), 'take', 'claim');
    else await store.target.claim('x', { forDestroy: true });
    const stop = backend.hold('stop', 'before');
    const creating = acquires.created(ME, info, table.now).catch(() => 'store_unavailable');
    await stop.reached;
    store.heal();
    await store.target.release('x');
    await surroundings.clock.advance(2_000);
    // While the engine is slow nobody else can be given it.
    expect(await store.target.take('x')).toBe(false);
    stop.open();
    await creating;
    expect([engine.stopped, await store.target.owner('x')]).toEqual([['x'], null]);
  },
);

test('a verdict about the marker of a stop that failed is void after it', verifies('SB-33', 'SB-62'), async () => {
  const { stops, store, backend, maintenance, surroundings, table, active } = coreScene();
  const info = await active('x');
  table.apply('x', { type: 'park', now: table.now });
  surroundings.clock.skip(1);
  const stop = backend.hold('stop', 'before');
  const stopping = stops.destroyWarm('x', info, { kind: 'warm', info });
  await stop.reached;
  // The store answers "lost": it sees the marker of this very stop.
  const verdict = store.hold('renew', 'after');
  const renewing = maintenance.renew();
  await verdict.reached;
  stop.fail(new Error('the engine could not'));
  expect(await stopping).toBe('failed');
  verdict.open();
  await renewing;
  expect(table.state('x').phase).toBe('warm');
});

/** Two renewals that the store has answered with "lost", and whose answers are still on their way. */
async function twoVerdicts({ store, maintenance }: CoreScene) {
  await store.target.claim('x', { forDestroy: true });
  const verdicts = [];
  for (let count = 0; count < 2; count += 1) {
    const answer = store.hold('renew', 'after');
    const renewing = maintenance.renew();
    await answer.reached;
    verdicts.push(async () => {
      answer.open();
      await renewing;
    });
  }
  await store.target.release('x');
  return verdicts as [() => Promise<void>, () => Promise<void>];
}

test.each(['acquired', 'adopted'] as const)(
  'of two verdicts at once the second is void for a sandbox that was %s after the first',
  verifies('SB-61'),
  async (how) => {
    const scene = coreScene();
    const { engine, table, acquires, maintenance } = scene;
    const info = engine.run('x');
    const get = () => (how === 'acquired' ? acquires.discovered(ME, info) : maintenance.reconcile());
    await get();
    const [first, second] = await twoVerdicts(scene);
    await first();
    expect(table.state('x').phase).toBe('absent');
    await get();
    const { phase } = table.state('x');
    expect(phase).toBe(how === 'acquired' ? 'active' : 'warm');
    await second();
    expect(table.state('x').phase).toBe(phase);
  },
);

test('a verdict is void when the store has said since that the sandbox is ours', verifies('SB-61'), async () => {
  const scene = coreScene();
  const { store, table, maintenance, active } = scene;
  await active('x');
  const [first, second] = await twoVerdicts(scene);
  await maintenance.renew();
  expect(await store.target.owner('x')).toBe('a');
  await first();
  await second();
  expect(table.state('x').phase).toBe('active');
});

test('a publication that was not heard takes nothing from the peer that has found the container', async () => {
  const { acquires, store, engine, surroundings, table } = coreScene();
  const askedAt = table.now;
  const info = engine.run('x');
  // This process was stopped for longer than a lease; a peer had every right to take the container meanwhile.
  surroundings.clock.skip(TTL);
  const publication = store.hold('take', 'after');
  const creating = acquires.created(ME, info, askedAt);
  await publication.reached;
  publication.fail(new Error('no answer'));
  await expect(creating).rejects.toMatchObject({ code: 'store_unavailable' });
  // The peer's next renewal finds no owner and claims it again.
  expect([engine.stopped, await store.target.owner('x')]).toEqual([[], null]);
});

test.each(['a command that runs', 'a command that has ended', 'a look by its turn'] as const)(
  'an idle sandbox stays when %s came while the claim of its stop was on its way',
  verifies('SB-38', 'SB-39'),
  async (use) => {
    const { stops, maintenance, store, engine, surroundings, table, active } = coreScene();
    await active('x');
    surroundings.clock.skip(1);
    const claim = store.hold('claim', 'after');
    const stopping = stops.destroyTracked('x', { kind: 'idle', before: table.now });
    await claim.reached;
    surroundings.clock.skip(1);
    if (use === 'a look by its turn') table.apply('x', { type: 'touch', now: table.now });
    else table.apply('x', { type: 'command-began', now: table.now });
    if (use === 'a command that has ended') table.apply('x', { type: 'command-ended', now: table.now });
    claim.open();
    expect([await stopping, engine.stopped, await store.target.owner('x')]).toEqual(['refused', [], null]);
    await maintenance.renew();
    expect(table.state('x')).toMatchObject({ phase: 'active', reserved: false });
    expect([engine.openClients('x').length, await store.target.owner('x')]).toEqual([1, 'a']);
  },
);

test('who asks for a stop by name gets it although a command runs', async () => {
  const { stops, engine, table, active } = coreScene();
  await active('x');
  table.apply('x', { type: 'command-began', now: table.now });
  expect([await stops.destroyTracked('x', { kind: 'tracked' }), engine.stopped]).toEqual(['destroyed', ['x']]);
});
