import type { Fence, Stores } from '@reindeer/protocol';
import { NO_USAGE } from '@reindeer/protocol';
import { describe, expect, test } from 'vitest';
import { verifies } from '../verifies.ts';
import type { StoresFactory } from './scene.ts';
import { checkpointPut, GRACE, LEASE, packed, scenes, T0 } from './scene.ts';

/** Renewal, takeover, and what a former holder can still do: nothing. Part of `runStoreContract`. */
export function leaseContract(factory: StoresFactory): void {
  const scene = scenes(factory);
  const holder = (fence: Fence, expiresAt: number, allowInterrupted = false) => ({
    runId: fence.runId,
    token: fence.token,
    expiresAt,
    allowInterrupted,
  });

  describe('renew', () => {
    test('answers for each holder, in one call', verifies('RL-01', 'RL-02', 'RL-32'), async () => {
      const s = await scene();
      const pending = await s.admit({ threadId: 't1' });
      const running = await s.running({ threadId: 't2' });
      const cancelled = await s.running({ threadId: 't3' });
      await s.b.runs.requestCancel({ runId: cancelled.run.runId, action: 'rollback', now: T0 });
      const ended = await s.ended('success', { threadId: 't4' });
      const stolen = await s.running({ threadId: 't5', owner: 'dead' });
      await s.claim({ deadOwners: ['dead'] });
      const superseded = await s.running({ threadId: 't6' });
      await s.admit({ threadId: 't6', multitaskStrategy: 'rollback' });
      const rolling = await s.running({ threadId: 't7' });
      await s.admit({ threadId: 't7', multitaskStrategy: 'rollback' });
      const reserved = await s.admit({ threadId: 't8', kind: 'delete' });

      const until = T0 + LEASE + 4000;
      const outcomes = await s.a.runs.renew({
        holders: [
          holder(pending.fence, until),
          holder(running.fence, until),
          holder(cancelled.fence, until),
          holder(ended.fence, until),
          holder(stolen.fence, until, true),
          holder(superseded.fence, until),
          holder(rolling.fence, until, true),
          holder(reserved.fence, until),
          holder({ runId: 'nobody', token: 'x' }, until),
        ],
        now: T0 + 4000,
      });
      const renewed = { outcome: 'renewed', expiresAt: until };
      expect(Object.fromEntries(outcomes)).toEqual({
        [pending.run.runId]: { ...renewed, cancelAction: null },
        [running.run.runId]: { ...renewed, cancelAction: null },
        [cancelled.run.runId]: { ...renewed, cancelAction: 'rollback' },
        [ended.run.runId]: { outcome: 'lost' },
        [stolen.run.runId]: { outcome: 'lost' },
        [superseded.run.runId]: { outcome: 'interrupted' },
        [rolling.run.runId]: { ...renewed, cancelAction: 'rollback' },
        [reserved.run.runId]: { ...renewed, cancelAction: null },
        nobody: { outcome: 'lost' },
      });
      // Only the renewed ones outlive the old lease.
      const claimed = await s.claim({ now: T0 + LEASE + GRACE + 1, skipRunIds: [stolen.run.runId] });
      const renewedIds = [pending, running, cancelled, rolling, reserved].map(({ run }) => run.runId);
      for (const { run } of claimed) expect(renewedIds).not.toContain(run.runId);
      expect(claimed.map(({ run }) => run.runId)).toContain(superseded.run.runId);
    });

    test('of nobody answers nothing', async () => {
      const s = await scene();
      expect((await s.a.runs.renew({ holders: [], now: T0 })).size).toBe(0);
    });

    test('never shortens a lease', verifies('RL-09'), async () => {
      const s = await scene();
      const { run, fence } = await s.running();
      const long = T0 + 60_000;
      await s.a.runs.renew({ holders: [holder(fence, long)], now: T0 });
      const late = await s.a.runs.renew({ holders: [holder(fence, T0 + 1000)], now: T0 });
      expect(late.get(run.runId)).toEqual({ outcome: 'renewed', expiresAt: long, cancelAction: null });
      expect(await s.claim({ now: long + GRACE - 1 })).toEqual([]);
      expect(await s.claim({ now: long + GRACE + 1 })).toHaveLength(1);
    });

    test('with 500 holders is one call', async () => {
      const s = await scene();
      const held = [];
      for (let n = 0; n < 500; n += 1) held.push(await s.admit({ threadId: `t${n}` }));
      const outcomes = await s.a.runs.renew({
        holders: held.map(({ fence }) => holder(fence, T0 + 99_000)),
        now: T0,
      });
      expect(outcomes.size).toBe(500);
      for (const outcome of outcomes.values()) expect(outcome.outcome).toBe('renewed');
    });
  });

  describe('claim', () => {
    test('takes a row whose lease ran out by more than the grace, and none before', verifies('RL-17'), async () => {
      const s = await scene();
      const { run } = await s.running();
      const before = await s.picture();
      expect(await s.claim({ now: T0 + LEASE - 1 })).toEqual([]);
      expect(await s.claim({ now: T0 + LEASE + GRACE - 1 })).toEqual([]);
      expect(await s.picture()).toEqual(before);
      const now = T0 + LEASE + GRACE + 1;
      const claimed = await s.claim({ now, tokens: ['fresh'] });
      expect(claimed).toMatchObject([
        {
          token: 'fresh',
          run: { runId: run.runId, status: 'pending', attempt: 1, owner: 'owner-b', acknowledged: false },
        },
      ]);
      // The new lease protects it from the next sweep.
      expect(await s.claim({ owner: 'owner-c', now: now + LEASE })).toEqual([]);
    });

    test('does not take a candidate that was renewed meanwhile', verifies('RL-19', 'RL-17'), async () => {
      const s = await scene();
      const { run, fence } = await s.running();
      const now = T0 + LEASE + GRACE + 1;
      const [outcomes, claimed] = await Promise.all([
        s.a.runs.renew({ holders: [holder(fence, now + LEASE)], now }),
        s.claim({ now }),
      ]);
      expect(outcomes.get(run.runId)?.outcome).toBe(claimed.length === 0 ? 'renewed' : 'lost');
      // Whoever was asked first has won; asked strictly one after the other, the renewal keeps the row.
      const second = await s.running({ threadId: 'other' });
      await s.a.runs.renew({ holders: [holder(second.fence, now + LEASE)], now });
      expect((await s.claim({ now })).map((one) => one.run.runId)).not.toContain(second.run.runId);
    });

    test('by many at once gives each row to one', verifies('RL-18'), async () => {
      const s = await scene();
      for (let n = 0; n < 9; n += 1) await s.running({ threadId: `t${n}` });
      const now = T0 + LEASE + GRACE + 1;
      const claims = await Promise.all(
        Array.from({ length: 6 }, (_, n) => s.claim({ owner: `peer-${n}`, now }, n % 2 === 0 ? s.a : s.b)),
      );
      const rows = claims.flat();
      expect(rows).toHaveLength(9);
      expect(new Set(rows.map(({ run }) => run.runId)).size).toBe(9);
      expect(new Set(rows.map(({ token }) => token)).size).toBe(9);
    });

    test('takes the rows of a dead owner at once, and of nobody else', async () => {
      const s = await scene();
      const dead = await s.running({ threadId: 't1', owner: 'host-1/dead' });
      const live = await s.running({ threadId: 't2', owner: 'host-1/live' });
      const claimed = await s.claim({ deadOwners: ['host-1/dead', 'host-1/older'] });
      expect(claimed.map(({ run }) => run.runId)).toEqual([dead.run.runId]);
      expect(await s.a.runs.get(live.run.runId)).toMatchObject({ owner: 'host-1/live', status: 'running' });
    });

    test('takes at once what its holder gave back, and nothing else of its', async () => {
      const s = await scene();
      const { run, fence } = await s.running({ threadId: 't1' });
      await s.running({ threadId: 't2' });
      const before = await s.picture();
      expect(await s.a.runs.relinquish(fence)).toEqual({ outcome: 'ok' });
      expect(await s.picture()).toEqual(before);
      expect((await s.claim()).map((one) => one.run.runId)).toEqual([run.runId]);
      expect(await s.a.runs.relinquish(fence)).toEqual({ outcome: 'fenced' });
      expect(await s.claim()).toEqual([]);
    });

    test('leaves alone what the caller holds itself', verifies('RL-20'), async () => {
      const s = await scene();
      const { run } = await s.running();
      expect(await s.claim({ now: T0 + 1e9, skipRunIds: [run.runId] })).toEqual([]);
      expect(await s.claim({ now: T0 + 1e9, deadOwners: ['owner-a'], skipRunIds: [run.runId] })).toEqual([]);
    });

    test('takes no more rows than it has tokens, the oldest first', async () => {
      const s = await scene();
      const rows = [];
      for (let n = 0; n < 4; n += 1) rows.push(await s.running({ threadId: `t${n}`, now: T0 + n }));
      const claimed = await s.claim({ now: T0 + 1e9, tokens: ['x', 'y'] });
      expect(claimed.map(({ run, token }) => [run.runId, token])).toEqual([
        [rows[0]?.run.runId, 'x'],
        [rows[1]?.run.runId, 'y'],
      ]);
      expect(await s.claim({ now: T0 + 1e9, tokens: [] })).toEqual([]);
    });

    test('takes superseded rows and reservations too, which keep their state', async () => {
      const s = await scene();
      const superseded = await s.running({ threadId: 't1' });
      const next = await s.admit({ threadId: 't1', multitaskStrategy: 'rollback' });
      const reserved = await s.admit({ threadId: 't2', kind: 'checkpoint_write' });
      const ended = await s.ended('success', { threadId: 't3' });
      const claimed = await s.claim({ now: T0 + 1e9 });
      expect(new Map(claimed.map(({ run }) => [run.runId, run.status]))).toEqual(
        new Map([
          [superseded.run.runId, 'interrupted'],
          [next.run.runId, 'pending'],
          [reserved.run.runId, 'pending'],
        ]),
      );
      expect(await s.a.runs.get(ended.run.runId)).toMatchObject({ status: 'success', owner: null });
      const token = claimed.find(({ run }) => run.runId === reserved.run.runId)?.token ?? '';
      expect(await s.b.runs.release({ runId: reserved.run.runId, token })).toEqual({
        outcome: 'ok',
        waiting: false,
      });
    });
  });

  describe('a stale token', () => {
    /** Every method that acts for a holder, as a former holder would call it. */
    const calls: Record<string, (stores: Stores, fence: Fence) => Promise<unknown>> = {
      start: (stores, fence) => stores.runs.start({ fence, checkpointBefore: 'x', now: T0 + 50_000 }),
      ...Object.fromEntries(
        (['success', 'error', 'timeout', 'interrupted'] as const).map((status) => [
          `finalize ${status}`,
          (stores: Stores, fence: Fence) =>
            stores.runs.finalize({
              fence,
              status,
              error: 'late',
              stopReason: 'late',
              usage: { ...NO_USAGE, modelCalls: 9 },
              unlessCancelled: false,
              now: T0 + 50_000,
            }),
        ]),
      ),
      release: (stores, fence) => stores.runs.release(fence),
      relinquish: (stores, fence) => stores.runs.relinquish(fence),
      'log append': (stores, fence) =>
        stores.log.append({
          fence,
          threadId: 'thread',
          facts: [{ key: 'late', body: { kind: 'custom', ns: '', data: 'late' } }],
          now: T0 + 50_000,
        }),
      'journal begin': (stores, fence) =>
        stores.journal.begin({
          fence,
          key: { threadId: 'thread', messageId: 'new', index: 0 },
          toolCallId: null,
          name: 'bash',
          attempt: 1,
          again: true,
          now: T0 + 50_000,
        }),
      'journal begin again': (stores, fence) =>
        stores.journal.begin({
          fence,
          key: { threadId: 'thread', messageId: 'm', index: 0 },
          toolCallId: null,
          name: 'bash',
          attempt: 1,
          again: true,
          now: T0 + 50_000,
        }),
      'journal finish': (stores, fence) =>
        stores.journal.finish({
          fence,
          key: { threadId: 'thread', messageId: 'm', index: 0 },
          outcome: 'ok',
          result: packed('late'),
          now: T0 + 50_000,
        }),
      'journal retract': (stores, fence) =>
        stores.journal.retract({ fence, key: { threadId: 'thread', messageId: 'm', index: 0 } }),
      'checkpoint put': (stores, fence) => stores.checkpoints.put(checkpointPut(fence, 'c9')),
      'checkpoint putWrites': (stores, fence) =>
        stores.checkpoints.putWrites({
          fence,
          threadId: 'thread',
          ns: '',
          checkpointId: 'c1',
          taskId: 'task',
          taskPath: '',
          replace: true,
          writes: [{ index: 0, channel: 'text', type: 'json', value: packed('late') }],
          facts: [{ key: 'late', body: { kind: 'custom', ns: '', data: 'late' } }],
          now: T0 + 50_000,
        }),
      'checkpoint rollback': (stores, fence) =>
        stores.checkpoints.rollback({ fence, threadId: 'thread', checkpointId: '', now: T0 + 50_000 }),
      'thread delete': (stores, fence) => stores.threads.delete({ fence, threadId: 'thread', userId: 'user' }),
    };

    for (const [name, call] of Object.entries(calls))
      test(`changes nothing: ${name}`, verifies('RL-08', 'RL-32'), async () => {
        const s = await scene();
        const { run, fence } = await s.running();
        await s.a.checkpoints.put(checkpointPut(fence, 'c1'));
        await s.a.journal.begin({
          fence,
          key: { threadId: 'thread', messageId: 'm', index: 0 },
          toolCallId: 'call',
          name: 'bash',
          attempt: 1,
          again: false,
          now: T0,
        });
        const claimed = await s.claim({ deadOwners: ['owner-a'] });
        expect(claimed).toHaveLength(1);
        const before = await s.picture();
        expect(await call(s.a, fence)).toEqual({ outcome: 'fenced' });
        expect(await call(s.a, { runId: run.runId, token: '' })).toEqual({ outcome: 'fenced' });
        expect(await call(s.a, { runId: 'nobody', token: fence.token })).toEqual({ outcome: 'fenced' });
        expect(await s.picture()).toEqual(before);

        // The new holder starts, and the old one is as powerless as before.
        const current = { runId: run.runId, token: claimed[0]?.token ?? '' };
        await s.start(current);
        const later = await s.picture();
        expect(await call(s.a, fence)).toEqual({ outcome: 'fenced' });
        expect(await s.picture()).toEqual(later);
      });

    test(
      'of an acknowledged run opens nothing: the terminal fact is the last one',
      verifies('RT-27', 'RL-08'),
      async () => {
        const s = await scene();
        const { fence } = await s.running();
        await s.a.checkpoints.put(checkpointPut(fence, 'c1'));
        await s.finalize(fence, 'success');
        const before = await s.picture();
        for (const name of [
          'log append',
          'journal begin',
          'journal finish',
          'journal retract',
          'checkpoint put',
          'checkpoint putWrites',
          'checkpoint rollback',
          'thread delete',
          'release',
          'relinquish',
        ])
          expect([name, await calls[name]?.(s.a, fence)]).toEqual([name, { outcome: 'fenced' }]);
        expect(await s.picture()).toEqual(before);
      },
    );

    test('of another thread’s run opens nothing', verifies('RL-32'), async () => {
      const s = await scene();
      await s.running();
      const other = await s.running({ threadId: 'other' });
      const before = await s.picture();
      for (const name of [
        'log append',
        'journal begin',
        'checkpoint put',
        'checkpoint putWrites',
        'checkpoint rollback',
        'thread delete',
      ])
        expect([name, await calls[name]?.(s.a, other.fence)]).toEqual([name, { outcome: 'fenced' }]);
      expect(await s.picture()).toEqual(before);
    });
  });
}
