import { connect, createServer, type Server, type Socket } from 'node:net';
import { NO_LOG, type ReindeerError } from '@reindeer/protocol';
import { type Deferred, deferred, faultOnce, Scene, T0, verifies, withFaults } from '@reindeer/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { defineScript, type Script } from '../executor.ts';
import { readMeta, writeMeta } from '../meta.ts';
import type { ScriptName } from '../scripts.ts';
import { missing, postgresOfFile } from '../testing/postgres.ts';
import { PostgresClient } from './client.ts';
import { type ConnectionOptions, connectionConfig } from './config.ts';
import { loadDriver } from './driver.ts';
import type { PostgresStores } from './open.ts';

const { server, database, open } = postgresOfFile();

/** A network between client and server that can fail in chosen ways. */
class Network {
  /** Cuts the connection after the server has answered the next message with this text, and keeps the answer. */
  loseNext: string | null = null;
  /** Passes nothing on, and closes nothing. */
  silent = false;
  answersLost = 0;
  readonly #sockets = new Set<Socket>();
  readonly #server: Server;

  constructor(port: number) {
    this.#server = createServer((near) => {
      const far = connect(port, '127.0.0.1');
      let losing = false;
      for (const socket of [near, far]) {
        this.#sockets.add(socket);
        socket.on('error', () => {});
        socket.on('close', () => {
          this.#sockets.delete(socket);
          near.destroy();
          far.destroy();
        });
      }
      near.on('data', (data) => {
        if (this.silent) return;
        if (this.loseNext !== null && data.includes(this.loseNext)) {
          this.loseNext = null;
          losing = true;
        }
        far.write(data);
      });
      far.on('data', (data) => {
        if (this.silent) return;
        if (losing) {
          this.answersLost += 1;
          near.destroy();
        } else near.write(data);
      });
    });
  }

  async listen(): Promise<number> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    const address = this.#server.address();
    return typeof address === 'object' && address !== null ? address.port : 0;
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }
}

describe('Postgres that fails', () => {
  let url = '';
  const opened = new Set<{ close(): Promise<void> }>();
  beforeEach(async (ctx) => {
    if (missing !== null) ctx.skip(missing);
    url = await database();
  });
  afterEach(async () => {
    for (const one of [...opened].reverse()) await one.close();
    opened.clear();
  });
  const openOne = async (to = url, part: Parameters<typeof open>[1] = {}): Promise<PostgresStores> => {
    const stores = await open(to, part);
    opened.add(stores);
    return stores;
  };
  const sceneOf = (stores: PostgresStores): Scene => new Scene({ a: stores, b: stores, close: async () => {} });
  /** A way to the database through a network that can fail. */
  const network = async (): Promise<{ between: Network; through: string }> => {
    const target = new URL(url);
    const between = new Network(Number(target.port));
    target.port = String(await between.listen());
    opened.add(between);
    return { between, through: target.href };
  };

  /** A client with one script, which stops in the middle of its transaction and says so. */
  async function paused(part: Partial<ConnectionOptions> & { maxQueued?: number } = {}) {
    const driver = await loadDriver();
    const config = connectionConfig(driver, { url, ...part });
    const stops: { readonly pid: number; readonly go: Deferred<void> }[] = [];
    const arrivals: Deferred<void>[] = [deferred<void>()];
    const pool = new driver.Pool({ ...config, max: 1 });
    const script = defineScript('database.epoch', 'write', async (tx) => {
      await writeMeta(tx, 'probe', 'written');
      const [row] = await server().query<{ pid: number }>(
        url,
        "select pid from pg_stat_activity where state = 'idle in transaction' and application_name = 'reindeer'",
      );
      const go = deferred<void>();
      stops.push({ pid: row?.pid ?? 0, go });
      arrivals.push(deferred<void>());
      arrivals.at(-2)?.resolve();
      await go.promise;
      return readMeta(tx, 'probe');
    });
    const client = new PostgresClient({
      pool,
      renewals: new driver.Pool({ ...config, max: 1 }),
      scripts: { 'database.epoch': script } satisfies { [name in ScriptName]?: Script<never, unknown> },
      logger: NO_LOG,
      onAppended: () => {},
      answerMs: 20_000,
      ...part,
    });
    opened.add(client);
    return {
      call: () => client.call('database.epoch', {}),
      /** The n-th attempt, in the middle of its transaction. */
      attempt: async (n: number) => {
        await arrivals[n - 1]?.promise;
        return stops[n - 1] as { pid: number; go: Deferred<void> };
      },
      attempts: () => stops.length,
    };
  }
  const probe = async () =>
    (await server().query<{ value: string }>(url, "select value from meta where name = 'probe'"))[0]?.value;
  const terminate = (pid: number) => server().query(url, 'select pg_terminate_backend($1)', [pid]);

  test('a session that is killed in the middle of a transaction stores nothing, and the work is done again', async () => {
    const { call, attempt, attempts } = await paused();
    const answer = call();
    const first = await attempt(1);
    await terminate(first.pid);
    first.go.resolve();
    const second = await attempt(2);
    expect(await probe()).toBeUndefined();
    second.go.resolve();
    expect(await answer).toBe('written');
    expect(await probe()).toBe('written');
    expect(attempts()).toBe(2);
  });

  test('killed again, the caller is told that the store cannot answer, and nothing is stored', async () => {
    const { call, attempt, attempts } = await paused();
    const answer = call().catch((error: unknown) => error as ReindeerError);
    for (const n of [1, 2]) {
      const one = await attempt(n);
      await terminate(one.pid);
      one.go.resolve();
    }
    expect(await answer).toMatchObject({ code: 'store_unavailable', retryable: true });
    expect(await probe()).toBeUndefined();
    expect(attempts()).toBe(2);
    // The next call has a new connection.
    const next = call();
    (await attempt(3)).go.resolve();
    expect(await next).toBe('written');
  });

  test('the server ends a session that idles inside a transaction: its locks go long before a lease does', async () => {
    const { call, attempt } = await paused({ idleInTransactionMs: 200 });
    const answer = call().catch((error: unknown) => error as ReindeerError);
    for (const n of [1, 2]) {
      const { pid, go } = await attempt(n);
      while ((await server().query(url, 'select 1 from pg_stat_activity where pid = $1', [pid])).length > 0);
      go.resolve();
    }
    expect(await answer).toMatchObject({ code: 'store_unavailable', retryable: true });
    expect(await probe()).toBeUndefined();
  });

  test('an operation that is not answered in time is given up, and what waits has a bound', async () => {
    const { call, attempt } = await paused({ answerMs: 400, maxQueued: 2 });
    const answers = [call(), call(), call()].map((answer) => answer.catch((error: unknown) => error as ReindeerError));
    const { go } = await attempt(1);
    await expect(call()).rejects.toMatchObject({ code: 'store_unavailable', retryable: true, detail: { limit: 2 } });
    await new Promise<void>((resolve) => setTimeout(resolve, 450));
    go.resolve();
    for (const answer of answers) expect(await answer).toMatchObject({ code: 'store_unavailable', retryable: true });
    expect(await probe()).toBeUndefined();
  });

  test(
    'the answer to a commit is lost: the effect is unknown, and repeating the call gives one effect',
    verifies('RA-14', 'RE-03'),
    async () => {
      const { between, through } = await network();
      const stores = await openOne(through);
      const s = sceneOf(stores);
      const input = s.admission({ idempotencyKey: 'key' });
      const lost = async (call: () => Promise<unknown>): Promise<void> => {
        between.loseNext = 'commit\0';
        await expect(call()).rejects.toMatchObject({
          code: 'store_unavailable',
          retryable: true,
          message: expect.stringContaining('unknown'),
        });
      };
      // An admission is one statement, and finds out by itself what became of it.
      between.loseNext = 'insert into runs';
      expect(await stores.runs.admit(input)).toMatchObject({ outcome: 'admitted', run: { runId: input.runId } });
      expect(await stores.runs.admit(input)).toMatchObject({ outcome: 'reused', run: { runId: input.runId } });
      const fence = { runId: input.runId, token: input.token };
      await lost(() => s.start(fence));
      await s.start(fence);
      const append = () => stores.log.append({ fence, threadId: 'thread', facts: [s.fact('x')], now: T0 });
      await lost(append);
      expect(await append()).toEqual({ outcome: 'ok', head: 3 });
      await lost(() => s.finalize(fence, 'success'));
      expect(await s.finalize(fence, 'success')).toMatchObject({ outcome: 'terminal', run: { status: 'success' } });
      expect(await s.history()).toEqual([
        'run-1 pending 0',
        'run-1 running 1',
        'run-1 "x"',
        'run-1 delivery',
        'run-1 success end 1',
      ]);
      expect(between.answersLost).toBe(4);
    },
  );

  test('a network that swallows everything ends in an answer', async () => {
    const { between, through } = await network();
    const stores = await openOne(through, { answerMs: 500 });
    const s = sceneOf(stores);
    await s.running();
    between.silent = true;
    await expect(stores.runs.get('run-1')).rejects.toMatchObject({ code: 'store_unavailable', retryable: true });
    between.silent = false;
    expect(await stores.runs.get('run-1')).toMatchObject({ status: 'running' });
  });

  for (const how of ['fast', 'crash'] as const)
    test(
      `a server that goes (${how}) and comes back: calls fail meanwhile, nothing answered is lost, hints return`,
      verifies('RE-01'),
      async () => {
        const [a, b] = [await openOne(), await openOne()];
        const s = new Scene({ a, b, close: async () => {} });
        const { fence } = await s.running();
        if (how === 'fast') {
          await server().halt();
          await expect(a.runs.get(fence.runId)).rejects.toMatchObject({ code: 'store_unavailable', retryable: true });
        }
        await server().restart(how);
        expect(await b.log.append({ fence, threadId: 'thread', facts: [s.fact('x')], now: T0 })).toEqual({
          outcome: 'ok',
          head: 3,
        });
        const heard = deferred<number>();
        b.log.onAppend((_threadId, head) => heard.resolve(head));
        let told = false;
        void heard.promise.then(() => {
          told = true;
        });
        let head = 3;
        while (!told) {
          head += 1;
          await a.log.append({ fence, threadId: 'thread', facts: [s.fact(`y${head}`)], now: T0 });
          await new Promise<void>((resolve) => setTimeout(resolve, 50));
        }
        expect(await heard.promise).toBeGreaterThan(3);
        expect((await s.history()).length).toBe(head);
        expect(await a.log.epoch()).toBe(a.identity.epoch);
      },
    );

  test('a call that fails before it arrives leaves no locks behind', async () => {
    const [a, b] = [await openOne(), await openOne()];
    const s = new Scene({ a: withFaults(a, faultOnce('fail-after', 'runs.admit')), b, close: async () => {} });
    await expect(s.a.runs.admit(s.admission())).rejects.toMatchObject({ code: 'store_unavailable' });
    expect(await s.b.runs.admit(s.admission())).toMatchObject({ outcome: 'conflict', reason: 'busy' });
    expect(await server().query(url, "select 1 from pg_locks where locktype = 'advisory' and objid > 1001")).toEqual(
      [],
    );
  });
});
