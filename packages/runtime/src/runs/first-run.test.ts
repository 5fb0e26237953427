import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { collect, joined, texts, world } from '../testing/world.ts';

describe('a run from admission to the end of its stream', () => {
  test('streams metadata first, values, and end last; the thread holds the answer', async () => {
    const w = world();
    await w.runtime.start();
    const run = await w.admitted();
    const events = await collect(w.read(run));
    expect(events[0]).toMatchObject({
      event: 'metadata',
      data: JSON.stringify({ run_id: run.runId, thread_id: 'thread-1' }),
    });
    expect(events.at(-1)).toMatchObject({ event: 'end' });
    expect(texts(events)).toEqual(['hello', 'You said: hello']);
    expect(await w.ended(run)).toMatchObject({
      status: 'success',
      acknowledged: true,
      attempt: 1,
      usage: { modelCalls: 1, totalTokens: 12 },
    });
    await w.runtime.stop();
    expect(w.runtime.stats()).toEqual({ held: 0, leases: 0, streams: 0 });
    expect(w.surroundings.clock.sleeping).toBe(0);
  });

  test('tokens and the finished message are never both sent', async () => {
    const w = world();
    await w.runtime.start();
    const run = await w.admitted({ request: { streamModes: ['messages-tuple', 'updates'] } });
    const events = await collect(w.read(run));
    expect([...joined(events).values()]).toEqual(['You said: hello']);
    expect(events.filter(({ event }) => event === 'updates').map(({ data }) => Object.keys(JSON.parse(data)))).toEqual([
      ['model'],
    ]);
    await w.runtime.stop();
  });

  test('a finished run replays and ends', verifies('RS-17'), async () => {
    const w = world();
    await w.runtime.start();
    const run = await w.admitted();
    await w.ended(run);
    const events = await collect(w.read(run, { modes: ['values', 'messages-tuple'] }));
    expect(texts(events)).toEqual(['hello', 'You said: hello']);
    expect([...joined(events).values()]).toEqual(['You said: hello']);
    expect(events.at(-1)?.event).toBe('end');
    await w.runtime.stop();
  });
});
