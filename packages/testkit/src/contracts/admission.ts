import { describe, expect, test } from 'vitest';
import { verifies } from '../verifies.ts';
import type { StoresFactory } from './scene.ts';
import { GRACE, LEASE, scenes, T0 } from './scene.ts';

/** How a store admits runs and reservations: one transaction, decided by the store. Part of `runStoreContract`. */
export function admissionContract(factory: StoresFactory): void {
  const scene = scenes(factory);

  describe('admission', () => {
    test('of many at once on one thread exactly one wins', verifies('RA-01', 'RA-02'), async () => {
      const s = await scene();
      const inputs = Array.from({ length: 20 }, () => s.admission());
      const results = await Promise.all(inputs.map((input, index) => (index % 2 === 0 ? s.a : s.b).runs.admit(input)));
      const winners = results.filter((result) => result.outcome === 'admitted');
      expect(winners).toHaveLength(1);
      const active = await s.a.runs.active('thread');
      expect(active.map((run) => run.runId)).toEqual([winners[0]?.outcome === 'admitted' && winners[0].run.runId]);
      for (const result of results)
        if (result.outcome !== 'admitted')
          expect(result).toMatchObject({ outcome: 'conflict', reason: 'busy', active: { runId: active[0]?.runId } });
      for (const { runId } of inputs) expect((await s.b.runs.get(runId)) !== null).toBe(runId === active[0]?.runId);
      expect(await s.history()).toEqual([`${active[0]?.runId} pending 0`]);
    });

    test('with interrupt of many at once leaves one active', verifies('RA-01', 'RA-09'), async () => {
      const s = await scene();
      const results = await Promise.all(
        Array.from({ length: 12 }, () => s.a.runs.admit(s.admission({ multitaskStrategy: 'interrupt' }))),
      );
      expect(results.map((result) => result.outcome)).toEqual(new Array(12).fill('admitted'));
      const rows = await s.a.runs.active('thread');
      expect(rows.filter((run) => run.status === 'pending')).toHaveLength(1);
      expect(rows.filter((run) => run.status === 'interrupted')).toHaveLength(11);
    });

    test('threads do not stand in each other’s way', async () => {
      const s = await scene();
      await s.admit({ threadId: 'one' });
      await s.admit({ threadId: 'two' });
      expect((await s.a.runs.active('one')).map((run) => run.threadId)).toEqual(['one']);
    });

    test('writes the row as it was asked for, pending and without an attempt', async () => {
      const s = await scene();
      const input = s.admission({
        request: {
          input: { messages: [{ type: 'human', content: 'Grüße 🦌', tags: [1, 2.5, null, true] }] },
          command: null,
          config: { recursion_limit: 50 },
          context: { model_name: 'm' },
          streamModes: ['values', 'custom'],
          streamSubgraphs: true,
          checkpointId: 'c',
          interruptBefore: '*',
          interruptAfter: ['tools'],
        },
        metadata: { source: 'test', nested: { deep: [1] } },
        idempotencyKey: 'key',
        onDisconnect: 'cancel',
        crashPolicy: 'error',
        multitaskStrategy: 'rollback',
      });
      const result = await s.a.runs.admit(input);
      expect(result.outcome).toBe('admitted');
      const { token: _token, leaseExpiresAt: _lease, createThread: _create, now, ...asked } = input;
      expect(await s.b.runs.get(input.runId)).toEqual({
        ...asked,
        status: 'pending',
        queued: false,
        attempt: 0,
        acknowledged: false,
        cancelAction: null,
        cancelRequestedAt: null,
        checkpointBefore: null,
        error: null,
        stopReason: null,
        usage: { inputTokens: 0, outputTokens: 0, totalTokens: 0, modelCalls: 0 },
        createdAt: now,
        updatedAt: now,
        startedAt: null,
        endedAt: null,
      });
    });

    test('creates the thread only when asked, and never over another user’s', async () => {
      const s = await scene();
      const missing = s.admission({ createThread: false });
      expect(await s.a.runs.admit(missing)).toEqual({ outcome: 'thread_not_found' });
      expect(await s.a.threads.get({ threadId: 'thread', userId: 'user' })).toBeNull();
      await s.ended('success');
      expect(await s.a.threads.get({ threadId: 'thread', userId: 'user' })).toMatchObject({ status: 'idle' });
      const before = await s.picture();
      expect(await s.a.runs.admit(s.admission({ userId: 'intruder' }))).toEqual({ outcome: 'thread_not_found' });
      expect(await s.picture()).toEqual(before);
      expect((await s.a.runs.admit(s.admission({ createThread: false }))).outcome).toBe('admitted');
    });

    for (const strategy of ['interrupt', 'rollback'] as const) {
      test(
        `${strategy} against a live lease of another owner changes nothing`,
        verifies('RA-04', 'RA-05', 'RL-28'),
        async () => {
          const s = await scene();
          const { run } = await s.running();
          const before = await s.picture();
          const input = s.admission({ owner: 'owner-b', multitaskStrategy: strategy, now: T0 + LEASE - 1 });
          expect(await s.b.runs.admit(input)).toMatchObject({
            outcome: 'conflict',
            reason: 'live_elsewhere',
            active: { runId: run.runId },
            leaseLeftMs: 1,
          });
          expect(await s.picture()).toEqual(before);
          expect(await s.a.runs.get(input.runId)).toBeNull();
        },
      );

      test(
        `${strategy} replaces an own live run, and one whose lease ran out`,
        verifies('RA-06', 'RA-09'),
        async () => {
          const s = await scene();
          const first = await s.running();
          const second = await s.a.runs.admit(s.admission({ multitaskStrategy: strategy }));
          expect(second).toMatchObject({
            outcome: 'admitted',
            superseded: [
              {
                runId: first.run.runId,
                status: 'interrupted',
                acknowledged: false,
                cancelAction: strategy,
                error: 'Cancelled by newer run',
              },
            ],
          });
          const third = await s.b.runs.admit(
            s.admission({ owner: 'owner-b', multitaskStrategy: strategy, now: T0 + LEASE + 1 }),
          );
          const secondId = second.outcome === 'admitted' ? second.run.runId : '';
          expect(third).toMatchObject({
            outcome: 'admitted',
            superseded: [{ runId: secondId, status: 'interrupted' }],
          });
          // D2: a superseded row has no terminal fact before its holder acknowledges it.
          expect((await s.history()).filter((line) => line.includes('interrupted'))).toEqual([]);
        },
      );
    }

    test('a run that is being finalized blocks reject and is not interrupted again', verifies('RA-10'), async () => {
      const s = await scene();
      const first = await s.running();
      const second = await s.admit({ multitaskStrategy: 'rollback' });
      await s.finalize(second.fence, 'interrupted');
      const waiting = await s.a.runs.get(first.run.runId);
      expect(await s.a.runs.admit(s.admission())).toMatchObject({
        outcome: 'conflict',
        reason: 'busy',
        active: { runId: first.run.runId },
      });
      const third = await s.a.runs.admit(s.admission({ multitaskStrategy: 'interrupt', now: T0 + 5 }));
      expect(third).toMatchObject({ outcome: 'admitted', superseded: [] });
      expect(await s.a.runs.get(first.run.runId)).toEqual(waiting);
      expect((await s.a.runs.active('thread')).map((run) => run.runId).sort()).toEqual(
        [first.run.runId, third.outcome === 'admitted' ? third.run.runId : ''].sort(),
      );
    });

    test(
      'a cancel that was recorded first keeps its action when the run is superseded',
      verifies('RL-12'),
      async () => {
        const s = await scene();
        const { run } = await s.running();
        await s.a.runs.requestCancel({ runId: run.runId, action: 'rollback', now: T0 + 1 });
        await s.admit({ multitaskStrategy: 'interrupt', now: T0 + 2 });
        expect(await s.a.runs.get(run.runId)).toMatchObject({ cancelAction: 'rollback', cancelRequestedAt: T0 + 1 });
      },
    );
  });

  describe('reservations', () => {
    test('a live one is never superseded, by nobody; an expired one is reclaimed', verifies('RA-07'), async () => {
      const s = await scene();
      const held = await s.admit({ kind: 'checkpoint_write' });
      const before = await s.picture();
      for (const owner of ['owner-a', 'owner-b'])
        for (const multitaskStrategy of ['reject', 'interrupt', 'rollback'] as const)
          expect(await s.b.runs.admit(s.admission({ owner, multitaskStrategy }))).toMatchObject({
            outcome: 'conflict',
            reason: 'reserved',
            active: { runId: held.run.runId, kind: 'checkpoint_write' },
          });
      expect(await s.picture()).toEqual(before);
      const late = await s.b.runs.admit(
        s.admission({ owner: 'owner-b', multitaskStrategy: 'interrupt', now: T0 + LEASE + GRACE + 1 }),
      );
      expect(late).toMatchObject({ outcome: 'admitted', superseded: [] });
      expect(await s.a.runs.get(held.run.runId)).toBeNull();
      expect(await s.a.runs.release(held.fence)).toEqual({ outcome: 'fenced' });
    });

    test('block runs until they are released, and runs block them', verifies('RA-08'), async () => {
      const s = await scene();
      const held = await s.admit({ kind: 'artifact_write' });
      expect((await s.b.runs.admit(s.admission())).outcome).toBe('conflict');
      expect(await s.a.runs.release({ ...held.fence, token: 'stale' })).toEqual({ outcome: 'fenced' });
      expect((await s.b.runs.admit(s.admission())).outcome).toBe('conflict');
      expect(await s.a.runs.release(held.fence)).toEqual({ outcome: 'ok', waiting: false });
      const run = await s.admit({ owner: 'owner-b' }, s.b);
      expect(await s.a.runs.admit(s.admission({ kind: 'delete' }))).toMatchObject({
        outcome: 'conflict',
        reason: 'busy',
        active: { runId: run.run.runId },
      });
      // A run is no reservation: it ends by its terminal write only.
      expect(await s.b.runs.release(run.fence)).toEqual({ outcome: 'fenced' });
      expect((await s.b.runs.get(run.run.runId))?.status).toBe('pending');
    });

    test('stay out of listings and of the history', async () => {
      const s = await scene();
      await s.ended('success');
      const history = await s.history();
      const held = await s.admit({ kind: 'delete' });
      expect(
        await s.a.runs.list({ threadId: 'thread', userId: 'user', status: null, limit: 10, offset: 0 }),
      ).toHaveLength(1);
      expect((await s.a.runs.active('thread')).map((run) => run.runId)).toEqual([held.run.runId]);
      expect(await s.history()).toEqual(history);
      expect(await s.a.threads.get({ threadId: 'thread', userId: 'user' })).toMatchObject({ status: 'idle' });
    });
  });

  describe('idempotency keys', () => {
    test('give one run however many ask at once, on whichever instance', verifies('RA-14', 'RA-16'), async () => {
      const s = await scene();
      const inputs = Array.from({ length: 12 }, () => s.admission({ idempotencyKey: 'key' }));
      const results = await Promise.all(inputs.map((input, index) => (index % 2 === 0 ? s.a : s.b).runs.admit(input)));
      expect(results.map((result) => result.outcome).sort()).toEqual(['admitted', ...new Array(11).fill('reused')]);
      const ids = results.map((result) => ('run' in result ? result.run.runId : null));
      expect(new Set(ids).size).toBe(1);
      expect(await s.history()).toEqual([`${ids[0]} pending 0`]);
    });

    test(
      'give the run of then, also after its end, and before a busy thread is looked at',
      verifies('RA-14'),
      async () => {
        const s = await scene();
        const first = await s.ended('error', { idempotencyKey: 'key' });
        await s.running();
        const before = await s.picture();
        expect(
          await s.b.runs.admit(s.admission({ idempotencyKey: 'key', multitaskStrategy: 'interrupt' })),
        ).toMatchObject({
          outcome: 'reused',
          run: { runId: first.run.runId, status: 'error' },
        });
        expect(await s.picture()).toEqual(before);
      },
    );

    test('with another thread or another payload are refused, and nothing is created', verifies('RA-15'), async () => {
      const s = await scene();
      await s.running({ idempotencyKey: 'key' });
      const before = await s.picture();
      const elsewhere = s.admission({ idempotencyKey: 'key', threadId: 'elsewhere' });
      const changed = s.admission({ idempotencyKey: 'key', payloadHash: 'other', multitaskStrategy: 'interrupt' });
      for (const input of [elsewhere, changed]) {
        expect(await s.a.runs.admit(input)).toMatchObject({ outcome: 'conflict', reason: 'key_reused' });
        expect(await s.a.runs.get(input.runId)).toBeNull();
      }
      expect(await s.a.threads.get({ threadId: 'elsewhere', userId: 'user' })).toBeNull();
      expect(await s.picture()).toEqual(before);
    });

    test('never hand out another user’s run', async () => {
      const s = await scene();
      const mine = await s.running({ idempotencyKey: 'key' });
      const theirs = await s.a.runs.admit(s.admission({ idempotencyKey: 'key', threadId: 'theirs', userId: 'other' }));
      expect(JSON.stringify(theirs)).not.toContain(mine.run.runId);
    });

    test('of a refused admission stay free', async () => {
      const s = await scene();
      const first = await s.running();
      expect((await s.a.runs.admit(s.admission({ idempotencyKey: 'key' }))).outcome).toBe('conflict');
      await s.finalize(first.fence, 'success');
      expect((await s.a.runs.admit(s.admission({ idempotencyKey: 'key' }))).outcome).toBe('admitted');
    });
  });
}
