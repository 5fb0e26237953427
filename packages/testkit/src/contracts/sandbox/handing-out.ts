import { describe, expect, test } from 'vitest';
import { flush } from '../../deferred.ts';
import { verifies } from '../../verifies.ts';
import { expectWorking, isPending, type SandboxLifecycleFactory, STORE_DOWN, sandboxScenes } from './scene.ts';

const BEING_DESTROYED = { code: 'sandbox_unavailable', detail: { reason: 'being_destroyed' } };

/** Acquire: ownership is published before anything is handed out, and what cannot be published is not. */
export function sandboxHandingOutContract(factory: SandboxLifecycleFactory): void {
  describe('handing out', () => {
    const scene = sandboxScenes(factory);

    test(
      'of two instances that start a thread’s sandbox at once, one starts it and the other takes it over',
      verifies('SB-06', 'SX-06'),
      async () => {
        const { engine, id, instance, owner } = scene();
        const [a, b] = [instance('a'), instance('b')];
        const looked = a.backend.hold('discover', 'after');
        const slow = a.acquire();
        await looked.reached;
        // Nothing was there when the first one looked.
        await b.acquire();
        looked.open();
        const sandbox = await slow;
        expect([engine.created, engine.stopped, await owner(id)]).toEqual([[id], [], 'a']);
        expectWorking(engine, sandbox);
        await b.provider.renew();
        expect([a.phase(id), b.phase(id), engine.stopped]).toEqual(['active', null, []]);
      },
    );

    test('acquires at once of one thread give one sandbox', verifies('SB-06', 'SB-10'), async () => {
      const { engine, id, instance, owner } = scene();
      const a = instance('a');
      const all = await Promise.all([a.acquire(), a.acquire(), a.acquire()]);
      expect(all.map((sandbox) => sandbox.id)).toEqual([id, id, id]);
      expect(engine.created).toEqual([id]);
      expect(a.store.of('take')).toHaveLength(3);
      // One after the other: the second and third find what the first made, and nobody's client is closed under him.
      expect(a.backend.of('create')).toHaveLength(1);
      expect(new Set(all).size).toBe(1);
      expect(engine.openClients(id)).toHaveLength(1);
      expect(await owner(id)).toBe('a');
    });

    test('a thread does not wait for another', verifies('SB-07'), async () => {
      const { engine, id, instance, other, otherId } = scene();
      const a = instance('a');
      const slow = a.backend.hold('create', 'before');
      const first = a.acquire();
      await slow.reached;
      expect((await a.acquire(other)).id).toBe(otherId);
      expect(await isPending(first)).toBe(true);
      slow.open();
      expect((await first).id).toBe(id);
      expect(engine.created).toEqual([otherId, id]);
    });

    test('one thread id of two users is two sandboxes', verifies('SB-08'), async () => {
      const { engine, thread, instance } = scene();
      const a = instance('a');
      const mine = await a.acquire(thread);
      const theirs = await a.acquire({ ...thread, userId: 'somebody' });
      expect(mine.id).not.toBe(theirs.id);
      expect(engine.created).toHaveLength(2);
    });

    test(
      'a new container that cannot be published is stopped, its client closed, nothing tracked',
      verifies('SEED-001-26', 'SEED-001-39', 'SB-10', 'SB-11'),
      async () => {
        const { engine, id, instance } = scene();
        const a = instance('a');
        a.store.break(STORE_DOWN, 'take', 'claim');
        await expect(a.acquire()).rejects.toMatchObject({ code: 'store_unavailable' });
        await flush();
        expect([engine.created, engine.stopped]).toEqual([[id], [id]]);
        expect(engine.clients.map((client) => client.closed)).toEqual([true]);
        expect(a.provider.list()).toEqual([]);
        a.store.heal();
        expectWorking(engine, await a.acquire());
      },
    );

    test('a new container that a peer took while the store was out of reach is the peer’s', async () => {
      const { engine, id, instance, owner } = scene();
      const [a, b] = [instance('a'), instance('b')];
      a.store.break(STORE_DOWN, 'take');
      const take = a.store.hold('take', 'before');
      const failing = a.acquire();
      failing.catch(() => {});
      await take.reached;
      const sandbox = await b.acquire();
      take.open();
      await expect(failing).rejects.toMatchObject({ code: 'store_unavailable' });
      expect([engine.stopped, await owner(id)]).toEqual([[], 'b']);
      expectWorking(engine, sandbox);
    });

    test('a sandbox in use is not handed out again without the store', verifies('SEED-001-27', 'SB-10'), async () => {
      const { engine, id, instance } = scene();
      const a = instance('a');
      const sandbox = await a.acquire();
      a.store.break(STORE_DOWN, 'take');
      await expect(a.acquire()).rejects.toMatchObject({ code: 'store_unavailable' });
      expect(a.provider.get(id)).toBe(sandbox);
      expect([engine.stopped, engine.openClients(id).length]).toEqual([[], 1]);
    });

    test('a warm sandbox is not handed out without the store, and is kept', verifies('SB-10', 'SB-17'), async () => {
      const { engine, id, instance } = scene();
      const a = instance('a');
      await a.provider.release((await a.acquire()).id);
      a.store.break(STORE_DOWN, 'take');
      await expect(a.acquire()).rejects.toMatchObject({ code: 'store_unavailable' });
      expect([a.phase(id), engine.stopped]).toEqual(['warm', []]);
    });

    test(
      'a discovered sandbox that cannot be published is left running, its client closed',
      verifies('SEED-001-73', 'SB-10'),
      async () => {
        const { engine, id, instance } = scene();
        const a = instance('a');
        engine.run(id);
        a.store.break(STORE_DOWN, 'take');
        await expect(a.acquire()).rejects.toMatchObject({ code: 'store_unavailable' });
        await flush();
        expect(engine.clients.map((client) => client.closed)).toEqual([true]);
        expect([engine.stopped, engine.running(id), a.provider.list()]).toEqual([[], true, []]);
      },
    );

    test('a thread moves between instances', verifies('SEED-001-40', 'SB-65'), async () => {
      const { engine, id, instance, owner } = scene();
      const [a, b] = [instance('a'), instance('b')];
      await a.acquire();
      expect(await owner(id)).toBe('a');
      const sandbox = await b.acquire();
      expect(await owner(id)).toBe('b');
      await a.provider.renew();
      expect([a.phase(id), engine.created, engine.stopped]).toEqual([null, [id], []]);
      expectWorking(engine, sandbox);
    });

    test('a container that a peer is stopping is not handed out', verifies('SEED-001-45', 'SB-12'), async () => {
      const { engine, id, instance } = scene();
      const [a, b] = [instance('a'), instance('b')];
      engine.run(id);
      expect(await b.store.target.claim(id, { forDestroy: true })).toBe(true);
      await expect(a.acquire()).rejects.toMatchObject(BEING_DESTROYED);
      await flush();
      expect([a.provider.list(), engine.stopped, engine.openClients(id)]).toEqual([[], [], []]);
    });

    test(
      'a sandbox in use that a peer is stopping is dropped, not reused',
      verifies('SEED-001-57', 'SB-12'),
      async () => {
        const { engine, id, instance } = scene();
        const [a, b] = [instance('a'), instance('b')];
        await a.acquire();
        await b.store.target.take(id);
        await b.store.target.claim(id, { forDestroy: true });
        // The refusal is on its way; meanwhile the peer's stop ends.
        const refused = a.store.hold('take', 'after');
        const acquiring = a.acquire();
        await refused.reached;
        engine.remove(id);
        await b.store.target.release(id);
        refused.open();
        expectWorking(engine, await acquiring);
        expect([engine.created, engine.stopped]).toEqual([[id, id], []]);
        expect(engine.openClients(id)).toHaveLength(1);
      },
    );

    test(
      'a warm sandbox that a peer is stopping is dropped, not reclaimed',
      verifies('SEED-001-53', 'SB-12', 'SB-17'),
      async () => {
        const { engine, id, instance } = scene();
        const [a, b] = [instance('a'), instance('b')];
        await a.provider.release((await a.acquire()).id);
        await b.store.target.take(id);
        await b.store.target.claim(id, { forDestroy: true });
        await expect(a.acquire()).rejects.toMatchObject(BEING_DESTROYED);
        await flush();
        expect([a.phase(id), engine.stopped, engine.openClients(id)]).toEqual([null, [], []]);
      },
    );

    test('a new container whose id a peer has marked is taken back', verifies('SEED-001-54', 'SB-13'), async () => {
      const { engine, id, instance } = scene();
      const [a, b] = [instance('a'), instance('b')];
      await b.store.target.claim(id, { forDestroy: true });
      await expect(a.acquire()).rejects.toMatchObject(BEING_DESTROYED);
      await flush();
      expect([engine.created, engine.stopped, a.provider.list()]).toEqual([[id], [id], []]);
      expect(engine.clients.map((client) => client.closed)).toEqual([true]);
    });

    test('a look-up does not touch the store or the engine', verifies('SEED-001-61', 'SB-24', 'BL-07'), async () => {
      const { id, instance } = scene();
      const a = instance('a');
      const sandbox = await a.acquire();
      const before = [a.store.calls.length, a.backend.calls.length];
      expect(a.provider.get(id)).toBe(sandbox);
      expect(a.provider.get('nobody')).toBeUndefined();
      expect([a.store.calls.length, a.backend.calls.length]).toEqual(before);
    });

    test('what is dead and a peer still keeps does not lock out its thread', verifies('SB-65'), async () => {
      const { engine, id, instance, owner } = scene();
      const [a, b] = [instance('a'), instance('b')];
      await a.provider.release((await a.acquire()).id);
      const container = engine.containers.get(id);
      if (container !== undefined) container.state = 'dead';
      expectWorking(engine, await b.acquire());
      expect([engine.created, engine.stopped, await owner(id)]).toEqual([[id, id], [id], 'b']);
      await a.provider.renew();
      expect([a.phase(id), b.phase(id)]).toEqual([null, 'active']);
    });

    test('dead is replaced, unknown is kept', verifies('SB-20'), async () => {
      const { engine, id, instance } = scene();
      const a = instance('a');
      const first = await a.acquire();
      a.backend.break(new Error('the engine is down'), 'isAlive');
      expect(await a.acquire()).toBe(first);
      a.backend.heal();
      engine.remove(id);
      const second = await a.acquire();
      expect(second).not.toBe(first);
      expectWorking(engine, second);
    });

    test(
      'an unready new container is stopped under a marker only, and left to a peer that owns it',
      verifies('SB-21', 'SB-26'),
      async () => {
        const { engine, id, instance, owner } = scene();
        const [a, b] = [instance('a'), instance('b')];
        engine.newAreReady = false;
        const stop = a.backend.hold('stop', 'before');
        const failing = a.acquire();
        failing.catch(() => {});
        await stop.reached;
        expect(await b.store.target.take(id)).toBe(false);
        stop.open();
        await expect(failing).rejects.toMatchObject({ code: 'sandbox_unavailable', detail: { reason: 'not_ready' } });
        expect(engine.stopped).toEqual([id]);
        await b.store.target.take(id);
        await expect(a.acquire()).rejects.toMatchObject({ code: 'sandbox_unavailable' });
        expect([engine.stopped, await owner(id)]).toEqual([[id], 'b']);
      },
    );

    test('a caller that gives up leaves its thread free', verifies('SB-22', 'SQ-12'), async () => {
      const { engine, id, instance, thread } = scene();
      const a = instance('a');
      const create = a.backend.hold('create', 'after');
      const [first, second] = [new AbortController(), new AbortController()];
      const one = a.provider.acquire({ ...thread, signal: first.signal });
      const two = a.provider.acquire({ ...thread, signal: second.signal });
      one.catch(() => {});
      two.catch(() => {});
      await create.reached;
      second.abort();
      await expect(two).rejects.toMatchObject({ code: 'aborted' });
      first.abort();
      create.open();
      await expect(one).rejects.toMatchObject({ code: 'aborted' });
      // What was made for nobody is parked, not lost, and the next one gets it.
      expect([a.phase(id), engine.stopped]).toEqual(['warm', []]);
      expectWorking(engine, await a.acquire());
      expect(engine.created).toEqual([id]);
    });
  });
}
