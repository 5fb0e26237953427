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

/** Milliseconds that a batch of `items` takes on these instances. */
async function batchMs(instances: readonly Stores[], items: number): Promise<number> {
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
  const begun = performance.now();
  for (const worker of workers) await worker.start();
  for (;;) {
    // The row alone: counting the items each time would be a cost of looking.
    const [found] = await first.batches.list({ userId: 'user', threadId: batchId, limit: 1 });
    if (found !== undefined && found.endedAt !== null) break;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  const took = performance.now() - begun;
  for (const worker of workers) await worker.stop({ drainMs: 0, hardMs: 1_000 });
  const counts = (await first.batches.get({ batchId, userId: 'user' }))?.counts;
  if (counts?.succeeded !== items) throw new Error(`Only ${counts?.succeeded} of ${items} succeeded.`);
  return took;
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
      await batchMs([stores], 500);
      const [ours, bare]: number[][] = [[], []];
      for (let round = 0; round < ROUNDS; round += 1) {
        bare?.push(bareSqliteMs(folder, ITEMS));
        ours?.push(await batchMs([stores], ITEMS));
      }
      rows.push(throughput('SQLite', ours ?? [], bare ?? []));
      rows.push(await growthRow('SQLite', [stores]));
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

/**
 * What an item costs in one batch of 10,000 against ten of 1,000: the same work on the same disk, whose write-ahead log is folded in as often for either.
 * A single small batch would end before that has happened once.
 */
async function growthRow(where: string, instances: readonly Stores[]): Promise<Row> {
  const small: number[] = [];
  const large: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    let sum = 0;
    for (let n = 0; n < 10; n += 1) sum += await batchMs(instances, 1_000);
    small.push(sum / 10_000);
    large.push((await batchMs(instances, 10_000)) / 10_000);
  }
  return {
    name: `cost per batch item at 10,000 items, ${where}`,
    value: median(large) / median(small),
    unit: 'ratio',
    against: 'the same at 1,000 items',
    target: '<= 1.2',
    alarm: '<= 2',
    detail: { small_ms_per_item: median(small), large_ms_per_item: median(large) },
  };
}

async function postgresRows(): Promise<readonly Row[]> {
  const server = await throwawayPostgres();
  try {
    const url = await server.createDatabase();
    const bareUrl = await server.createDatabase();
    const open = () => openPostgres({ url, folder: null, surroundings: systemSurroundings() });
    const instances = [await open(), await open()];
    try {
      await batchMs(instances, 500);
      const ours: number[] = [];
      const bare: number[] = [];
      for (let round = 0; round < ROUNDS; round += 1) {
        bare.push(await barePostgresMs(bareUrl, 20, ITEMS));
        ours.push(await batchMs(instances, ITEMS));
      }
      return [throughput('Postgres, two instances', ours, bare), await growthRow('Postgres, two instances', instances)];
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
