import { NO_USAGE } from '@reindeer/protocol';
import { checkpointPut, GRACE, LEASE, packed, Scene, T0, verifies } from '@reindeer/testkit';
import type { Client } from 'pg';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { missing, postgresOfFile } from '../testing/postgres.ts';
import type { PostgresStores } from './open.ts';

const { server, database, open } = postgresOfFile();

describe('instances beside each other on Postgres', () => {
  let url = '';
  const opened = new Set<PostgresStores>();
  const clients = new Set<Client>();
  beforeEach(async (ctx) => {
    if (missing !== null) ctx.skip(missing);
    url = await database();
  });
  afterEach(async () => {
    for (const client of clients) await client.end();
    clients.clear();
    for (const stores of opened) await stores.close();
    opened.clear();
  });
  const openOne: typeof open = async (to = url, part = {}) => {
    const stores = await open(to, part);
    opened.add(stores);
    return stores;
  };
  const scene = async (part: Parameters<typeof open>[1] = {}): Promise<Scene> => {
    const [a, b] = await Promise.all([openOne(url, part), openOne(url, part)]);
    return new Scene({ a, b, close: async () => {} });
  };
  /** A peer that stopped in the middle of a transaction, with locks in its hand. */
  const peer = async (...statements: readonly string[]): Promise<Client> => {
    const client = await server().connect(url);
    clients.add(client);
    await client.query('begin');
    for (const statement of statements) await client.query(statement);
    return client;
  };
  const holder = (fence: { runId: string; token: string }, expiresAt: number) => ({
    ...fence,
    expiresAt,
    allowInterrupted: false,
  });

  test('a stopped peer with rows of runs in its hand stops no heartbeat', verifies('RL-31'), async () => {
    const s = await scene();
    const held = [];
    for (let n = 0; n < 20; n += 1) held.push(await s.running({ threadId: `t${n}` }));
    // Its own run in a fenced transaction; and, worse, the lease of another one.
    await peer(
      `select 1 from runs where run_id = '${held[7]?.run.runId}' for update`,
      `select 1 from run_leases where run_id = '${held[9]?.run.runId}' for update`,
    );
    const started = performance.now();
    const until = T0 + 2 * LEASE;
    const outcomes = await s.a.runs.renew({ holders: held.map(({ fence }) => holder(fence, until)), now: T0 });
    expect(performance.now() - started).toBeLessThan(3_000);
    for (const [index, { run }] of held.entries())
      expect([index, outcomes.get(run.runId)?.outcome]).toEqual([index, index === 9 ? 'busy' : 'renewed']);
    // All but that one outlive the old lease.
    const claimed = await s.claim({ now: T0 + LEASE + GRACE + 1, tokens: ['1', '2', '3'] });
    expect(claimed).toEqual([]);
  });

  test('a busy row is renewed alone as soon as it is free', async () => {
    const s = await scene();
    const { run, fence } = await s.running();
    const lock = await peer(`select 1 from run_leases where run_id = '${run.runId}' for update`);
    expect((await s.a.runs.renew({ holders: [holder(fence, T0 + 2 * LEASE)], now: T0 })).get(run.runId)).toEqual({
      outcome: 'busy',
    });
    await lock.query('rollback');
    expect((await s.a.runs.renew({ holders: [holder(fence, T0 + 2 * LEASE)], now: T0 })).get(run.runId)).toEqual({
      outcome: 'renewed',
      expiresAt: T0 + 2 * LEASE,
      cancelAction: null,
    });
    // A lease that is missing is made again by its holder; nobody else can.
    await server().query(url, 'delete from run_leases');
    const outcomes = await s.a.runs.renew({
      holders: [holder(fence, T0 + 3 * LEASE)],
      now: T0,
    });
    expect(outcomes.get(run.runId)).toMatchObject({ outcome: 'renewed', expiresAt: T0 + 3 * LEASE });
    await server().query(url, 'delete from run_leases');
    const stale = await s.a.runs.renew({ holders: [holder({ ...fence, token: 'stale' }, T0)], now: T0 });
    expect(stale.get(run.runId)).toEqual({ outcome: 'lost' });
    expect(await server().query(url, 'select 1 from run_leases')).toEqual([]);
  });

  test('a takeover leaves alone what is being renewed, and what was renewed', verifies('RL-17', 'RL-19'), async () => {
    const s = await scene();
    const { run } = await s.running();
    const now = T0 + LEASE + GRACE + 1;
    const renewal = await peer(`update run_leases set expires_at = ${now + LEASE} where run_id = '${run.runId}'`);
    expect(await s.claim({ now })).toEqual([]);
    await renewal.query('commit');
    expect(await s.claim({ now })).toEqual([]);
    expect(await s.claim({ now: now + LEASE + GRACE + 1 })).toHaveLength(1);
  });

  test('a renewal that meets a takeover under way is not granted', verifies('RL-17', 'RL-18'), async () => {
    const s = await scene();
    const { run, fence } = await s.running();
    const now = T0 + LEASE + GRACE + 1;
    const takeover = await peer(
      `select 1 from runs where run_id = '${run.runId}' for no key update`,
      `select 1 from run_leases where run_id = '${run.runId}' for no key update`,
      `update runs set owner = 'peer', token = 'fresh' where run_id = '${run.runId}'`,
    );
    const asked = [holder(fence, now + LEASE)];
    expect((await s.a.runs.renew({ holders: asked, now })).get(run.runId)?.outcome).toBe('busy');
    expect(await s.claim({ now })).toEqual([]);
    await takeover.query('commit');
    expect((await s.a.runs.renew({ holders: asked, now })).get(run.runId)?.outcome).toBe('lost');
  });

  test('an admission decides by what a takeover under way leaves', verifies('RA-05'), async () => {
    const s = await scene();
    const { run } = await s.running();
    const now = T0 + LEASE + 1;
    const takeover = await peer(
      `update runs set owner = 'peer', token = 'fresh' where run_id = '${run.runId}'`,
      `update run_leases set expires_at = ${now + LEASE} where run_id = '${run.runId}'`,
    );
    // When it was asked the lease had run out; it waits, and finds a live one.
    const admission = s.b.runs.admit(s.admission({ owner: 'owner-b', multitaskStrategy: 'interrupt', now }));
    await waitForLock(1);
    await takeover.query('commit');
    expect(await admission).toMatchObject({ outcome: 'conflict', reason: 'live_elsewhere' });
    expect(await s.a.runs.get(run.runId)).toMatchObject({ status: 'running', owner: 'peer' });
  });

  test('an admission that decided by old news is decided anew', verifies('RA-02', 'RA-10'), async () => {
    const s = await scene();
    await s.ended('success');
    // Another run is admitted and replaced meanwhile, and is not over: no index of active runs tells of it.
    const meanwhile = await peer(
      `insert into runs (run_id, thread_id, user_id, kind, status, owner, token, attempt, acknowledged, input_tokens, output_tokens,
         total_tokens, model_calls, created_at, updated_at)
       values ('late', 'thread', 'user', 'run', 'interrupted', 'owner-a', 'token', 1, 0, 0, 0, 0, 0, 0, 0)`,
      `insert into run_details (run_id, assistant_id, multitask_strategy, on_disconnect, crash_policy, payload_hash, request, metadata)
       values ('late', 'agent', 'reject', 'continue', 'resume', 'hash', '{}', '{}')`,
      "update thread_keys set head = head + 1 where thread_id = 'thread'",
    );
    const admission = s.b.runs.admit(s.admission());
    await waitForLock(1);
    await meanwhile.query('commit');
    expect(await admission).toMatchObject({ outcome: 'conflict', reason: 'busy', active: { runId: 'late' } });
    expect(await server().query(url, "select 1 from runs where thread_id = 'thread' and status = 'pending'")).toEqual(
      [],
    );
  });

  test(
    'keys that two threads use at once give one run, and the other is told',
    verifies('RA-12', 'RA-15', 'RA-16'),
    async () => {
      const s = await scene();
      const inputs = Array.from({ length: 8 }, (_, n) => s.admission({ idempotencyKey: 'key', threadId: `t${n}` }));
      const results = await Promise.all(inputs.map((input, n) => (n % 2 === 0 ? s.a : s.b).runs.admit(input)));
      expect(results.filter((result) => result.outcome === 'admitted')).toHaveLength(1);
      for (const result of results)
        if (result.outcome !== 'admitted') expect(result).toMatchObject({ outcome: 'conflict', reason: 'key_reused' });
      expect(await server().query(url, 'select run_id from runs')).toHaveLength(1);
      expect(await server().query(url, 'select thread_id from threads')).toHaveLength(1);
    },
  );

  test(
    'a row that stays out of sight becomes a conflict after a few tries, not an error',
    verifies('RA-12'),
    async () => {
      const s = await scene();
      // Outside of the rules of admission: nothing that an admission looks at shows it, but the unique index knows.
      const { run } = await s.running({ threadId: 'other' });
      const admission = s.admission({ runId: run.runId });
      await expect(s.a.runs.admit(admission)).rejects.toMatchObject({ code: 'conflict', detail: { runId: run.runId } });
      expect(await s.a.threads.get({ threadId: 'thread', userId: 'user' })).toBeNull();
    },
  );

  test(
    'everything at once on few threads: one active run each, dense histories, no error',
    verifies('RA-01', 'RE-01', 'RL-14'),
    async () => {
      const s = await scene({ connections: 6 });
      const threads = ['t0', 't1', 't2'];
      const facts = new Map<string, number>();
      const turns: string[] = [];
      const worker = async (n: number): Promise<void> => {
        const stores = n % 2 === 0 ? s.a : s.b;
        for (let round = 0; round < 12; round += 1) {
          const threadId = threads[(n + round) % threads.length] ?? '';
          const admission = await stores.runs.admit(
            s.admission({
              threadId,
              owner: `owner-${n}`,
              multitaskStrategy: round % 3 === 0 ? 'interrupt' : round % 3 === 1 ? 'enqueue' : 'reject',
              queueLimit: 4,
              now: T0 + LEASE * round,
            }),
          );
          // Whoever passes by gives the next one its turn, and ends it.
          const turn = `turn-${n}-${round}`;
          const input = { threadId, owner: `owner-${n}`, token: turn, leaseExpiresAt: T0 + LEASE * 99, now: T0 };
          const taken = await stores.runs.takeQueued(input);
          if (taken !== null) {
            turns.push(taken.runId);
            await s.finalize({ runId: taken.runId, token: turn }, 'interrupted');
          }
          if (admission.outcome !== 'admitted') {
            expect(['conflict', 'queued']).toContain(admission.outcome);
            if ('active' in admission && admission.active !== null && round % 4 === 1)
              await stores.runs.requestCancel({ runId: admission.active.runId, action: 'interrupt', now: T0 });
            if (round % 5 === 4) await s.claim({ owner: `owner-${n}`, now: T0 + LEASE * round }, stores);
            continue;
          }
          const fence = { runId: admission.run.runId, token: `token-of-${admission.run.runId}` };
          void fence;
          const token = tokens.get(admission.run.runId) ?? '';
          const held = { runId: admission.run.runId, token };
          const start = await stores.runs.start({ fence: held, checkpointBefore: '', now: T0 });
          if (start.outcome === 'started') {
            await stores.checkpoints.put(checkpointPut(held, `c-${n}-${round}`, 'v', threadId));
            await stores.runs.renew({ holders: [holder(held, T0 + LEASE * (round + 2))], now: T0 });
            const appended = await stores.log.append({
              fence: held,
              threadId,
              facts: [s.fact(`f-${n}-${round}`)],
              now: T0,
            });
            if (appended.outcome === 'ok') facts.set(threadId, (facts.get(threadId) ?? 0) + 1);
          }
          const end = await stores.runs.finalize({
            fence: held,
            status: 'interrupted',
            error: null,
            stopReason: null,
            usage: NO_USAGE,
            unlessCancelled: false,
            now: T0,
          });
          expect(['finalized', 'fenced']).toContain(end.outcome);
        }
      };
      const tokens = new Map<string, string>();
      const admissionOf = s.admission.bind(s);
      s.admission = (part) => {
        const input = admissionOf(part);
        tokens.set(input.runId, input.token);
        return input;
      };
      await Promise.all(Array.from({ length: 8 }, (_, n) => worker(n)));
      for (const threadId of threads) {
        const active = (await s.a.runs.active(threadId)).filter(
          (run) => run.status === 'pending' || run.status === 'running',
        );
        expect(active.length).toBeLessThanOrEqual(1);
        // `history` checks that the numbers are 1, 2, 3, ….
        const history = await s.history(threadId);
        expect(history.filter((line) => line.includes('"f-'))).toHaveLength(facts.get(threadId) ?? 0);
      }
      expect([...facts.values()].reduce((sum, count) => sum + count, 0)).toBeGreaterThan(0);
      // Each queued run had its turn once at most.
      expect(new Set(turns).size).toBe(turns.length);
      expect(turns.length).toBeGreaterThan(0);
    },
  );

  test('a thread that is copied while it grows gives a copy that holds together', async () => {
    const s = await scene();
    const { fence } = await s.running();
    const message = (n: number) => {
      const hash = `${'A'.repeat(20)}${String(n).padStart(2, '0')}`;
      return { json: `[{"$m":"${hash}"}]`, messages: [{ hash, id: `m${n}`, body: `{"type":"human","id":"m${n}"}` }] };
    };
    const put = (n: number) =>
      s.a.checkpoints.put({
        ...checkpointPut(fence, `c${String(n).padStart(2, '0')}`),
        channels: [{ name: 'text', version: `c${String(n).padStart(2, '0')}`, value: message(n) }],
      });
    await put(0);
    const writes = (async () => {
      for (let n = 1; n < 30; n += 1) await put(n);
    })();
    for (let n = 0; n < 6; n += 1) {
      await s.b.threads.copy({ fromThreadId: 'thread', toThreadId: `copy-${n}`, userId: 'user', now: T0 });
      const all = { ns: null, checkpointId: null, before: null, limit: null, filter: {} };
      for (const checkpoint of await s.b.checkpoints.list({ ...all, threadId: `copy-${n}` })) {
        expect(checkpoint.channels).toHaveLength(1);
        expect(checkpoint.messages).toHaveLength(1);
      }
    }
    await writes;
  });

  test('updates of one thread at once lose none', async () => {
    const s = await scene();
    const own = { threadId: 'thread', userId: 'user' };
    await s.a.threads.create({ ...own, metadata: {}, now: T0 });
    await Promise.all(
      Array.from({ length: 12 }, (_, n) =>
        (n % 2 === 0 ? s.a : s.b).threads.update({ ...own, metadata: { [`k${n}`]: n }, touch: false, now: T0 }),
      ),
    );
    expect(Object.keys((await s.a.threads.get(own))?.metadata ?? {})).toHaveLength(12);
  });

  test('texts that Postgres does not take are kept in what they say', async () => {
    const s = await scene();
    const own = { threadId: 'thread', userId: 'user' };
    const metadata = { nul: 'a\0b', half: '\ud83e', deer: '🦌', path: 'c:\\u0000' };
    await s.a.threads.create({ ...own, metadata, now: T0 });
    expect((await s.a.threads.get(own))?.metadata).toEqual(metadata);
    const search = { userId: 'user', status: null, limit: 10, offset: 0 };
    for (const wanted of [{ deer: '🦌' }, { nul: 'a\0b' }, { half: '\ud83e' }, { path: 'c:\\u0000' }])
      expect(await s.a.threads.search({ ...search, metadata: wanted })).toHaveLength(1);
    expect(await s.a.threads.search({ ...search, metadata: { nul: 'ab' } })).toEqual([]);
    const { run, fence } = await s.running();
    await s.a.journal.begin({
      fence,
      key: { threadId: 'thread', messageId: 'm', index: 0 },
      toolCallId: null,
      name: 'bash',
      attempt: 1,
      again: false,
      now: T0,
    });
    const result = packed('x\0y');
    await s.a.journal.finish({
      fence,
      key: { threadId: 'thread', messageId: 'm', index: 0 },
      outcome: 'ok',
      result,
      now: T0,
    });
    expect((await s.finalize(fence, 'error', { error: 'bad \0 byte' })).outcome).toBe('finalized');
    expect((await s.b.runs.get(run.runId))?.error).toBe('bad \uFFFD byte');
  });

  /** Waits until so many sessions wait for a lock. */
  async function waitForLock(count: number): Promise<void> {
    for (;;) {
      const waiting = await server().query(url, "select 1 from pg_stat_activity where wait_event_type = 'Lock'");
      if (waiting.length >= count) return;
    }
  }
});
