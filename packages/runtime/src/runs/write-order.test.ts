import type { Stores } from '@reindeer/protocol';
import type { StoreCall } from '@reindeer/testkit';
import { deferred, flush, verifies, withFaults } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import type { Script } from '../testing/scripted-graph.ts';
import { messagesOf, world } from '../testing/world.ts';

/** A model call, a tool, a second model call; says what happened in which order. */
function story() {
  const events: string[] = [];
  const script: Script = {
    model: (messages) => {
      events.push(`model ${messages.length}`);
      return messages.length === 1 ? { text: 'working', calls: [{ name: 'one' }] } : { text: 'all done' };
    },
    tool: async ({ name }) => {
      events.push(`tool ${name}`);
      return 'result';
    },
  };
  return { script, events };
}
/** Of the two kinds of writes: the ones of the model's step begin with the second `putWrites` (the first tells the input). */
const ofModel = ({ port, method, count }: StoreCall) => port === 'checkpoints' && method === 'putWrites' && count === 2;

test('a tool waits for everything that was written before it; nothing else does', verifies('GW-22'), async () => {
  const held = deferred<void>();
  const s = story();
  const w = world({
    script: s.script,
    stores: (inner) => withFaults(inner, (call) => (ofModel(call) ? { delayBefore: held.promise } : null)),
  });
  const run = await w.admitted();
  await flush(40);
  expect(s.events).toEqual(['model 1']);
  expect(await w.stores.journal.unfinished('thread-1')).toEqual([]);
  held.resolve();
  expect(await w.ended(run)).toMatchObject({ status: 'success' });
  expect(s.events).toEqual(['model 1', 'tool one', 'model 3']);
  await w.runtime.stop();
});

test('the next model call begins while the step before it is being stored; the run ends behind it', async () => {
  const held = deferred<void>();
  const s = story();
  const w = world({
    script: s.script,
    stores: (inner) =>
      withFaults(inner, ({ port, method, count }) =>
        port === 'journal' && method === 'finish' && count === 1 ? { delayBefore: held.promise } : null,
      ),
  });
  const run = await w.admitted();
  await flush(60);
  expect(s.events).toEqual(['model 1', 'tool one', 'model 3']);
  expect(await w.stores.runs.get(run.runId)).toMatchObject({ status: 'running', acknowledged: false });
  expect(await messagesOf(w)).toEqual(['hello', 'working']);
  held.resolve();
  expect(await w.ended(run)).toMatchObject({ status: 'success' });
  expect(await messagesOf(w)).toEqual(['hello', 'working', 'result', 'all done']);
  await w.runtime.stop();
});

test('a write that the store cannot take ends the attempt before the next effect, and is no error of the run', async () => {
  const s = story();
  let broken = false;
  const w = world({
    script: s.script,
    stores: (inner) =>
      withFaults(inner, (call) => {
        broken ||= ofModel(call);
        return broken && call.port !== 'runs' ? 'fail-before' : null;
      }),
  });
  const run = await w.admitted();
  await flush(20);
  await w.surroundings.clock.advance(2_000);
  await flush(20);
  expect(s.events).toEqual(['model 1']);
  expect(await w.stores.runs.get(run.runId)).toMatchObject({ status: 'running', acknowledged: false });
  expect(w.runtime.stats().held).toBe(0);
});

test('a write that is fenced ends the attempt before the next effect', verifies('RL-08'), async () => {
  const s = story();
  const fencing = (inner: Stores): Stores => {
    let writes = 0;
    return {
      ...inner,
      checkpoints: {
        ...inner.checkpoints,
        putWrites: async (input) => {
          writes += 1;
          return writes === 2 ? { outcome: 'fenced' } : inner.checkpoints.putWrites(input);
        },
      },
    };
  };
  const w = world({ script: s.script, stores: fencing });
  const run = await w.admitted();
  await flush(60);
  expect(s.events).toEqual(['model 1']);
  expect(await w.stores.journal.unfinished('thread-1')).toEqual([]);
  expect(await w.stores.runs.get(run.runId)).toMatchObject({ acknowledged: false });
  expect(w.runtime.stats().held).toBe(0);
});
