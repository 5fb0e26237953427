import type { OwnershipStore } from '@reindeer/protocol';
import {
  flush,
  leakCheck,
  NO_STORAGE,
  type OwnershipScene,
  ownershipFaultContract,
  ownershipStoreContract,
  redisMissing,
  SimulatedEngine,
  type ThrowawayRedis,
  testSurroundings,
  throwawayRedis,
  VirtualClock,
  verifies,
} from '@reindeer/testkit';
import { createClient } from 'redis';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createLifecycleProvider } from '../index.ts';
import { openRedisOwnership } from './redis-store.ts';

const TTL_MS = 120_000;
const missing = await redisMissing();

if (missing !== null)
  test('ownership in Redis', (context) => {
    context.skip(missing);
  });
else
  describe('ownership in Redis', () => {
    // A server that a test starts again is ended after the last one.
    leakCheck({ ignore: ({ where }) => where.includes('keepProcess') });
    let redis: ThrowawayRedis;
    let number = 0;
    beforeAll(async () => {
      redis = await throwawayRedis();
    });
    afterAll(async () => {
      await redis.stop();
    });

    const open = (ownerId: string, keyPrefix: string, clock = new VirtualClock()): Promise<OwnershipStore> =>
      openRedisOwnership({
        url: redis.url,
        ownerId,
        keyPrefix,
        ttlMs: TTL_MS,
        surroundings: testSurroundings({ clock }),
      });

    const scene = async (): Promise<OwnershipScene> => {
      number += 1;
      const prefix = `test-${number}`;
      const admin = await createClient({ url: redis.url }).connect();
      const [a, b] = [await open('a', prefix), await open('b', prefix)];
      return {
        a,
        b,
        ttlMs: TTL_MS,
        // Time passes for the server without waiting: what is left to live is cut by as much.
        pass: async (milliseconds) => {
          for (const key of await admin.keys(`${prefix}:*`)) {
            const left = (await admin.pTTL(key)) - milliseconds;
            if (left <= 0) await admin.del(key);
            else await admin.pExpire(key, left);
          }
        },
        forget: async () => void (await admin.flushAll()),
        close: async () => {
          await Promise.all([a.close(), b.close()]);
          if (admin.isReady) await admin.close();
          else admin.destroy();
        },
      };
    };

    ownershipStoreContract('Redis', scene);
    ownershipFaultContract('Redis', scene);

    test('a server that is gone is "unknown", and answers again when it is back', verifies('SO-16'), async () => {
      const a = await open('a', 'gone');
      expect(a.seesPeers).toBe(true);
      await redis.halt();
      for (const call of [
        () => a.take('x'),
        () => a.claim('x'),
        () => a.claim('x', { forDestroy: true }),
        () => a.renew('x'),
        () => a.release('x'),
        () => a.owner('x'),
        async () => a.memory?.(),
      ])
        await expect(call()).rejects.toMatchObject({
          name: 'ReindeerError',
          code: 'store_unavailable',
          retryable: true,
        });
      await redis.restart();
      for (;;) {
        const answer = await a.take('x').catch(() => null);
        if (answer !== null) break;
        await flush();
      }
      expect(await a.owner('x')).toBe('a');
      await a.close();
      await a.close();
      await expect(a.take('x')).rejects.toMatchObject({ code: 'store_unavailable' });
    });

    test('opening while no server is there is no error; asking is', verifies('SO-16'), async () => {
      await redis.halt();
      const clock = new VirtualClock();
      const opening = open('a', 'absent', clock);
      let opened: OwnershipStore | null = null;
      opening.then(
        (store) => {
          opened = store;
        },
        () => {},
      );
      while (opened === null) await clock.advance(1_000);
      const a = await opening;
      await expect(a.take('x')).rejects.toMatchObject({ code: 'store_unavailable' });
      await a.close();
      await redis.restart();
    });

    test('a server that hangs is "unknown" within the time of an operation', verifies('SO-16', 'SB-32'), async () => {
      const clock = new VirtualClock();
      const a = await open('a', 'hang', clock);
      const admin = await createClient({ url: redis.url }).connect();
      // The server stops answering everybody for a while, and the answer that comes late is nobody's.
      await admin.sendCommand(['CLIENT', 'PAUSE', '300', 'ALL']);
      const asked = a.take('x');
      asked.catch(() => {});
      await clock.advance(5_000);
      await expect(asked).rejects.toMatchObject({ code: 'store_unavailable' });
      await admin.ping();
      await a.close();
      await admin.close();
    });

    test('a foreign value under our key is somebody’s', async () => {
      const admin = await createClient({ url: redis.url }).connect();
      const a = await open('a', 'foreign');
      await admin.set('foreign:x', 'garbage');
      expect([await a.owner('x'), await a.claim('x'), await a.renew('x')]).toEqual(['garbage', false, 'lost']);
      await a.close();
      await admin.close();
    });

    test(
      'flushed and started again under two live gateways: no sandbox is lost, none is stopped',
      verifies('SB-51', 'SB-52', 'SEED-001-41', 'SEED-001-42'),
      async () => {
        const clock = new VirtualClock();
        const engine = new SimulatedEngine(clock);
        const gateway = async (ownerId: string) =>
          createLifecycleProvider({
            backend: engine.backend(),
            ownership: await open(ownerId, 'flush'),
            storage: NO_STORAGE,
            surroundings: testSurroundings({ clock }),
          });
        const [a, b] = [await gateway('a'), await gateway('b')];
        const threads = ['one', 'two', 'three'].map((threadId) => ({ userId: 'u', threadId }));
        const ofA = await Promise.all(threads.map((thread) => a.acquire(thread)));
        const ofB = await b.acquire({ userId: 'u', threadId: 'four' });
        await a.release(ofA[0]?.id ?? '');
        for (const trouble of ['flush', 'restart']) {
          if (trouble === 'restart') await redis.restart();
          else {
            const admin = await createClient({ url: redis.url }).connect();
            await admin.flushAll();
            await admin.close();
          }
          await Promise.all([a.reconcile(), b.reconcile()]);
          // Renewals go on until the connections are back.
          const observer = await open('observer', 'flush');
          const owners = () => Promise.all([...ofA, ofB].map(({ id }) => observer.owner(id)));
          while ((await owners()).includes(null)) await Promise.all([a.renew(), b.renew()]);
          expect(await owners()).toEqual(['a', 'a', 'a', 'b']);
          await observer.close();
          await Promise.all([a.reap(), b.reap(), a.reconcile(), b.reconcile()]);
        }
        expect(engine.stopped).toEqual([]);
        expect([a.list().length, b.list().length]).toEqual([3, 1]);
        expect(ofA.slice(1).map(({ id }) => a.get(id))).toEqual(ofA.slice(1));
        await a.shutdown();
        await b.shutdown();
        expect(engine.containers.size).toBe(0);
      },
    );
  });
