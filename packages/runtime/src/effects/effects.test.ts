import { deferred, flush, testSurroundings, verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { EffectsRegistry } from './effects.ts';

describe('the registry of live effects', () => {
  test('work counts until its own promise settles, whatever happened to those who waited for it', async () => {
    const { clock } = testSurroundings();
    const effects = new EffectsRegistry(clock);
    const body = deferred<string>();
    const tracked = effects.track('bash', () => body.promise);
    effects.close();
    expect(effects.live()).toEqual(['bash']);
    let stopped: readonly string[] | null = null;
    void effects.stopped(60_000).then((left) => {
      stopped = left;
    });
    await flush();
    expect(stopped).toBeNull();
    body.resolve('done');
    expect(await tracked).toBe('done');
    await flush();
    expect(stopped).toEqual([]);
    expect(clock.sleeping).toBe(0);
  });

  test('after the close nothing starts', async () => {
    const effects = new EffectsRegistry(testSurroundings().clock);
    effects.close();
    let started = false;
    const refused = effects.track('bash', async () => {
      started = true;
    });
    await expect(refused).rejects.toMatchObject({ code: 'aborted' });
    expect(started).toBe(false);
  });

  test('the right is looked at right before each start', verifies('RL-04'), async () => {
    let stands = true;
    const effects: EffectsRegistry = new EffectsRegistry(testSurroundings().clock, () => {
      if (!stands) effects.close();
    });
    expect(await effects.track('one', async () => 'done')).toBe('done');
    stands = false;
    let started = false;
    const refused = effects.track('two', async () => {
      started = true;
    });
    await expect(refused).rejects.toMatchObject({ code: 'aborted' });
    expect(started).toBe(false);
  });

  test('waiting is bounded and names what still runs', async () => {
    const { clock } = testSurroundings();
    const effects = new EffectsRegistry(clock);
    void effects.track('one', () => new Promise(() => undefined));
    void effects.track('two', () => Promise.reject(new Error('failed'))).catch(() => undefined);
    const stopped = effects.stopped(5_000);
    await clock.advance(5_000);
    expect(await stopped).toEqual(['one']);
  });

  test('thousands of waits leave nothing behind', verifies('ND-05', 'ND-08'), async () => {
    const { clock } = testSurroundings();
    const effects = new EffectsRegistry(clock);
    for (let i = 0; i < 2_000; i += 1) {
      await effects.track('x', async () => undefined);
      await effects.stopped(1_000);
    }
    expect(effects.live()).toEqual([]);
    expect(clock.sleeping).toBe(0);
  });
});
