import { describe, expect, test } from 'vitest';
import { flush } from '../../deferred.ts';
import { waitUntil } from '../../parts/processes.ts';
import { verifies } from '../../verifies.ts';
import {
  CONTRACT_SETTINGS,
  expectWorking,
  type Instance,
  isPending,
  type SandboxLifecycleFactory,
  type SandboxScene,
  STORE_DOWN,
  sandboxScenes,
  TTL_MS,
} from './scene.ts';

const { idleTimeoutMs, renewalIntervalMs, teardownWaitMs } = CONTRACT_SETTINGS;

/** Stops: claimed before, held during, released after; a refusal loses nothing. */
export function sandboxTeardownContract(factory: SandboxLifecycleFactory): void {
  describe('teardown', () => {
    const scene = sandboxScenes(factory);
    const parked = async (instance: Instance) => instance.provider.release((await instance.acquire()).id);

    /** The ways to a stop; each begins one for the scene's thread and resolves when it is over. */
    const ways: Readonly<Record<string, (s: SandboxScene, a: Instance) => Promise<() => Promise<unknown>>>> = {
      'the reaper of warm ones': async ({ clock }, a) => {
        await parked(a);
        clock.skip(idleTimeoutMs + 1);
        await a.provider.renew();
        return () => a.provider.reap();
      },
      'the drop of a dead one': async ({ engine, id }, a) => {
        await a.acquire();
        const container = engine.containers.get(id);
        if (container !== undefined) container.state = 'dead';
        return () => a.acquire();
      },
      'an explicit stop': async ({ id }, a) => {
        await a.acquire();
        return () => a.provider.destroy(id);
      },
    };
    const seeds: Readonly<Record<string, string>> = {
      'the reaper of warm ones': 'SEED-001-46',
      'the drop of a dead one': 'SEED-001-47',
      'an explicit stop': 'SEED-001-48',
    };

    for (const [name, way] of Object.entries(ways))
      test(
        `${name} keeps its marker for as long as the stop takes`,
        verifies(seeds[name] ?? '', 'SB-26', 'SB-29'),
        async () => {
          const s = scene();
          const { clock, id, instance, owner } = s;
          const [a, b] = [instance('a'), instance('b')];
          const begin = await way(s, a);
          const stop = a.backend.hold('stop', 'before');
          const over = begin();
          over.catch(() => {});
          await stop.reached;
          for (let part = 0; part < 16; part += 1) {
            await clock.advance(TTL_MS / 4);
            expect([part, await b.store.target.take(id)]).toEqual([part, false]);
          }
          expect(await owner(id)).toBe('a');
          // The marker is gone as soon as the stop has returned, whatever comes next (a new container, for the dead one).
          const released = a.store.hold('release', 'after');
          stop.open();
          await released.reached;
          expect(await owner(id)).toBeNull();
          expect(await b.store.target.take(id)).toBe(true);
          released.open();
          await over;
        },
      );

    test(
      'a stop that fails releases its marker, and the failure is seen',
      verifies('SEED-001-49', 'SB-33', 'SB-36'),
      async () => {
        const { engine, id, instance, owner } = scene();
        const [a, b] = [instance('a'), instance('b')];
        await a.acquire();
        a.backend.break(new Error('the engine is unreachable'), 'stop');
        await expect(a.provider.destroy(id)).rejects.toThrow('the engine is unreachable');
        expect(await owner(id)).toBeNull();
        expect(await b.store.target.take(id)).toBe(true);
        a.backend.heal();
        // The container runs on, and its thread gets it back.
        expectWorking(engine, await a.acquire());
        expect(engine.created).toEqual([id]);
      },
    );

    test('a warm one whose stop fails is kept, and goes with the next pass', verifies('SB-33', 'SB-35'), async () => {
      const { clock, engine, id, instance } = scene();
      const a = instance('a');
      await parked(a);
      clock.skip(idleTimeoutMs + 1);
      a.backend.break(new Error('the engine is unreachable'), 'stop');
      await a.provider.reap();
      expect([a.phase(id), engine.stopped]).toEqual(['warm', []]);
      a.backend.heal();
      await a.provider.reap();
      expect([a.phase(id), engine.stopped]).toEqual([null, [id]]);
    });

    test(
      'a refresh that was on its way when the stop ended brings no marker back',
      verifies('SEED-001-51', 'SB-30', 'SB-31'),
      async () => {
        const { clock, engine, id, instance, owner } = scene();
        const [a, b] = [instance('a'), instance('b')];
        await parked(a);
        clock.skip(idleTimeoutMs + 1);
        const stop = a.backend.hold('stop', 'before');
        const reaping = a.provider.reap();
        await stop.reached;
        const refresh = a.store.hold('claim', 'before');
        await clock.advance(renewalIntervalMs);
        await refresh.reached;
        stop.open();
        await waitUntil(
          async () => engine.stopped.length > 0,
          20_000,
          () => 'the stop did not end',
        );
        expect(await isPending(reaping)).toBe(true);
        await clock.advance(teardownWaitMs);
        await reaping;
        expect([engine.stopped, a.store.of('release')]).toEqual([[id], []]);
        // The refresh arrives now and writes the marker; the heartbeat's own last act takes it away.
        refresh.open();
        await flush();
        expect(await owner(id)).toBeNull();
        expect(await b.store.target.take(id)).toBe(true);
      },
    );

    test('a heartbeat ends with its stop', verifies('SEED-001-56', 'SB-34'), async () => {
      const { clock, engine, id, instance, owner } = scene();
      const a = instance('a');
      await parked(a);
      clock.skip(idleTimeoutMs + 1);
      await a.provider.reap();
      expect(engine.stopped).toEqual([id]);
      expect(clock.sleeping).toBe(0);
      const calls = a.store.calls.length;
      await clock.advance(TTL_MS * 3);
      expect(a.store.calls).toHaveLength(calls);
      expect(await owner(id)).toBeNull();
    });

    test('an unknown answer stops nothing and keeps the entry', verifies('SEED-001-28', 'SB-28'), async () => {
      const { clock, engine, id, instance } = scene();
      const a = instance('a');
      await parked(a);
      clock.skip(idleTimeoutMs + 1);
      a.store.break(STORE_DOWN, 'claim');
      await a.provider.reap();
      expect(a.store.of('claim')).toEqual([[id, { forDestroy: true }]]);
      expect([engine.stopped, a.phase(id)]).toEqual([[], 'warm']);
    });

    test(
      'a warm one that a peer owns by now is kept and not stopped',
      verifies('SEED-001-23', 'SEED-001-59', 'SB-44'),
      async () => {
        const { clock, engine, id, instance, owner } = scene();
        const [a, b] = [instance('a'), instance('b')];
        await parked(a);
        clock.skip(idleTimeoutMs + 1);
        await b.acquire();
        await a.provider.reap();
        expect([engine.stopped, a.phase(id), await owner(id)]).toEqual([[], 'warm', 'b']);
        expect(a.store.of('claim')).toHaveLength(1);
      },
    );

    test(
      'a refused stop leaves an active one tracked and usable',
      verifies('SEED-001-58', 'SB-27', 'SB-44'),
      async () => {
        const { clock, engine, id, instance } = scene();
        const [a, b] = [instance('a'), instance('b')];
        const sandbox = await a.acquire();
        await b.acquire();
        expect(await a.provider.destroy(id)).toBe('refused');
        for (let passed = 0; passed <= idleTimeoutMs; passed += renewalIntervalMs) {
          clock.skip(renewalIntervalMs);
          await b.provider.renew();
        }
        await a.provider.reap();
        expect(a.store.of('claim')).toHaveLength(2);
        expect([engine.stopped, a.phase(id)]).toEqual([[], 'active']);
        expect(a.provider.get(id)).toBe(sandbox);
        expect(engine.openClients(id)).toHaveLength(2);
        expect(await a.provider.destroy('nobody')).toBe('unknown_id');
      },
    );

    test('a dead one that a peer owns is not stopped', verifies('SEED-001-60', 'SB-43'), async () => {
      const { engine, id, instance, owner } = scene();
      const [a, b] = [instance('a'), instance('b')];
      await a.acquire();
      await b.store.target.take(id);
      const container = engine.containers.get(id);
      if (container !== undefined) container.state = 'dead';
      // It is the peer's until this thread's next turn has taken it over.
      const take = a.store.hold('take', 'before');
      const acquiring = a.acquire();
      await take.reached;
      expect([engine.stopped, await owner(id), engine.containers.has(id)]).toEqual([[], 'b', true]);
      take.open();
      expectWorking(engine, await acquiring);
      expect([engine.stopped, await owner(id)]).toEqual([[id], 'a']);
    });

    test('eviction keeps what it may not stop', verifies('SEED-001-52', 'SB-44', 'SB-45'), async () => {
      const { engine, id, instance, other, owner } = scene();
      const [a, b] = [instance('a', { settings: { replicas: 1 } }), instance('b')];
      await parked(a);
      await b.store.target.take(id);
      await a.acquire(other);
      expect([engine.stopped, a.phase(id), await owner(id)]).toEqual([[], 'warm', 'b']);
    });

    test('eviction takes the oldest warm one, and never an active one', verifies('SB-45'), async () => {
      const { clock, engine, instance, thread } = scene();
      const a = instance('a', { settings: { replicas: 2 } });
      const of = (threadId: string) => a.acquire({ ...thread, threadId });
      const first = await of('first');
      clock.skip(1);
      const second = await of('second');
      await a.provider.release(second.id);
      clock.skip(1);
      await a.provider.release(first.id);
      await of('third');
      expect(engine.stopped).toEqual([second.id]);
      await of('fourth');
      expect(engine.stopped).toEqual([second.id, first.id]);
      await of('fifth');
      expect(engine.stopped).toHaveLength(2);
      expect(a.provider.list().map((entry) => entry.phase)).toEqual(['active', 'active', 'active']);
    });

    test(
      'shutdown stops what is ours, not a peer’s, whatever fails on the way, and may be called again',
      verifies('SEED-001-55', 'SB-66', 'SB-67'),
      async () => {
        const { clock, engine, id, otherId, other, instance, owner, thread } = scene();
        const [a, b] = [instance('a'), instance('b')];
        await a.provider.start();
        await a.provider.release((await a.acquire()).id);
        await a.provider.release((await a.acquire(other)).id);
        const third = await a.acquire({ ...thread, threadId: 'third' });
        const fourth = await a.acquire({ ...thread, threadId: 'fourth' });
        await b.acquire(other);
        const failing = a.backend.hold('stop', 'before', ({ input }) => (input[0] as { id: string }).id === third.id);
        const ending = a.provider.shutdown();
        await failing.reached;
        failing.fail(new Error('the engine is unreachable'));
        await ending;
        await a.provider.shutdown();
        expect(new Set(engine.stopped)).toEqual(new Set([id, fourth.id]));
        expect([engine.running(otherId), await owner(otherId)]).toEqual([true, 'b']);
        const calls = a.store.calls.length;
        await clock.advance(TTL_MS * 2);
        expect(a.store.calls).toHaveLength(calls);
        await expect(a.acquire()).rejects.toMatchObject({ code: 'shutting_down' });
      },
    );

    test('shutdown waits for an acquire that runs, and stops what it made', verifies('SB-66'), async () => {
      const { engine, id, instance } = scene();
      const a = instance('a');
      const create = a.backend.hold('create', 'before');
      const acquiring = a.acquire();
      acquiring.catch(() => {});
      await create.reached;
      const ending = a.provider.shutdown();
      expect(await isPending(ending)).toBe(true);
      create.open();
      await ending;
      expect([engine.created, engine.stopped, engine.containers.size]).toEqual([[id], [id], 0]);
    });
  });
}
