import { deferred, Scene, T0 } from '@reindeer/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { missing, postgresOfFile } from '../testing/postgres.ts';
import type { PostgresStores } from './open.ts';

const { server, database, open } = postgresOfFile();

describe('hints between instances on Postgres', () => {
  let url = '';
  const opened = new Set<PostgresStores>();
  beforeEach(async (ctx) => {
    if (missing !== null) ctx.skip(missing);
    url = await database();
  });
  afterEach(async () => {
    for (const stores of opened) await stores.close();
    opened.clear();
  });
  const openOne = async (): Promise<PostgresStores> => {
    const stores = await open(url);
    opened.add(stores);
    return stores;
  };

  test('an append is heard here and on the other instance, once each, after it can be read', async () => {
    const [a, b] = [await openOne(), await openOne()];
    const s = new Scene({ a, b, close: async () => {} });
    const { fence } = await s.running();
    const there = deferred<number>();
    const here: number[] = [];
    const elsewhere: number[] = [];
    a.log.onAppend((_threadId, head) => here.push(head));
    b.log.onAppend((threadId, head) => {
      elsewhere.push(head);
      expect(threadId).toBe('thread');
      if (head === 4) there.resolve(head);
    });
    await a.log.append({ fence, threadId: 'thread', facts: [s.fact('x')], now: T0 });
    await a.log.append({ fence, threadId: 'thread', facts: [s.fact('x')], now: T0 });
    await a.log.append({ fence, threadId: 'thread', facts: [s.fact('y')], now: T0 });
    await there.promise;
    expect(await s.history('thread', b)).toHaveLength(4);
    // A repeat that wrote nothing told nothing; what is told here is not told again by the server.
    expect(here).toEqual([3, 4]);
    expect(elsewhere.length).toBeLessThanOrEqual(3);
    expect(elsewhere.every((head) => head >= 2)).toBe(true);
  });

  test('what is told is a thread and a number, many in one, and never more than a notification holds', async () => {
    const [a, b] = [await openOne(), await openOne()];
    const s = new Scene({ a, b, close: async () => {} });
    const listener = await server().connect(url);
    const payloads: string[] = [];
    listener.on('notification', (message) => payloads.push(message.payload ?? ''));
    await listener.query('listen reindeer_appended');
    const heard = new Set<string>();
    const all = deferred<void>();
    b.log.onAppend((threadId) => {
      heard.add(threadId);
      if (heard.size === 40) all.resolve();
    });
    // Together far more than 8,000 bytes.
    const threads = Array.from({ length: 40 }, (_, n) => `${n}-${'é"'.repeat(150)}`);
    await Promise.all(threads.map((threadId) => s.admit({ threadId })));
    await all.promise;
    await listener.query('select 1');
    await listener.end();
    expect(payloads.length).toBeLessThan(40);
    for (const payload of payloads) {
      expect(Buffer.byteLength(payload)).toBeLessThan(8_000);
      const list = JSON.parse(payload) as unknown[];
      for (let at = 0; at < list.length; at += 2) {
        expect(threads).toContain(list[at]);
        expect(list[at + 1]).toBe(1);
      }
    }
  });

  test('a thread id that no notification holds, and nonsense on the channel, harm nothing', async () => {
    const [a, b] = [await openOne(), await openOne()];
    const s = new Scene({ a, b, close: async () => {} });
    const heard = deferred<string>();
    b.log.onAppend((threadId) => heard.resolve(threadId));
    await s.admit({ threadId: 'x'.repeat(9_000) });
    for (const nonsense of ['', 'x', '{}', '[1,2]', '["a"]', '["a","b"]', 'null'])
      await server().query(url, "select pg_notify('reindeer_appended', $1)", [nonsense]);
    await s.admit({ threadId: 'short' });
    expect(await heard.promise).toBe('short');
  });

  test('a listener that fails or has left does not keep others from hearing', async () => {
    const [a] = [await openOne()];
    const s = new Scene({ a, b: a, close: async () => {} });
    const heard: number[] = [];
    a.log.onAppend(() => {
      throw new Error('listener');
    });
    const leave = a.log.onAppend(() => heard.push(0));
    a.log.onAppend((_threadId, head) => heard.push(head));
    leave();
    await s.running();
    expect(heard).toEqual([1, 2]);
  });
});
