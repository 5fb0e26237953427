import { verifies } from '@reindeer/testkit';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  ABSENT_SANDBOX,
  graceElapsed,
  isQuiet,
  reduceSandbox,
  type SandboxEvent,
  type SandboxInfo,
  type SandboxState,
} from './index.ts';

const infos: readonly SandboxInfo[] = [0, 1].map((n) => ({ id: 'x', url: `u${n}`, name: `n${n}`, createdAt: n }));
const info = infos[0] as SandboxInfo;
const me = { userId: 'u', threadId: 't' };
const you = { userId: 'u', threadId: 'other' };

const changed = (state: SandboxState, ...events: readonly SandboxEvent[]): SandboxState =>
  events.reduce((current, event) => {
    const step = reduceSandbox(current, event);
    if (step.outcome === 'refused') throw new Error(`${event.type} was refused: ${step.reason}`);
    return step.state;
  }, state);
const refusal = (state: SandboxState, event: SandboxEvent): string | null => {
  const step = reduceSandbox(state, event);
  return step.outcome === 'refused' ? step.reason : null;
};
const track: SandboxEvent = { type: 'track', info, identity: me, now: 1, epoch: 1 };
const active = changed(ABSENT_SANDBOX, track);
const warm = changed(active, { type: 'park', now: 2 });
const tracked: SandboxEvent = { type: 'reserve', condition: { kind: 'tracked' } };

const anyInfo = fc.constantFrom(...infos);
const anyTime = fc.integer({ min: 0, max: 50 });
const anyIdentity = fc.constantFrom(me, you);
const anyEvent: fc.Arbitrary<SandboxEvent> = fc.oneof(
  fc.constant<SandboxEvent>({ type: 'publish-began' }),
  fc.record({ type: fc.constant('publish-ended' as const), epoch: fc.option(fc.integer({ min: 1, max: 9 })) }),
  fc.constant<SandboxEvent>({ type: 'create-began' }),
  fc.constant<SandboxEvent>({ type: 'create-ended' }),
  fc.record({
    type: fc.constant('track' as const),
    info: anyInfo,
    identity: anyIdentity,
    now: anyTime,
    epoch: fc.integer({ min: 1, max: 9 }),
  }),
  fc.record({ type: fc.constant('promote' as const), info: anyInfo, identity: anyIdentity, now: anyTime }),
  fc
    .tuple(fc.constantFrom('touch', 'park', 'command-began', 'command-ended'), anyTime)
    .map(([type, now]): SandboxEvent => ({ type, now })),
  fc.record({
    type: fc.constant('reserve' as const),
    condition: fc.oneof(
      fc.constant({ kind: 'tracked' as const }),
      fc.constant({ kind: 'untracked' as const }),
      fc.record({ kind: fc.constant('idle' as const), before: anyTime }),
      fc.record({ kind: fc.constantFrom('warm' as const, 'same' as const), info: anyInfo }),
      fc.record({ kind: fc.constant('expired' as const), info: anyInfo, before: anyTime }),
    ),
  }),
  fc.constant<SandboxEvent>({ type: 'untrack' }),
  fc.record({ type: fc.constant('teardown-ended' as const), epoch: fc.integer({ min: 10, max: 19 }) }),
  fc.record({ type: fc.constant('forget' as const), epoch: fc.option(fc.integer({ min: 0, max: 9 })) }),
  fc.record({
    type: fc.constant('seen' as const),
    info: anyInfo,
    owned: fc.boolean(),
    now: anyTime,
    memory: fc.constantFrom(null, 'one', 'two'),
  }),
  fc.constant<SandboxEvent>({ type: 'vanished' }),
  fc.record({
    type: fc.constant('adopt' as const),
    info: anyInfo,
    now: anyTime,
    epoch: fc.integer({ min: 1, max: 9 }),
  }),
  fc.record({ type: fc.constant('kept' as const), epoch: fc.integer({ min: 1, max: 9 }) }),
);

test('any series of events keeps the invariants', verifies('SB-36', 'SB-37', 'SB-60', 'SB-61', 'SB-62'), () => {
  fc.assert(
    fc.property(fc.array(anyEvent, { maxLength: 60 }), (events) => {
      let state = ABSENT_SANDBOX;
      for (const event of events) {
        const step = reduceSandbox(state, event);
        if (step.outcome === 'refused') continue;
        const next = step.state;
        expect(next.publishing >= 0 && next.commands >= 0).toBe(true);
        expect((next.phase === 'absent') === (next.info === null)).toBe(true);
        if (next.phase === 'active') expect(next.identity).not.toBeNull();
        if (next.phase !== 'absent') expect(next.unownedSince).toBeNull();
        // Each life of an id has an epoch of its own, so that no verdict about an earlier one fits it.
        if (next.phase !== 'absent') expect(next.epoch).toBeGreaterThan(0);
        if (['track', 'adopt', 'kept'].includes(event.type)) expect(event).toMatchObject({ epoch: next.epoch });
        if (state.reserved) {
          expect(['reserve', 'track', 'promote', 'adopt', 'forget']).not.toContain(event.type);
          if (event.type !== 'teardown-ended') expect(next.reserved).toBe(true);
        }
        if (event.type === 'forget') {
          expect(state.publishing).toBe(0);
          expect(event.epoch === null || event.epoch === state.epoch).toBe(true);
        }
        if (event.type === 'untrack') expect(state.reserved).toBe(true);
        if (state.phase !== 'absent' && next.phase === 'absent')
          expect(['untrack', 'forget'].includes(event.type)).toBe(true);
        state = next;
      }
    }),
    { numRuns: 500 },
  );
});

test('a reserved sandbox is given to nobody and forgotten by nobody', verifies('SB-15', 'SB-16', 'SB-62'), () => {
  for (const before of [active, warm]) {
    const reserved = changed(before, tracked);
    expect(refusal(reserved, track)).toBe('reserved');
    expect(refusal(reserved, { type: 'promote', info, identity: me, now: 3 })).toBe('reserved');
    expect(refusal(reserved, { type: 'forget', epoch: null })).toBe('reserved');
    expect(refusal(reserved, tracked)).toBe('reserved');
    expect(refusal(changed(reserved, { type: 'untrack' }), { type: 'adopt', info, now: 3, epoch: 3 })).toBe('reserved');
    expect(isQuiet(changed(reserved, { type: 'untrack' }, { type: 'teardown-ended', epoch: 9 }))).toBe(true);
  }
});

test('an id in publication is not forgotten, with an epoch or without', verifies('SEED-001-82', 'SB-60'), () => {
  const publishing = changed(active, { type: 'publish-began' });
  expect(refusal(publishing, { type: 'forget', epoch: null })).toBe('publishing');
  expect(refusal(publishing, { type: 'forget', epoch: active.epoch })).toBe('publishing');
  const published = changed(publishing, { type: 'publish-ended', epoch: 5 });
  expect(refusal(published, { type: 'forget', epoch: active.epoch })).toBe('epoch');
  expect(changed(published, { type: 'forget', epoch: 5 }).phase).toBe('absent');
  expect(changed(publishing, { type: 'publish-ended', epoch: null }, { type: 'forget', epoch: 1 }).phase).toBe(
    'absent',
  );
});

test('tracking an id ends its warm entry in the same step', verifies('SEED-001-83', 'SB-19'), () => {
  const adopted = changed(ABSENT_SANDBOX, { type: 'adopt', info, now: 1, epoch: 1 });
  expect(adopted).toMatchObject({ phase: 'warm', identity: null, parkedAt: 1 });
  const now = changed(adopted, { type: 'track', info: infos[1] as SandboxInfo, identity: me, now: 2, epoch: 2 });
  expect(now).toMatchObject({ phase: 'active', info: infos[1], identity: me, activeAt: 2 });
  expect(refusal(now, { type: 'reserve', condition: { kind: 'expired', info, before: 99 } })).toBe('phase');
});

test('nobody gets a sandbox of somebody else', verifies('SB-09'), () => {
  expect(refusal(warm, { type: 'promote', info, identity: you, now: 3 })).toBe('identity');
  expect(refusal(warm, { type: 'track', info, identity: you, now: 3, epoch: 3 })).toBe('identity');
  expect(refusal(active, { type: 'track', info, identity: you, now: 3, epoch: 3 })).toBe('identity');
  const adopted = changed(ABSENT_SANDBOX, { type: 'adopt', info, now: 1, epoch: 1 });
  expect(changed(adopted, { type: 'promote', info, identity: you, now: 3 }).identity).toEqual(you);
});

test('a reservation is judged by what holds now', verifies('SB-38', 'SB-39', 'SB-40', 'SB-41'), () => {
  const used = changed(active, { type: 'touch', now: 10 });
  expect(refusal(used, { type: 'reserve', condition: { kind: 'idle', before: 9 } })).toBe('condition');
  expect(refusal(used, { type: 'reserve', condition: { kind: 'idle', before: 10 } })).toBeNull();
  const busy = changed(active, { type: 'command-began', now: 2 });
  expect(refusal(busy, { type: 'reserve', condition: { kind: 'idle', before: 99 } })).toBe('busy');
  expect(refusal(warm, { type: 'reserve', condition: { kind: 'expired', info, before: 1 } })).toBe('condition');
  const other = infos[1] as SandboxInfo;
  expect(refusal(warm, { type: 'reserve', condition: { kind: 'warm', info: other } })).toBe('replaced');
  expect(refusal(active, { type: 'reserve', condition: { kind: 'same', info: other } })).toBe('replaced');
  expect(refusal(active, { type: 'reserve', condition: { kind: 'untracked' } })).toBe('phase');
});

test('the grace counts from the first look without an owner, and an owner resets it', verifies('SB-53'), () => {
  const seen = changed(
    ABSENT_SANDBOX,
    { type: 'seen', info, owned: false, now: 10, memory: null },
    { type: 'seen', info, owned: false, now: 90, memory: null },
  );
  expect([graceElapsed(seen, 109, 100), graceElapsed(seen, 110, 100)]).toEqual([false, true]);
  const again = changed(
    seen,
    { type: 'seen', info, owned: true, now: 110, memory: null },
    { type: 'seen', info, owned: false, now: 120, memory: null },
  );
  expect([graceElapsed(again, 219, 100), graceElapsed(again, 220, 100)]).toEqual([false, true]);
  expect(isQuiet(changed(seen, { type: 'vanished' }))).toBe(true);
});

test('another container of the same id waits a whole grace of its own', verifies('SB-53'), () => {
  const seen = changed(ABSENT_SANDBOX, { type: 'seen', info, owned: false, now: 10, memory: null });
  const again = changed(seen, { type: 'seen', info: { ...info }, owned: false, now: 50, memory: null });
  expect(again.unownedSince).toBe(10);
  const other = changed(again, { type: 'seen', info: infos[1] as SandboxInfo, owned: false, now: 90, memory: null });
  expect([graceElapsed(other, 189, 100), graceElapsed(other, 190, 100)]).toEqual([false, true]);
});

test('what was seen before the store forgot everything does not count', verifies('SB-52', 'SB-53'), () => {
  const look = (now: number, memory: string): SandboxEvent => ({ type: 'seen', info, owned: false, now, memory });
  const seen = changed(ABSENT_SANDBOX, look(10, 'one'), look(90, 'one'));
  expect([graceElapsed(seen, 109, 100), graceElapsed(seen, 110, 100)]).toEqual([false, true]);
  const again = changed(seen, look(110, 'two'), look(150, 'two'));
  expect([graceElapsed(again, 209, 100), graceElapsed(again, 210, 100)]).toEqual([false, true]);
});

test('a container that this instance is starting is not adopted', () => {
  expect(refusal(changed(ABSENT_SANDBOX, { type: 'create-began' }), { type: 'adopt', info, now: 1, epoch: 1 })).toBe(
    'phase',
  );
});
