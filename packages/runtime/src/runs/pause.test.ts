import { deferred, flush, verifies, withFaults } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { world } from '../testing/world.ts';

/** A process that is stopped (SIGSTOP, a virtual machine that is moved): time passes, and no timer fires. */
const LONGER_THAN_A_LEASE = 12_001;

describe('after a long pause an answer may be heard before the watch over leases wakes up', () => {
  for (const method of ['start', 'begin', 'load', 'put'] as const)
    test(`no effect starts behind the answer to ${method}`, verifies('RL-04', 'RL-06'), async () => {
      const held = deferred();
      const asked = deferred();
      let armed = method === 'start' || method === 'load';
      const effects: string[] = [];
      const w = world({
        script: {
          model: async (messages, context) => {
            // The journal is asked inside a tracked effect, as the agent's loop does.
            if (messages.length === 1) {
              effects.push('first model');
              armed = true;
              const { outcome } = await context.journal.begin({
                messageId: 'm',
                index: 0,
                toolCallId: null,
                name: 'bash',
                again: false,
              });
              effects.push(`journal ${outcome}`);
              return { text: 'go', calls: [{ name: 'tool' }] };
            }
            effects.push('second model');
            return { text: 'done' };
          },
          tool: async ({ name }) => {
            effects.push(name);
            return name;
          },
        },
        stores: (stores) =>
          withFaults(stores, (call) => {
            if (!armed || call.method !== method) return null;
            armed = false;
            asked.resolve();
            return { delayAfter: held.promise };
          }),
      });
      await w.runtime.start();
      const run = await w.admitted();
      await asked.promise;
      await flush();
      const before = [...effects];
      w.surroundings.clock.skip(LONGER_THAN_A_LEASE);
      held.resolve();
      await flush();
      await new Promise((resolve) => setImmediate(resolve));
      await flush();
      expect(effects).toEqual(before);
      expect(w.runtime.stats().held).toBe(0);
      expect(await w.stores.runs.get(run.runId)).toMatchObject({ acknowledged: false });
      await w.runtime.stop();
    });
});
