import type { OwnershipStore } from '@reindeer/protocol';
import {
  flush,
  leakCheck,
  type OwnershipScene,
  ownershipFaultContract,
  ownershipStoreContract,
  testSurroundings,
  VirtualClock,
  verifies,
} from '@reindeer/testkit';
import type { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { missing, postgresOfFile } from '../testing/postgres.ts';
import { openPostgresOwnership } from './ownership.ts';

const TTL_MS = 120_000;
const { server } = postgresOfFile();

if (missing !== null) test('ownership in Postgres', (context) => context.skip(missing ?? ''));
else
  describe('ownership in Postgres', () => {
    // A server that a test starts again, and the test's own connection to it, are ended after the last one.
    leakCheck({ ignore: ({ where }) => where.includes('keepProcess') || where.includes('parts/postgres.ts') });
    let url = '';
    let admin: Client;
    let number = 0;
    beforeAll(async () => {
      url = await server().createDatabase();
      admin = await server().connect(url);
    });
    afterAll(() => admin.end());

    const open = (ownerId: string, keyPrefix: string, clock = new VirtualClock()): Promise<OwnershipStore> =>
      openPostgresOwnership({ url, ownerId, keyPrefix, ttlMs: TTL_MS, surroundings: testSurroundings({ clock }) });

    const scene = async (): Promise<OwnershipScene> => {
      number += 1;
      const prefix = `test-${number}`;
      const [a, b] = await Promise.all([open('a', prefix), open('b', prefix)]);
      return {
        a,
        b,
        ttlMs: TTL_MS,
        // Time passes for the server without waiting: what is left to live is cut by as much.
        pass: async (milliseconds) => {
          await admin.query(
            `update sandbox_owners set expires_at = expires_at - $1 * interval '1 millisecond' where id like $2`,
            [milliseconds, `${prefix}:%`],
          );
        },
        forget: async () => void (await admin.query('truncate sandbox_owners')),
        close: async () => {
          await Promise.all([a.close(), b.close()]);
        },
      };
    };

    ownershipStoreContract('Postgres', scene);
    ownershipFaultContract('Postgres', scene);

    test('expired leases do not stay', async () => {
      const a = await open('a', 'sweep');
      await a.take('old');
      await admin.query("update sandbox_owners set expires_at = clock_timestamp() where id = 'sweep:old'");
      for (let write = 0; write < 256; write += 1) await a.take('new');
      const { rows } = await admin.query<{ id: string }>("select id from sandbox_owners where id like 'sweep:%'");
      expect(rows).toEqual([{ id: 'sweep:new' }]);
      await a.close();
    });

    test('many instances that make the table at once all get it', verifies('SO-22'), async () => {
      await admin.query('drop table sandbox_owners');
      const stores = await Promise.all(Array.from({ length: 8 }, (_, index) => open(`o${index}`, 'race')));
      const granted = await Promise.all(stores.map((store) => store.claim('x')));
      expect(granted.filter(Boolean)).toHaveLength(1);
      // A table that is gone is made again by the next question but one: the first is "unknown".
      await admin.query('drop table sandbox_owners');
      await expect(stores[0]?.take('x')).rejects.toMatchObject({ code: 'store_unavailable' });
      expect(await stores[0]?.take('x')).toBe(true);
      for (const store of stores) await store.close();
    });

    test(
      'a server that hangs is "unknown" in time, for the question that waits there and for those behind it',
      verifies('SO-16', 'SB-32'),
      async () => {
        const clock = new VirtualClock();
        const [a, b] = await Promise.all([open('a', 'hang', clock), open('b', 'hang')]);
        await b.take('x');
        // Somebody holds the row: the statement waits for it.
        await admin.query('begin');
        await admin.query("select 1 from sandbox_owners where id = 'hang:x' for update");
        const blocked = async (): Promise<boolean> =>
          (
            await server().query(
              url,
              "select 1 from pg_stat_activity where application_name = 'reindeer ownership' and wait_event_type = 'Lock'",
            )
          ).length > 0;
        const asked = [a.take('x'), a.owner('y')];
        for (const question of asked) question.catch(() => {});
        while (!(await blocked())) await flush();
        await clock.advance(5_000);
        for (const question of asked)
          await expect(question).rejects.toMatchObject({ code: 'store_unavailable', retryable: true });
        await admin.query('commit');
        expect(await a.owner('y')).toBeNull();
        expect(await a.take('x')).toBe(true);
        await Promise.all([a.close(), b.close()]);
      },
    );

    test('a server that is gone is "unknown", and answers again when it is back', verifies('SO-16'), async () => {
      const a = await open('a', 'gone');
      expect(a.seesPeers).toBe(true);
      await a.take('x');
      await admin.end();
      await server().halt();
      for (const call of [
        () => a.take('x'),
        () => a.claim('x'),
        () => a.claim('x', { forDestroy: true }),
        () => a.renew('x'),
        () => a.release('x'),
        () => a.owner('x'),
      ])
        await expect(call()).rejects.toMatchObject({
          name: 'ReindeerError',
          code: 'store_unavailable',
          retryable: true,
        });
      // Opening while no server is there is no error either.
      const b = await open('b', 'gone');
      await server().restart();
      expect(await a.renew('x')).toBe('renewed');
      expect(await b.renew('x')).toBe('lost');
      // After a crash it has forgotten everything, as Redis does.
      await server().restart('crash');
      for (const store of [a, b]) while ((await store.owner('x').catch(() => 'unknown')) !== null) await flush();
      expect(await b.renew('x')).toBe('lapsed');
      expect(await a.claim('x')).toBe(true);
      admin = await server().connect(url);
      await Promise.all([a.close(), b.close()]);
      await a.close();
      await expect(a.take('x')).rejects.toMatchObject({ code: 'store_unavailable' });
    });
  });
