import type { AdmissionResult, Run } from '@reindeer/protocol';
import { describe, expect, test } from 'vitest';
import { verifies } from '../verifies.ts';
import type { Scene, StoresFactory } from './scene.ts';
import { GRACE, LEASE, scenes, T0 } from './scene.ts';

const enqueue = (s: Scene, part: Parameters<Scene['admission']>[0] = {}, stores = s.a): Promise<AdmissionResult> =>
  stores.runs.admit(s.admission({ multitaskStrategy: 'enqueue', queueLimit: 3, ...part }));

async function queued(s: Scene, part: Parameters<Scene['admission']>[0] = {}): Promise<Run> {
  const result = await enqueue(s, part);
  if (result.outcome !== 'queued') throw new Error(`Not queued: ${JSON.stringify(result)}`);
  return result.run;
}

const take = (s: Scene, token: string, stores = s.a): Promise<Run | null> =>
  stores.runs.takeQueued({ threadId: 'thread', owner: 'owner-b', token, leaseExpiresAt: T0 + LEASE, now: T0 });

/** Runs that wait for their turn on a thread: strategy `enqueue`. Part of `runStoreContract`. */
export function queueContract(factory: StoresFactory): void {
  const scene = scenes(factory);

  describe('the queue of a thread', () => {
    test('a run of an idle thread does not wait; one behind it does, held by nobody', verifies('RA-01'), async () => {
      const s = await scene();
      const first = await enqueue(s);
      expect(first).toMatchObject({ outcome: 'admitted', run: { status: 'pending', queued: false } });
      const second = await enqueue(s, {}, s.b);
      expect(second).toMatchObject({
        outcome: 'queued',
        ahead: 0,
        free: false,
        run: { status: 'pending', queued: true, owner: null, acknowledged: false, attempt: 0 },
      });
      expect(await enqueue(s)).toMatchObject({ outcome: 'queued', ahead: 1 });
      const id = second.outcome === 'queued' ? second.run.runId : '';
      expect(await s.b.runs.get(id)).toEqual(second.outcome === 'queued' && second.run);
      const own = { threadId: 'thread', userId: 'user' };
      const list = await s.a.runs.list({ ...own, status: 'pending', limit: 10, offset: 0 });
      expect(list.map((run) => run.queued)).toEqual([true, true, false]);
      expect(await s.a.runs.active('thread')).toHaveLength(1);
      expect((await s.a.threads.get(own))?.status).toBe('busy');
      expect(await s.history()).toEqual(list.map((run) => `${run.runId} pending 0`).reverse());
    });

    test('goes on in the order of admission, one at a time, when nothing has the thread any more', async () => {
      const s = await scene();
      const { run, fence } = await s.running();
      const waiting = [await queued(s), await queued(s)];
      expect(await take(s, 't1')).toBeNull();
      expect(await s.a.runs.freeQueues(10)).toEqual([]);
      expect(await s.finalize(fence, 'success')).toMatchObject({ outcome: 'finalized', waiting: true });
      expect((await s.a.threads.get({ threadId: 'thread', userId: 'user' }))?.status).toBe('busy');
      expect(await s.b.runs.freeQueues(10)).toEqual(['thread']);
      const all = await Promise.all(Array.from({ length: 10 }, (_, n) => take(s, `t${n}`, n % 2 === 0 ? s.a : s.b)));
      const won = all.findIndex((taken) => taken !== null);
      expect(all.filter((taken) => taken !== null)).toMatchObject([
        { runId: waiting[0]?.runId, status: 'pending', queued: false, owner: 'owner-b' },
      ]);
      // The same call again, because its answer was lost, is the same answer; and its token is the right.
      expect(await take(s, `t${won}`)).toEqual(all[won]);
      expect(await s.a.runs.freeQueues(10)).toEqual([]);
      const second = { runId: waiting[0]?.runId ?? '', token: `t${won}` };
      expect(await s.a.runs.start({ fence: second, checkpointBefore: '', now: T0 })).toMatchObject({
        outcome: 'started',
        run: { attempt: 1 },
      });
      expect(await take(s, 'other')).toBeNull();
      await s.finalize(second, 'error');
      expect(await take(s, 'third')).toMatchObject({ runId: waiting[1]?.runId });
      expect(await s.finalize({ runId: waiting[1]?.runId ?? '', token: 'third' }, 'success')).toMatchObject({
        outcome: 'finalized',
        waiting: false,
      });
      expect(await take(s, 'fourth')).toBeNull();
      expect((await s.a.runs.get(run.runId))?.status).toBe('success');
    });

    test('a run that is replaced and not yet acknowledged has the thread still', async () => {
      const s = await scene();
      const { fence } = await s.running();
      const { fence: newer } = await s.admit({ multitaskStrategy: 'interrupt' });
      await queued(s);
      await s.finalize(newer, 'success');
      expect(await take(s, 't1')).toBeNull();
      expect(await s.finalize(fence, 'interrupted')).toMatchObject({ waiting: true });
      expect(await take(s, 't1')).not.toBeNull();
    });

    test('is bounded, and a full one changes nothing', async () => {
      const s = await scene();
      const { run } = await s.running();
      for (let n = 0; n < 3; n += 1) await queued(s);
      const before = await s.history();
      const input = s.admission({ multitaskStrategy: 'enqueue', queueLimit: 3 });
      expect(await s.a.runs.admit(input)).toMatchObject({
        outcome: 'conflict',
        reason: 'queue_full',
        active: { runId: run.runId },
      });
      expect(await s.a.runs.get(input.runId)).toBeNull();
      expect(await s.history()).toEqual(before);
      // Another thread has a queue of its own.
      expect(await enqueue(s, { threadId: 'other' })).toMatchObject({ outcome: 'admitted' });
    });

    test('of many at once each has its place', verifies('RA-01'), async () => {
      const s = await scene();
      const results = await Promise.all(
        Array.from({ length: 12 }, (_, n) => enqueue(s, { queueLimit: 8 }, n % 2 === 0 ? s.a : s.b)),
      );
      const outcomes = results.map((result) => (result.outcome === 'conflict' ? result.reason : result.outcome));
      expect(outcomes.sort()).toEqual(['admitted', ...Array(3).fill('queue_full'), ...Array(8).fill('queued')]);
      const places = results.flatMap((result) => (result.outcome === 'queued' ? [result.ahead] : []));
      expect(places.sort()).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
    });

    test('is busy for whoever does not wait, also while nothing has the thread', verifies('RA-08'), async () => {
      const s = await scene();
      const { fence } = await s.running();
      const waiting = await queued(s);
      await s.finalize(fence, 'success');
      const busy = { outcome: 'conflict', reason: 'busy', active: { runId: waiting.runId, queued: true } };
      expect(await s.a.runs.admit(s.admission())).toMatchObject(busy);
      for (const kind of ['delete', 'checkpoint_write'] as const)
        expect(await s.b.runs.admit(s.admission({ kind }))).toMatchObject(busy);
      // Nobody gets ahead of it.
      expect(await enqueue(s)).toMatchObject({ outcome: 'queued', ahead: 1, free: true });
      expect(await take(s, 't1')).toMatchObject({ runId: waiting.runId });
    });

    test('waits behind an edit of the thread, and not behind its deletion', verifies('RA-08'), async () => {
      const s = await scene();
      await s.a.threads.create({ threadId: 'thread', userId: 'user', metadata: {}, now: T0 });
      const edit = await s.admit({ kind: 'checkpoint_write' });
      const waiting = await queued(s);
      expect(await take(s, 't1')).toBeNull();
      expect(await s.a.runs.release(edit.fence)).toEqual({ outcome: 'ok', waiting: true });
      expect(await take(s, 't1')).toMatchObject({ runId: waiting.runId });
      await s.finalize({ runId: waiting.runId, token: 't1' }, 'success');
      const removal = await s.admit({ kind: 'delete' });
      expect(await enqueue(s)).toMatchObject({ outcome: 'conflict', reason: 'reserved' });
      expect(await s.a.runs.release(removal.fence)).toEqual({ outcome: 'ok', waiting: false });
    });

    test('a cancelled run leaves it at once, with its end in the log', verifies('RL-14', 'RT-03'), async () => {
      const s = await scene();
      const { run, fence } = await s.running();
      const [second, third] = [await queued(s), await queued(s)];
      const cancel = { runId: second.runId, action: 'rollback' as const, now: T0 + 5 };
      expect(await s.b.runs.requestCancel(cancel)).toMatchObject({
        outcome: 'terminal',
        run: {
          status: 'interrupted',
          queued: false,
          acknowledged: true,
          error: 'Cancelled by user',
          cancelAction: 'rollback',
          endedAt: T0 + 5,
        },
      });
      // Once: a repeat writes nothing.
      expect(await s.b.runs.requestCancel(cancel)).toMatchObject({ outcome: 'terminal' });
      expect((await s.history()).filter((line) => line.startsWith(`${second.runId} `))).toEqual([
        `${second.runId} pending 0`,
        `${second.runId} delivery`,
        `${second.runId} interrupted end 0`,
      ]);
      expect((await s.a.runs.get(run.runId))?.cancelAction).toBeNull();
      await s.finalize(fence, 'success');
      expect(await take(s, 't1')).toMatchObject({ runId: third.runId });
    });

    test('ends with what a newer run replaces, or not at all', verifies('RA-09', 'RA-05'), async () => {
      const s = await scene();
      const { run } = await s.running();
      const waiting = await queued(s);
      const before = await s.history();
      const foreign = s.admission({ owner: 'owner-b', multitaskStrategy: 'rollback' });
      expect(await s.b.runs.admit(foreign)).toMatchObject({ outcome: 'conflict', reason: 'live_elsewhere' });
      expect(await s.a.runs.get(waiting.runId)).toMatchObject({ queued: true, acknowledged: false });
      expect(await s.history()).toEqual(before);
      const newest = await s.a.runs.admit(s.admission({ multitaskStrategy: 'interrupt', now: T0 + 1 }));
      expect(newest).toMatchObject({ outcome: 'admitted', superseded: [{ runId: run.runId, acknowledged: false }] });
      expect(await s.a.runs.get(waiting.runId)).toMatchObject({
        status: 'interrupted',
        queued: false,
        acknowledged: true,
        error: 'Cancelled by newer run',
      });
      expect(await s.history()).toContain(`${waiting.runId} interrupted end 0`);
    });

    test('the same key is the same run, while it waits and after its end', verifies('RA-14', 'RA-15'), async () => {
      const s = await scene();
      const { fence } = await s.running();
      const part = { idempotencyKey: 'key', payloadHash: 'body' };
      const waiting = await queued(s, part);
      const again = () => enqueue(s, part, s.b);
      expect(await again()).toMatchObject({ outcome: 'reused', run: { runId: waiting.runId, queued: true } });
      expect(await enqueue(s, { ...part, payloadHash: 'other' })).toMatchObject({ reason: 'key_reused' });
      await s.finalize(fence, 'success');
      await take(s, 't1');
      await s.finalize({ runId: waiting.runId, token: 't1' }, 'success');
      expect(await again()).toMatchObject({ outcome: 'reused', run: { runId: waiting.runId, status: 'success' } });
    });

    test('nobody can claim, renew, start or end what nobody holds', verifies('RL-17'), async () => {
      const s = await scene();
      const { fence } = await s.running();
      const waiting = await queued(s);
      const claimed = await s.claim({ now: T0 + LEASE + GRACE + 1, tokens: ['c1', 'c2', 'c3'] });
      expect(claimed.map(({ run }) => run.runId)).toEqual([fence.runId]);
      const nobody = { runId: waiting.runId, token: '' };
      expect(await s.a.runs.start({ fence: nobody, checkpointBefore: '', now: T0 })).toEqual({ outcome: 'fenced' });
      expect(await s.finalize(nobody, 'success')).toEqual({ outcome: 'fenced' });
      const holder = { ...nobody, expiresAt: T0 + LEASE, allowInterrupted: true };
      expect((await s.a.runs.renew({ holders: [holder], now: T0 })).get(waiting.runId)).toEqual({ outcome: 'lost' });
      expect(await s.a.runs.remove({ runId: waiting.runId, userId: 'user' })).toBe('active');
      expect(await s.a.runs.get(waiting.runId)).toEqual(waiting);
    });
  });
}
