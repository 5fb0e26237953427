import type { RunStore } from '@reindeer/protocol';
import { seededRandom } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import type { Fate, Serve } from './incarnation.ts';
import { Incarnation } from './incarnation.ts';
import { Scheduler } from './scheduler.ts';

describe('Scheduler', () => {
  test('runs by time, then by order, and moves time with it', async () => {
    const scheduler = new Scheduler();
    const seen: string[] = [];
    const note = (name: string) => () => void seen.push(`${name}@${scheduler.now}`);
    scheduler.after(30, note('c'));
    scheduler.after(10, note('a'));
    scheduler.after(10, note('b'));
    scheduler.after(20, note('never')).cancel();
    scheduler.after(0, () => void scheduler.after(5, note('nested')));
    while (await scheduler.step(25));
    expect(seen).toEqual(['nested@5', 'a@10', 'b@10']);
    while (await scheduler.step(100));
    expect(seen.at(-1)).toBe('c@30');
  });

  test('keeps its order with many events', async () => {
    const scheduler = new Scheduler();
    const random = seededRandom(3);
    const due: number[] = [];
    for (let n = 0; n < 500; n += 1) scheduler.after(random.below(1_000), () => void due.push(scheduler.now));
    while (await scheduler.step(1_000));
    expect(due).toHaveLength(500);
    expect(due).toEqual([...due].sort((a, b) => a - b));
  });

  test('lets everything that an event settles run before the next event', async () => {
    const scheduler = new Scheduler();
    const seen: string[] = [];
    scheduler.after(1, () => {
      void (async () => {
        for (let n = 0; n < 50; n += 1) await Promise.resolve();
        seen.push('settled');
      })();
    });
    scheduler.after(1, () => void seen.push('next'));
    while (await scheduler.step(10));
    expect(seen).toEqual(['settled', 'next']);
  });
});

describe('Incarnation', () => {
  const arrive: Fate = { there: 5, back: 5, lost: null, outlivesCaller: true };
  const world = (fate: Partial<Fate> = {}) => {
    const scheduler = new Scheduler();
    const served: string[] = [];
    const heard: string[] = [];
    const serve: Serve = async ({ method }) => {
      served.push(`${method}@${scheduler.now}`);
      return null;
    };
    const incarnation = new Incarnation({
      name: 'A1',
      scheduler,
      random: seededRandom(1),
      fate: () => ({ ...arrive, ...fate }),
      serve,
      wallOffset: 0,
      heard: ({ method }) => void heard.push(`${method}@${scheduler.now}`),
    });
    const play = async (until: number) => {
      while (await scheduler.step(until));
    };
    const runs = incarnation.link<Pick<RunStore, 'get'>>('runs');
    return { scheduler, served, heard, incarnation, runs, play };
  };

  test('a call takes its way to the store and back', async () => {
    const { runs, served, heard, play } = world();
    const call = runs.get('r');
    await play(4);
    expect(served).toEqual([]);
    await play(100);
    expect([served, heard]).toEqual([['get@5'], ['get@10']]);
    expect(await call).toBeNull();
  });

  for (const [lost, arrived] of [
    ['before', 0],
    ['after', 1],
  ] as const)
    test(`a call that is lost ${lost} its arrival is unknown to the caller`, async () => {
      const { runs, served, play } = world({ lost });
      const call = runs.get('r');
      const failed = expect(call).rejects.toMatchObject({ code: 'store_unavailable', retryable: true });
      await play(100);
      await failed;
      expect(served).toHaveLength(arrived);
    });

  test('a caller that has lost its patience cannot tell, and the request arrives later', async () => {
    const { runs, served, heard, play } = world({ there: 50, patience: 20 });
    const call = runs.get('r');
    const failed = expect(call).rejects.toMatchObject({ code: 'store_unavailable' });
    await play(30);
    await failed;
    expect(served).toEqual([]);
    await play(100);
    expect([served, heard]).toEqual([['get@50'], []]);
  });

  test('in a pause nothing happens here, while what was sent arrives', async () => {
    const { incarnation, runs, served, heard, play, scheduler } = world();
    void runs.get('r');
    let slept = 0;
    void incarnation.surroundings.clock.sleep(20).then(() => {
      slept = scheduler.now;
    });
    await play(1);
    incarnation.pause(1_000);
    await play(900);
    expect([served, heard, slept]).toEqual([['get@5'], [], 0]);
    expect(incarnation.paused).toBe(true);
    await play(2_000);
    expect(heard).toHaveLength(1);
    expect(slept).toBeGreaterThanOrEqual(1_000);
    expect(slept).toBeLessThan(1_010);
    expect(incarnation.sleeping).toBe(0);
  });

  test('after its death nothing happens, but a request on its way may arrive', async () => {
    for (const outlivesCaller of [true, false]) {
      const { incarnation, runs, served, heard, play } = world({ outlivesCaller });
      void runs.get('r');
      const request = incarnation.request(() => new Promise(() => {}), 1_000);
      const reset = expect(request).rejects.toThrow('reset');
      await play(3);
      incarnation.die();
      await play(100);
      await reset;
      expect([served.length, heard.length]).toEqual([outlivesCaller ? 1 : 0, 0]);
      await expect(incarnation.request(async () => 1, 1_000)).rejects.toThrow('refused');
    }
  });

  test('a sleep that is aborted leaves no timer', async () => {
    const { incarnation, play } = world();
    const controller = new AbortController();
    const nap = incarnation.surroundings.clock.sleep(1_000, controller.signal);
    controller.abort(new Error('enough'));
    await expect(nap).rejects.toThrow('enough');
    expect(incarnation.sleeping).toBe(0);
    await play(5_000);
  });
});
