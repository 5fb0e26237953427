import { describe, expect, test } from 'vitest';
import { verifies } from '../../verifies.ts';
import { CONTRACT_SETTINGS, type SandboxLifecycleFactory, STORE_DOWN, sandboxScenes, TTL_MS } from './scene.ts';

/** Reconciliation: what nobody owns is adopted, in time, and nothing is stopped by it. */
export function sandboxAdoptionContract(factory: SandboxLifecycleFactory): void {
  describe('adoption', () => {
    const scene = sandboxScenes(factory);
    const ages: readonly (readonly [string, (now: number) => number])[] = [
      ['old', (now) => now - 1_200_000],
      ['young', (now) => now - 60_000],
      ['of unknown age', () => 0],
    ];
    const seeds = { old: 'SEED-001-16', young: 'SEED-001-17', 'of unknown age': 'SEED-001-63' } as Record<
      string,
      string
    >;

    for (const [name, createdAt] of ages)
      test(
        `a free container that is ${name} is adopted, and reused`,
        verifies(seeds[name] ?? '', 'SB-55', 'SB-59'),
        async () => {
          const { clock, engine, id, instance } = scene();
          const a = instance('a', { alone: true });
          engine.run(id, { createdAt: createdAt(clock.now()) });
          await a.provider.reconcile();
          await a.provider.reap();
          expect(engine.stopped).toEqual([]);
          expect(a.provider.list()).toMatchObject([{ id, phase: 'warm', identity: null }]);
          const sandbox = await a.acquire();
          expect([sandbox.id, a.phase(id), engine.created]).toEqual([id, 'active', []]);
        },
      );

    test(
      'all free containers are adopted at once, whatever their number and age',
      verifies('SEED-001-18', 'SEED-001-62'),
      async () => {
        const { clock, engine, instance } = scene();
        const a = instance('a', { alone: true });
        const now = clock.now();
        const ids = ['one', 'two', 'three', 'four'];
        for (const [position, id] of ids.entries()) engine.run(id, { createdAt: now - position * 1_000_000 });
        await a.provider.reconcile();
        expect(a.provider.list().map((entry) => [entry.id, entry.phase])).toEqual(ids.map((id) => [id, 'warm']));
        expect(engine.stopped).toEqual([]);
      },
    );

    test(
      'with an idle timeout of 0 all are adopted, at the start too, and nothing is ever reaped',
      verifies('SEED-001-64', 'SB-46'),
      async () => {
        const { clock, engine, instance } = scene();
        const a = instance('a', { alone: true, settings: { idleTimeoutMs: 0 } });
        engine.run('old', { createdAt: clock.now() - 7_200_000 });
        engine.run('young', { createdAt: clock.now() - 60_000 });
        await a.provider.start();
        expect(a.provider.list().map((entry) => entry.id)).toEqual(['old', 'young']);
        await a.acquire();
        await clock.advance(10_000_000);
        await a.provider.reap();
        expect(engine.stopped).toEqual([]);
        expect(a.provider.list()).toHaveLength(3);
      },
    );

    test('what is tracked already is left as it is', verifies('SEED-001-19', 'SB-57'), async () => {
      const { engine, id, otherId, other, instance } = scene();
      const a = instance('a', { alone: true });
      const sandbox = await a.acquire();
      await a.provider.release((await a.acquire(other)).id);
      const before = a.provider.list();
      await a.provider.reconcile();
      expect(a.provider.list()).toEqual(before);
      expect([a.phase(id), a.phase(otherId)]).toEqual(['active', 'warm']);
      expect(a.provider.get(id)).toBe(sandbox);
      expect(engine.stopped).toEqual([]);
    });

    test('an engine that cannot list is no error', verifies('SEED-001-20', 'SB-58'), async () => {
      const { engine, id, instance } = scene();
      const a = instance('a', { alone: true });
      engine.run(id);
      a.backend.break(new Error('the engine is down'), 'listRunning');
      await a.provider.reconcile();
      expect(a.backend.of('listRunning')).toHaveLength(1);
      expect(a.provider.list()).toEqual([]);
      expect(engine.stopped).toEqual([]);
    });

    test('nothing runs, nothing is adopted', verifies('SEED-001-21'), async () => {
      const { engine, instance } = scene();
      const a = instance('a', { alone: true });
      await a.provider.reconcile();
      expect(a.provider.list()).toEqual([]);
      expect(a.store.calls).toEqual([]);
      expect(engine.stopped).toEqual([]);
    });

    test('a container that a peer owns stays the peer’s', verifies('SEED-001-22', 'SB-57'), async () => {
      const { clock, engine, id, instance, owner } = scene();
      const [a, b] = [instance('a'), instance('b')];
      await a.acquire();
      for (let round = 0; round < 8; round += 1) {
        await b.provider.reconcile();
        clock.skip(CONTRACT_SETTINGS.renewalIntervalMs);
        await a.provider.renew();
      }
      expect(b.provider.list()).toEqual([]);
      expect(await owner(id)).toBe('a');
      expect(engine.stopped).toEqual([]);
      // It is skipped for being owned: the store need not refuse a claim.
      expect(b.store.of('claim')).toEqual([]);
    });

    test(
      'parked by one, reconciled and reaped by another: nobody is stopped',
      verifies('SEED-001-24', 'SB-64'),
      async () => {
        const { clock, engine, id, instance, owner } = scene();
        const [a, b] = [instance('a', { settings: { idleTimeoutMs: 0 } }), instance('b')];
        await a.provider.release((await a.acquire()).id);
        for (let round = 0; round < 30; round += 1) {
          await b.provider.reconcile();
          await b.provider.reap();
          clock.skip(CONTRACT_SETTINGS.renewalIntervalMs);
          await a.provider.renew();
        }
        expect(engine.stopped).toEqual([]);
        expect([a.phase(id), b.phase(id), await owner(id)]).toEqual(['warm', null, 'a']);
      },
    );

    test(
      'what a crashed instance left is adopted once its lease and one more have passed',
      verifies('SEED-001-25', 'SEED-001-43', 'SB-54'),
      async () => {
        const { clock, engine, id, instance, owner } = scene();
        const [dead, b] = [instance('dead'), instance('b')];
        await dead.acquire();
        await b.provider.reconcile();
        clock.skip(TTL_MS + 1);
        await b.provider.reconcile();
        expect(b.phase(id)).toBeNull();
        clock.skip(TTL_MS - 1);
        await b.provider.reconcile();
        expect(b.phase(id)).toBeNull();
        clock.skip(1);
        await b.provider.reconcile();
        expect([b.phase(id), await owner(id)]).toEqual(['warm', 'b']);
        expect(engine.stopped).toEqual([]);
      },
    );

    test('a store that cannot say who owns it defers', verifies('SB-56'), async () => {
      const { clock, engine, id, instance } = scene();
      const b = instance('b');
      engine.run(id);
      b.store.break(STORE_DOWN, 'owner');
      await b.provider.reconcile();
      clock.skip(TTL_MS + 1);
      await b.provider.reconcile();
      expect([b.phase(id), b.store.of('claim')]).toEqual([null, []]);
    });

    test('a claim that cannot be answered adopts nothing', verifies('SEED-001-29', 'SB-56'), async () => {
      const { clock, engine, id, instance } = scene();
      const b = instance('b');
      engine.run(id);
      await b.provider.reconcile();
      clock.skip(TTL_MS + 1);
      b.store.break(STORE_DOWN, 'claim');
      await b.provider.reconcile();
      expect(b.store.of('claim')).toMatchObject([[id, { forDestroy: false }]]);
      expect(b.phase(id)).toBeNull();
      expect(engine.stopped).toEqual([]);
      b.store.heal();
      await b.provider.reconcile();
      expect(b.phase(id)).toBe('warm');
    });

    test(
      'after the store has lost everything, no peer steals a live sandbox',
      verifies('SEED-001-42', 'SB-52'),
      async () => {
        const { clock, engine, id, instance, owner, ownership } = scene();
        const [a, b] = [instance('a'), instance('b')];
        const sandbox = await a.acquire();
        ownership.clear();
        for (let round = 0; round < 8; round += 1) {
          await b.provider.reconcile();
          expect(b.phase(id)).toBeNull();
          clock.skip(CONTRACT_SETTINGS.renewalIntervalMs - 1);
          await b.provider.reconcile();
          await a.provider.renew();
        }
        expect(a.provider.get(id)).toBe(sandbox);
        expect(engine.openClients(id)).toHaveLength(1);
        expect(await owner(id)).toBe('a');
        expect(engine.stopped).toEqual([]);
      },
    );

    test(
      'an owner that shows itself again restarts the grace, which is no pause',
      verifies('SEED-001-44', 'SB-53'),
      async () => {
        const { clock, id, instance, owner, ownership } = scene();
        const [a, b] = [instance('a'), instance('b')];
        await a.acquire();
        ownership.clear();
        await b.provider.reconcile();
        await a.provider.renew();
        clock.skip(TTL_MS - 1);
        await b.provider.reconcile();
        expect([b.phase(id), await owner(id)]).toEqual([null, 'a']);
        ownership.clear();
        clock.skip(2);
        await b.provider.reconcile();
        expect(b.phase(id)).toBeNull();
        clock.skip(TTL_MS - 1);
        await b.provider.reconcile();
        expect(b.phase(id)).toBeNull();
        clock.skip(1);
        await b.provider.reconcile();
        expect(b.phase(id)).toBe('warm');
      },
    );

    test(
      'an owner that comes and is forgotten between two looks has a whole grace to show itself again',
      verifies('SB-52', 'SB-53'),
      async () => {
        const { clock, engine, id, instance, owner, ownership } = scene();
        const [a, b] = [instance('a'), instance('b')];
        engine.run(id);
        await b.provider.reconcile();
        clock.skip(TTL_MS - 1);
        await b.provider.reconcile();
        // The orphan is used again, and the store forgets that before anybody has looked.
        const sandbox = await a.acquire();
        ownership.clear();
        clock.skip(1);
        await b.provider.reconcile();
        expect([b.phase(id), await owner(id)]).toEqual([null, null]);
        clock.skip(CONTRACT_SETTINGS.renewalIntervalMs - 1);
        await a.provider.renew();
        expect(a.provider.get(id)).toBe(sandbox);
        // The same while the claim is on its way: what was seen counts in the memory in which it was seen only.
        ownership.clear();
        await b.provider.reconcile();
        clock.skip(TTL_MS);
        const claim = b.store.hold('claim', 'before');
        const looking = b.provider.reconcile();
        await claim.reached;
        await a.provider.renew();
        ownership.clear();
        claim.open();
        await looking;
        expect([b.phase(id), await owner(id)]).toEqual([null, null]);
        await a.provider.renew();
        expect([a.provider.get(id), await owner(id), engine.stopped]).toEqual([sandbox, 'a', []]);
      },
    );

    test('a container that vanished and came back waits a whole grace again', verifies('SB-53'), async () => {
      const { clock, engine, id, instance } = scene();
      const b = instance('b');
      engine.run(id);
      await b.provider.reconcile();
      engine.remove(id);
      await b.provider.reconcile();
      clock.skip(TTL_MS + 1);
      engine.run(id);
      await b.provider.reconcile();
      expect(b.phase(id)).toBeNull();
    });

    test('an adopted sandbox is not expired at once', verifies('SB-59'), async () => {
      const { clock, engine, id, instance } = scene();
      const a = instance('a', { alone: true });
      clock.skip(10_000_000);
      engine.run(id, { createdAt: 0 });
      await a.provider.reconcile();
      clock.skip(CONTRACT_SETTINGS.idleTimeoutMs - 1);
      await a.provider.reap();
      expect(engine.stopped).toEqual([]);
      clock.skip(2);
      await a.provider.reap();
      expect(engine.stopped).toEqual([id]);
    });

    test(
      'a container that this instance is tearing down is not adopted',
      verifies('SEED-001-77', 'SB-57'),
      async () => {
        const { engine, id, instance } = scene();
        const a = instance('a', { alone: true });
        await a.acquire();
        const container = engine.containers.get(id);
        if (container === undefined) throw new Error('no container');
        a.backend.break(new Error('out of reach'), 'discover');
        const alive = a.backend.hold('isAlive', 'before');
        // Dead to the health check, running for the listing: the claim is on its way, nothing is tracked any more.
        const claim = a.store.hold('claim', 'before');
        const acquiring = a.acquire().catch(() => null);
        await alive.reached;
        container.state = 'dead';
        alive.open();
        await claim.reached;
        container.state = 'running';
        await a.provider.reconcile();
        expect(a.phase(id)).toBeNull();
        claim.open();
        await acquiring;
        expect(engine.stopped).toEqual([id]);
        expect(a.phase(id)).toBeNull();
      },
    );
  });
}
