import type { BatchStore } from '@reindeer/protocol';
import { afterEach, describe, expect, test } from 'vitest';
import { verifies } from '../verifies.ts';
import {
  address,
  BATCH_LEASE,
  claim,
  claimOne,
  firstItem,
  newBatch,
  SECOND,
  succeeded,
  thread,
  type UnisolatedBatches,
} from './batch-scene.ts';
import { T0 } from './scene.ts';

/** Statements of the longest call; a hold beyond is a fault of the suite. */
const MOST_STATEMENTS = 40;

/**
 * The interleavings of seed 004, at every place between two statements of a call: whatever a peer did meanwhile stands, and the one that was
 * stopped changes nothing.
 */
export function batchRaceContract(name: string, open: () => Promise<UnisolatedBatches>): void {
  describe(`races between holders of batch items: ${name}`, () => {
    const opened = new Set<UnisolatedBatches>();
    afterEach(async () => {
      for (const scene of opened) await scene.close();
      opened.clear();
    });
    const start = async (): Promise<UnisolatedBatches> => {
      const scene = await open();
      opened.add(scene);
      await scene.threads.create(thread);
      return scene;
    };

    /**
     * Runs `check` once for every statement of the stopped call before which nothing of it is stored yet. `check` answers false when the
     * call had already done its work.
     */
    async function everywhere(
      prepare: (scene: UnisolatedBatches) => Promise<() => Promise<unknown>>,
      check: (scene: UnisolatedBatches, release: () => void, call: Promise<unknown>) => Promise<boolean>,
    ): Promise<void> {
      let places = 0;
      for (let nth = 1; nth <= MOST_STATEMENTS; nth += 1) {
        const scene = await start();
        const call = await prepare(scene);
        const hold = scene.holdBefore(nth);
        const running = call().finally(() => scene.ended());
        const went = (await hold.reached) && (await check(scene, hold.release, running));
        hold.release();
        await running;
        await scene.close();
        opened.delete(scene);
        if (!went) break;
        places += 1;
      }
      expect(places).toBeGreaterThan(0);
      expect(places).toBeLessThan(MOST_STATEMENTS);
    }

    const lease = { itemId: firstItem, owner: 'old-claim', epoch: 1 };
    // Within the old lease: its end must not hide a missing fence.
    const stamp = T0 + SECOND;
    const operations: Readonly<Record<string, (store: BatchStore) => Promise<unknown>>> = {
      renew: (store) => store.renew({ leases: [lease], leaseMs: BATCH_LEASE, now: stamp }),
      running: (store) => store.start({ lease, now: stamp }),
      requeue: (store) => store.release({ lease, error: 'stale rejection', notBefore: 0, now: stamp }),
      finalize: (store) => store.finish({ lease, ...succeeded({ result: 'stale result' }) }),
    };
    for (const [operation, act] of Object.entries(operations))
      for (const peerAction of ['reclaim', 'cancel'] as const)
        test(
          `a late ${operation} changes nothing after a ${peerAction}`,
          verifies('SEED-004-01', 'BT-08', 'BT-13'),
          async () => {
            await everywhere(
              async (scene) => {
                await scene.peer.create(newBatch());
                await claimOne(scene.peer, { owner: 'old-claim' });
                return () => act(scene.held);
              },
              async (scene, release, call) => {
                const before = await scene.peer.items({ ...address, status: null, offset: 0, limit: 1, results: true });
                const attempt = before?.[0]?.status;
                const untouched = attempt === 'leased';
                const wasRenewed = JSON.stringify(await scene.row(firstItem)).includes(String(stamp + BATCH_LEASE));
                if (!untouched || wasRenewed) return false;
                if (peerAction === 'reclaim') {
                  const again = await claimOne(scene.peer, { owner: 'new-claim', now: T0 + 11 * SECOND });
                  expect(again).toMatchObject({ attempt: 2, lease: { itemId: firstItem, epoch: 2 } });
                } else await scene.peer.cancel({ ...address, now: stamp });
                const expected = await scene.row(firstItem);
                release();
                const answer = await call;
                if (operation === 'renew')
                  expect((answer as ReadonlyMap<string, unknown>).get(firstItem)).toEqual({
                    valid: false,
                    cancelRequested: peerAction === 'cancel',
                    busy: false,
                  });
                else expect(answer).toBe(operation === 'finalize' ? null : false);
                expect(await scene.row(firstItem)).toEqual(expected);
                return true;
              },
            );
          },
        );

    for (const phase of ['pending', 'queued'] as const)
      for (const peerAction of ['claim', 'cancel', 'pause'] as const)
        test(
          `a claim that read a ${phase} item grants nothing after a ${peerAction}`,
          verifies('SEED-004-02', 'BT-03'),
          async () => {
            await everywhere(
              async (scene) => {
                await scene.peer.create(newBatch());
                if (phase === 'queued')
                  expect((await scene.peer.claim(claim({ owner: 'seed', exclude: [firstItem] }))).items).toEqual([]);
                return () => scene.held.claim(claim({ owner: 'stale-claim' }));
              },
              async (scene, release, call) => {
                if (JSON.stringify(await scene.row(firstItem)).includes('stale-claim')) return false;
                if (peerAction === 'claim') {
                  const peer = await claimOne(scene.peer, { owner: 'peer-claim', now: T0 + SECOND });
                  expect(peer.attempt).toBe(1);
                } else await scene.peer[peerAction]({ ...address, now: T0 + SECOND });
                const [row, batch] = [await scene.row(firstItem), await scene.peer.get(address)];
                release();
                expect(((await call) as { items: unknown[] }).items).toEqual([]);
                expect(await scene.row(firstItem)).toEqual(row);
                expect(await scene.peer.get(address)).toEqual(batch);
                return true;
              },
            );
          },
        );

    test('a recovery leaves a renewal alone that came after its look', verifies('SEED-004-08', 'BT-26'), async () => {
      await everywhere(
        async (scene) => {
          await scene.peer.create(newBatch());
          await claimOne(scene.peer, { owner: 'live-worker' });
          return () => scene.held.claim(claim({ owner: 'recoverer', now: T0 + 11 * SECOND }));
        },
        async (scene, release, call) => {
          const renewed = await scene.peer.renew({
            leases: [{ itemId: firstItem, owner: 'live-worker', epoch: 1 }],
            leaseMs: BATCH_LEASE,
            now: T0 + 12 * SECOND,
          });
          // From here on the recovery had been first.
          if (renewed.get(firstItem)?.valid !== true) return false;
          const expected = await scene.row(firstItem);
          release();
          expect(((await call) as { items: unknown[] }).items).toEqual([]);
          expect(await scene.row(firstItem)).toEqual(expected);
          return true;
        },
      );
    });

    for (const which of ['missing', 'wrong_owner', 'item_cancelled', 'batch_cancelled', 'owned'] as const)
      test(`a renewal tells ${which}`, verifies('SEED-004-03', 'BT-06'), async () => {
        const scene = await start();
        await scene.peer.create(newBatch());
        const item = await claimOne(scene.peer);
        if (which === 'item_cancelled' || which === 'batch_cancelled') await scene.mark(which, firstItem, T0);
        const asked = {
          ...item.lease,
          itemId: which === 'missing' ? 'missing' : item.lease.itemId,
          owner: which === 'wrong_owner' ? 'peer' : 'claim',
        };
        const outcomes = await scene.peer.renew({ leases: [asked], leaseMs: BATCH_LEASE, now: T0 });
        expect(outcomes.get(asked.itemId)).toEqual({
          valid: which === 'owned',
          cancelRequested: which === 'item_cancelled' || which === 'batch_cancelled',
          busy: false,
        });
      });
  });
}
