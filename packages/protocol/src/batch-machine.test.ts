import { verifies } from '@reindeer/testkit';
import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { BatchDemand, BatchEvent, BatchStatus, ItemEvent, ItemState } from './index.ts';
import { isBatchOver, isItemHeld, isItemOver, reduceBatch, reduceItem, shareSlots } from './index.ts';

const held = { owner: fc.constantFrom('a', 'b'), epoch: fc.integer({ min: 0, max: 4 }) };
const maxAttempts = fc.constant(2);
const event: fc.Arbitrary<ItemEvent> = fc.oneof(
  fc.record({
    kind: fc.constantFrom('promote' as const, 'request-cancel' as const, 'cancel' as const, 'retry' as const),
  }),
  fc.record({ kind: fc.constant('claim' as const), owner: held.owner }),
  fc.record({ kind: fc.constantFrom('start' as const, 'release' as const), ...held }),
  fc.record({ kind: fc.constant('finish' as const), succeeded: fc.boolean(), maxAttempts, ...held }),
  fc.record({ kind: fc.constant('expire' as const), maxAttempts }),
);
const NEW: ItemState = { status: 'pending', attempt: 0, owner: null, epoch: 0, cancelRequested: false };
const reachable = fc
  .array(event, { maxLength: 20 })
  .map((events) => events.reduce((state, one) => reduceItem(state, one) ?? state, NEW));
const both = (predicate: (before: ItemState, one: ItemEvent, after: ItemState | null) => void) =>
  fc.assert(
    fc.property(reachable, event, (before, one) => predicate(before, one, reduceItem(Object.freeze(before), one))),
    { numRuns: 3000, seed: 1 },
  );

describe('reduceItem', () => {
  test('a held item has an owner, any other has none', async () => {
    await both((_before, _one, after) => {
      if (after !== null) expect(after.owner !== null).toBe(isItemHeld(after.status));
    });
  });

  test('an item that is over changes only by a retry of a failed one', verifies('BT-14'), async () => {
    await both((before, one, after) => {
      if (isItemOver(before.status)) expect(after !== null).toBe(one.kind === 'retry' && before.status === 'failed');
    });
  });

  test(
    'nobody but the holder moves a held item, except the end of its lease and a cancel',
    verifies('BT-08', 'BT-24'),
    async () => {
      await both((before, one, after) => {
        if (!isItemHeld(before.status) || after === null) return;
        if ('epoch' in one) expect([before.owner, before.epoch]).toEqual([one.owner, one.epoch]);
        else expect(['expire', 'cancel', 'request-cancel']).toContain(one.kind);
      });
    },
  );

  test('attempts stay within their limit, and epochs only grow', verifies('BT-05'), async () => {
    await both((before, _one, after) => {
      if (after === null) return;
      expect(after.attempt).toBeLessThanOrEqual(2);
      expect(after.attempt).toBeGreaterThanOrEqual(0);
      expect(after.epoch).toBeGreaterThanOrEqual(before.epoch);
    });
  });

  test('a cancel that was asked for never ends as a success', verifies('BT-09'), async () => {
    await both((before, _one, after) => {
      if (before.cancelRequested && before.status !== 'succeeded') expect(after?.status).not.toBe('succeeded');
    });
  });
});

describe('reduceBatch', () => {
  const all: readonly BatchStatus[] = ['queued', 'running', 'paused', 'completed', 'failed', 'cancelled'];
  const events: readonly BatchEvent[] = [
    { kind: 'pause' },
    { kind: 'resume' },
    { kind: 'cancel' },
    { kind: 'work' },
    { kind: 'end', succeeded: 1, failed: 0 },
    { kind: 'end', succeeded: 0, failed: 1 },
    { kind: 'end', succeeded: 1, failed: 1 },
    { kind: 'end', succeeded: 0, failed: 0 },
    { kind: 'reopen' },
  ];
  test('the whole table', verifies('BT-11', 'BT-12'), () => {
    const table = Object.fromEntries(all.map((status) => [status, events.map((one) => reduceBatch(status, one))]));
    const ends = ['completed', 'failed', 'completed', 'completed'];
    expect(table).toEqual({
      queued: ['paused', null, 'cancelled', 'running', ...ends, 'queued'],
      running: ['paused', null, 'cancelled', null, ...ends, 'running'],
      paused: [null, 'queued', 'cancelled', null, ...ends, 'paused'],
      completed: [null, null, null, null, null, null, null, null, 'queued'],
      failed: [null, null, null, null, null, null, null, null, 'queued'],
      cancelled: Array(9).fill(null),
    });
    for (const status of all) expect(isBatchOver(status)).toBe(['completed', 'failed', 'cancelled'].includes(status));
  });
});

describe('shareSlots', () => {
  const demand = fc.record({
    userId: fc.constantFrom('u1', 'u2', 'u3'),
    running: fc.integer({ min: 0, max: 5 }),
    maxRunning: fc.integer({ min: 1, max: 8 }),
    waiting: fc.integer({ min: 0, max: 9 }),
  });
  const demands = fc
    .array(demand, { maxLength: 8 })
    .map((list) => list.map((one, n): BatchDemand => ({ ...one, key: String(n) })));

  test('gives no more than there is, is wanted, or is allowed; and leaves nothing over that could be given', async () => {
    await fc.assert(
      fc.property(demands, fc.integer({ min: 0, max: 20 }), (list, limit) => {
        const shares = shareSlots(list, limit);
        const given = [...shares.values()].reduce((sum, share) => sum + share, 0);
        expect(given).toBeLessThanOrEqual(limit);
        let left = 0;
        for (const { key, running, maxRunning, waiting } of list) {
          const share = shares.get(key) ?? 0;
          const could = Math.max(Math.min(waiting, maxRunning - running), 0);
          expect(share).toBeLessThanOrEqual(could);
          left += could - share;
        }
        if (given < limit) expect(left).toBe(0);
      }),
      { numRuns: 2000, seed: 1 },
    );
  });

  test('a batch of thousands does not keep a small one waiting', () => {
    const big = { key: 'big', userId: 'u1', running: 7, maxRunning: 64, waiting: 5_000 };
    const small = { key: 'small', userId: 'u2', running: 0, maxRunning: 4, waiting: 3 };
    expect([...shareSlots([big, small], 4)]).toEqual([
      ['small', 3],
      ['big', 1],
    ]);
  });
});
