import type { FinishItem } from '@reindeer/protocol';
import { newBatch, T0, verifies } from '@reindeer/testkit';
import type { Client } from 'pg';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { missing, postgresOfFile } from '../testing/postgres.ts';
import type { PostgresStores } from './open.ts';

const { server, database, open } = postgresOfFile();
const LEASE = 10_000;

/** What only locks of several connections can show; everything else is in the contract suites. */
describe('batches between instances on Postgres', () => {
  let url = '';
  let a: PostgresStores;
  let b: PostgresStores;
  const clients = new Set<Client>();
  beforeEach(async (ctx) => {
    if (missing !== null) ctx.skip(missing);
    url = await database();
    [a, b] = await Promise.all([open(url), open(url)]);
    await a.threads.create({ threadId: 'thread-1', userId: 'user-1', metadata: {}, now: T0 });
  });
  afterEach(async () => {
    for (const client of clients) await client.end();
    clients.clear();
    await Promise.all([a?.close(), b?.close()]);
  });
  /** A peer that stopped in the middle of a transaction, with locks in its hand. */
  const peer = async (...statements: readonly string[]): Promise<Client> => {
    const client = await server().connect(url);
    clients.add(client);
    await client.query('begin');
    for (const statement of statements) await client.query(statement);
    return client;
  };
  const create = async (batchId: string, count: number) => {
    await a.batches.create(newBatch({ batchId, count, maxRunning: count, submissionKey: batchId }));
  };
  const claim = (store: PostgresStores, owner: string, limit: number, now = T0) =>
    store.batches.claim({ owner, leaseMs: LEASE, limit, exclude: [], now });
  const done = (lease: FinishItem['lease']): FinishItem => ({
    lease,
    succeeded: true,
    result: 'done',
    resultPreview: 'done',
    resultTruncated: false,
    resultFile: null,
    verdict: null,
    stopReason: null,
    modelName: null,
    usage: { inputTokens: 0, outputTokens: 0 },
    now: T0 + 1_000,
  });

  test('a stopped peer with an item in its hand stops no heartbeat', verifies('BT-06'), async () => {
    await create('one', 6);
    const { items } = await claim(a, 'holder', 6);
    const leases = items.map((item) => item.lease);
    await peer(`select 1 from batch_items where item_id = 'one.3' for update`);
    const answers = await a.batches.renew({ leases, leaseMs: 2 * LEASE, now: T0 });
    for (const { itemId } of leases)
      expect([itemId, answers.get(itemId)]).toEqual([
        itemId,
        { valid: itemId !== 'one.3', cancelRequested: false, busy: itemId === 'one.3' },
      ]);
  });

  test('a batch that somebody holds is skipped, not waited for', verifies('BT-18'), async () => {
    await create('held', 2);
    await create('free', 2);
    await peer(`select 1 from batches where batch_id = 'held' for update`);
    const { items, more } = await claim(a, 'one', 4);
    expect(items.map((item) => item.lease.itemId)).toEqual(['free.0', 'free.1']);
    expect(more).toBe(true);
  });

  test('an item that its holder renews this moment is not recovered', verifies('SEED-004-08'), async () => {
    await create('one', 1);
    await claim(a, 'holder', 1);
    const holder = await peer(`update batch_items set lease_expires_at = ${T0 + 5 * LEASE} where item_id = 'one.0'`);
    expect((await claim(b, 'recoverer', 1, T0 + 2 * LEASE)).items).toEqual([]);
    await holder.query('commit');
    expect((await claim(b, 'recoverer', 1, T0 + 2 * LEASE)).items).toEqual([]);
    expect((await claim(b, 'recoverer', 1, T0 + 5 * LEASE)).items).toMatchObject([{ attempt: 2 }]);
  });

  test('an end that waits behind a takeover changes nothing', verifies('SEED-004-01', 'BT-08'), async () => {
    await create('one', 1);
    const [item] = (await claim(a, 'old', 1)).items;
    if (item === undefined) throw new Error('Nothing was claimed.');
    const taker = await peer(
      `update batch_items set owner = 'new', epoch = epoch + 1, attempt = attempt + 1, lease_expires_at = ${T0 + 5 * LEASE} where item_id = 'one.0'`,
    );
    const late = Promise.all([
      a.batches.finish(done(item.lease)),
      a.batches.start({ lease: item.lease, now: T0 }),
      a.batches.release({ lease: item.lease, error: '', notBefore: 0, now: T0 }),
    ]);
    // All three stand at the row: the server says so, to a connection that is in no transaction.
    const watcher = await server().connect(url);
    clients.add(watcher);
    for (;;) {
      const { rows } = await watcher.query(
        `select count(*)::int as n from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`,
      );
      if (rows[0]?.n === 3) break;
    }
    await taker.query('commit');
    expect(await late).toEqual([null, false, false]);
    const { rows } = await taker.query(`select status, owner, attempt from batch_items where item_id = 'one.0'`);
    expect(rows[0]).toMatchObject({ status: 'leased', owner: 'new' });
  });

  test('the last two items end at once on two instances, and the batch ends', verifies('BT-11'), async () => {
    for (let round = 0; round < 10; round += 1) {
      const batchId = `b${round}`;
      await create(batchId, 2);
      const { items } = await claim(a, 'holder', 2);
      const [one, two] = items.map((item) => item.lease);
      if (one === undefined || two === undefined) throw new Error('Too few items.');
      expect(await Promise.all([a.batches.finish(done(one)), b.batches.finish(done(two))])).toEqual([
        'succeeded',
        'succeeded',
      ]);
      // Neither may have seen the other's end: then the next look closes it.
      await claim(b, 'next', 1);
      expect((await a.batches.get({ batchId, userId: 'user-1' }))?.batch.status).toBe('completed');
    }
  });

  test('a cancel in the middle of many ends meets no deadlock', verifies('BT-13'), async () => {
    await create('one', 60);
    const { items } = await claim(a, 'holder', 60);
    const ends = items.map((item, n) => (n % 2 === 0 ? a : b).batches.finish(done(item.lease)));
    const cancelled = await b.batches.cancel({ batchId: 'one', userId: 'user-1', now: T0 + 1_000 });
    const answers = await Promise.all(ends);
    const counts = (await a.batches.get({ batchId: 'one', userId: 'user-1' }))?.counts;
    const succeeded = answers.filter((answer) => answer === 'succeeded').length;
    expect(['done', 'unchanged']).toContain(cancelled.outcome);
    expect(counts).toMatchObject({ succeeded, cancelled: 60 - succeeded, leased: 0, running: 0 });
  });

  test('an item of a large batch reads few rows, however many wait', async () => {
    await a.batches.create(newBatch({ batchId: 'large', count: 3_000, maxLive: 200, maxRunning: 32 }));
    const watcher = await server().connect(url);
    clients.add(watcher);
    const read = async () => {
      const { rows } = await watcher.query<{ updated: number; read: number }>(
        `select sum(n_tup_upd)::int as updated, (sum(seq_tup_read) + (select sum(idx_tup_read) from pg_stat_user_indexes
           where relname like 'batch%'))::int as read from pg_stat_user_tables where relname like 'batch%'`,
      );
      return rows[0] ?? { updated: 0, read: 0 };
    };
    const before = await read();
    const rounds = 20;
    const at = 32;
    for (let round = 0; round < rounds; round += 1) {
      const { items } = await claim(a, `holder-${round}`, at);
      expect(items).toHaveLength(at);
      await Promise.all(items.map(({ lease }) => a.batches.start({ lease, now: T0 })));
      await Promise.all(items.map(({ lease }) => a.batches.finish(done(lease))));
    }
    // The server counts what a connection did when it ends, at the latest.
    await a.close();
    let after = await read();
    while (after.updated - before.updated < 4 * rounds * at) after = await read();
    expect((after.read - before.read) / (rounds * at)).toBeLessThan(80);
  });
});
