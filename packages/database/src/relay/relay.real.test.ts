import type { RelayedFrame, WantedRun } from '@reindeer/protocol';
import { deferred, redisMissing, Scene, T0, type ThrowawayRedis, throwawayRedis, verifies } from '@reindeer/testkit';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { PostgresStores } from '../postgres/open.ts';
import { missing, postgresOfFile } from '../testing/postgres.ts';

const { server, database, open } = postgresOfFile();
const noRedis = await redisMissing();

const frame = (n: number, content = `word ${n} "é" \u0000`): RelayedFrame => ({
  attempt: 1,
  messageId: 'm',
  ns: '',
  metadata: { a: 1 },
  first: { seq: 5, n: 1 },
  position: { seq: 5, n },
  after: n - 1,
  whole: false,
  chunks: [{ type: 'AIMessageChunk', id: 'm', content }],
});

/** What arrives at one instance, in order; `until` waits for a number of frames. */
function receiver(stores: PostgresStores, runId: string) {
  const frames: RelayedFrame[] = [];
  let waiting: { readonly count: number; readonly reached: ReturnType<typeof deferred<void>> } | null = null;
  const end = stores.relay.watch(runId, (more) => {
    frames.push(...more);
    if (waiting !== null && frames.length >= waiting.count) waiting.reached.resolve();
  });
  const until = async (count: number) => {
    if (frames.length >= count) return;
    const reached = deferred<void>();
    waiting = { count, reached };
    await reached.promise;
  };
  return { frames, until, end };
}

describe.each(['postgres', 'redis'] as const)('tokens between instances over %s', (way) => {
  let redis: ThrowawayRedis | null = null;
  let url = '';
  const opened = new Set<PostgresStores>();
  beforeAll(async () => {
    if (way === 'redis' && noRedis === null && missing === null) redis = await throwawayRedis();
  });
  afterAll(() => redis?.stop());
  beforeEach(async (ctx) => {
    if (missing !== null) ctx.skip(missing);
    if (way === 'redis' && noRedis !== null) ctx.skip(noRedis);
    url = await database();
  });
  afterEach(async () => {
    for (const stores of opened) await stores.close();
    opened.clear();
  });
  const start = async (to = url): Promise<PostgresStores> => {
    const stores = await open(to, redis === null ? {} : { redisUrl: redis.url });
    opened.add(stores);
    return stores;
  };

  test('wishes and frames arrive at the others as they were sent, in order, and not at the sender', async () => {
    const [a, b, c] = [await start(), await start(), await start()];
    const wished = deferred<readonly WantedRun[]>();
    const own: unknown[] = [];
    a.relay.onWanted((runs) => wished.resolve(runs));
    b.relay.onWanted((runs) => own.push(runs));
    const there = receiver(b, 'run');
    const alsoThere = receiver(c, 'run');
    const here = receiver(a, 'run');
    const other = receiver(b, 'another');
    b.relay.want([
      { runId: 'run', fresh: false },
      { runId: 'x', fresh: false },
    ]);
    b.relay.want([{ runId: 'run', fresh: true }]);
    expect(await wished.promise).toEqual([
      { runId: 'run', fresh: true },
      { runId: 'x', fresh: false },
    ]);
    const sent = Array.from({ length: 300 }, (_, index) => frame(index + 1));
    for (const one of sent) a.relay.send('run', [one]);
    await Promise.all([there.until(300), alsoThere.until(300)]);
    expect(there.frames).toEqual(sent);
    expect(alsoThere.frames).toEqual(sent);
    a.relay.send('another', [frame(1)]);
    await other.until(1);
    expect([here.frames, own, there.frames.length]).toEqual([[], [], 300]);
    there.end();
    a.relay.send('run', [frame(301)]);
    await alsoThere.until(301);
    expect(there.frames).toHaveLength(300);
  });

  test('growth of logs is told the same way, and by the database while Redis is away', async () => {
    const [a, b] = [await start(), await start()];
    const s = new Scene({ a, b, close: async () => {} });
    const listener = await server().connect(url);
    let notified = 0;
    listener.on('notification', () => {
      notified += 1;
    });
    await listener.query('listen reindeer_appended');
    const told = deferred<void>();
    b.log.onAppend((_threadId, head) => {
      if (head >= 2) told.resolve();
    });
    const { fence } = await s.running();
    await told.promise;
    // Everything that the database had to say has been said when it answers the next question.
    await listener.query('select 1');
    expect(notified > 0).toBe(way === 'postgres');
    if (redis !== null) {
      await redis.halt();
      // The connection is known to be broken once something was not told over it.
      for (let n = 0; notified === 0; n += 1) {
        await a.log.append({ fence, threadId: 'thread', facts: [s.fact(`x${n}`)], now: T0 });
        await listener.query('select 1');
      }
      await redis.restart();
    }
    await listener.end();
  });

  test('what is more than fits is dropped, and what comes later is not', verifies('ND-09'), async () => {
    const [a, b] = [await start(), await start()];
    const there = receiver(b, 'run');
    // In one turn of the loop: nothing of it can be on its way yet.
    for (let n = 1; n <= 40; n += 1) a.relay.send('run', [frame(n, 'x'.repeat(100_000))]);
    a.relay.send('run', [frame(41, 'last')]);
    await there.until(1);
    while (there.frames.at(-1)?.position.n !== 41) await there.until(there.frames.length + 1);
    expect(there.frames.length).toBeLessThan(12);
  });

  test('another database on the same servers hears nothing; nonsense harms nothing', async () => {
    const [a, b, stranger] = [await start(), await start(), await start(await database())];
    const there = receiver(b, 'run');
    const strange = receiver(stranger, 'run');
    for (const nonsense of ['', 'x', '[1]', '{}', '["run"]'])
      await server().query(url, "select pg_notify('reindeer_wanted', $1), pg_notify('reindeer_frames', $1)", [
        nonsense,
      ]);
    a.relay.send('run', [frame(1)]);
    await there.until(1);
    expect(there.frames).toEqual([frame(1)]);
    expect(strange.frames).toEqual([]);
  });

  test('it works again after the servers were restarted', async () => {
    const [a, b] = [await start(), await start()];
    const there = receiver(b, 'run');
    a.relay.send('run', [frame(1)]);
    await there.until(1);
    await Promise.all([server().restart('crash'), redis?.restart()]);
    const arrived = there.until(2);
    const over = new AbortController();
    const again = (async () => {
      for (let n = 2; !over.signal.aborted; n += 1) {
        a.relay.send('run', [frame(n)]);
        await new Promise<void>((resolve) => setTimeout(resolve, 50));
      }
    })();
    await arrived;
    over.abort();
    await again;
  });
});
