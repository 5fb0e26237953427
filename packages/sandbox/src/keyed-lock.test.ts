import { deferred, flush, verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { KeyedLock } from './keyed-lock.ts';

test('one holder per key, served in the order of arrival', verifies('SQ-01', 'SQ-02'), async () => {
  const lock = new KeyedLock();
  const order: string[] = [];
  let inside = 0;
  let most = 0;
  const gate = deferred<void>();
  const all = ['a', 'b', 'c', 'd'].map((name) =>
    lock.run('key', async () => {
      inside += 1;
      most = Math.max(most, inside);
      order.push(name);
      if (name === 'a') await gate.promise;
      await flush();
      inside -= 1;
    }),
  );
  await flush();
  expect(lock.size).toBe(1);
  gate.resolve();
  await Promise.all(all);
  expect(order).toEqual(['a', 'b', 'c', 'd']);
  expect(most).toBe(1);
  expect(lock.size).toBe(0);
});

test('a waiter that is aborted leaves no trace', verifies('SQ-02', 'SQ-03'), async () => {
  const lock = new KeyedLock();
  const gate = deferred<void>();
  const order: string[] = [];
  const first = lock.run('key', () => gate.promise);
  const controller = new AbortController();
  const aborted = lock.run('key', async () => order.push('aborted'), controller.signal);
  const last = lock.run('key', async () => order.push('last'));
  controller.abort();
  await expect(aborted).rejects.toMatchObject({ code: 'aborted' });
  gate.resolve();
  await Promise.all([first, last]);
  expect(order).toEqual(['last']);
  expect(lock.size).toBe(0);
});

test(
  'whenever the abort comes, also together with the grant, an aborted section does not begin and the next one does',
  verifies('SQ-03'),
  async () => {
    for (let turns = 0; turns < 12; turns += 1) {
      const lock = new KeyedLock();
      const gate = deferred<void>();
      const controller = new AbortController();
      const first = lock.run('key', () => gate.promise);
      const ran: string[] = [];
      const second = lock
        .run('key', async () => ran.push(controller.signal.aborted ? 'too late' : 'second'), controller.signal)
        .catch(() => ran.push('aborted'));
      const third = lock.run('key', async () => ran.push('third'));
      gate.resolve();
      for (let turn = 0; turn < turns; turn += 1) await Promise.resolve();
      controller.abort();
      await Promise.all([first, second, third]);
      expect(ran.sort()).toEqual([ran.includes('second') ? 'second' : 'aborted', 'third'].sort());
      expect(lock.size).toBe(0);
    }
  },
);

test('after close nobody enters, and who is inside finishes', verifies('SQ-04'), async () => {
  const lock = new KeyedLock();
  const gate = deferred<string>();
  const holder = lock.run('key', () => gate.promise);
  const waiter = expect(lock.run('key', async () => {})).rejects.toMatchObject({ code: 'shutting_down' });
  await flush();
  lock.close();
  lock.close();
  await waiter;
  await expect(lock.run('other', async () => {})).rejects.toMatchObject({ code: 'shutting_down' });
  gate.resolve('finished');
  expect(await holder).toBe('finished');
  expect(lock.size).toBe(0);
});

test('a crowd at one key does not hold up another', verifies('SQ-05'), async () => {
  const lock = new KeyedLock();
  const gate = deferred<void>();
  const crowd = Array.from({ length: 500 }, () => lock.run('busy', () => gate.promise));
  expect(await lock.run('free', async () => 'at once')).toBe('at once');
  gate.resolve();
  await Promise.all(crowd);
});

test('a section that throws gives the key back', verifies('SQ-06'), async () => {
  const lock = new KeyedLock();
  await expect(lock.run('key', () => Promise.reject(new Error('broken')))).rejects.toThrow('broken');
  expect(lock.size).toBe(0);
  expect(await lock.run('key', async () => 'again')).toBe('again');
});

test('too many waiters are refused', async () => {
  const lock = new KeyedLock();
  const gate = deferred<void>();
  const waiting = Array.from({ length: 1_001 }, () => lock.run('key', () => gate.promise));
  await expect(lock.run('key', async () => {})).rejects.toMatchObject({ code: 'over_capacity' });
  gate.resolve();
  await Promise.all(waiting);
});

test('a holder that is cancelled keeps the key until what it does has really ended', verifies('BL-04'), async () => {
  const lock = new KeyedLock();
  const gate = deferred<void>();
  const controller = new AbortController();
  const order: string[] = [];
  const writer = lock.run('key', () => gate.promise.then(() => order.push('written')), controller.signal);
  const next = lock.run('key', async () => order.push('next'));
  await flush();
  controller.abort();
  await flush();
  expect(order).toEqual([]);
  gate.resolve();
  await Promise.all([writer, next]);
  expect(order).toEqual(['written', 'next']);
});
