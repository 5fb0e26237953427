import { describe, expect, test } from 'vitest';
import { deferred, flush, ProbeRecorder, seededRandom, TEST_EPOCH, testSurroundings, VirtualClock } from './index.ts';

describe('VirtualClock', () => {
  test('wakes sleepers in the order of their deadlines, also those that begin on the way', async () => {
    const clock = new VirtualClock();
    const woken: string[] = [];
    const sleeper = async (name: string, ...naps: number[]) => {
      for (const nap of naps) {
        await clock.sleep(nap);
        woken.push(`${name}@${clock.monotonic()}`);
      }
    };
    const all = [sleeper('a', 30), sleeper('b', 10, 10, 10), sleeper('c', 30)];
    await clock.advance(29);
    expect(woken).toEqual(['b@10', 'b@20']);
    expect(clock.untilNext()).toBe(1);
    await clock.advance(1);
    await Promise.all(all);
    expect(woken).toEqual(['b@10', 'b@20', 'a@30', 'c@30', 'b@30']);
    expect(clock.now()).toBe(TEST_EPOCH + 30);
    expect(clock.sleeping).toBe(0);
  });

  test('an abort ends the sleep with its reason and leaves nothing behind', async () => {
    const clock = new VirtualClock();
    const controller = new AbortController();
    const nap = clock.sleep(1000, controller.signal);
    controller.abort(new Error('enough'));
    await expect(nap).rejects.toThrow('enough');
    await expect(clock.sleep(1, controller.signal)).rejects.toThrow('enough');
    expect(clock.sleeping).toBe(0);
  });

  test('a jump moves the wall clock alone', () => {
    const clock = new VirtualClock();
    clock.jump(-5000);
    expect([clock.now(), clock.monotonic()]).toEqual([TEST_EPOCH - 5000, 0]);
    clock.skip(7);
    expect([clock.now(), clock.monotonic()]).toEqual([TEST_EPOCH - 4993, 7]);
  });
});

describe('seededRandom', () => {
  test('repeats itself for a seed and differs between seeds', () => {
    const take = (seed: number) => {
      const random = seededRandom(seed);
      return [random.uuid(), random.next(), random.below(1000), random.chance(0.5)];
    };
    expect(take(7)).toEqual(take(7));
    expect(take(7)).not.toEqual(take(8));
    const first = new Set(Array.from({ length: 5000 }, (_, seed) => seededRandom(seed).uuid()));
    expect(first.size).toBe(5000);
    for (const id of first) expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  });

  test('spreads evenly', () => {
    const random = seededRandom(1);
    const counts = new Array<number>(10).fill(0);
    for (let n = 0; n < 10_000; n += 1) {
      const at = random.below(10);
      counts[at] = (counts[at] ?? 0) + 1;
    }
    for (const count of counts) expect(Math.abs(count - 1000)).toBeLessThan(150);
  });
});

describe('ProbeRecorder', () => {
  test('holds one passage open until it is released', async () => {
    const { probe } = testSurroundings();
    const gate = probe.hold('write', (detail) => detail.run === 'b');
    const passed: string[] = [];
    const walk = async (run: string) => {
      await probe.at('write', { run });
      passed.push(run);
    };
    const walks = [walk('a'), walk('b'), walk('b')];
    expect((await gate.reached).detail).toEqual({ run: 'b' });
    await flush();
    expect(passed).toEqual(['a', 'b']);
    gate.release();
    await Promise.all(walks);
    expect(passed).toEqual(['a', 'b', 'b']);
    expect(probe.count('write')).toBe(3);
  });

  test('can make the one who is held fail', async () => {
    const probe = new ProbeRecorder();
    const gate = probe.hold('write');
    const walk = (async () => probe.at('write'))();
    await gate.reached;
    gate.fail(new Error('the store is gone'));
    await expect(walk).rejects.toThrow('the store is gone');
  });
});

test('a deferred settles once and says so', async () => {
  const one = deferred<number>();
  expect(one.settled).toBe(false);
  one.resolve(1);
  one.reject(new Error('too late'));
  expect(await one.promise).toBe(1);
  expect(one.settled).toBe(true);
});
