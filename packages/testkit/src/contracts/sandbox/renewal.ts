import { describe, expect, test } from 'vitest';
import { deferred, flush } from '../../deferred.ts';
import { waitUntil } from '../../parts/processes.ts';
import { verifies } from '../../verifies.ts';
import {
  CONTRACT_SETTINGS,
  type Instance,
  type SandboxLifecycleFactory,
  STORE_DOWN,
  sandboxScenes,
  TTL_MS,
} from './scene.ts';

const { idleTimeoutMs, renewalIntervalMs } = CONTRACT_SETTINGS;

/** Renewal: open to keep. Only a store that says "somebody else's" lets a sandbox go, and never its container. */
export function sandboxRenewalContract(factory: SandboxLifecycleFactory): void {
  describe('renewal', () => {
    const scene = sandboxScenes(factory);
    const renewed = (instance: Instance) => instance.store.of('renew').map(([id]) => id);

    test.each([0, idleTimeoutMs])(
      'runs by the clock at an idle timeout of %i; reaping only above 0',
      verifies('SEED-001-30', 'SB-46', 'SB-47'),
      async (timeout) => {
        const { clock, engine, id, instance, owner } = scene();
        const a = instance('a', { settings: { idleTimeoutMs: timeout } });
        await a.provider.start();
        await a.provider.release((await a.acquire()).id);
        const before = renewed(a).length;
        await clock.advance(renewalIntervalMs * 3 + 1);
        expect(renewed(a).slice(before)).toEqual([id, id, id]);
        expect(await owner(id)).toBe('a');
        await clock.advance(idleTimeoutMs * 2);
        if (timeout > 0)
          await waitUntil(
            async () => engine.stopped.length > 0,
            20_000,
            () => 'nothing was reaped',
          );
        expect(engine.stopped).toEqual(timeout > 0 ? [id] : []);
      },
    );

    test(
      'keeps a lease alive for as long as the loop runs, and not longer',
      verifies('SEED-001-35', 'ND-03'),
      async () => {
        const { clock, id, instance, owner } = scene();
        const a = instance('a', { settings: { idleTimeoutMs: 0 } });
        await a.provider.start();
        await a.acquire();
        await clock.advance(TTL_MS * 3);
        expect(await owner(id)).toBe('a');
        expect(renewed(a).length).toBeGreaterThanOrEqual(12);
        await a.provider.shutdown();
        const calls = a.store.calls.length;
        await clock.advance(TTL_MS * 3);
        expect(a.store.calls).toHaveLength(calls);
      },
    );

    test('covers what is active and what is warm', verifies('SEED-001-36', 'SB-47'), async () => {
      const { id, otherId, other, instance } = scene();
      const a = instance('a');
      await a.acquire();
      await a.provider.release((await a.acquire(other)).id);
      const before = renewed(a).length;
      await a.provider.renew();
      expect(new Set(renewed(a).slice(before))).toEqual(new Set([id, otherId]));
    });

    test('a store that cannot answer costs nobody a sandbox', verifies('SEED-001-31', 'SB-48'), async () => {
      const { engine, id, otherId, other, instance } = scene();
      const a = instance('a');
      const sandbox = await a.acquire();
      await a.provider.release((await a.acquire(other)).id);
      a.store.break(STORE_DOWN, 'renew');
      const before = renewed(a).length;
      await a.provider.renew();
      expect(renewed(a).length - before).toBe(2);
      expect([a.phase(id), a.phase(otherId), engine.stopped]).toEqual(['active', 'warm', []]);
      expect([a.provider.get(id), engine.openClients(id).length]).toEqual([sandbox, 1]);
    });

    test(
      'a lapsed lease whose new claim cannot be answered costs nobody a sandbox',
      verifies('SEED-001-32', 'SB-48'),
      async () => {
        const { engine, id, instance, ownership } = scene();
        const a = instance('a');
        const sandbox = await a.acquire();
        ownership.clear();
        a.store.break(STORE_DOWN, 'claim');
        await a.provider.renew();
        expect(a.store.of('claim')).toHaveLength(1);
        expect(a.store.of('claim')[0]?.[0]).toBe(id);
        expect(a.provider.get(id)).toBe(sandbox);
        expect([engine.openClients(id).length, engine.stopped]).toEqual([1, []]);
      },
    );

    test(
      'a store that lost everything costs nobody a sandbox, and the leases are back',
      verifies('SEED-001-41', 'SB-49', 'SB-51'),
      async () => {
        const { engine, id, otherId, other, instance, owner, ownership } = scene();
        const a = instance('a');
        const sandbox = await a.acquire();
        await a.provider.release((await a.acquire(other)).id);
        ownership.clear();
        await a.provider.renew();
        expect(a.provider.get(id)).toBe(sandbox);
        expect([a.phase(otherId), engine.openClients(id).length, engine.stopped]).toEqual(['warm', 1, []]);
        expect([await owner(id), await owner(otherId)]).toEqual(['a', 'a']);
      },
    );

    test('a lapsed lease that a peer holds by now is lost', verifies('SB-49'), async () => {
      const { engine, id, instance, owner, ownership } = scene();
      const [a, b] = [instance('a'), instance('b')];
      await a.acquire();
      ownership.clear();
      // The answer "lapsed" is on its way when the peer comes.
      const answer = a.store.hold('renew', 'after');
      const renewing = a.provider.renew();
      await answer.reached;
      await b.acquire();
      answer.open();
      await renewing;
      expect([a.phase(id), await owner(id), engine.stopped]).toEqual([null, 'b', []]);
    });

    test(
      'a lost lease lets go of the sandbox and leaves its container running',
      verifies('SEED-001-38', 'SB-50'),
      async () => {
        const { engine, id, instance, owner } = scene();
        const [a, b] = [instance('a'), instance('b')];
        await a.acquire();
        const [client] = engine.clients;
        await b.store.target.take(id);
        await a.provider.renew();
        await flush();
        expect([a.phase(id), a.provider.get(id), client?.closed]).toEqual([null, undefined, true]);
        expect([engine.stopped, engine.running(id), await owner(id)]).toEqual([[], true, 'b']);
      },
    );

    test('a lost warm one is let go as well', verifies('SB-50'), async () => {
      const { engine, id, instance } = scene();
      const [a, b] = [instance('a'), instance('b')];
      await a.provider.release((await a.acquire()).id);
      await b.acquire();
      await a.provider.renew();
      expect([a.phase(id), engine.stopped]).toEqual([null, []]);
    });

    test('does not forget a warm one that this instance is stopping', verifies('SEED-001-37', 'SB-62'), async () => {
      const { clock, engine, id, instance } = scene();
      const a = instance('a');
      await a.provider.release((await a.acquire()).id);
      clock.skip(idleTimeoutMs + 1);
      const stop = a.backend.hold('stop', 'before');
      const reaping = a.provider.reap();
      await stop.reached;
      const before = renewed(a).length;
      await a.provider.renew();
      expect(renewed(a).length - before).toBeLessThanOrEqual(1);
      expect(a.provider.list()).toMatchObject([{ id, phase: 'warm', stopping: true }]);
      stop.fail(new Error('the stop failed'));
      await reaping;
      expect([a.phase(id), engine.running(id)]).toEqual(['warm', true]);
    });

    test('a release is not hindered by a store in trouble', verifies('SB-63'), async () => {
      const { id, instance } = scene();
      const a = instance('a');
      const sandbox = await a.acquire();
      a.store.break(STORE_DOWN, 'renew', 'claim', 'take', 'release');
      await a.provider.release(sandbox.id);
      await a.provider.release(sandbox.id);
      await a.provider.release('nobody');
      expect(a.phase(id)).toBe('warm');
    });

    test('one lease that gets no answer holds up no other', async () => {
      const { id, otherId, other, instance } = scene();
      const a = instance('a');
      await a.acquire();
      await a.acquire(other);
      const hung = a.store.hold('renew', 'before', ({ input }) => input[0] === id);
      const answered = deferred();
      const renewing = a.provider.renew();
      await hung.reached;
      await flush();
      expect(renewed(a)).toContain(otherId);
      answered.resolve();
      hung.open();
      await renewing;
    });
  });
}
