import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { openPostgres, openSqlite } from '@reindeer/database';
import { type BatchExecutor, NO_BATCH_USAGE, NO_LOG, type Stores } from '@reindeer/protocol';
import { BatchWorker, DEFAULT_BATCH_SETTINGS, ResultKeeper, systemSurroundings } from '@reindeer/runtime';
import { postgresMissing, throwawayPostgres } from '@reindeer/testkit';
import pg from 'pg';
import { median, type Row } from './lib.ts';

const CONCURRENCY = 32;
const ITEMS = 5_000;
const ROUNDS = 3;

/** An item without work: what is measured is what the batch itself costs. */
const NO_WORK: BatchExecutor = {
  prepare: async () => ({
    run: async () => ({
      outcome: 'succeeded',
      result: 'done',
      stopReason: null,
      modelName: null,
      usage: NO_BATCH_USAGE,
    }),
    forget: async () => {},
  }),
};

let batches = 0;

interface Cost {
  readonly ms: number;
  /** Of this process, with its database worker: the whole work where the database is SQLite. */
  readonly cpuMs: number;
}

/** What a batch of `items` takes on these instances, from the first claim to its end. */
async function batchCost(instances: readonly Stores[], items: number): Promise<Cost> {
  batches += 1;
  const batchId = `batch-${batches}`;
  const [first] = instances;
  if (first === undefined) throw new Error('No instance.');
  const now = Date.now();
  await first.threads.create({ threadId: batchId, userId: 'user', metadata: {}, now });
  await first.batches.create({
    batchId,
    userId: 'user',
    threadId: batchId,
    runId: null,
    toolCallId: null,
    submissionKey: batchId,
    title: batchId,
    subagentType: 'general-purpose',
    maxLive: 200,
    maxRunning: CONCURRENCY,
    maxAttempts: 3,
    spec: {},
    notify: false,
    items: Array.from({ length: items }, (_, n) => ({ key: `k${n}`, prompt: `Summarise record ${n} in a sentence.` })),
    now,
  });
  const surroundings = systemSurroundings();
  const settings = { ...DEFAULT_BATCH_SETTINGS, maxRunningHere: CONCURRENCY };
  const workers = instances.map(
    (stores, n) =>
      new BatchWorker({
        store: stores.batches,
        executor: NO_WORK,
        results: new ResultKeeper(null, settings, NO_LOG),
        surroundings,
        settings,
        instanceId: `bench-${batches}-${n}`,
        onChange: () => {},
      }),
  );
  const cpu = process.cpuUsage();
  const begun = performance.now();
  for (const worker of workers) await worker.start();
  for (;;) {
    // The row alone: counting the items each time would be a cost of looking.
    const [found] = await first.batches.list({ userId: 'user', threadId: batchId, limit: 1 });
    if (found !== undefined && found.endedAt !== null) break;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  const ms = performance.now() - begun;
  const { user, system } = process.cpuUsage(cpu);
  for (const worker of workers) await worker.stop({ drainMs: 0, hardMs: 1_000 });
  const counts = (await first.batches.get({ batchId, userId: 'user' }))?.counts;
  if (counts?.succeeded !== items) throw new Error(`Only ${counts?.succeeded} of ${items} succeeded.`);
  return { ms, cpuMs: (user + system) / 1_000 };
}

const TABLE = 'create table items (id integer primary key, status text not null, owner text, result text)';
const INDEX = 'create index items_by_status on items (status, id)';
/** As queues on a table do it: the next one that waits, which nobody else is taking. */
const claimOf = (lock: string, owner: string) =>
  `update items set status = 'running', owner = ${owner} where id = (select id from items where status = 'queued' order by id limit 1 ${lock}) returning id`;
const finishOf = (id: string, owner: string) =>
  `update items set status = 'done', owner = null, result = 'done' where id = ${id} and owner = ${owner}`;

/** The same on SQLite without anything around it: a statement to claim and one to finish, each a transaction, one after the other. */
function bareSqliteMs(folder: string, items: number): number {
  const db = new DatabaseSync(join(folder, `bare-${Math.random()}.db`));
  db.exec(`pragma journal_mode = wal; pragma synchronous = normal; ${TABLE}; ${INDEX}; begin`);
  const insert = db.prepare(`insert into items (id, status) values (?, 'queued')`);
  for (let id = 0; id < items; id += 1) insert.run(id);
  db.exec('commit');
  const claim = db.prepare(claimOf('', '?'));
  const finish = db.prepare(finishOf('?', '?'));
  const begun = performance.now();
  for (let row = claim.get('owner'); row !== undefined; row = claim.get('owner')) finish.run(row.id ?? null, 'owner');
  const took = performance.now() - begun;
  db.close();
  return took;
}

/** The same on Postgres: as many connections as the instances have, each claiming and finishing one item after the other. */
async function barePostgresMs(url: string, connections: number, items: number): Promise<number> {
  const pool = new pg.Pool({ connectionString: url, max: connections });
  await pool.query('drop table if exists items');
  await pool.query(TABLE);
  await pool.query(INDEX);
  await pool.query(`insert into items select n, 'queued' from generate_series(0, $1::integer - 1) n`, [items]);
  const claim = { name: 'claim', text: claimOf('for update skip locked', '$1') };
  const finish = { name: 'finish', text: finishOf('$1', '$2') };
  const begun = performance.now();
  await Promise.all(
    Array.from({ length: connections }, async () => {
      for (;;) {
        const { rows } = await pool.query<{ id: number }>({ ...claim, values: ['owner'] });
        const [row] = rows;
        if (row === undefined) return;
        await pool.query({ ...finish, values: [row.id, 'owner'] });
      }
    }),
  );
  const took = performance.now() - begun;
  await pool.end();
  return took;
}

/** Batches of items without work against bare loops on the same databases, and how their cost grows. */
export async function batchRows(): Promise<readonly Row[]> {
  const folder = await mkdtemp(join(tmpdir(), 'reindeer-bench-batch-'));
  const rows: Row[] = [];
  try {
    const stores = await openSqlite({ folder, surroundings: systemSurroundings() });
    try {
      await batchCost([stores], 500);
      const [ours, bare]: number[][] = [[], []];
      for (let round = 0; round < ROUNDS; round += 1) {
        bare?.push(bareSqliteMs(folder, ITEMS));
        ours?.push((await batchCost([stores], ITEMS)).ms);
      }
      rows.push(throughput('SQLite', ours ?? [], bare ?? []));
      rows.push(...(await growthRows('SQLite', [stores])));
    } finally {
      await stores.close();
    }
    const missing = await postgresMissing();
    if (missing !== null) process.stderr.write(`  skipped: ${missing}\n`);
    else rows.push(...(await postgresRows()));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
  return rows;
}

const SMALL = 1_000;
const LARGE = 10_000;

/**
 * What an item costs in one batch of 10,000 against ten of 1,000: the same work on the same disk, whose write-ahead log is folded in as often for either.
 * A single small batch would end before that has happened once. In turn, since the database grows; and of time the least of each, since whatever
 * else the machine and its disk do can only add to it. What is ours grows in CPU as well, which a busy disk does not touch.
 */
async function growthRows(where: string, instances: readonly Stores[]): Promise<readonly Row[]> {
  const perItem = async (items: number): Promise<Cost> => {
    let [ms, cpuMs] = [0, 0];
    for (let done = 0; done < LARGE; done += items) {
      const cost = await batchCost(instances, items);
      ms += cost.ms / LARGE;
      cpuMs += cost.cpuMs / LARGE;
    }
    return { ms, cpuMs };
  };
  const small: Cost[] = [];
  const large: Cost[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    if (round % 2 === 0) small.push(await perItem(SMALL));
    large.push(await perItem(LARGE));
    if (round % 2 === 1) small.push(await perItem(SMALL));
  }
  const row = (what: string, of: keyof Cost): Row => {
    const [ofSmall, ofLarge] = [small, large].map((costs) => Math.min(...costs.map((cost) => cost[of])));
    return {
      name: `${what} per batch item at 10,000 items, ${where}`,
      value: (ofLarge ?? 0) / (ofSmall ?? 1),
      unit: 'ratio',
      against: 'the same at 1,000 items',
      target: '<= 1.2',
      alarm: '<= 2',
      detail: {
        small_ms_per_item: ofSmall,
        large_ms_per_item: ofLarge,
        rounds: small.map((cost, n) => ((large[n]?.[of] ?? 0) / cost[of]).toFixed(2)).join(' '),
      },
    };
  };
  return [row('time', 'ms'), row('CPU', 'cpuMs')];
}

async function postgresRows(): Promise<readonly Row[]> {
  const server = await throwawayPostgres();
  try {
    const url = await server.createDatabase();
    const bareUrl = await server.createDatabase();
    const open = () => openPostgres({ url, folder: null, surroundings: systemSurroundings() });
    const instances = [await open(), await open()];
    try {
      await batchCost(instances, 500);
      const ours: number[] = [];
      const bare: number[] = [];
      for (let round = 0; round < ROUNDS; round += 1) {
        bare.push(await barePostgresMs(bareUrl, 20, ITEMS));
        ours.push((await batchCost(instances, ITEMS)).ms);
      }
      return [
        throughput('Postgres, two instances', ours, bare),
        ...(await growthRows('Postgres, two instances', instances)),
      ];
    } finally {
      for (const stores of instances) await stores.close();
    }
  } finally {
    await server.stop();
  }
}

const throughput = (where: string, ours: readonly number[], bare: readonly number[]): Row => ({
  name: `items/s of a batch without work, ${CONCURRENCY} at once, ${where}`,
  value: median(bare) / median(ours),
  unit: 'ratio',
  against: 'a bare loop of claim and finish on the same database',
  target: '>= 0.3',
  alarm: '>= 0.05',
  detail: {
    items_per_second: (ITEMS * 1_000) / median(ours),
    bare_per_second: (ITEMS * 1_000) / median(bare),
  },
});
