import { sql } from 'kysely';
import { defineStatement, type Tx } from '../executor.ts';
import { PHASE } from './tables.ts';

export const OPEN = ['pending', 'queued', 'leased', 'running'] as const;

/** The first position of each kind, by the index: a plan for any one row may read all of them, which is dear when the last ones are at work. */
const anyOpen = defineStatement((db, p: { batchKey: number }) => {
  const first = (status: string) =>
    sql`(select min(position) from batch_items where batch_key = ${p.batchKey} and status = ${sql.lit(status)})`;
  const query = sql<{ open: number }>`select open from (select coalesce(${sql.join(OPEN.map(first))}) as open) x
    where open is not null`;
  return { compile: () => query.compile(db) };
});
const lock = defineStatement((db, p: { batchKey: number }) =>
  db.selectFrom('batches').select('batch_key').where('batch_key', '=', p.batchKey).forNoKeyUpdate().skipLocked(),
);
/** BT-11. A cancelled batch is over already. */
const end = defineStatement((db, p: { batchKey: number; now: number }) =>
  db
    .updateTable('batches')
    .set({
      status: sql<string>`case
        when exists (select 1 from batch_items i where i.batch_key = batches.batch_key and i.status = 'failed')
          and not exists (select 1 from batch_items i where i.batch_key = batches.batch_key and i.status = 'succeeded')
        then 'failed' else 'completed' end`,
      phase: PHASE.toReport,
      ends: sql<number>`ends + 1`,
      reporter: null,
      reporter_until: null,
      ended_at: p.now,
      updated_at: p.now,
    })
    .where('batch_key', '=', p.batchKey)
    .where('phase', '=', PHASE.open)
    .where(
      sql<boolean>`not exists (select 1 from batch_items i where i.batch_key = batches.batch_key
        and i.status in ('pending', 'queued', 'leased', 'running'))`,
    ),
);

/**
 * Ends the batch when nothing of it is open any more. Where somebody else holds the batch it is left to the next pass of a scheduler: a holder
 * of an item never waits for a batch, so that the two orders of locks cannot meet.
 */
export async function settle(tx: Tx, batchKey: number, now: number): Promise<void> {
  if ((await tx.first(anyOpen, { batchKey })) !== undefined) return;
  // The lock comes first: what is counted afterwards is what a retry of an item left behind.
  if (!tx.serial && (await tx.first(lock, { batchKey })) === undefined) return;
  await tx.run(end, { batchKey, now });
}
