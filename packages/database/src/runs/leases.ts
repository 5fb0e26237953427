import type { LeaseHolder, RenewOutcome, Run, RunStore } from '@reindeer/protocol';
import { sql } from 'kysely';
import { defineScript, defineStatement, type Tx } from '../executor.ts';
import { greatest, texts } from '../sql.ts';
import { outcomeOf } from './at-once.ts';
import { findRun } from './rows.ts';

type Input<M extends keyof RunStore> = Parameters<RunStore[M]>[0];

/** What renewals travel as: one JSON parameter for all of them. */
type Holders = readonly { readonly r: string; readonly t: string; readonly e: number; readonly i: 0 | 1 }[];

/** All leases of an instance in one statement. A lease is never shortened (RL-09), and only a holder's is touched. */
const renewLeases = defineStatement((db, p: { holders: string }, dialect) =>
  db
    .insertInto('run_leases')
    .columns(['run_id', 'expires_at'])
    .expression(
      db
        .selectFrom('runs')
        .innerJoin(
          dialect.name === 'sqlite'
            ? sql<{ r: string; t: string; e: number; i: number }>`
                (select value ->> 'r' as r, value ->> 't' as t, value ->> 'e' as e, value ->> 'i' as i
                 from json_each(${p.holders}))`.as('h')
            : sql<{ r: string; t: string; e: number; i: number }>`
                (select * from jsonb_to_recordset(${p.holders}::jsonb) as x(r text, t text, e bigint, i bigint))`.as(
                'h',
              ),
          (join) => join.onRef('h.r', '=', 'runs.run_id').onRef('h.t', '=', 'runs.token'),
        )
        .select(['runs.run_id', 'h.e'])
        .where('runs.acknowledged', '=', 0)
        .where((eb) => eb.or([eb('runs.status', '!=', 'interrupted'), eb('h.i', '=', 1)])),
    )
    .onConflict((c) =>
      c.column('run_id').doUpdateSet({
        expires_at: greatest(dialect, sql<number>`run_leases.expires_at`, sql<number>`excluded.expires_at`),
      }),
    )
    .returning(['run_id', 'expires_at']),
);
const holdersNow = defineStatement((db, p: { runIds: string }, dialect) =>
  db
    .selectFrom('runs')
    .select(['run_id', 'token', 'status', 'cancel_action'])
    .where('run_id', 'in', texts(dialect, p.runIds))
    .where('acknowledged', '=', 0),
);

async function renewHolders(tx: Tx, asked: readonly LeaseHolder[]): Promise<Map<string, RenewOutcome>> {
  const holders: Holders = asked.map((holder) => ({
    r: holder.runId,
    t: holder.token,
    e: holder.expiresAt,
    i: holder.allowInterrupted ? 1 : 0,
  }));
  const renewed = new Map(
    (await tx.all(renewLeases, { holders: JSON.stringify(holders) })).map((row) => [row.run_id, row.expires_at]),
  );
  const runIds = JSON.stringify(holders.map((holder) => holder.r));
  const rows = new Map(
    (await tx.all(holdersNow, { runIds })).map((row) => [
      row.run_id,
      { ...row, expires_at: renewed.get(row.run_id) ?? null },
    ]),
  );
  return new Map(asked.map((holder) => [holder.runId, outcomeOf(holder, rows.get(holder.runId))]));
}

/** Where transactions run one after another; Postgres has `renewAtOnce`. */
export const renew = defineScript(
  'runs.renew',
  'write',
  (tx, { holders }: { readonly holders: readonly LeaseHolder[] }): Promise<Map<string, RenewOutcome>> =>
    renewHolders(tx, holders),
);

/**
 * A renewal and a takeover of one run meet at its lease: both lock that row first, and only then look at the other's. So a renewal
 * waits for no row of `runs`, whoever holds it, and a takeover never overlooks a renewal (RL-17, RL-19).
 */
const limitWait = defineStatement((db, _p: object) =>
  db.selectNoFrom(sql`set_config('lock_timeout', ${sql.lit(`${BUSY_WAIT_MS}ms`)}, true)`.as('limit')),
);
const lockRun = defineStatement((db, p: { runId: string }) =>
  db.selectFrom('runs').select('run_id').where('run_id', '=', p.runId).forNoKeyUpdate(),
);
const lockLease = defineStatement((db, p: { runId: string }) =>
  db.selectFrom('run_leases').select('run_id').where('run_id', '=', p.runId).forNoKeyUpdate(),
);
/** How long one renewal waits for whoever holds its row, in milliseconds. */
const BUSY_WAIT_MS = 150;

/** One that was busy: waits a little for its row, and makes the lease again where it is missing. */
export const renewOne = defineScript(
  'runs.renewOne',
  'write',
  async (tx, { holder }: { readonly holder: LeaseHolder }): Promise<RenewOutcome> => {
    const { runId } = holder;
    if (!tx.serial) {
      await tx.first(limitWait, {});
      // Without its row the lease has nothing to lock, and the run's own row keeps a takeover away.
      if ((await tx.first(lockLease, { runId })) === undefined) {
        await tx.first(lockRun, { runId });
        await tx.first(lockLease, { runId });
      }
    }
    return (await renewHolders(tx, [holder])).get(runId) ?? { outcome: 'lost' };
  },
);

interface Orphanhood {
  readonly deadOwners: string;
  readonly graceMs: number;
  readonly now: number;
}
const orphans = defineStatement((db, p: Orphanhood & { skip: string; limit: number }, dialect) =>
  db
    .selectFrom('runs')
    .leftJoin('run_leases', 'run_leases.run_id', 'runs.run_id')
    .select('runs.run_id')
    .where('runs.acknowledged', '=', 0)
    // Nobody holds a queued run, so that nobody has lost it.
    .where('runs.status', '!=', 'queued')
    .where((eb) =>
      eb.or([
        eb('run_leases.expires_at', 'is', null),
        sql<boolean>`run_leases.expires_at + ${p.graceMs} < ${p.now}`,
        eb('runs.owner', 'in', texts(dialect, p.deadOwners)),
      ]),
    )
    .where('runs.run_id', 'not in', texts(dialect, p.skip))
    .orderBy('runs.admission')
    .limit(p.limit)
    // Several sweepers at once share the orphans out, and nobody waits for a row that somebody holds.
    .$if(dialect.name === 'postgres', (query) => query.forNoKeyUpdate('runs').skipLocked()),
);
/** The condition stands in the write itself: a row that was renewed after the scan is left alone (RL-17, RL-19). */
const claim = defineStatement((db, p: Orphanhood & { runId: string; owner: string; token: string }, dialect) =>
  db
    .updateTable('runs')
    .set({
      owner: p.owner,
      token: p.token,
      // The new holder's worker starts it like any other.
      status: sql<string>`case when status = 'running' then 'pending' else status end`,
      updated_at: p.now,
    })
    .where('run_id', '=', p.runId)
    .where('acknowledged', '=', 0)
    .where('status', '!=', 'queued')
    .where((eb) =>
      eb.or([
        eb('owner', 'in', texts(dialect, p.deadOwners)),
        eb.not(
          eb.exists(
            eb
              .selectFrom('run_leases')
              .select('run_leases.run_id')
              .where('run_leases.run_id', '=', p.runId)
              .where(sql<boolean>`run_leases.expires_at + ${p.graceMs} >= ${p.now}`),
          ),
        ),
      ]),
    ),
);
const setLease = defineStatement((db, p: { runId: string; expiresAt: number }) =>
  db
    .insertInto('run_leases')
    .values({ run_id: p.runId, expires_at: p.expiresAt })
    .onConflict((c) => c.column('run_id').doUpdateSet({ expires_at: p.expiresAt })),
);

const lockFreeLease = defineStatement((db, p: { runId: string }) =>
  db.selectFrom('run_leases').select('run_id').where('run_id', '=', p.runId).forNoKeyUpdate().skipLocked(),
);
const leaseOf = defineStatement((db, p: { runId: string }) =>
  db.selectFrom('run_leases').select('run_id').where('run_id', '=', p.runId),
);

/** Locks a candidate's lease; false = somebody is renewing it. One that has none is held by its row in `runs`. */
async function lockForTakeover(tx: Tx, runId: string): Promise<boolean> {
  if (tx.serial || (await tx.first(lockFreeLease, { runId })) !== undefined) return true;
  return (await tx.first(leaseOf, { runId })) === undefined;
}

/** Looks again when candidates were lost to others, at most this many times. */
const CLAIM_PASSES = 3;

export const claimOrphans = defineScript(
  'runs.claimOrphans',
  'durable',
  async (tx, input: Input<'claimOrphans'>): Promise<{ readonly run: Run; readonly token: string }[]> => {
    const { owner, tokens, leaseExpiresAt, graceMs, skipRunIds, now } = input;
    const deadOwners = JSON.stringify(input.deadOwners);
    const claimed: { run: Run; token: string }[] = [];
    for (let pass = 0; pass < CLAIM_PASSES && claimed.length < tokens.length; pass += 1) {
      const limit = tokens.length - claimed.length;
      const skip = JSON.stringify([...skipRunIds, ...claimed.map(({ run }) => run.runId)]);
      const found = await tx.all(orphans, { deadOwners, graceMs, now, skip, limit });
      let lost = 0;
      for (const { run_id: runId } of found) {
        const token = tokens[claimed.length] ?? '';
        const taken =
          (await lockForTakeover(tx, runId)) &&
          (await tx.run(claim, { deadOwners, graceMs, now, runId, owner, token })) === 1;
        if (!taken) {
          lost += 1;
          continue;
        }
        await tx.run(setLease, { runId, expiresAt: leaseExpiresAt });
        const run = await findRun(tx, runId);
        if (run !== null) claimed.push({ run, token });
      }
      if (lost === 0) break;
    }
    return claimed;
  },
);
