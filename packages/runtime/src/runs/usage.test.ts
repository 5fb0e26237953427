import { MemoryDatabase } from '@reindeer/database';
import { testSurroundings, VirtualClock, verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import type { Script } from '../testing/scripted-graph.ts';
import { flush, world } from '../testing/world.ts';
import { UsageMeter } from './usage.ts';

describe('what a run uses', () => {
  test('a known source counts once; shares add up by model and by who asked', verifies('RE-09', 'OBS-1'), () => {
    const meter = new UsageMeter();
    meter.add({ inputTokens: 10, outputTokens: 2, model: 'big', source: 'message:a' });
    meter.add({ inputTokens: 10, outputTokens: 2, model: 'big', source: 'message:a' });
    meter.add({ inputTokens: 10, outputTokens: 2, model: 'big' });
    meter.add({ inputTokens: 5, outputTokens: 1, model: 'small', caller: 'subagent', source: 'message:b' });
    meter.add({ inputTokens: 1, outputTokens: 1, model: 'small', caller: 'middleware' });
    expect(meter.total()).toEqual({
      inputTokens: 26,
      outputTokens: 6,
      totalTokens: 32,
      modelCalls: 4,
      by: {
        models: {
          big: { inputTokens: 20, outputTokens: 4, calls: 2 },
          small: { inputTokens: 6, outputTokens: 2, calls: 2 },
        },
        callers: { lead_agent: 24, subagent: 6, middleware: 2 },
      },
    });
  });

  test('what a cache gave and what was thought stand beside, by model', verifies('OBS-1'), () => {
    const meter = new UsageMeter();
    meter.add({ inputTokens: 100, outputTokens: 20, model: 'big', cacheReadTokens: 64, reasoningTokens: 5 });
    meter.add({ inputTokens: 100, outputTokens: 20, model: 'big', cacheReadTokens: 16 });
    expect(meter.total().by?.models.big).toEqual({
      inputTokens: 200,
      outputTokens: 40,
      calls: 2,
      cacheReadTokens: 80,
      reasoningTokens: 5,
    });
  });

  test('models beyond the bound count together', () => {
    const meter = new UsageMeter();
    for (let n = 0; n < 100; n += 1) meter.add({ inputTokens: 1, outputTokens: 0, model: `model-${n}` });
    const models = meter.total().by?.models ?? {};
    expect(Object.keys(models)).toHaveLength(32);
    expect(models.other).toEqual({ inputTokens: 69, outputTokens: 0, calls: 69 });
  });

  test(
    'a run that goes on after a crash counts what the attempts before it used',
    verifies('OBS-1', 'RE-09'),
    async () => {
      const clock = new VirtualClock();
      const database = new MemoryDatabase(testSurroundings({ seed: 1, clock }).random);
      let dies = true;
      const script: Script = {
        model: (messages) =>
          messages.length > 2
            ? { text: 'finished' }
            : { text: '', calls: [{ name: 'work' }], usage: { inputTokens: 30, outputTokens: 4 } },
        tool: async () => (dies ? await new Promise<string>(() => undefined) : 'done'),
      };
      const dead = world({ clock, database, script, settings: { instanceId: 'dead' } });
      const run = await dead.admitted();
      await flush();
      await flush();
      dies = false;
      const peer = world({ clock, database, script, settings: { instanceId: 'peer', deadOwners: ['dead'] } });
      await peer.runtime.start();
      const end = await peer.ended(run);
      expect(end).toMatchObject({ status: 'success', attempt: 2 });
      // The call of the first attempt, as its message in the log says, and the one of the second.
      expect(end.usage).toMatchObject({ inputTokens: 40, outputTokens: 6, modelCalls: 2 });
      expect(end.usage.by?.callers).toEqual({ lead_agent: 46 });
    },
  );
});
