import { expect, test } from 'vitest';
import { addLook, type Look, paceOf, readBatch, readHead, readItems, stateOf, WIRE } from './batch.ts';

test('states before the work count as waiting, and unknown ones too', () => {
  const batch = readBatch({
    batch_id: 'b',
    thread_id: 't',
    status: 'running',
    total_items: 9,
    counts: { pending: 1, queued: 2, leased: 1, running: 2, succeeded: 1, failed: 1, cancelled: 0, resting: 1 },
  });
  expect(batch?.counts).toEqual({ waiting: 5, running: 2, succeeded: 1, failed: 1, cancelled: 0 });
});

test('the items of a state are asked for under every name that counts for it', () => {
  const names = ['pending', 'queued', 'leased', 'running', 'succeeded', 'failed', 'cancelled'];
  expect(Object.values(WIRE).flat().sort()).toEqual([...names].sort());
  for (const [state, all] of Object.entries(WIRE)) for (const name of all) expect(stateOf(name)).toBe(state);
});

test('what is no batch is none, and a head without counts is one', () => {
  for (const value of [null, 7, [], {}, { batch_id: 5 }]) expect(readBatch(value)).toBeNull();
  expect(readHead({ batch_id: 'b', status: 'strange' }, 't')).toMatchObject({
    threadId: 't',
    title: 'b',
    status: 'queued',
    counts: null,
  });
});

test('the pace is that of the last minute, and starts over when a retry takes items back', () => {
  let looks: readonly Look[] = [];
  const look = (at: number, done: number) => {
    looks = addLook(looks, { at, done });
  };
  look(0, 0);
  expect(paceOf(looks, 10)).toBeNull();
  look(10_000, 20);
  expect(paceOf(looks, 10)).toEqual({ perMinute: 120, leftMs: 5_000 });
  look(75_000, 30);
  // Both earlier looks are too old by now: one alone tells nothing.
  expect(paceOf(looks, 10)).toBeNull();
  look(80_000, 35);
  look(81_000, 34);
  expect(looks.map(({ done }) => done)).toEqual([30, 34]);
});

test('items are read with care', () => {
  expect(
    readItems([{ item_id: 'i', key: 'k', status: 'failed', error: 'no', token_usage: { total_tokens: 3 } }, 5]),
  ).toEqual([{ itemId: 'i', key: 'k', state: 'failed', attempt: 0, error: 'no', preview: null, tokens: 3 }]);
});
