import { deferred, verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import type { Script } from '../testing/scripted-graph.ts';
import { collect, gated, type World, type WorldOptions, world } from '../testing/world.ts';

interface Case {
  readonly name: string;
  readonly options: () => WorldOptions & { readonly go?: (w: World) => Promise<void> };
  readonly status: string;
  readonly events: readonly string[];
}

const cancelling = (action: 'interrupt' | 'rollback') => () => {
  const g = gated();
  return {
    script: g.script,
    go: async (w: World) => {
      await g.asked;
      const [run] = await w.stores.runs.list({
        threadId: 'thread-1',
        userId: 'ann',
        status: null,
        limit: 1,
        offset: 0,
      });
      if (run !== undefined) await w.cancel(run, action);
    },
  };
};
const failing: Script = { model: () => Promise.reject(new Error('no luck')) };

const CASES: readonly Case[] = [
  { name: 'success', options: () => ({}), status: 'success', events: ['end'] },
  { name: 'a throwing graph', options: () => ({ script: failing }), status: 'error', events: ['error', 'end'] },
  { name: 'a cancel', options: cancelling('interrupt'), status: 'interrupted', events: ['end'] },
  { name: 'a rollback', options: cancelling('rollback'), status: 'error', events: ['error', 'end'] },
  {
    name: 'a timeout',
    options: () => ({
      script: gated().script,
      settings: { runTimeoutMs: 1_000 },
      go: (w) => w.surroundings.clock.advance(1_000),
    }),
    status: 'timeout',
    events: ['error', 'end'],
  },
];

describe('every way to end', () => {
  test.each(CASES)(
    '$name: the stream ends after the terminal status is stored, and those who wait go on',
    verifies('RT-09', 'RT-10', 'RT-27'),
    async ({ options, status, events }) => {
      const { go, ...rest } = options();
      const w = world(rest);
      await w.runtime.start();
      const run = await w.admitted();
      const seen: string[] = [];
      const acknowledged = deferred<boolean>();
      const reading = (async () => {
        for await (const item of w.read(run)) {
          if (item === 'heartbeat') continue;
          seen.push(item.event);
          if (item.event === 'end') acknowledged.resolve((await w.stores.runs.get(run.runId))?.acknowledged === true);
        }
      })();
      await go?.(w);
      const end = await w.ended(run);
      expect(end).toMatchObject({ status, acknowledged: true, owner: null });
      await reading;
      expect(await acknowledged.promise).toBe(true);
      expect(seen.filter((event) => event === 'end' || event === 'error')).toEqual(events);
      expect((await collect(w.read(run))).at(-1)).toMatchObject({
        event: 'end',
        data: JSON.stringify({ run_id: run.runId, status }),
      });
      expect(w.runtime.stats()).toEqual({ held: 0, leases: 0, streams: 0 });
      expect(await w.create()).toMatchObject({ outcome: 'admitted' });
      const stopped = w.runtime.stop({ drainMs: 0, hardMs: 1_000 });
      await w.surroundings.clock.advance(2_000);
      await stopped;
    },
  );
});
