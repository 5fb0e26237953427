import { type Admission, EMPTY_REQUEST, NO_USAGE, type Run } from '@reindeer/protocol';
import { makeAdmission, verifies } from '@reindeer/testkit';
import { sql } from 'kysely';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { defineScript, defineStatement } from '../executor.ts';
import { type InputOf, type OutputOf, type ScriptName, scripts } from '../scripts.ts';
import { SqliteConnection } from '../sqlite/connection.ts';

/** What the contract suites cannot see through the ports: rows that an older or newer program, or a fault, left behind. */
const setAction = defineStatement((db, p: { action: string }) =>
  db.updateTable('runs').set({ cancel_action: p.action, cancel_requested_at: 1 }),
);
const dropLeases = defineStatement((db, _p: object) => db.deleteFrom('run_leases'));
const rows = defineStatement((db, _p: object) =>
  db.selectNoFrom([
    sql<number>`(select count(*) from runs)`.as('runs'),
    sql<number>`(select count(*) from run_details)`.as('details'),
    sql<number>`(select count(*) from run_leases)`.as('leases'),
  ]),
);
const times = defineStatement((db, _p: object) =>
  db
    .selectFrom(['runs', 'run_leases', 'facts', 'threads'])
    .select([
      sql<string>`typeof(runs.created_at) || typeof(expires_at) || typeof(facts.at) || typeof(threads.updated_at)`.as(
        'types',
      ),
      'runs.created_at as run',
      'expires_at as lease',
      'facts.at as fact',
      'threads.updated_at as thread',
    ]),
);
const extra = {
  'test.times': defineScript('test.times', 'read', async (tx, _input: object) => ({ ...(await tx.first(times, {})) })),
  'test.action': defineScript('test.action', 'write', (tx, input: { action: string }) => tx.run(setAction, input)),
  'test.dropLeases': defineScript('test.dropLeases', 'write', (tx, _input: object) => tx.run(dropLeases, {})),
  'test.rows': defineScript('test.rows', 'read', async (tx, _input: object) => ({ ...(await tx.first(rows, {})) })),
};

let connection: SqliteConnection;
beforeEach(() => {
  connection = new SqliteConnection(':memory:', { ...scripts, ...extra });
});
afterEach(() => connection.close());

async function raw(name: string, input: unknown): Promise<unknown> {
  const [result] = (await connection.runBatch([{ name, input }])).results;
  if (result?.ok !== true) throw new Error(JSON.stringify(result));
  return result.value;
}
const call = async <N extends ScriptName>(name: N, input: InputOf<N>): Promise<OutputOf<N>> =>
  (await raw(name, input)) as OutputOf<N>;

const LEASE = 1000;
const admit = (runId: string, part: Partial<Admission> = {}) =>
  call('runs.admit', makeAdmission({ runId, owner: 'a', leaseExpiresAt: LEASE, now: 0, ...part }));
const fence = { runId: 'r', token: 'token-r' };
const renew = (token: string, expiresAt: number) =>
  call('runs.renew', { holders: [{ runId: 'r', token, expiresAt, allowInterrupted: false }] });
const claim = (now: number, token = 'token-b') =>
  call('runs.claimOrphans', {
    owner: 'b',
    tokens: [token],
    leaseExpiresAt: now + LEASE,
    graceMs: 100,
    deadOwners: [],
    skipRunIds: [],
    now,
  });
const finalize = () =>
  call('runs.finalize', {
    fence,
    status: 'success',
    error: null,
    stopReason: null,
    usage: NO_USAGE,
    unlessCancelled: true,
    now: 1,
  });

test(
  'a renewal under an earlier token does not lengthen the lease of the present holder',
  verifies('RL-02', 'RL-32'),
  async () => {
    await admit('r');
    const now = LEASE + 101;
    expect(await claim(now)).toHaveLength(1);
    expect(await renew('token-r', now + 100 * LEASE)).toEqual(new Map([['r', { outcome: 'lost' }]]));
    expect(await claim(now + LEASE + 100, 'token-c')).toEqual([]);
    expect(await claim(now + LEASE + 101, 'token-c')).toHaveLength(1);
  },
);

test('a missing lease counts as expired, for its holder it is made again', verifies('RL-21'), async () => {
  await admit('r');
  await raw('test.dropLeases', {});
  expect(await renew('token-r', 7)).toEqual(new Map([['r', { outcome: 'renewed', expiresAt: 7, cancelAction: null }]]));
  await raw('test.dropLeases', {});
  expect(await claim(0)).toHaveLength(1);
});

test('an action that this version does not know is an interrupt', verifies('RL-33'), async () => {
  await admit('r');
  await call('runs.start', { fence, checkpointBefore: '', now: 1 });
  await raw('test.action', { action: 'teleport' });
  expect(await call('runs.get', { runId: 'r' })).toMatchObject({ cancelAction: 'interrupt' } satisfies Partial<Run>);
  expect((await renew('token-r', 5000)).get('r')).toMatchObject({ cancelAction: 'interrupt' });
  expect(await call('runs.requestCancel', { runId: 'r', action: 'rollback', now: 2 })).toMatchObject({
    outcome: 'recorded',
    action: 'interrupt',
  });
  expect(await finalize()).toEqual({ outcome: 'cancel_requested', action: 'interrupt' });
});

test('what has ended leaves no lease, what is removed leaves no row', async () => {
  await admit('r');
  expect(await raw('test.rows', {})).toEqual({ runs: 1, details: 1, leases: 1 });
  await call('runs.start', { fence, checkpointBefore: '', now: 1 });
  await finalize();
  expect(await raw('test.rows', {})).toEqual({ runs: 1, details: 1, leases: 0 });
  await call('runs.remove', { runId: 'r', userId: 'user' });
  await admit('s', { kind: 'artifact_write' });
  await call('runs.release', { runId: 's', token: 'token-s' });
  expect(await raw('test.rows', {})).toEqual({ runs: 0, details: 0, leases: 0 });
});

test('a size of request that is stored once costs no fenced write its weight', async () => {
  const large = 'x'.repeat(1_000_000);
  await admit('r', { request: { ...EMPTY_REQUEST, input: large } });
  expect(await call('runs.get', { runId: 'r' })).toMatchObject({ request: { input: large } });
  const bytes = async () => {
    const { tables } = await call('database.stats', {});
    return tables.find((table) => table.name === 'runs')?.bytes ?? 0;
  };
  expect(await bytes()).toBeLessThan(1000);
});

test(
  'times are UTC milliseconds, stored and compared as numbers, wherever the machine is',
  verifies('PD-10'),
  async () => {
    const zone = process.env.TZ;
    try {
      process.env.TZ = 'Pacific/Kiritimati';
      const now = Date.UTC(2030, 5, 1);
      await admit('r', { now, leaseExpiresAt: now + LEASE });
      process.env.TZ = 'America/Los_Angeles';
      expect(await raw('test.times', {})).toEqual({
        types: 'integer'.repeat(4),
        run: now,
        lease: now + LEASE,
        fact: now,
        thread: now,
      });
      expect(await claim(now + LEASE + 100)).toEqual([]);
      expect(await claim(now + LEASE + 101)).toHaveLength(1);
    } finally {
      if (zone === undefined) delete process.env.TZ;
      else process.env.TZ = zone;
    }
  },
);
