import type { BatchStore, Stores } from '@reindeer/protocol';
import { deferred, verifies } from '@reindeer/testkit';
import { afterEach, describe, expect, test } from 'vitest';
import { ItemAttempt } from '../batches/attempt.ts';
import { ItemLeases } from '../batches/leases.ts';
import type { BatchWorker } from '../batches/worker.ts';
import { BatchScene, good, LEASE, USER } from './batch-scene.ts';

/** Turns of the event loop until the database must have answered. */
const LONGEST_MS = 10_000;

/**
 * The functions of seed 004 that are about the service, on a real database: its answers come when they come, so everything here is waited for by what
 * it does. Leases and beats are on the scene's clock, which moves only when a test moves it.
 */
export function batchServiceSeeds(name: string, stores: () => Stores): void {
  describe(`seed 004, the service: ${name}`, () => {
    let count = 0;
    const scenes = new Set<BatchScene>();
    // One database for all of them: what one leaves open is no work for the next.
    afterEach(async () => {
      for (const { batchId, clock } of scenes)
        await stores().batches.cancel({ batchId, userId: USER, now: clock.now() });
      scenes.clear();
    });
    const scene = (): BatchScene => {
      count += 1;
      const s = new BatchScene(stores(), `batch-${count}`);
      scenes.add(s);
      return s;
    };
    const until = async (found: () => boolean | Promise<boolean>): Promise<void> => {
      // By time: a database in another process answers when the machine lets it.
      for (const end = performance.now() + LONGEST_MS; performance.now() < end; ) {
        if (await found()) return;
        await new Promise((resolve) => setImmediate(resolve));
      }
      throw new Error('It never happened.');
    };
    const isStatus = (s: BatchScene, status: string) => async () => (await s.item()).status === status;
    const stopped = async (s: BatchScene, worker: BatchWorker): Promise<void> => {
      let over = false;
      void worker.stop({ drainMs: 0, hardMs: 5_000 }).then(() => {
        over = true;
      });
      await until(async () => {
        await s.clock.advance(100);
        return over;
      });
    };

    test('an attempt needs the owner of its claim', verifies('SEED-004-04'), async () => {
      const s = scene();
      const batch = await s.create();
      const scope = { lease: { itemId: 'batch.0', owner: '', epoch: 1 } } as never;
      for (const lease of [undefined, { itemId: 'batch.0' }, { itemId: 'batch.0', owner: '', epoch: 1 }])
        expect(
          () => new ItemAttempt({} as never, { lease } as never, batch, scope, new AbortController().signal),
        ).toThrow(/lease owner/);
      expect(await s.item()).toMatchObject({ status: 'pending', attempt: 0 });
    });

    test(
      'a scheduler leaves its own item alone that is still being prepared',
      verifies('SEED-004-05', 'BT-22'),
      async () => {
        const s = scene();
        await s.create({ maxAttempts: 1 });
        const { worker, executor } = s.worker();
        executor.ready = false;
        await worker.pass();
        // The clock of the look is past the lease, with no heartbeat in between: the item must not be taken for lost.
        s.clock.jump(LEASE + 1_000);
        await worker.pass();
        expect(await s.item()).toMatchObject({ status: 'leased', attempt: 1 });
        expect(executor.children).toHaveLength(1);
        executor.auto = () => good();
        executor.child(0).prepared.resolve();
        await until(isStatus(s, 'succeeded'));
        expect(await s.item()).toMatchObject({ result: 'correct source result', attempt: 1 });
        await until(() => worker.size === 0);
        expect(executor.children).toHaveLength(1);
      },
    );

    test('the heartbeat holds peers off while an item is being prepared', verifies('SEED-004-06'), async () => {
      const s = scene();
      await s.create();
      const renewals: number[] = [];
      const store: BatchStore = {
        ...s.stores.batches,
        renew: async (input) => {
          const answer = await s.stores.batches.renew(input);
          renewals.push(input.now);
          return answer;
        },
      };
      const { worker, executor } = s.worker({ store });
      executor.ready = false;
      await worker.start();
      await until(() => executor.children.length === 1);
      for (let beats = 0; beats < 2; beats += 1) {
        await s.clock.advance(Math.ceil(LEASE / 3) + 10);
        await until(() => renewals.length > beats);
      }
      // Past the end of the first renewal's lease, and within the second's.
      const peer = { owner: 'peer', leaseMs: LEASE, limit: 1, exclude: [], now: (renewals[0] ?? 0) + LEASE + 1 };
      expect((await s.stores.batches.claim(peer)).items).toEqual([]);
      executor.auto = () => good();
      executor.child(0).prepared.resolve();
      await until(isStatus(s, 'succeeded'));
      expect(executor.children).toHaveLength(1);
      await stopped(s, worker);
    });

    test('each claim has a token of its own', verifies('SEED-004-07'), async () => {
      const s = scene();
      await s.create({ count: 2, maxRunning: 1 });
      const owners: string[] = [];
      const store: BatchStore = {
        ...s.stores.batches,
        claim: (input) => {
          owners.push(input.owner);
          return s.stores.batches.claim(input);
        },
      };
      const { worker, executor } = s.worker({ store, instanceId: 'x'.repeat(500) });
      executor.auto = () => good();
      for (let pass = 0; pass < 2; pass += 1) {
        await worker.pass();
        await until(() => worker.size === 0);
      }
      expect(new Set(owners).size).toBe(2);
      for (const owner of owners) expect(owner.length).toBeLessThanOrEqual(128);
      const items = await s.items();
      expect(items.map((item) => item.status)).toEqual(['succeeded', 'succeeded']);
      for (const item of items) expect(JSON.stringify(item)).not.toContain(owners[0]);
    });

    test(
      'a cancel is heard within one heartbeat, whatever the poll interval',
      verifies('SEED-004-09', 'BT-25'),
      async () => {
        const s = scene();
        await s.create();
        const { worker, executor } = s.worker({ settings: { pollMs: 60_000 } });
        await worker.start();
        await until(() => executor.children[0]?.begun.settled === true);
        const child = executor.child(0);
        // By another instance: nothing here is told.
        await s.stores.batches.cancel({ batchId: s.batchId, userId: USER, now: s.clock.now() });
        expect(child.work.signal.aborted).toBe(false);
        await s.clock.advance(Math.ceil(LEASE / 3) + 10);
        await until(() => child.work.signal.aborted);
        // It completes all the same.
        child.ended.resolve(good());
        await until(() => worker.size === 0);
        expect(await s.item()).toMatchObject({ status: 'cancelled', result: null });
        // Nobody else takes what is left of it.
        expect(child.forgotten).toBe(true);
        await stopped(s, worker);
      },
    );

    test(
      'leaving a heartbeat waits for the renewal under way, however often it is told to stop',
      verifies('SEED-004-10'),
      async () => {
        const s = scene();
        await s.create();
        const [item] = (
          await s.stores.batches.claim({
            owner: 'generation',
            leaseMs: 3_000,
            limit: 1,
            exclude: [],
            now: s.clock.now(),
          })
        ).items;
        if (item === undefined) throw new Error('Nothing was claimed.');
        const renewing = deferred<void>();
        const finish = deferred<void>();
        let calls = 0;
        const leases = new ItemLeases({
          store: {
            renew: async (input) => {
              calls += 1;
              if (calls > 1) {
                renewing.resolve();
                await finish.promise;
              }
              return s.stores.batches.renew(input);
            },
          },
          surroundings: s.surroundings,
          leaseMs: 3_000,
        });
        const scope = leases.hold(item.lease, s.clock.monotonic());
        leases.start();
        await s.clock.advance(1_010);
        await until(() => calls === 1);
        await s.clock.advance(1_010);
        await renewing.promise;
        const states: string[] = [];
        const left = [1, 2, 3].map(async (n) => {
          await scope.leave();
          states.push(`left ${n}`);
        });
        for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
        expect(states).toEqual([]);
        finish.resolve();
        await Promise.all(left);
        expect(states).toHaveLength(3);
        expect(leases.size).toBe(0);
        await s.clock.advance(10_000);
        expect(calls).toBe(2);
        await leases.stop();
        expect(s.clock.sleeping).toBe(0);
      },
    );
  });
}
