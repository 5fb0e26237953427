import {
  type OwnershipOperation,
  type OwnershipStore,
  type OwnershipValue,
  ReindeerError,
  reduceOwnership,
} from '@reindeer/protocol';
import { afterEach, describe, expect, test } from 'vitest';
import { seededRandom } from '../random.ts';
import { verifies } from '../verifies.ts';

export interface OwnershipScene {
  /** Two instances of one store. */
  readonly a: OwnershipStore;
  readonly b: OwnershipStore;
  readonly ttlMs: number;
  /** Lets time pass for the store, without waiting for it. */
  pass(milliseconds: number): Promise<void>;
  /** The store loses everything at once, as by a flush; left out for one that never does. */
  forget?(): Promise<void>;
  close(): Promise<void>;
}

type Operation = (store: OwnershipStore, id: string) => Promise<unknown>;

const OPERATIONS: Readonly<Record<OwnershipOperation, Operation>> = {
  take: (store, id) => store.take(id),
  claim: (store, id) => store.claim(id),
  'claim-for-destroy': (store, id) => store.claim(id, { forDestroy: true }),
  renew: (store, id) => store.renew(id),
  release: (store, id) => store.release(id).then(() => true),
};

/**
 * What every ownership store must do.
 *
 * @param factory makes a fresh, empty store for each test
 * @param breakStore puts the store of a scene out of reach; left out where that cannot happen
 */
export function ownershipStoreContract(
  name: string,
  factory: () => Promise<OwnershipScene>,
  breakStore?: (scene: OwnershipScene) => Promise<void>,
): void {
  describe(`ownership store: ${name}`, () => {
    const open: OwnershipScene[] = [];
    const scene = async (): Promise<OwnershipScene> => {
      const made = await factory();
      open.push(made);
      return made;
    };
    afterEach(async () => {
      for (const made of open.splice(0)) await made.close();
    });
    const destroy = { forDestroy: true };

    test('of many claims at once on a free id one is granted', verifies('SO-01', 'SO-22'), async () => {
      const { a, b } = await scene();
      for (let round = 0; round < 20; round += 1) {
        const answers = await Promise.all([a.claim(`r${round}`), b.claim(`r${round}`), b.claim(`r${round}`, destroy)]);
        expect(new Set([answers[0], answers[1] || answers[2]])).toEqual(new Set([true, false]));
        expect(await a.owner(`r${round}`)).toBe(answers[0] ? a.ownerId : b.ownerId);
      }
    });

    test('a refused claim leaves the value and its time alone', verifies('SO-02', 'SO-09'), async () => {
      const { a, b, pass, ttlMs } = await scene();
      expect(await a.claim('x')).toBe(true);
      await pass(ttlMs * 0.6);
      expect(await b.claim('x')).toBe(false);
      expect(await b.claim('x', destroy)).toBe(false);
      expect(await a.owner('x')).toBe(a.ownerId);
      await pass(ttlMs * 0.6);
      expect(await a.owner('x')).toBeNull();
    });

    test('a claim by the owner refreshes the time', verifies('SO-03', 'SO-18'), async () => {
      const { a, b, pass, ttlMs } = await scene();
      for (let round = 0; round < 4; round += 1) {
        expect(await a.claim('x')).toBe(true);
        await pass(ttlMs * 0.9);
      }
      expect(await b.claim('x')).toBe(false);
    });

    test('an expired lease is free for a peer', verifies('SO-04'), async () => {
      const { a, b, pass, ttlMs } = await scene();
      await a.take('x');
      await pass(ttlMs * 0.9);
      expect(await b.claim('x')).toBe(false);
      await pass(ttlMs * 0.2);
      expect(await b.claim('x')).toBe(true);
      expect(await a.claim('x')).toBe(false);
    });

    test('take wins over a live peer, who learns of it at its next renewal', verifies('SO-05'), async () => {
      const { a, b } = await scene();
      expect(await a.take('x')).toBe(true);
      expect(await b.take('x')).toBe(true);
      expect(await b.owner('x')).toBe(b.ownerId);
      expect(await a.renew('x')).toBe('lost');
      expect(await b.renew('x')).toBe('renewed');
    });

    test('no teardown marker lets anybody take, until it is released', verifies('SO-06', 'SO-07'), async () => {
      const { a, b } = await scene();
      await a.take('x');
      expect(await a.claim('x', destroy)).toBe(true);
      expect(await b.take('x')).toBe(false);
      expect(await a.take('x')).toBe(false);
      await a.release('x');
      expect(await b.take('x')).toBe(true);
    });

    test('the holder of a marker keeps it alive by claiming it again', verifies('SO-08'), async () => {
      const { a, b, pass, ttlMs } = await scene();
      for (let round = 0; round < 4; round += 1) {
        expect(await a.claim('x', destroy)).toBe(true);
        await pass(ttlMs * 0.9);
        expect(await b.take('x')).toBe(false);
      }
    });

    test('nobody claims for destroying what a peer holds, in either state', verifies('SO-09'), async () => {
      const { a, b } = await scene();
      await a.take('own');
      await a.claim('del', destroy);
      expect(await b.claim('own', destroy)).toBe(false);
      expect(await b.claim('del', destroy)).toBe(false);
      expect(await b.claim('del')).toBe(false);
      expect(await a.owner('del')).toBe(a.ownerId);
    });

    test('a claim does not unwind an own teardown', verifies('SO-10'), async () => {
      const { a, b } = await scene();
      await a.claim('x', destroy);
      expect(await a.claim('x')).toBe(false);
      expect(await b.take('x')).toBe(false);
    });

    test('a renewal keeps no teardown marker alive', verifies('SO-11', 'SO-15'), async () => {
      const { a, b, pass, ttlMs } = await scene();
      await a.claim('x', destroy);
      await pass(ttlMs * 0.6);
      expect(await a.renew('x')).toBe('lost');
      expect(await b.take('x')).toBe(false);
      await pass(ttlMs * 0.6);
      expect(await b.take('x')).toBe(true);
    });

    test('a renewal of nothing says lapsed and makes nothing', verifies('SO-12'), async () => {
      const { a, b, pass, ttlMs } = await scene();
      expect(await a.renew('x')).toBe('lapsed');
      expect(await a.owner('x')).toBeNull();
      await a.take('x');
      await pass(ttlMs + 1);
      expect(await a.renew('x')).toBe('lapsed');
      expect(await b.claim('x')).toBe(true);
    });

    test('a renewal gives a whole time to live', verifies('SO-18'), async () => {
      const { a, pass, ttlMs } = await scene();
      await a.take('x');
      for (let round = 0; round < 4; round += 1) {
        await pass(ttlMs * 0.9);
        expect(await a.renew('x')).toBe('renewed');
      }
    });

    test('release deletes the own value only, in either state', verifies('SO-13'), async () => {
      const { a, b } = await scene();
      await a.take('own');
      await a.claim('del', destroy);
      for (const id of ['own', 'del', 'none']) await b.release(id);
      expect(await b.owner('own')).toBe(a.ownerId);
      expect(await b.take('del')).toBe(false);
      for (const id of ['own', 'del', 'none']) await a.release(id);
      expect(await b.owner('own')).toBeNull();
      expect(await b.owner('del')).toBeNull();
    });

    test('asking for the owner changes nothing', verifies('SO-14'), async () => {
      const { a, b, pass, ttlMs } = await scene();
      expect(await b.owner('x')).toBeNull();
      expect(await a.renew('x')).toBe('lapsed');
      await a.claim('x', destroy);
      await pass(ttlMs * 0.6);
      expect(await a.owner('x')).toBe(a.ownerId);
      expect(await b.owner('x')).toBe(a.ownerId);
      await pass(ttlMs * 0.6);
      expect(await a.owner('x')).toBeNull();
    });

    test('long series of operations answer as the rules say', verifies('SO-22'), async () => {
      const { a, b, pass, ttlMs } = await scene();
      const random = seededRandom(7);
      const names = Object.keys(OPERATIONS) as OwnershipOperation[];
      const model = new Map<string, { value: NonNullable<OwnershipValue>; left: number }>();
      for (let step = 0; step < 400; step += 1) {
        const id = `id-${Math.floor(random.next() * 3)}`;
        const store = random.next() < 0.5 ? a : b;
        const operation = names[Math.floor(random.next() * names.length)] ?? 'take';
        const expected = reduceOwnership(model.get(id)?.value ?? null, operation, store.ownerId);
        expect([step, operation, await OPERATIONS[operation](store, id)]).toEqual([step, operation, expected.answer]);
        if (expected.change === 'write' && expected.value !== null)
          model.set(id, { value: expected.value, left: ttlMs });
        if (expected.change === 'delete') model.delete(id);
        expect(await b.owner(id)).toBe(model.get(id)?.value.owner ?? null);
        if (random.next() < 0.1) {
          const milliseconds = Math.ceil(ttlMs * 0.4);
          await pass(milliseconds);
          for (const [key, entry] of [...model]) {
            entry.left -= milliseconds;
            if (entry.left <= 0) model.delete(key);
          }
        }
      }
    });

    test(
      'a store that forgets says so, and adopts nothing on the word of before',
      verifies('SB-52', 'SB-53'),
      async (context) => {
        const { a, b, forget } = await scene();
        if (forget === undefined) return context.skip('this store never forgets');
        const memory = (await a.memory?.()) ?? '';
        expect([await a.memory?.(), await b.memory?.()]).toEqual([memory, memory]);
        expect(await b.claim('x', { memory: 'another' })).toBe(false);
        expect(await a.owner('x')).toBeNull();
        expect(await b.claim('x', { memory })).toBe(true);
        expect([await a.claim('x', { memory }), await a.owner('x'), await b.claim('x', { memory })]).toEqual([
          false,
          'b',
          true,
        ]);
        await forget();
        expect(await a.claim('x', { memory })).toBe(false);
        const next = await a.memory?.();
        expect([next === memory, await b.memory?.()]).toEqual([false, next]);
        expect([await a.claim('x', { memory }), await a.claim('x', { memory: next ?? '' })]).toEqual([false, true]);
      },
    );

    if (breakStore !== undefined)
      test('a store out of reach says so, and never "no"', verifies('SO-16'), async () => {
        const broken = await scene();
        await broken.a.take('x');
        await breakStore(broken);
        const calls = [...Object.values(OPERATIONS), (store: OwnershipStore, id: string) => store.owner(id)];
        for (const call of calls) {
          const error: unknown = await call(broken.a, 'x').then(
            () => null,
            (reason: unknown) => reason,
          );
          expect(ReindeerError.is(error)).toBe(true);
          expect(error).toMatchObject({ code: 'store_unavailable', retryable: true });
        }
      });

    test('a closed store may be closed again, and answers nobody', async () => {
      const { a, b } = await scene();
      await a.take('x');
      await a.close();
      await a.close();
      // Its leases stay: closing is no release.
      expect(await b.owner('x')).toBe(a.ownerId);
    });
  });
}
