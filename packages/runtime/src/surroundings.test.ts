import { leakCheck } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { systemSurroundings } from './surroundings.ts';

describe('the real clock', () => {
  leakCheck();
  const { clock, random } = systemSurroundings();

  test('sleeps, and an abort ends the sleep with its own reason and no timer left', async () => {
    const before = clock.monotonic();
    await clock.sleep(5);
    expect(clock.monotonic() - before).toBeGreaterThan(3);
    const controller = new AbortController();
    const sleeping = clock.sleep(60_000, controller.signal);
    controller.abort(new Error('enough'));
    await expect(sleeping).rejects.toThrow('enough');
    await expect(clock.sleep(1, controller.signal)).rejects.toThrow('enough');
  });

  test('a sleep longer than a timer can be does not end at once', async () => {
    const controller = new AbortController();
    let woke = false;
    const sleeping = clock.sleep(10 ** 12, controller.signal).then(
      () => {
        woke = true;
      },
      () => undefined,
    );
    await clock.sleep(10);
    expect(woke).toBe(false);
    controller.abort();
    await sleeping;
  });

  test('ids differ', () => {
    expect(random.uuid()).not.toBe(random.uuid());
    expect(random.next()).toBeLessThan(1);
  });
});
