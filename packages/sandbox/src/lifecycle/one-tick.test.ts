import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { DEFAULT_LIFECYCLE_SETTINGS } from './settings.ts';
import { type CoreScene, coreScene } from './testing/core-scene.ts';

const IDLE = DEFAULT_LIFECYCLE_SETTINGS.idleTimeoutMs + 1;

/** Ways to a stop, called and not awaited: what they decide they have decided when the call returns. */
const stops: Readonly<Record<string, (scene: CoreScene) => Promise<unknown>>> = {
  'a stop by name': ({ stops: all }) => all.destroyTracked('x', { kind: 'tracked' }),
  'an idle stop': ({ stops: all, table, surroundings }) => {
    surroundings.clock.skip(IDLE);
    return all.destroyTracked('x', { kind: 'idle', before: table.now });
  },
  'a warm stop': ({ stops: all, table }) => {
    table.apply('x', { type: 'park', now: table.now });
    const { info } = table.state('x');
    if (info === null) throw new Error('x has a container');
    return all.destroyWarm('x', info, { kind: 'warm', info });
  },
  'the drop of a dead one': ({ stops: all, table }) => {
    const { info } = table.state('x');
    if (info === null) throw new Error('x has a container');
    return all.dropUnhealthy('x', info);
  },
};

describe('condition and mark are one step: nothing else runs in between', () => {
  test.each(Object.keys(stops))('%s', verifies('ND-02', 'SB-38'), async (name) => {
    const scene = coreScene();
    await scene.active('x');
    const stopping = stops[name]?.(scene);
    // In the tick of the call, before any promise could have been settled by anybody.
    expect(scene.table.state('x').reserved).toBe(true);
    await stopping;
  });

  test('finding room and taking it', verifies('ND-02'), async () => {
    const scene = coreScene({ settings: { replicas: 1, overflow: 'reject' } });
    const identity = (threadId: string) => ({ userId: 'u', threadId });
    const both = await Promise.allSettled([
      scene.acquires.acquire(identity('a'), undefined),
      scene.acquires.acquire(identity('b'), undefined),
    ]);
    expect(both.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    expect(scene.engine.created).toHaveLength(1);
  });
});
