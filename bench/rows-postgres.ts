import { openPostgres, type PostgresStores } from '@reindeer/database';
import type { Admission, LeaseHolder, RunRequest } from '@reindeer/protocol';
import { EMPTY_REQUEST } from '@reindeer/protocol';
import { systemSurroundings } from '@reindeer/runtime';
import { postgresMissing, throwawayPostgres } from '@reindeer/testkit';
import pg from 'pg';
import { median, type Row } from './lib.ts';

const CLIENTS = 8;
const ROUND = 1_600;
const LEASES = 500;

const REQUEST: RunRequest = {
  ...EMPTY_REQUEST,
  input: { messages: [{ type: 'human', content: 'Summarise the attached report in five sentences, please.' }] },
  config: { recursion_limit: 100 },
  context: { model_name: 'default' },
  streamModes: ['values', 'messages-tuple'],
};

/** Work per second of `CLIENTS` callers, each of which waits for its answer. */
async function rate(work: (n: number) => Promise<unknown>): Promise<number> {
  const begun = performance.now();
  let next = 0;
  const caller = async (): Promise<void> => {
    for (; next < ROUND; ) {
      next += 1;
      await work(next);
    }
  };
  await Promise.all(Array.from({ length: CLIENTS }, caller));
  return (ROUND * 1_000) / (performance.now() - begun);
}

let count = 0;
const newAdmission = (): Admission => {
  count += 1;
  const now = Date.now();
  return {
    runId: `00000000-0000-4000-8000-${String(count).padStart(12, '0')}`,
    threadId: `thread-${count}`,
    userId: 'user',
    assistantId: 'lead_agent',
    kind: 'run',
    multitaskStrategy: 'reject',
    onDisconnect: 'continue',
    crashPolicy: 'resume',
    idempotencyKey: null,
    payloadHash: 'a'.repeat(64),
    request: REQUEST,
    metadata: {},
    createThread: true,
    owner: 'bench',
    token: `token-${count}`,
    leaseExpiresAt: now + 12_000,
    now,
  };
};

/** Admissions against a loop of plain inserts, and what a renewal of many leases sends. Nothing where there is no Postgres. */
export async function postgresRows(rounds: number): Promise<readonly Row[]> {
  const missing = await postgresMissing();
  if (missing !== null) {
    process.stderr.write(`  skipped: ${missing}\n`);
    return [];
  }
  const server = await throwawayPostgres();
  try {
    const url = await server.createDatabase();
    const open = (): Promise<PostgresStores> =>
      openPostgres({ url, folder: null, connections: CLIENTS, surroundings: systemSurroundings() });
    const stores = await open();
    const pool = new pg.Pool({ connectionString: url, max: CLIENTS });
    pool.on('error', () => {});
    await pool.query('create table bare (id text primary key, thread text not null, body text not null)');
    const insert = (n: number): Promise<unknown> =>
      pool.query({
        name: 'bare',
        text: 'insert into bare (id, thread, body) values ($1, $2, $3)',
        values: [`${count}-${n}-${Math.random()}`, `thread-${n}`, JSON.stringify(REQUEST)],
      });
    const admit = async (): Promise<void> => {
      const { outcome } = await stores.runs.admit(newAdmission());
      if (outcome !== 'admitted') throw new Error(`An admission of the bench was answered ${outcome}.`);
    };
    await rate(insert);
    await rate(admit);
    const ratios: number[] = [];
    const admissions: number[] = [];
    for (let round = 0; round < rounds; round += 1) {
      const bare = await rate(insert);
      const admitted = await rate(admit);
      admissions.push(admitted);
      ratios.push(admitted / bare);
    }
    const statements = await statementsOfRenewal(url, stores);
    await pool.end();
    await stores.close();
    return [
      {
        name: 'admissions/s on Postgres',
        value: median(ratios),
        unit: 'ratio',
        against: 'a loop of plain INSERTs over the same number of connections',
        target: '>= 0.35',
        alarm: '>= 0.1',
        detail: { perSecond: median(admissions), clients: CLIENTS },
      },
      {
        name: `renewal of ${LEASES} leases on Postgres`,
        value: statements,
        unit: 'statements',
        against: 'one statement',
        target: '<= 1',
        alarm: '<= 5',
      },
    ];
  } finally {
    await server.stop();
  }
}

/** How many statements the server executes for one renewal, by its own log. */
async function statementsOfRenewal(url: string, stores: PostgresStores): Promise<number> {
  const holders: LeaseHolder[] = [];
  const now = Date.now();
  for (let n = 0; n < LEASES; n += 1) {
    const { runId, token } = newAdmission();
    await stores.runs.admit({ ...newAdmission(), runId, token });
    holders.push({ runId, token, expiresAt: now + 60_000, allowInterrupted: false });
  }
  await stores.runs.renew({ holders, now });
  const { count: sent, stop } = countQueries();
  const answers = await stores.runs.renew({ holders, now: now + 1 });
  stop();
  if ([...answers.values()].some(({ outcome }) => outcome !== 'renewed')) throw new Error(`Not renewed at ${url}.`);
  return sent();
}

/** Counts what this process sends to databases. */
function countQueries(): { readonly count: () => number; readonly stop: () => void } {
  const { query } = pg.Client.prototype;
  let sent = 0;
  pg.Client.prototype.query = function counted(this: pg.Client, ...input: unknown[]) {
    sent += 1;
    return (query as (...input: unknown[]) => unknown).apply(this, input);
  } as typeof query;
  return {
    count: () => sent,
    stop: () => {
      pg.Client.prototype.query = query;
    },
  };
}
