import type { Sandbox } from '@reindeer/protocol';
import { describe, expect, test } from 'vitest';
import { deferred, flush } from '../../deferred.ts';
import { verifies } from '../../verifies.ts';
import {
  CONTRACT_SETTINGS,
  expectWorking,
  type Instance,
  isPending,
  type SandboxLifecycleFactory,
  type SandboxScene,
  sandboxScenes,
} from './scene.ts';

const { idleTimeoutMs } = CONTRACT_SETTINGS;

/**
 * One instance against itself: the store does not exclude an instance's own paths from each other. Each test holds one path open at the
 * await where it can be overtaken, runs the other, and reads the settled state.
 */
export function sandboxSameInstanceContract(factory: SandboxLifecycleFactory): void {
  describe('races of one instance with itself', () => {
    const scene = sandboxScenes(factory);
    const parked = async (instance: Instance) => instance.provider.release((await instance.acquire()).id);

    /** An acquire that meets a stop: never given the dying container, and served with a new one once that is gone. */
    const servedAnew = async (s: SandboxScene, acquiring: Promise<Sandbox>): Promise<void> => {
      const { engine, id } = s;
      const sandbox = await acquiring;
      expect(engine.created.filter((created) => created === id)).toHaveLength(2);
      expect(engine.stopped).toEqual([id]);
      expectWorking(engine, sandbox);
      expect(engine.openClients(id)).toHaveLength(1);
    };

    const reapers: Readonly<Record<string, (s: SandboxScene, a: Instance) => Promise<unknown>>> = {
      'the warm reaper': ({ clock }, a) => {
        clock.skip(idleTimeoutMs + 1);
        return a.provider.reap();
      },
      'an eviction': ({ other }, a) => a.acquire(other),
    };
    for (const [name, reap] of Object.entries(reapers))
      test(`${name} does not stop what an acquire was given`, verifies('SEED-001-66', 'SB-18', 'SB-40'), async () => {
        const s = scene();
        const a = s.instance('a', { settings: { replicas: 1 } });
        await parked(a);
        const claim = a.store.hold('claim', 'before');
        const reaping = reap(s, a);
        await claim.reached;
        const acquiring = a.acquire();
        expect(await isPending(acquiring)).toBe(true);
        expect(s.engine.openClients(s.id)).toEqual([]);
        claim.open();
        await reaping;
        await servedAnew(s, acquiring);
      });

    test('the idle reaper does not stop what an acquire was given', verifies('SEED-001-67', 'SB-14'), async () => {
      const s = scene();
      const a = s.instance('a');
      await a.acquire();
      s.clock.skip(idleTimeoutMs + 1);
      const claim = a.store.hold('claim', 'before');
      const reaping = a.provider.reap();
      await claim.reached;
      const acquiring = a.acquire();
      expect(await isPending(acquiring)).toBe(true);
      claim.open();
      await reaping;
      await servedAnew(s, acquiring);
    });

    test('a sandbox reserved during its health check is not handed out', verifies('SEED-001-68', 'SB-15'), async () => {
      const s = scene();
      const a = s.instance('a');
      await a.acquire();
      s.clock.skip(idleTimeoutMs + 1);
      const health = a.backend.hold('isAlive', 'after');
      const acquiring = a.acquire();
      await health.reached;
      const claim = a.store.hold('claim', 'before');
      const reaping = a.provider.reap();
      await claim.reached;
      health.open();
      expect(await isPending(acquiring)).toBe(true);
      claim.open();
      await reaping;
      await servedAnew(s, acquiring);
    });

    test(
      'a sandbox reserved while reuse publishes is not handed out',
      verifies('SEED-001-68', 'SB-14', 'SB-15'),
      async () => {
        const s = scene();
        const a = s.instance('a');
        await a.acquire();
        const take = a.store.hold('take', 'after');
        const acquiring = a.acquire();
        await take.reached;
        // Reserved, and still tracked until its claim is answered: only the reservation tells.
        const claim = a.store.hold('claim', 'before');
        const destroying = a.provider.destroy(s.id);
        await claim.reached;
        expect(a.phase(s.id)).toBe('active');
        take.open();
        expect(await isPending(acquiring)).toBe(true);
        claim.open();
        expect(await destroying).toBe('destroyed');
        await servedAnew(s, acquiring);
      },
    );

    test(
      'a sandbox reserved while discovery publishes is not installed, and its client is closed',
      verifies('SEED-001-69', 'SB-16'),
      async () => {
        const { clock, engine, id, instance } = scene();
        const a = instance('a', { alone: true });
        engine.run(id);
        const take = a.store.hold('take', 'after');
        const acquiring = a.acquire();
        await take.reached;
        // Adopted in the gap, and expired: the warm reaper reserves it.
        await a.provider.reconcile();
        clock.skip(idleTimeoutMs + 1);
        const stop = a.backend.hold('stop', 'before');
        const reaping = a.provider.reap();
        await stop.reached;
        take.open();
        expect(await isPending(acquiring)).toBe(true);
        await flush();
        expect(a.provider.get(id)).toBeUndefined();
        expect(engine.openClients(id)).toEqual([]);
        stop.open();
        await reaping;
        expectWorking(engine, await acquiring);
        expect([engine.created, engine.stopped]).toEqual([[id], [id]]);
      },
    );

    test('a reclaim does not hand out what a reaper stops', verifies('SEED-001-79', 'SB-17', 'SB-40'), async () => {
      const s = scene();
      const a = s.instance('a');
      await parked(a);
      s.clock.skip(idleTimeoutMs + 1);
      const take = a.store.hold('take', 'after');
      const acquiring = a.acquire();
      await take.reached;
      const stop = a.backend.hold('stop', 'before');
      const reaping = a.provider.reap();
      await stop.reached;
      expect(a.phase(s.id)).toBe('warm');
      take.open();
      expect(await isPending(acquiring)).toBe(true);
      expect(a.phase(s.id)).toBe('warm');
      stop.open();
      await reaping;
      await servedAnew(s, acquiring);
    });

    test('a reserved warm one is refused without asking anybody', verifies('SEED-001-81', 'SB-18'), async () => {
      const s = scene();
      const a = s.instance('a');
      await parked(a);
      s.clock.skip(idleTimeoutMs + 1);
      a.backend.break(new Error('out of reach'), 'discover');
      const claim = a.store.hold('claim', 'before');
      const reaping = a.provider.reap();
      await claim.reached;
      const before = [a.backend.of('isAlive').length, a.store.of('take').length];
      await expect(a.acquire()).rejects.toThrow();
      expect([a.backend.of('isAlive').length, a.store.of('take').length]).toEqual(before);
      claim.open();
      await reaping;
    });

    test('a turn that comes after the idle snapshot wins', verifies('SEED-001-74', 'SB-38', 'SB-39'), async () => {
      const { clock, engine, id, instance, thread } = scene();
      const a = instance('a');
      // Five are idle: the reaper stops some at a time, and the last one is used while it waits for its turn.
      const others = await Promise.all(
        [0, 1, 2, 3].map((n) => a.provider.acquire({ ...thread, threadId: `other-${n}` })),
      );
      await a.acquire();
      clock.skip(idleTimeoutMs + 1);
      const holds = others.map((one) => a.store.hold('claim', 'before', ({ input }) => input[0] === one.id));
      const reaping = a.provider.reap();
      await Promise.all(holds.map((hold) => hold.reached));
      const early = a.store.of('claim').some(([claimed]) => claimed === id);
      const sandbox = early ? null : await a.acquire();
      for (const hold of holds) hold.open();
      await reaping;
      expect(early).toBe(false);
      expect(engine.stopped).not.toContain(id);
      expect(a.provider.get(id)).toBe(sandbox);
    });

    test(
      'a lost verdict is void when the sandbox was acquired again since',
      verifies('SEED-001-71', 'SB-61'),
      async () => {
        const { engine, id, instance, owner } = scene();
        const [a, b] = [instance('a'), instance('b')];
        const sandbox = await a.acquire();
        await b.store.target.take(id);
        const verdict = a.store.hold('renew', 'after');
        const renewing = a.provider.renew();
        await verdict.reached;
        expect(await a.acquire()).toBe(sandbox);
        verdict.open();
        await renewing;
        expect([await owner(id), a.phase(id), engine.openClients(id).length]).toEqual(['a', 'active', 1]);
      },
    );

    test(
      'the lost verdict of a release is void when the next turn has the sandbox',
      verifies('SEED-001-72', 'SB-61', 'SB-63'),
      async () => {
        const { engine, id, instance, owner } = scene();
        const [a, b] = [instance('a'), instance('b')];
        await a.acquire();
        await b.store.target.take(id);
        const verdict = a.store.hold('renew', 'after');
        const releasing = a.provider.release(id);
        await verdict.reached;
        const sandbox = await a.acquire();
        verdict.open();
        await releasing;
        expect([await owner(id), a.phase(id)]).toEqual(['a', 'active']);
        expect(a.provider.get(id)).toBe(sandbox);
        expectWorking(engine, sandbox);
      },
    );

    test('a lost verdict is void while a takeover is on its way back', verifies('SEED-001-75', 'SB-60'), async () => {
      const { engine, id, instance, owner } = scene();
      const [a, b] = [instance('a'), instance('b')];
      const sandbox = await a.acquire();
      await b.store.target.take(id);
      const verdict = a.store.hold('renew', 'after');
      const renewing = a.provider.renew();
      await verdict.reached;
      const take = a.store.hold('take', 'after');
      const acquiring = a.acquire();
      await take.reached;
      expect(await owner(id)).toBe('a');
      verdict.open();
      await renewing;
      expect(a.phase(id)).toBe('active');
      take.open();
      expect(await acquiring).toBe(sandbox);
      expect(a.provider.get(id)).toBe(sandbox);
      expectWorking(engine, sandbox);
    });

    test(
      'a sandbox that is forgotten while reuse looks at it is not handed out',
      verifies('SEED-001-76', 'SB-14'),
      async () => {
        const { engine, id, instance } = scene();
        const [a, b] = [instance('a'), instance('b')];
        const first = await a.acquire();
        await b.store.target.take(id);
        const health = a.backend.hold('isAlive', 'after');
        const acquiring = a.acquire();
        await health.reached;
        await a.provider.renew();
        expect(a.phase(id)).toBeNull();
        health.open();
        const second = await acquiring;
        expect(second).not.toBe(first);
        expect(a.provider.get(id)).toBe(second);
        expectWorking(engine, second);
      },
    );

    test(
      'what was adopted while discovery publishes has one reaper afterwards',
      verifies('SEED-001-83', 'SEED-001-84', 'SB-19'),
      async () => {
        const { clock, engine, id, instance } = scene();
        const a = instance('a', { alone: true });
        engine.run(id);
        const take = a.store.hold('take', 'after');
        const acquiring = a.acquire();
        await take.reached;
        await a.provider.reconcile();
        take.open();
        const sandbox = await acquiring;
        expect(a.provider.list()).toMatchObject([{ id, phase: 'active' }]);
        const working = deferred<string>();
        engine.onCommand = () => working.promise;
        const command = sandbox.exec({ command: 'work', timeoutMs: 1_000 });
        clock.skip(idleTimeoutMs + 1);
        await a.provider.reap();
        expect(engine.stopped).toEqual([]);
        working.resolve('done');
        expect((await command).output).toBe('done');
        expect(a.provider.get(id)).toBe(sandbox);
      },
    );

    test('a stop frees its id at once', verifies('SEED-001-78', 'SB-36'), async () => {
      const { engine, id, instance } = scene();
      const a = instance('a');
      for (let round = 0; round < 3; round += 1) {
        expectWorking(engine, await a.acquire());
        expect(await a.provider.destroy(id)).toBe('destroyed');
      }
      expect(engine.stopped).toEqual([id, id, id]);
      expect(a.provider.list()).toEqual([]);
    });

    test('a second stop of the same sandbox is refused', verifies('SB-37'), async () => {
      const { engine, id, instance } = scene();
      const a = instance('a');
      await a.acquire();
      const claim = a.store.hold('claim', 'before');
      const one = a.provider.destroy(id);
      await claim.reached;
      expect(await a.provider.destroy(id)).toBe('refused');
      claim.open();
      expect(await one).toBe('destroyed');
      expect(engine.stopped).toEqual([id]);
    });

    test('a long command counts as use, however long it takes', verifies('SB-39'), async () => {
      const { clock, engine, id, instance } = scene();
      const a = instance('a', { settings: { replicas: 1 } });
      const sandbox = await a.acquire();
      const working = deferred<string>();
      engine.onCommand = () => working.promise;
      const command = sandbox.exec({ command: 'make', timeoutMs: 10_000_000 });
      clock.skip(idleTimeoutMs * 3);
      await a.provider.reap();
      await a.provider.release(id);
      clock.skip(idleTimeoutMs * 3);
      await a.provider.reap();
      expect([engine.stopped, a.provider.list()[0]?.commands]).toEqual([[], 1]);
      working.resolve('made');
      await command;
      clock.skip(idleTimeoutMs + 1);
      await a.provider.reap();
      expect([engine.stopped, engine.killedUnderCommand]).toEqual([[id], []]);
    });
  });
}
