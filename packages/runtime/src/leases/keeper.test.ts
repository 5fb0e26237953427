import type { CancelAction, LeaseHolder, RenewOutcome } from '@reindeer/protocol';
import { deferred, testSurroundings, verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { LeaseKeeper, type LeaseListener } from './keeper.ts';

type Answer = (holder: LeaseHolder) => RenewOutcome;
const renewed =
  (cancelAction: CancelAction | null = null): Answer =>
  (holder) => ({ outcome: 'renewed', expiresAt: holder.expiresAt, cancelAction });

/** A keeper over a scripted store; `events` is what the holders heard, in order. */
function scene() {
  const surroundings = testSurroundings();
  const { clock } = surroundings;
  const calls: LeaseHolder[][] = [];
  const events: string[] = [];
  let answer: (holders: readonly LeaseHolder[]) => Promise<ReadonlyMap<string, RenewOutcome>>;
  const each = (by: Answer) => async (holders: readonly LeaseHolder[]) =>
    new Map(holders.map((holder) => [holder.runId, by(holder)]));
  answer = each(renewed());
  const keeper = new LeaseKeeper({
    runs: {
      renew: ({ holders }) => {
        calls.push([...holders]);
        return answer(holders);
      },
    },
    surroundings,
    settings: { leaseMs: 12_000, beatMs: 4_000 },
  });
  const listener = (runId: string, more: Partial<LeaseListener> = {}): LeaseListener => ({
    allowInterrupted: () => false,
    onLost: (why) => events.push(`${runId} lost ${why}`),
    onInterrupted: () => events.push(`${runId} interrupted`),
    onCancel: (action) => events.push(`${runId} cancel ${action}`),
    ...more,
  });
  return {
    clock,
    keeper,
    calls,
    events,
    hold: (runId: string, more: Partial<LeaseListener> = {}, token = 't') =>
      keeper.hold({ runId, token }, clock.monotonic(), listener(runId, more)),
    answerEach: (by: Answer) => {
      answer = each(by);
    },
    answerBy: (by: (holders: readonly LeaseHolder[]) => Promise<ReadonlyMap<string, RenewOutcome>>) => {
      answer = by;
    },
  };
}

describe('the lease keeper', () => {
  test(
    'renews everything that is held in one call per beat, whether its work has begun or not',
    verifies('RL-01', 'RL-02'),
    async () => {
      const s = scene();
      s.keeper.start();
      s.hold('a');
      s.hold('b');
      s.hold('gone');
      s.keeper.drop({ runId: 'gone', token: 't' });
      await s.clock.advance(4_000);
      expect(s.calls.map((holders) => holders.map(({ runId }) => runId))).toEqual([['a', 'b']]);
      await s.clock.advance(40_000);
      expect(s.events).toEqual([]);
      await s.keeper.stop();
      expect(s.clock.sleeping).toBe(0);
    },
  );

  test(
    'a store that cannot answer is not a no: the lease lives until its deadline, and not longer',
    verifies('RL-03', 'RL-04'),
    async () => {
      const s = scene();
      s.keeper.start();
      s.hold('a');
      await s.clock.advance(4_000);
      s.answerBy(() => Promise.reject(new Error('down')));
      await s.clock.advance(7_999);
      expect(s.events).toEqual([]);
      s.answerEach(renewed());
      await s.clock.advance(12_000);
      expect(s.events).toEqual([]);
      s.answerBy(() => Promise.reject(new Error('down')));
      await s.clock.advance(12_000);
      expect(s.events).toEqual(['a lost deadline']);
      await s.keeper.stop();
    },
  );

  test('a renewal that hangs holds up neither the deadline nor the next beat', verifies('RL-05', 'RL-31'), async () => {
    const s = scene();
    s.keeper.start();
    s.hold('a');
    s.answerBy(() => new Promise(() => undefined));
    await s.clock.advance(4_000);
    expect(s.calls).toHaveLength(1);
    s.answerEach(renewed());
    await s.clock.advance(4_000);
    expect(s.calls).toHaveLength(2);
    s.answerBy(() => new Promise(() => undefined));
    await s.clock.advance(11_999);
    expect(s.events).toEqual([]);
    await s.clock.advance(1);
    expect(s.events).toEqual(['a lost deadline']);
    await s.keeper.stop();
  });

  test('an answer after the deadline changes nothing', verifies('RL-06', 'ND-06'), async () => {
    const s = scene();
    s.keeper.start();
    s.hold('a');
    const late = deferred<ReadonlyMap<string, RenewOutcome>>();
    s.answerBy(() => late.promise);
    await s.clock.advance(12_000);
    expect(s.events).toEqual(['a lost deadline']);
    late.resolve(new Map([['a', { outcome: 'renewed', expiresAt: 99_999_999, cancelAction: 'rollback' }]]));
    await s.clock.advance(1_000);
    expect(s.events).toEqual(['a lost deadline']);
    expect(s.keeper.size).toBe(0);
    await s.keeper.stop();
  });

  test(
    'a stalled process learns of its passed deadline before it trusts a late answer',
    verifies('ND-07'),
    async () => {
      const s = scene();
      s.hold('a');
      const late = deferred<ReadonlyMap<string, RenewOutcome>>();
      s.answerBy(() => late.promise);
      const beat = s.keeper.beat();
      s.clock.skip(15_000);
      late.resolve(new Map([['a', { outcome: 'renewed', expiresAt: 99_999_999, cancelAction: null }]]));
      await beat;
      expect(s.events).toEqual(['a lost deadline']);
    },
  );

  test('a definite no is told at once', verifies('RL-07'), async () => {
    const s = scene();
    s.keeper.start();
    s.hold('a');
    s.hold('b');
    s.answerEach((holder) => (holder.runId === 'a' ? { outcome: 'lost' } : renewed()(holder)));
    await s.clock.advance(4_000);
    expect(s.events).toEqual(['a lost refused']);
    expect(s.keeper.runIds).toEqual(['b']);
    await s.keeper.stop();
  });

  test('cancels are told after all outcomes of the beat', verifies('RL-11', 'RL-13'), async () => {
    const s = scene();
    s.keeper.start();
    for (const run of ['a', 'b', 'c']) s.hold(run);
    s.answerEach((holder) => (holder.runId === 'c' ? { outcome: 'lost' } : renewed('rollback')(holder)));
    await s.clock.advance(4_000);
    expect(s.events).toEqual(['c lost refused', 'a cancel rollback', 'b cancel rollback']);
    await s.keeper.stop();
  });

  test(
    'a row that reads interrupted is renewed again at once with the flag, and not lost',
    verifies('SEED-003-01'),
    async () => {
      const s = scene();
      s.keeper.start();
      let superseded = false;
      s.hold('a', {
        allowInterrupted: () => superseded,
        onInterrupted: () => {
          superseded = true;
        },
      });
      s.answerEach((holder) => (holder.allowInterrupted ? renewed('rollback')(holder) : { outcome: 'interrupted' }));
      await s.clock.advance(4_000);
      expect(s.calls.map(([holder]) => holder?.allowInterrupted)).toEqual([false, true]);
      expect(s.events).toEqual(['a cancel rollback']);
      await s.clock.advance(20_000);
      expect(s.events.every((event) => event === 'a cancel rollback')).toBe(true);
      expect(s.calls.slice(2).every(([holder]) => holder?.allowInterrupted === true)).toBe(true);
      await s.keeper.stop();
    },
  );

  test('a busy row is asked for again before the next beat', async () => {
    const s = scene();
    s.keeper.start();
    s.hold('a');
    s.answerEach(() => ({ outcome: 'busy' }));
    await s.clock.advance(4_000);
    s.answerEach(renewed());
    await s.clock.advance(250);
    expect(s.calls).toHaveLength(2);
    await s.keeper.stop();
  });

  test('whoever is about to act may ask before the watch does', verifies('RL-04'), async () => {
    const s = scene();
    s.hold('a');
    s.clock.skip(11_999);
    s.keeper.check({ runId: 'a', token: 't' });
    expect(s.events).toEqual([]);
    s.clock.skip(1);
    s.keeper.check({ runId: 'a', token: 'other' });
    expect(s.events).toEqual([]);
    s.keeper.check({ runId: 'a', token: 't' });
    s.keeper.check({ runId: 'a', token: 't' });
    expect(s.events).toEqual(['a lost deadline']);
  });

  test('nothing is held after the stop', async () => {
    const s = scene();
    s.keeper.start();
    await s.keeper.stop();
    s.hold('a');
    expect(s.events).toEqual(['a lost deadline']);
    expect(s.keeper.runIds).toEqual([]);
  });

  test('what was given back hears nothing of a late refusal', verifies('RA-26'), async () => {
    const s = scene();
    s.hold('a');
    const late = deferred<ReadonlyMap<string, RenewOutcome>>();
    s.answerBy(() => late.promise);
    const beat = s.keeper.beat();
    s.keeper.drop({ runId: 'a', token: 't' });
    s.hold('a', {}, 'newer');
    late.resolve(new Map([['a', { outcome: 'lost' }]]));
    await beat;
    expect(s.events).toEqual([]);
    expect(s.keeper.runIds).toEqual(['a']);
  });

  test('a wall clock that jumps moves no deadline', verifies('ND-04'), async () => {
    const s = scene();
    s.keeper.start();
    s.hold('a');
    s.clock.jump(3_600_000);
    await s.clock.advance(3_999);
    expect(s.events).toEqual([]);
    await s.clock.advance(10_000);
    s.clock.jump(-7_200_000);
    await s.clock.advance(10_000);
    expect(s.events).toEqual([]);
    s.answerBy(() => Promise.reject(new Error('down')));
    await s.clock.advance(16_000);
    expect(s.events).toEqual(['a lost deadline']);
    await s.keeper.stop();
  });

  test('no call leaves after stop', verifies('ND-03'), async () => {
    const s = scene();
    s.keeper.start();
    s.hold('a');
    await s.keeper.stop();
    await s.keeper.stop();
    await s.clock.advance(60_000);
    expect(s.calls).toEqual([]);
    expect(s.events).toEqual([]);
  });
});
