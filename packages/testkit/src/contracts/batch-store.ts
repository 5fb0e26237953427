import type { BatchItem, BatchStore, ItemLease, ItemState } from '@reindeer/protocol';
import { itemThread, itemUser, NO_BATCH_USAGE, reduceItem } from '@reindeer/protocol';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { faultOnce, retried, withFaults } from '../faults.ts';
import { seededRandom } from '../random.ts';
import { verifies } from '../verifies.ts';
import {
  address,
  BATCH_LEASE,
  claim,
  claimOne,
  failed,
  firstItem,
  itemsOf,
  newBatch,
  SECOND,
  succeeded,
  thread,
} from './batch-scene.ts';
import { type OpenedStores, Scene, T0 } from './scene.ts';

/** What every store of batches does, whatever keeps it. */
export function batchStoreContract(name: string, open: () => Promise<OpenedStores>): void {
  describe(`batches: ${name}`, () => {
    let scene: OpenedStores;
    let a: BatchStore;
    let b: BatchStore;
    beforeEach(async () => {
      scene = await open();
      a = scene.a.batches;
      b = scene.b.batches;
      await scene.a.threads.create(thread);
    });
    afterEach(() => scene.close());
    const create = async (part: Parameters<typeof newBatch>[0] = {}) => {
      const answer = await a.create(newBatch(part));
      if (answer.outcome !== 'created') throw new Error(`The batch was answered "${answer.outcome}".`);
      return answer.batch;
    };
    const statuses = async (batchId?: string) => (await itemsOf(a, batchId)).map((item) => item.status);
    const at = (n: number) => T0 + n * SECOND;

    test('the same submission is one batch', verifies('BT-01'), async () => {
      const first = await create({ count: 3 });
      const again = await b.create(newBatch({ count: 3, submissionKey: 'run-1:call-1' }));
      expect(again).toEqual({ outcome: 'existing', batch: first });
      expect(await a.list({ userId: 'user-1', threadId: 'thread-1', limit: 10 })).toEqual([first]);
      const both = await Promise.all(
        [a, b].map((store, n) => store.create(newBatch({ batchId: `b${n}`, submissionKey: 'twice' }))),
      );
      expect(both.map(({ outcome }) => outcome).sort()).toEqual(['created', 'existing']);
      // Another user may use the same key.
      await scene.a.threads.create({ ...thread, threadId: 'thread-2', userId: 'user-2' });
      const other = newBatch({ batchId: 'other', userId: 'user-2', threadId: 'thread-2', submissionKey: 'twice' });
      expect((await a.create(other)).outcome).toBe('created');
    });

    test('keys that stand twice, and foreign threads, store nothing', verifies('BT-02'), async () => {
      const items = ['x', 'y', 'x'].map((key) => ({ key, prompt: 'p' }));
      expect(await a.create(newBatch({ items }))).toEqual({ outcome: 'duplicate_keys' });
      expect(await a.create(newBatch({ threadId: 'nowhere' }))).toEqual({ outcome: 'thread_not_found' });
      expect(await a.create(newBatch({ userId: 'user-2' }))).toEqual({ outcome: 'thread_not_found' });
      expect(await a.list({ userId: 'user-1', threadId: null, limit: 10 })).toEqual([]);
      await create();
      expect(await itemsOf(a)).toHaveLength(1);
    });

    test('a large batch is stored whole, and read by pages', async () => {
      const items = Array.from({ length: 2_345 }, (_, n) => ({ key: `k${n}`, prompt: `ä\u0000\ud800 ${n}`.repeat(3) }));
      await create({ items, maxLive: 10 });
      const page = await a.items({ ...address, status: null, offset: 2_300, limit: 500, results: false });
      expect(page?.map((item) => item.position)).toEqual(Array.from({ length: 45 }, (_, n) => 2_300 + n));
      expect(page?.[0]).toMatchObject({ key: 'k2300', status: 'pending', attempt: 0, usage: NO_BATCH_USAGE });
      expect((await a.get(address))?.counts).toMatchObject({ pending: 2_345, queued: 0 });
      // Ten are not pending any more: the nth that is stands ten places further.
      await claimOne(a);
      const pending = async (offset: number) =>
        (await a.items({ ...address, status: 'pending', offset, limit: 3, results: false }))?.map(
          (one) => one.position,
        );
      expect(await pending(0)).toEqual([10, 11, 12]);
      expect(await pending(2_333)).toEqual([2_343, 2_344]);
      expect(await pending(2_335)).toEqual([]);
    });

    test('another user, or another thread, finds nothing', verifies('BT-17'), async () => {
      await create();
      await claimOne(a);
      const foreign = { batchId: address.batchId, userId: 'user-2' };
      for (const where of [foreign, { ...address, threadId: 'thread-2' }, { ...address, batchId: 'none' }]) {
        expect(await a.get(where)).toBeNull();
        expect(await a.items({ ...where, status: null, offset: 0, limit: 5, results: true })).toBeNull();
        for (const method of ['pause', 'resume', 'cancel'] as const)
          expect(await a[method]({ ...where, now: T0 })).toEqual({ outcome: 'not_found' });
        for (const method of ['retryItem', 'cancelItem'] as const)
          expect(await a[method]({ ...where, itemId: firstItem, now: T0 })).toEqual({ outcome: 'not_found' });
      }
      expect(await a.list({ userId: 'user-2', threadId: null, limit: 5 })).toEqual([]);
      expect(await statuses()).toEqual(['leased']);
    });

    test('a claim counts one attempt, and one that was not admitted gives it back', verifies('BT-05'), async () => {
      await create();
      const first = await claimOne(a);
      expect(first).toMatchObject({ attempt: 1, key: 'record-0', prompt: 'Process 0', lease: { epoch: 1 } });
      const back = { lease: first.lease, error: 'full', notBefore: at(5), now: at(1) };
      expect(await a.release(back)).toBe(true);
      expect(await a.release(back)).toBe(false);
      expect(await itemsOf(a)).toMatchObject([{ status: 'queued', attempt: 0, error: 'full' }]);
      expect((await b.claim(claim({ now: at(4) }))).items).toEqual([]);
      expect(await claimOne(b, { now: at(5) })).toMatchObject({ attempt: 1, lease: { epoch: 2 } });
    });

    test('never more at work, and never more alive, than the batch allows', verifies('BT-04'), async () => {
      await create({ count: 10, maxLive: 5, maxRunning: 3 });
      const first = await a.claim(claim({ limit: 100 }));
      expect(first.items.map((item) => item.position)).toEqual([0, 1, 2]);
      expect(await statuses()).toEqual([...Array(3).fill('leased'), 'queued', 'queued', ...Array(5).fill('pending')]);
      expect((await b.claim(claim({ limit: 100 }))).items).toEqual([]);
      const [one] = first.items;
      if (one === undefined) throw new Error('Nothing was claimed.');
      await a.finish({ lease: one.lease, ...succeeded() });
      expect((await b.claim(claim({ limit: 100 }))).items.map((item) => item.position)).toEqual([3]);
      expect((await a.get(address))?.counts).toMatchObject({ succeeded: 1, leased: 3, queued: 2, pending: 4 });
    });

    test('two schedulers at once share the items out', verifies('BT-03', 'BT-04'), async () => {
      await create({ count: 40, maxRunning: 30 });
      const taken: string[] = [];
      for (let round = 0; round < 5; round += 1) {
        const both = await Promise.all(
          [a, b].map((store, n) => store.claim(claim({ owner: `${n}:${round}`, limit: 10 }))),
        );
        taken.push(...both.flatMap(({ items }) => items.map((item) => item.lease.itemId)));
      }
      expect(new Set(taken).size).toBe(taken.length);
      expect(taken).toHaveLength(30);
    });

    test('the oldest batch first, by position; users and batches get equal shares', verifies('BT-18'), async () => {
      await scene.a.threads.create({ ...thread, threadId: 'thread-2', userId: 'user-2' });
      await create({ batchId: 'old', count: 20, maxRunning: 20 });
      await create({ batchId: 'new', count: 20, maxRunning: 20 });
      await a.create(newBatch({ batchId: 'of-2', userId: 'user-2', threadId: 'thread-2', count: 20, maxRunning: 20 }));
      const { items, more } = await a.claim(claim({ limit: 9 }));
      const of = (batchId: string) => items.filter((item) => item.batchId === batchId).map((item) => item.position);
      expect(of('old')).toEqual([0, 1, 2]);
      expect(of('new')).toEqual([0, 1]);
      expect(of('of-2')).toEqual([0, 1, 2, 3]);
      expect(more).toBe(true);
    });

    test('a renewal never shortens a lease', verifies('BT-06'), async () => {
      await create({ count: 2, maxRunning: 2 });
      const { items } = await a.claim(claim({ limit: 2 }));
      const leases = items.map((item) => item.lease);
      await a.renew({ leases, leaseMs: 10 * BATCH_LEASE, now: T0 });
      const shorter = await a.renew({ leases, leaseMs: SECOND, now: T0 });
      expect([...shorter.values()]).toEqual(leases.map(() => ({ valid: true, cancelRequested: false, busy: false })));
      expect((await b.claim(claim({ now: T0 + 10 * BATCH_LEASE - 1 }))).items).toEqual([]);
      expect((await b.claim(claim({ now: T0 + 10 * BATCH_LEASE }))).items).toHaveLength(1);
      // After the takeover only one of the two still stands.
      const after = await a.renew({ leases, leaseMs: BATCH_LEASE, now: T0 + 10 * BATCH_LEASE });
      expect([...after.values()].filter(({ valid }) => valid)).toHaveLength(0);
    });

    test('a start after a cancel or a takeover is refused', verifies('BT-07'), async () => {
      await create({ count: 3, maxRunning: 3 });
      const { items } = await a.claim(claim({ limit: 3 }));
      const [one, two, three] = items.map((item) => item.lease);
      if (one === undefined || two === undefined || three === undefined) throw new Error('Too few.');
      expect(await a.start({ lease: one, now: at(1) })).toBe(true);
      // A repeat after a lost answer is the same start.
      expect(await a.start({ lease: one, now: at(2) })).toBe(true);
      await a.cancelItem({ ...address, itemId: two.itemId, now: at(1) });
      expect(await a.start({ lease: two, now: at(2) })).toBe(false);
      await b.claim(claim({ owner: 'peer', limit: 3, now: at(11) }));
      expect(await a.start({ lease: three, now: at(12) })).toBe(false);
      expect(await statuses()).toEqual(['leased', 'cancelled', 'leased']);
    });

    test('an equal owner of an older epoch is no holder', verifies('BT-24'), async () => {
      await create();
      const old = await claimOne(a, { owner: 'same' });
      const now = at(11);
      const again = await claimOne(a, { owner: 'same', now });
      expect(again.lease.epoch).toBe(old.lease.epoch + 1);
      expect(await a.start({ lease: old.lease, now })).toBe(false);
      expect(await a.finish({ lease: old.lease, ...succeeded({ now }) })).toBeNull();
      expect(await a.release({ lease: old.lease, error: '', notBefore: 0, now })).toBe(false);
      const answers = await a.renew({ leases: [old.lease], leaseMs: BATCH_LEASE, now });
      expect(answers.get(firstItem)).toEqual({ valid: false, cancelRequested: false, busy: false });
      expect(await a.start({ lease: again.lease, now })).toBe(true);
    });

    test('another owner is no holder, whatever epoch it names', verifies('BT-08'), async () => {
      await create();
      const { lease } = await claimOne(a);
      const foreign = { ...lease, owner: 'peer' };
      const refused = async () => {
        expect(await b.start({ lease: foreign, now: at(1) })).toBe(false);
        expect(await b.finish({ lease: foreign, ...succeeded() })).toBeNull();
        expect(await b.release({ lease: foreign, error: '', notBefore: 0, now: at(1) })).toBe(false);
        const answers = await b.renew({ leases: [foreign], leaseMs: BATCH_LEASE, now: at(1) });
        expect(answers.get(firstItem)).toEqual({ valid: false, cancelRequested: false, busy: false });
      };
      await refused();
      expect(await a.start({ lease, now: at(1) })).toBe(true);
      await refused();
      expect(await a.finish({ lease, ...succeeded() })).toBe('succeeded');
    });

    test('a cancel beats a success that comes later', verifies('BT-09'), async () => {
      await create({ count: 2, maxRunning: 2 });
      const { items } = await a.claim(claim({ limit: 2 }));
      const [one, two] = items.map((item) => item.lease);
      if (one === undefined || two === undefined) throw new Error('Too few.');
      expect(await b.cancelItem({ ...address, itemId: one.itemId, now: at(1) })).toMatchObject({ outcome: 'done' });
      expect(await a.finish({ lease: one, ...succeeded({ now: at(2) }) })).toBe('cancelled');
      expect((await itemsOf(a))[0]).toMatchObject({ status: 'cancelled', result: null, resultPreview: null });
      expect(await a.finish({ lease: two, ...succeeded({ now: at(2) }) })).toBe('succeeded');
      expect((await a.get(address))?.batch.status).toBe('completed');
    });

    test('a lease that is over: cancelled, failed or queued', verifies('BT-10', 'BT-26'), async () => {
      await create({ count: 2, maxRunning: 2, maxAttempts: 2 });
      await a.claim(claim({ limit: 2 }));
      await a.cancelItem({ ...address, itemId: firstItem, now: at(1) });
      expect((await b.claim(claim({ owner: 'second', limit: 2, now: at(10) }))).items).toMatchObject([{ attempt: 2 }]);
      expect(await statuses()).toEqual(['cancelled', 'leased']);
      expect((await b.claim(claim({ owner: 'third', limit: 2, now: at(20) }))).items).toEqual([]);
      const [, last] = await itemsOf(a);
      expect(last).toMatchObject({ status: 'failed', attempt: 2 });
      expect(last?.error).toContain('did not come back');
      expect((await a.get(address))?.batch).toMatchObject({ status: 'failed', endedAt: at(20), ends: 1 });
    });

    test('the leases of an instance that is gone end at once', verifies('BT-26'), async () => {
      await create({ count: 3, maxRunning: 3 });
      await a.claim(claim({ owner: 'dead:1', limit: 2 }));
      await a.claim(claim({ owner: 'deadly:1' }));
      expect(await b.forfeit({ prefix: 'dead:', now: at(1) })).toBe(2);
      expect(await b.forfeit({ prefix: 'dead:', now: at(1) })).toBe(0);
      const { items } = await b.claim(claim({ owner: 'next', limit: 3, now: at(1) }));
      expect(items).toMatchObject([
        { position: 0, attempt: 2 },
        { position: 1, attempt: 2 },
      ]);
    });

    test('an excluded item is neither leased nor recovered', verifies('BT-22'), async () => {
      await create({ count: 1, maxAttempts: 1 });
      const held = await claimOne(a);
      const spared = { exclude: [firstItem], now: at(11) };
      expect((await a.claim(claim(spared))).items).toEqual([]);
      expect(await itemsOf(a)).toMatchObject([{ status: 'leased', attempt: 1 }]);
      expect(await a.finish({ lease: held.lease, ...succeeded({ now: at(12) }) })).toBe('succeeded');
    });

    test('how a batch ends', verifies('BT-11'), async () => {
      const run = async (batchId: string, outcomes: readonly ('ok' | 'bad' | 'cancel')[]) => {
        await create({ batchId, count: outcomes.length, maxRunning: 9, maxAttempts: 1 });
        const { items } = await a.claim(claim({ limit: 9 }));
        for (const [n, outcome] of outcomes.entries()) {
          const lease = items[n]?.lease;
          if (lease === undefined) throw new Error('Too few.');
          if (outcome === 'cancel') await a.cancelItem({ batchId, userId: 'user-1', itemId: lease.itemId, now: at(1) });
          await a.finish({ lease, ...(outcome === 'bad' ? failed() : succeeded()) });
        }
        return (await a.get({ batchId, userId: 'user-1' }))?.batch.status;
      };
      expect(await run('all', ['ok', 'ok'])).toBe('completed');
      expect(await run('some', ['ok', 'bad'])).toBe('completed');
      expect(await run('none', ['bad', 'bad'])).toBe('failed');
      expect(await run('cut', ['bad', 'cancel'])).toBe('failed');
      expect(await run('left', ['cancel'])).toBe('completed');
    });

    test('a failed attempt is queued again until its attempts are used up', async () => {
      await create({ maxAttempts: 2 });
      const first = await claimOne(a);
      expect(await a.finish({ lease: first.lease, ...failed({ error: 'once', notBefore: at(5) }) })).toBe('queued');
      expect((await a.claim(claim({ now: at(4) }))).items).toEqual([]);
      const second = await claimOne(a, { now: at(5) });
      expect(second.attempt).toBe(2);
      expect(await a.finish({ lease: second.lease, ...failed({ error: 'twice', now: at(6) }) })).toBe('failed');
      expect(await itemsOf(a)).toMatchObject([
        { status: 'failed', error: 'twice', usage: { inputTokens: 2, outputTokens: 4 }, startedAt: T0, endedAt: at(6) },
      ]);
    });

    test('a pause stops new claims and lets running items end; resume queues again', verifies('BT-12'), async () => {
      await create({ count: 3, maxRunning: 1 });
      const held = await claimOne(a);
      expect(await b.pause({ ...address, now: at(1) })).toMatchObject({ outcome: 'done', batch: { status: 'paused' } });
      expect(await b.pause({ ...address, now: at(1) })).toMatchObject({ outcome: 'unchanged' });
      expect(await a.finish({ lease: held.lease, ...succeeded() })).toBe('succeeded');
      expect((await a.claim(claim({ now: at(2) }))).items).toEqual([]);
      expect(await b.resume({ ...address, now: at(3) })).toMatchObject({ batch: { status: 'queued' } });
      expect(await claimOne(a, { now: at(3) })).toMatchObject({ position: 1 });
      expect((await a.get(address))?.batch.status).toBe('running');
    });

    test('a cancel ends all open items at once and stays', verifies('BT-13', 'BT-11'), async () => {
      await create({ count: 5, maxLive: 3, maxRunning: 2 });
      const { items } = await a.claim(claim({ limit: 2 }));
      const [one, two] = items.map((item) => item.lease);
      if (one === undefined || two === undefined) throw new Error('Too few.');
      await a.finish({ lease: one, ...succeeded() });
      const answer = await b.cancel({ ...address, now: at(2) });
      expect(answer).toMatchObject({ outcome: 'done', batch: { status: 'cancelled', ends: 1, endedAt: at(2) } });
      expect(await statuses()).toEqual(['succeeded', ...Array(4).fill('cancelled')]);
      expect(await a.finish({ lease: two, ...succeeded({ now: at(3) }) })).toBeNull();
      for (const method of ['pause', 'resume', 'cancel'] as const)
        expect(await b[method]({ ...address, now: at(4) })).toMatchObject({ outcome: 'unchanged' });
      expect((await a.claim(claim({ limit: 9, now: at(30) }))).items).toEqual([]);
      expect((await a.get(address))?.batch).toMatchObject({ status: 'cancelled', updatedAt: at(2) });
    });

    test('only a failed item is tried again, and its batch is open again', verifies('BT-14'), async () => {
      await create({ count: 2, maxRunning: 2, maxAttempts: 1 });
      const { items } = await a.claim(claim({ limit: 2 }));
      const [good, bad] = items.map((item) => item.lease);
      if (good === undefined || bad === undefined) throw new Error('Too few.');
      await a.finish({ lease: good, ...succeeded() });
      const retry = (itemId: string) => a.retryItem({ ...address, itemId, now: at(5) });
      expect(await retry(bad.itemId)).toMatchObject({ outcome: 'conflict' });
      await a.finish({ lease: bad, ...failed() });
      expect((await a.get(address))?.batch).toMatchObject({ status: 'completed', ends: 1 });
      expect(await retry(good.itemId)).toMatchObject({ outcome: 'conflict' });
      expect(await retry(bad.itemId)).toMatchObject({ outcome: 'done', batch: { status: 'queued', endedAt: null } });
      expect(await statuses()).toEqual(['succeeded', 'pending']);
      const again = await claimOne(a, { now: at(6) });
      expect(again).toMatchObject({ attempt: 1, position: 1 });
      await a.finish({ lease: again.lease, ...succeeded({ now: at(7) }) });
      expect((await a.get(address))?.batch).toMatchObject({ status: 'completed', ends: 2, endedAt: at(7) });
      await create({ batchId: 'dead', maxAttempts: 1 });
      const lost = await claimOne(a, { now: at(8) });
      await a.finish({ lease: lost.lease, ...failed({ now: at(8) }) });
      await a.retryItem({ batchId: 'dead', userId: 'user-1', itemId: lost.lease.itemId, now: at(9) });
      await a.cancel({ batchId: 'dead', userId: 'user-1', now: at(9) });
      expect(
        await a.retryItem({ batchId: 'dead', userId: 'user-1', itemId: lost.lease.itemId, now: at(9) }),
      ).toMatchObject({ outcome: 'conflict' });
    });

    test('results: whole only where asked, never the token of a holder', verifies('BT-15'), async () => {
      await create({ count: 2, maxRunning: 2 });
      const { items } = await a.claim(claim({ owner: 'secret-token', limit: 2 }));
      const lease = items[0]?.lease;
      if (lease === undefined) throw new Error('Nothing was claimed.');
      await a.finish({
        lease,
        ...succeeded(),
        result: 'long result',
        resultPreview: 'long',
        resultTruncated: true,
        resultFile: '/mnt/user-data/outputs/x',
      });
      const without = await a.items({ ...address, status: null, offset: 0, limit: 5, results: false });
      expect(without?.[0]).toMatchObject({
        result: null,
        resultPreview: 'long',
        resultTruncated: true,
        resultFile: '/mnt/user-data/outputs/x',
        modelName: 'model',
      });
      expect((await itemsOf(a))[0]?.result).toBe('long result');
      expect(JSON.stringify([await itemsOf(a), await a.get(address)])).not.toContain('secret-token');
      const done = await a.items({ ...address, status: 'succeeded', offset: 0, limit: 5, results: false });
      expect(done?.map((item) => item.position)).toEqual([0]);
    });

    test('however many batches one user has, another one gets a share', async () => {
      for (let n = 0; n < 201; n += 1) await a.create(newBatch({ batchId: `b${n}`, submissionKey: `b${n}` }));
      const theirs = { threadId: 'thread-2', userId: 'user-2' };
      await scene.a.threads.create({ ...thread, ...theirs });
      await a.create(newBatch({ ...theirs, batchId: 'other', submissionKey: 'other' }));
      const { items } = await a.claim(claim({ limit: 2 }));
      expect(items.map((item) => item.batchId)).toEqual(['b0', 'other']);
    });

    test('the report of an end has one reporter, and a reopened batch is reported again', async () => {
      await create({ notify: true, maxAttempts: 1 });
      const ended = (owner: string, now: number) => a.claimEnded({ owner, leaseMs: BATCH_LEASE, limit: 5, now });
      expect(await ended('r1', T0)).toEqual([]);
      const held = await claimOne(a);
      await a.finish({ lease: held.lease, ...failed() });
      expect(await ended('r1', at(2))).toMatchObject([{ notify: true, batch: { status: 'failed', ends: 1 } }]);
      expect(await ended('r2', at(3))).toEqual([]);
      expect(await ended('r2', at(12))).toHaveLength(1);
      const done = (owner: string, ends: number) => b.reported({ batchId: address.batchId, owner, ends });
      expect(await done('r1', 1)).toBe(false);
      await a.retryItem({ ...address, itemId: held.lease.itemId, now: at(13) });
      expect(await done('r2', 1)).toBe(false);
      const again = await claimOne(a, { now: at(14) });
      await a.finish({ lease: again.lease, ...succeeded({ now: at(15) }) });
      expect(await ended('r3', at(15))).toMatchObject([{ notify: true, batch: { status: 'completed', ends: 2 } }]);
      await a.told({ batchId: address.batchId, ends: 1 });
      await a.told({ batchId: address.batchId, ends: 2 });
      expect(await ended('r4', at(40))).toMatchObject([{ notify: false }]);
      expect(await done('r4', 2)).toBe(true);
      expect(await ended('r5', at(99))).toEqual([]);
    });

    test('a report in steps: filed, postponed while the thread is busy, done; a later end is told anew', async () => {
      const created = await create({ notify: true, maxAttempts: 1 });
      expect(created.filed).toBe(false);
      const report = (owner: string, ends = 1) => ({ batchId: address.batchId, owner, ends });
      const ended = (owner: string, now: number) => a.claimEnded({ owner, leaseMs: BATCH_LEASE, limit: 5, now });
      const isFiled = async () => (await b.get(address))?.batch.filed;
      const held = await claimOne(a);
      await a.finish({ lease: held.lease, ...failed() });
      expect(await ended('r1', at(2))).toMatchObject([{ notify: true, batch: { filed: false } }]);
      // Nothing is told before the results stand in files.
      expect(await b.postpone({ ...report('r1'), until: at(3) })).toBe(false);
      for (const wrong of [report('r2'), report('r1', 2)]) expect(await b.filed(wrong)).toBe(false);
      expect(await isFiled()).toBe(false);
      expect([await b.filed(report('r1')), await b.filed(report('r1')), await isFiled()]).toEqual([true, false, true]);
      // Free at once for whoever tells, and never written again.
      expect(await ended('r2', at(2))).toMatchObject([{ notify: true, batch: { filed: true } }]);
      expect(await b.postpone({ ...report('r1'), until: at(9) })).toBe(false);
      expect(await b.postpone({ ...report('r2'), until: at(9) })).toBe(true);
      expect(await ended('r3', at(8))).toEqual([]);
      await a.told({ batchId: address.batchId, ends: 1 });
      expect(await ended('r3', at(9))).toMatchObject([{ notify: false, batch: { filed: true } }]);
      await a.retryItem({ ...address, itemId: held.lease.itemId, now: at(10) });
      expect([await isFiled(), await b.filed(report('r3')), await b.reported(report('r3'))]).toEqual([
        false,
        false,
        false,
      ]);
      const again = await claimOne(a, { now: at(11) });
      await a.finish({ lease: again.lease, ...succeeded({ now: at(12) }) });
      expect(await ended('r4', at(12))).toMatchObject([{ notify: true, batch: { ends: 2, filed: false } }]);
      expect(await b.reported(report('r4', 2))).toBe(true);
      expect(await isFiled()).toBe(true);
    });

    test('what items go through is what the pure function says', async () => {
      const random = seededRandom(11);
      const total = 6;
      await create({ count: total, maxRunning: total, maxAttempts: 2 });
      const model = new Map<string, ItemState>(
        Array.from({ length: total }, (_, n) => [
          `${address.batchId}.${n}`,
          { status: 'pending', attempt: 0, owner: null, epoch: 0, cancelRequested: false },
        ]),
      );
      const step = (itemId: string, event: Parameters<typeof reduceItem>[1]): boolean => {
        const next = reduceItem(model.get(itemId) as ItemState, event);
        if (next !== null) model.set(itemId, next);
        return next !== null;
      };
      for (let round = 0; round < 120; round += 1) {
        const now = at(round);
        const itemId = `${address.batchId}.${Math.floor(random.next() * total)}`;
        const state = model.get(itemId) as ItemState;
        // Now and then the token of somebody else, or of an earlier time.
        const lease = {
          itemId,
          owner: random.next() < 0.2 ? 'nobody' : (state.owner ?? 'nobody'),
          epoch: random.next() < 0.2 ? state.epoch - 1 : state.epoch,
        };
        const store = random.next() < 0.5 ? a : b;
        switch (Math.floor(random.next() * 6)) {
          case 0: {
            const owner = `o${round}`;
            const { items } = await store.claim(claim({ owner, limit: 2, leaseMs: 1_000_000, now }));
            for (const id of model.keys()) step(id, { kind: 'promote' });
            for (const item of items) expect(step(item.lease.itemId, { kind: 'claim', owner })).toBe(true);
            break;
          }
          case 1: {
            const allowed = step(itemId, { kind: 'start', ...lease });
            expect(await store.start({ lease, now })).toBe(allowed);
            break;
          }
          case 2: {
            const good = random.next() < 0.5;
            const changed = step(itemId, { kind: 'finish', succeeded: good, maxAttempts: 2, ...lease });
            const status = await store.finish({ lease, ...(good ? succeeded({ now }) : failed({ now })) });
            expect(status).toBe(changed ? model.get(itemId)?.status : null);
            break;
          }
          case 3:
            expect(await store.release({ lease, error: '', notBefore: 0, now })).toBe(
              step(itemId, { kind: 'release', ...lease }),
            );
            break;
          case 4:
            if (random.next() < 0.3) {
              const changed = step(itemId, { kind: 'request-cancel' });
              const { outcome } = await store.cancelItem({ ...address, itemId, now });
              expect(outcome).toBe(changed ? 'done' : 'unchanged');
            }
            break;
          default: {
            const changed = step(itemId, { kind: 'retry' });
            expect((await store.retryItem({ ...address, itemId, now })).outcome).toBe(changed ? 'done' : 'conflict');
          }
        }
        const seen = (await itemsOf(a)).map(({ status, attempt, cancelRequested }: BatchItem) => ({
          status,
          attempt,
          cancelRequested,
        }));
        expect(seen).toEqual(
          [...model.values()].map(({ status, attempt, cancelRequested }) => ({ status, attempt, cancelRequested })),
        );
      }
    });

    test('repeated after a lost answer, or arriving twice, a call is one call', verifies('RE-03'), async () => {
      type Held = { readonly batchId: string; readonly userId: string; readonly lease: ItemLease };
      const calls: Readonly<Record<string, (store: BatchStore, held: Held) => Promise<unknown>>> = {
        start: (store, { lease }) => store.start({ lease, now: at(1) }),
        finish: (store, { lease }) => store.finish({ lease, ...succeeded() }),
        release: (store, { lease }) => store.release({ lease, error: 'full', notBefore: at(5), now: at(1) }),
        renew: (store, { lease }) => store.renew({ leases: [lease], leaseMs: 2 * BATCH_LEASE, now: at(1) }),
        pause: (store, { batchId, userId }) => store.pause({ batchId, userId, now: at(1) }),
        cancel: (store, { batchId, userId }) => store.cancel({ batchId, userId, now: at(1) }),
        cancelItem: (store, { lease, ...where }) => store.cancelItem({ ...where, itemId: lease.itemId, now: at(1) }),
      };
      const prepare = async (batchId: string): Promise<Held> => {
        await create({ batchId, count: 2, maxRunning: 1 });
        // Others are at work already, or over: the one that waits is of this batch.
        const { items } = await a.claim(claim({ limit: 50 }));
        const mine = items.find((item) => item.batchId === batchId);
        if (mine === undefined) throw new Error('Nothing was claimed.');
        return { batchId, userId: 'user-1', lease: mine.lease };
      };
      const picture = async ({ batchId, userId }: Held) =>
        JSON.stringify([await a.get({ batchId, userId }), await itemsOf(a, batchId)]).replaceAll(batchId, 'batch');
      for (const [method, call] of Object.entries(calls)) {
        const plain = await prepare(`${method}-plain`);
        const before = await picture(plain);
        await call(a, plain);
        const once = await picture(plain);
        for (const fault of ['fail-before', 'fail-after', 'duplicate'] as const) {
          const held = await prepare(`${method}-${fault}`);
          const faulty = withFaults(scene.a, faultOnce(fault, `batches.${method}`)).batches;
          if (fault === 'fail-before') {
            await expect(call(faulty, held)).rejects.toMatchObject({ code: 'store_unavailable' });
            expect([method, await picture(held)]).toEqual([method, before]);
          }
          await retried(() => call(faulty, held));
          expect([method, fault, await picture(held)]).toEqual([method, fault, once]);
        }
      }
    });

    test('a batch goes with its thread', async () => {
      await create({ count: 2, maxRunning: 2 });
      const held = await claimOne(a);
      await create({ batchId: 'other' });
      const { fence } = await new Scene(scene).admit({ kind: 'delete', userId: 'user-1', threadId: 'thread-1' });
      expect(await a.list({ userId: 'user-1', threadId: 'thread-1', limit: 5 })).toHaveLength(2);
      expect(await scene.b.threads.delete({ fence, threadId: 'thread-1', userId: 'user-1' })).toEqual({
        outcome: 'ok',
      });
      expect(await a.list({ userId: 'user-1', threadId: null, limit: 5 })).toEqual([]);
      const renewed = await a.renew({ leases: [held.lease], leaseMs: BATCH_LEASE, now: at(1) });
      expect(renewed.get(firstItem)).toEqual({ valid: false, cancelRequested: false, busy: false });
      expect(await a.finish({ lease: held.lease, ...succeeded() })).toBeNull();
      // The same ids are free again, with nothing of before under them.
      await scene.a.threads.create(thread);
      await create();
      expect(await itemsOf(a)).toMatchObject([{ status: 'pending', attempt: 0 }]);
    });

    test('criteria come with the claim, and the verdict stands beside the result', verifies('BT-28'), async () => {
      const items = ['a', 'b', 'c'].map((key) => ({ key, prompt: 'p' }));
      await create({
        items: items.map((item, n) => (n === 2 ? item : { ...item, acceptance: `Good ${n}.` })),
        maxRunning: 3,
        maxLive: 3,
      });
      const claimed = (await a.claim(claim({ limit: 3 }))).items;
      expect(claimed.map(({ acceptance }) => acceptance)).toEqual(['Good 0.', 'Good 1.', null]);
      const verdicts = [{ accepted: false, reason: 'Bad\0.' }, { accepted: true, reason: '' }, null];
      for (const [n, { lease }] of claimed.entries())
        await b.finish({ lease, ...succeeded(), verdict: verdicts[n] ?? null });
      const read = await itemsOf(a);
      expect(read.map(({ acceptance }) => acceptance)).toEqual(['Good 0.', 'Good 1.', null]);
      expect(read.map(({ status }) => status)).toEqual(['succeeded', 'succeeded', 'succeeded']);
      expect(read.map(({ verdict }) => verdict?.accepted)).toEqual([false, true, undefined]);
      expect(read[0]?.verdict?.reason).toMatch(/^Bad/);
    });

    test('threads of items that nobody needs any more are found, whatever became of their batch', async () => {
      const batch = await create({ count: 4, maxRunning: 2, maxLive: 2 });
      const made = async (batchId: string, position: number, updatedAt: number) =>
        scene.a.threads.create({
          threadId: itemThread(batchId, position),
          userId: itemUser(batchId),
          metadata: {},
          now: updatedAt,
        });
      for (const position of [0, 1, 2]) await made(batch.batchId, position, T0);
      await made('batch-deleted', 12, T0);
      await made('batch-late', 0, at(20));
      const left = (part: Partial<Parameters<BatchStore['leftThreads']>[0]> = {}) =>
        a.leftThreads({ before: at(10), after: '', limit: 10, ...part });
      const ids = async (...input: Parameters<typeof left>) => (await left(...input)).map(({ threadId }) => threadId);
      // Waiting and held items need theirs. A thread of a user, whatever it is called, is none of an item.
      const held = await claimOne(a);
      await scene.a.threads.create({ ...thread, threadId: 'batch-deleted-13' });
      const gone = { itemId: 'batch-deleted.12', epoch: 0 };
      expect(await left()).toEqual([{ threadId: 'batch-deleted-12', userId: 'batch_batch-deleted', item: gone }]);
      await a.finish({ lease: held.lease, ...succeeded() });
      expect(await ids()).toEqual(['batch-deleted-12', itemThread(batch.batchId, 0)]);
      expect(await ids({ limit: 1 })).toEqual(['batch-deleted-12']);
      expect(await ids({ after: 'batch-deleted-12' })).toEqual([itemThread(batch.batchId, 0)]);
      await b.cancel({ ...address, now: at(2) });
      expect(await ids()).toEqual(['batch-deleted-12', ...[0, 1, 2].map((n) => itemThread(batch.batchId, n))]);
      expect(await ids({ before: at(20) })).toContain('batch-late-0');
    });

    test('the thread of an item goes only while nobody has begun the item since it was seen', async () => {
      const { batchId } = await create({ maxAttempts: 1 });
      const own = { threadId: itemThread(batchId, 0), userId: itemUser(batchId) };
      await scene.a.threads.create({ ...own, metadata: {}, now: T0 });
      const first = await claimOne(a);
      await a.finish({ lease: first.lease, ...failed() });
      const [seen] = await a.leftThreads({ before: at(10), after: '', limit: 10 });
      expect(seen).toEqual({ ...own, item: { itemId: first.lease.itemId, epoch: first.lease.epoch } });
      // A retry alone begins nothing; the claim behind it does.
      await a.retryItem({ ...address, itemId: first.lease.itemId, now: at(2) });
      const { lease } = await claimOne(a, { owner: 'second', now: at(3) });
      const { fence } = await new Scene(scene).admit({ kind: 'delete', ...own });
      expect(await scene.b.threads.delete({ fence, ...own, item: first.lease })).toEqual({ outcome: 'fenced' });
      expect(await scene.a.threads.get(own)).not.toBeNull();
      expect(await scene.b.threads.delete({ fence, ...own, item: lease })).toEqual({ outcome: 'ok' });
      expect(await scene.a.threads.get(own)).toBeNull();
    });
  });
}
