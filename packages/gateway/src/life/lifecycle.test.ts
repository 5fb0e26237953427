import { NO_LOG, ReindeerError } from '@reindeer/protocol';
import { systemSurroundings } from '@reindeer/runtime';
import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { Lifecycle, type Step } from './lifecycle.ts';

const make = () => new Lifecycle({ clock: systemSurroundings().clock, logger: NO_LOG });
const recorder = () => {
  const log: string[] = [];
  const step = (name: string, part: Partial<Step> = {}): Step => ({
    name,
    boundMs: 5_000,
    start: async () => {
      log.push(`+${name}`);
    },
    stop: async () => {
      log.push(`-${name}`);
    },
    ...part,
  });
  return { log, step };
};

describe('lifecycle', () => {
  test('stops in reverse order, once, however often it is asked', verifies('GW-15'), async () => {
    const life = make();
    const { log, step } = recorder();
    for (const name of ['a', 'b', 'c']) await life.start(step(name));
    expect(life.unfinished).toEqual(['c', 'b', 'a']);
    const [first, second] = await Promise.all([life.stop(), life.stop()]);
    expect(first).toBe(second);
    expect(await life.stop()).toEqual({ unfinished: [], failed: [] });
    expect(log).toEqual(['+a', '+b', '+c', '-c', '-b', '-a']);
    expect(life.unfinished).toEqual([]);
  });

  test(
    'a failed start releases what came before and itself, and its error surfaces',
    verifies('GW-03', 'GW-04'),
    async () => {
      const life = make();
      const { log, step } = recorder();
      await life.start(step('a'));
      const fault = new Error('half way');
      await expect(
        life.start(
          step('b', {
            start: async () => {
              log.push('+b half');
              throw fault;
            },
          }),
        ),
      ).rejects.toBe(fault);
      expect(log).toEqual(['+a', '+b half', '-b', '-a']);
      await expect(life.start(step('c'))).rejects.toMatchObject({ code: 'shutting_down' });
    },
  );

  test(
    'of two that start side by side, the one that fails says why, and both are released',
    verifies('GW-04'),
    async () => {
      const life = make();
      const { log, step } = recorder();
      const slow = Promise.withResolvers<void>();
      const fault = new Error('no sandbox');
      const starts = [
        life.start(
          step('database', {
            start: async () => {
              await slow.promise;
              log.push('+database');
            },
          }),
        ),
        life.start(step('sandboxes', { start: () => Promise.reject(fault) })),
      ];
      const outcomes = Promise.allSettled(starts);
      await expect.poll(() => life.phase).toBe('stopping');
      slow.resolve();
      expect(await outcomes).toEqual([
        { status: 'rejected', reason: fault },
        { status: 'rejected', reason: fault },
      ]);
      expect(log).toEqual(['-sandboxes', '+database', '-database']);
      await expect(life.start(step('later'))).rejects.toMatchObject({ code: 'shutting_down' });
    },
  );

  test('a stop during a start waits for it, releases it, and ends the start', verifies('GW-04'), async () => {
    const life = make();
    const { log, step } = recorder();
    const slow = Promise.withResolvers<void>();
    await life.start(step('a'));
    const starting = life.start(
      step('b', {
        start: async () => {
          await slow.promise;
          log.push('+b');
        },
      }),
    );
    const stopped = life.stop();
    slow.resolve();
    await expect(starting).rejects.toMatchObject({ code: 'shutting_down' });
    await stopped;
    expect(log).toEqual(['+a', '+b', '-b', '-a']);
  });

  test('a step that hangs or throws does not keep the others', verifies('GW-12', 'GW-13'), async () => {
    const life = make();
    const { log, step } = recorder();
    await life.start(step('a'));
    await life.start(step('hangs', { boundMs: 20, stop: () => new Promise(() => {}) }));
    await life.start(
      step('throws', {
        stop: async () => {
          throw new Error('no');
        },
      }),
    );
    expect(await life.stop()).toEqual({ unfinished: ['hangs'], failed: ['throws'] });
    expect(log.at(-1)).toBe('-a');
  });

  test('what failed for a moment is tried again, up to three times', verifies('GW-22'), async () => {
    const life = make();
    const { step } = recorder();
    let calls = 0;
    const failing = (until: number) => async () => {
      calls += 1;
      if (calls < until) throw new ReindeerError('store_unavailable', 'busy', { retryable: true });
    };
    await life.start(step('a', { stop: failing(3) }));
    expect(await life.stop()).toEqual({ unfinished: [], failed: [] });
    expect(calls).toBe(3);
    const other = make();
    calls = 0;
    await other.start(step('b', { stop: failing(99) }));
    expect(await other.stop()).toEqual({ unfinished: [], failed: ['b'] });
    expect(calls).toBe(3);
  });
});
