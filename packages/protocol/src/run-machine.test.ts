import { verifies } from '@reindeer/testkit';
import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { CancelAction, RunEvent, RunState, RunStatus, TerminalStatus } from './index.ts';
import { isTerminal, reduceRun } from './index.ts';

const action = fc.constantFrom<CancelAction>('interrupt', 'rollback');
const terminal = fc.constantFrom<TerminalStatus>('success', 'error', 'timeout', 'interrupted');
const token = fc.constantFrom('t1', 't2', 't3');
const event: fc.Arbitrary<RunEvent> = fc.oneof(
  fc.record({ type: fc.constant('start' as const), token }),
  fc.record({ type: fc.constant('finalize' as const), token, status: terminal, unlessCancelled: fc.boolean() }),
  fc.record({ type: fc.constant('cancel' as const), action }),
  fc.record({ type: fc.constant('supersede' as const), action }),
  fc.record({ type: fc.constant('claim' as const), token }),
  fc.record({ type: fc.constant('take' as const), token }),
);
const ADMITTED: RunState = {
  status: 'pending',
  queued: false,
  token: 't1',
  attempt: 0,
  acknowledged: false,
  cancelAction: null,
};
const QUEUED: RunState = { ...ADMITTED, queued: true, token: null };

/** Every state that a run can be in, reached the way runs reach it. */
const begin = fc.constantFrom(ADMITTED, QUEUED);
const reachable = fc
  .tuple(begin, fc.array(event, { maxLength: 14 }))
  .map(([first, events]) => events.reduce(next, first));
const next = (state: RunState, one: RunEvent): RunState => {
  const transition = reduceRun(state, one);
  return transition.outcome === 'refused' ? state : transition.state;
};
const check = (property: fc.IProperty<[RunState, RunEvent]>) => fc.assert(property, { numRuns: 3000, seed: 1 });
const both = (predicate: (before: RunState, one: RunEvent) => void) => check(fc.property(reachable, event, predicate));

describe('reduceRun', () => {
  test('is total: every event in every state has an answer, and the input is left as it was', async () => {
    const frozen = fc.array(event, { maxLength: 14 }).map((events) => Object.freeze(events.reduce(next, ADMITTED)));
    await fc.assert(
      fc.property(frozen, event, (before, one) => {
        const transition = reduceRun(before, Object.freeze(one));
        expect(['changed', 'unchanged', 'refused']).toContain(transition.outcome);
        if (transition.outcome === 'unchanged') expect(transition.state).toEqual(before);
        if (transition.outcome === 'changed' && one.type !== 'claim') expect(transition.state).not.toEqual(before);
      }),
      { numRuns: 3000, seed: 1 },
    );
  });

  test('an acknowledged run never changes', verifies('RT-01'), async () => {
    await both((before, one) => {
      fc.pre(before.acknowledged);
      expect(reduceRun(before, one)).toEqual({ outcome: 'refused', reason: 'terminal' });
    });
  });

  test('success, error and timeout are always acknowledged, so they are absorbing', verifies('RT-01'), async () => {
    await both((before, one) => {
      const after = next(before, one);
      if (isTerminal(after.status) && after.status !== 'interrupted') expect(after.acknowledged).toBe(true);
    });
  });

  test(
    'a terminal status moves once at most, from an unacknowledged interrupted to error',
    verifies('RT-01'),
    async () => {
      await both((before, one) => {
        const after = next(before, one);
        if (!isTerminal(before.status) || after.status === before.status) return;
        expect([before.status, before.acknowledged, after.status, after.acknowledged]).toEqual([
          'interrupted',
          false,
          'error',
          true,
        ]);
      });
    },
  );

  test('a token that is not the row’s changes nothing', verifies('RL-32'), async () => {
    await both((before, one) => {
      fc.pre((one.type === 'start' || one.type === 'finalize') && one.token !== before.token);
      const transition = reduceRun(before, one);
      expect(transition.outcome).toBe('refused');
      if (!before.acknowledged) expect(transition).toMatchObject({ reason: 'fenced' });
    });
  });

  test('only a claim or a turn changes the token, only a start counts an attempt', async () => {
    await both((before, one) => {
      const after = next(before, one);
      if (one.type !== 'claim' && one.type !== 'take') expect(after.token).toBe(before.token);
      if (after.attempt !== before.attempt) expect([one.type, after.attempt]).toEqual(['start', before.attempt + 1]);
    });
  });

  test('a queued run is held by nobody: it leaves the queue by its turn, or with its end', async () => {
    await both((before, one) => {
      const after = next(before, one);
      expect(before.queued && before.token !== null).toBe(false);
      if (before.queued) expect(before).toMatchObject({ status: 'pending', attempt: 0, acknowledged: false });
      if (!before.queued) expect(after.queued).toBe(false);
      if (before.queued && !after.queued)
        expect(one.type === 'take' ? after.token : after.acknowledged).toBe(one.type === 'take' ? one.token : true);
      if (before.queued && ['start', 'finalize', 'claim'].includes(one.type)) expect(after).toEqual(before);
    });
  });

  test('the first cancel action stays', verifies('RL-12'), async () => {
    await both((before, one) => {
      if (before.cancelAction !== null) expect(next(before, one).cancelAction).toBe(before.cancelAction);
    });
  });

  test(
    'a recorded cancel is never overtaken by a success that asks, nor by a start',
    verifies('RL-14', 'RA-31'),
    async () => {
      await both((before, one) => {
        fc.pre(before.cancelAction !== null);
        const transition = reduceRun(before, one);
        if (one.type === 'start') expect(transition.outcome).toBe('refused');
        if (one.type === 'finalize' && one.unlessCancelled && before.status !== 'interrupted')
          expect(transition.outcome).toBe('refused');
      });
    },
  );

  test('a run that is not acknowledged can always be brought to its end by its holder', async () => {
    await fc.assert(
      fc.property(reachable, (before) => {
        fc.pre(!before.acknowledged && !before.queued);
        const end: RunEvent = {
          type: 'finalize',
          token: before.token ?? '',
          status: 'error',
          unlessCancelled: false,
        };
        expect(next(before, end)).toMatchObject({ status: 'error', acknowledged: true });
      }),
      { numRuns: 1000, seed: 1 },
    );
  });

  test('repeating an event that changed something changes nothing more', async () => {
    await both((before, one) => {
      const after = next(before, one);
      fc.pre(one.type !== 'claim');
      expect(next(after, one)).toEqual(after);
    });
  });

  test('the states that can be reached are the ones that the design names', () => {
    const seen = new Set<string>();
    const visit = (state: RunState): void => {
      const name = `${state.status}${state.acknowledged ? ' acknowledged' : ''}`;
      const mark = JSON.stringify({ ...state, attempt: Math.min(state.attempt, 2) });
      if (visited.has(mark) || state.attempt > 2) return;
      visited.add(mark);
      seen.add(name);
      for (const one of EVENTS) visit(next(state, one));
    };
    const visited = new Set<string>();
    const actions: CancelAction[] = ['interrupt', 'rollback'];
    const statuses: TerminalStatus[] = ['success', 'error', 'timeout', 'interrupted'];
    const EVENTS: RunEvent[] = [
      ...['t1', 't2'].flatMap((one): RunEvent[] => [
        { type: 'start', token: one },
        { type: 'claim', token: one },
        ...statuses.flatMap((status): RunEvent[] =>
          [true, false].map((unlessCancelled) => ({ type: 'finalize', token: one, status, unlessCancelled })),
        ),
      ]),
      ...actions.flatMap((one): RunEvent[] => [
        { type: 'cancel', action: one },
        { type: 'supersede', action: one },
      ]),
    ];
    visit(ADMITTED);
    const expected: (RunStatus | `${TerminalStatus} acknowledged`)[] = [
      'pending',
      'running',
      'interrupted',
      'success acknowledged',
      'error acknowledged',
      'timeout acknowledged',
      'interrupted acknowledged',
    ];
    expect([...seen].sort()).toEqual(expected.sort());
  });
});
