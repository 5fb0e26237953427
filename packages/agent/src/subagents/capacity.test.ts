import { ReindeerError } from '@reindeer/protocol';
import { flush, VirtualClock, verifies } from '@reindeer/testkit';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Capacity, type CapacityEvent, emptyCapacity, reduceCapacity } from './capacity.ts';
import type { CapacityLimits } from './settings.ts';

const limits = (more: Partial<CapacityLimits> = {}): CapacityLimits => ({
  maxRunning: 2,
  maxQueued: 3,
  policy: 'queue',
  queueTimeoutMs: 1_000,
  ...more,
});

const ids = fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f', 'g');
const events: fc.Arbitrary<CapacityEvent> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('request' as const), id: ids }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('release' as const), id: ids }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('leave' as const),
      id: ids,
      reason: fc.constantFrom('queue_timeout' as const, 'aborted' as const),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('configure' as const), limits: fc.constant(limits({ maxRunning: 3 })) }),
  },
);

test(
  'in any order of events: never too many at work, first come first served, no slot lost or doubled',
  verifies('SA-26', 'SA-27', 'SA-29'),
  () => {
    fc.assert(
      fc.property(
        fc.array(events, { maxLength: 60 }),
        fc.constantFrom('queue' as const, 'reject' as const),
        (list, policy) => {
          let state = emptyCapacity(limits({ policy }));
          // What a holder of promises would know: who was told yes and has not released, and who still waits, in order of arrival.
          const holding = new Set<string>();
          let queue: string[] = [];
          for (const event of list) {
            const before = state;
            const step = reduceCapacity(state, event);
            state = step.state;
            const known = event.kind !== 'configure' && (holding.has(event.id) || queue.includes(event.id));
            if (event.kind === 'request' && !known) queue.push(event.id);
            if (event.kind === 'release') holding.delete(event.id);
            for (const effect of step.effects) {
              if (effect.kind === 'busy') continue;
              if (effect.kind === 'admit') {
                expect(effect.id).toBe(queue[0]);
                expect(holding.has(effect.id)).toBe(false);
                holding.add(effect.id);
              }
              queue = queue.filter((id) => id !== effect.id);
            }
            expect(state.running.toSorted()).toEqual([...holding].toSorted());
            expect(state.waiting).toEqual(queue);
            expect(state.running.length).toBeLessThanOrEqual(state.limits.maxRunning);
            expect(state.waiting.length).toBeLessThanOrEqual(
              state.limits.policy === 'queue' ? state.limits.maxQueued : 0,
            );
            if (state.waiting.length > 0) expect(state.running).toHaveLength(state.limits.maxRunning);
            if (event.kind === 'configure' && before.running.length > 0) expect(state.limits).toBe(before.limits);
          }
        },
      ),
      { numRuns: 500 },
    );
  },
);

/** A signal that can be fired. */
const stoppable = () => new AbortController();

test('a slot is handed over in order, and a newcomer cannot take it', verifies('SA-26'), async () => {
  const capacity = new Capacity(limits({ maxRunning: 1 }), new VirtualClock());
  const { signal } = stoppable();
  const first = await capacity.acquire('a', signal);
  const order: string[] = [];
  const waits = ['b', 'c'].map(async (id) => {
    const slot = await capacity.acquire(id, signal);
    order.push(id);
    return slot;
  });
  first.release();
  first.release();
  const late = capacity.acquire('d', signal);
  expect(capacity.state).toMatchObject({ running: ['b'], waiting: ['c', 'd'] });
  for (const wait of [...waits, late]) (await wait).release();
  expect(order).toEqual(['b', 'c']);
  expect(capacity.state).toMatchObject({ running: [], waiting: [] });
});

test('a wait ends with its time or its signal, and leaves nothing behind', verifies('SA-26', 'SA-27'), async () => {
  const clock = new VirtualClock();
  const capacity = new Capacity(limits({ maxRunning: 1 }), clock);
  const held = await capacity.acquire('a', stoppable().signal);
  const tooLate = capacity.acquire('b', stoppable().signal).catch((error: unknown) => error);
  const stop = stoppable();
  const stopped = capacity.acquire('c', stop.signal).catch((error: unknown) => error);
  stop.abort(new Error('no more'));
  expect(await stopped).toMatchObject({ message: 'no more' });
  await clock.advance(1_000);
  const refusal = await tooLate;
  expect(ReindeerError.is(refusal) && [refusal.code, refusal.detail?.reason]).toEqual([
    'over_capacity',
    'queue_timeout',
  ]);
  expect(capacity.state).toMatchObject({ running: ['a'], waiting: [] });
  held.release();
  expect(clock.sleeping).toBe(0);
});

test('an abort in the moment of the hand-over does not lose the slot', verifies('SA-26'), async () => {
  const clock = new VirtualClock();
  const capacity = new Capacity(limits({ maxRunning: 1 }), clock);
  const held = await capacity.acquire('a', stoppable().signal);
  const stop = stoppable();
  const waiting = capacity.acquire('b', stop.signal);
  held.release();
  stop.abort(new Error('too late'));
  const slot = await waiting;
  expect(capacity.state.running).toEqual(['b']);
  slot.release();
  await flush();
  expect(capacity.state).toMatchObject({ running: [], waiting: [] });
  expect(clock.sleeping).toBe(0);
});

test('limits change only while nobody works; the same ones change nothing', verifies('SA-29'), async () => {
  const capacity = new Capacity(limits(), new VirtualClock());
  const slot = await capacity.acquire('a', stoppable().signal);
  expect(() => capacity.configure(limits({ maxRunning: 5 }))).toThrow(/only while none/);
  capacity.configure(limits());
  slot.release();
  capacity.configure(limits({ maxRunning: 5 }));
  expect(capacity.state.limits.maxRunning).toBe(5);
});
