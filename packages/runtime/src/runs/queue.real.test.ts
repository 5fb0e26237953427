import { openPostgres, type PostgresStores } from '@reindeer/database';
import type { Stores } from '@reindeer/protocol';
import { deferred, postgresMissing, type ThrowawayPostgres, throwawayPostgres, withFaults } from '@reindeer/testkit';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { systemSurroundings } from '../surroundings.ts';
import { human, messagesOf, type WorldOptions, world } from '../testing/world.ts';

const missing = await postgresMissing();
const QUICK = { leaseMs: 1_500, graceMs: 300, beatMs: 400, sweepMs: 200, pollRemoteMs: 50 };

describe('queued runs of two processes on one Postgres', () => {
  let server: ThrowawayPostgres;
  const opened: PostgresStores[] = [];
  beforeAll(async () => {
    if (missing === null) server = await throwawayPostgres();
  });
  afterAll(async () => {
    for (const stores of opened) await stores.close();
    await server?.stop();
  });
  beforeEach((ctx) => {
    if (missing !== null) ctx.skip(missing);
  });

  test('run in their order, each once, although the process that held the thread is cut off', async () => {
    const url = await server.createDatabase();
    const real = systemSurroundings();
    const gate = deferred();
    const allThere = deferred();
    const asked: string[] = [];
    let dead = false;
    const boot = async (instanceId: string, options: WorldOptions = {}) => {
      const stores = await openPostgres({ url, folder: null, connections: 4, instanceId, surroundings: real });
      opened.push(stores);
      const w = world({
        ...options,
        opened: stores,
        real,
        settings: { ...QUICK, instanceId },
        script: {
          model: async (messages, context) => {
            const text = String(messages.at(-1)?.content);
            asked.push(`${instanceId}:${text}`);
            const aborted = new Promise<never>((_, reject) => {
              context.signal.addEventListener('abort', () => reject(context.signal.reason), { once: true });
            });
            if (text === 'one') await allThere.promise;
            if (text === 'two' && instanceId === 'a') await Promise.race([gate.promise, aborted]);
            return { text: `answer to ${text}` };
          },
        },
      });
      await w.runtime.start();
      return w;
    };
    const a = await boot('a', {
      stores: (inner: Stores) => withFaults(inner, () => (dead ? 'fail-before' : null)),
    });
    const b = await boot('b');
    const enqueue = (w: typeof a, text: string) =>
      w.create({ multitaskStrategy: 'enqueue', request: { input: { messages: [human(text)] } } });
    const results = [
      await enqueue(a, 'one'),
      await enqueue(b, 'two'),
      await enqueue(b, 'three'),
      await enqueue(a, 'four'),
    ];
    const runs = results.flatMap((result) => ('run' in result ? [result.run] : []));
    expect(runs.map((run) => run.queued)).toEqual([false, true, true, true]);
    allThere.resolve();
    // Whoever frees the thread takes the next one; the first holder goes on with the second run, and is cut off in it.
    while (!asked.some((line) => line.endsWith(':two'))) await new Promise((resolve) => setTimeout(resolve, 20));
    dead = asked.includes('a:two');
    for (const run of runs) expect(await b.ended(run)).toMatchObject({ status: 'success' });
    expect(await messagesOf(b)).toEqual(['one', 'two', 'three', 'four'].flatMap((text) => [text, `answer to ${text}`]));
    gate.resolve();
    dead = false;
    await Promise.all([a.runtime.stop({ drainMs: 100, hardMs: 2_000 }), b.runtime.stop()]);
  });
});
