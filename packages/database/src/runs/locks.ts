import { sql } from 'kysely';
import { defineStatement, type Tx } from '../executor.ts';

/** Tells these locks from others of the database. */
const ADMISSION_LOCK = 0x52_41_01;

/** One admission to a thread at a time. Taken first of all locks, by admissions and by the turn of a queued run only. */
const lockAdmissions = defineStatement((db, p: { threadId: string }) =>
  db.selectNoFrom(sql`pg_advisory_xact_lock(${sql.lit(ADMISSION_LOCK)}, hashtext(${p.threadId}))`.as('locked')),
);
const lockHolders = defineStatement((db, p: { threadId: string }) =>
  db
    .selectFrom('runs')
    .select('run_id')
    .where('thread_id', '=', p.threadId)
    .where('acknowledged', '=', 0)
    .orderBy('admission')
    .forNoKeyUpdate(),
);
/** The ids as an array, so that each is looked up: as a list the planner may read all leases instead. */
const lockLeases = defineStatement((db, p: { threadId: string }) =>
  db
    .selectFrom('run_leases')
    .select('run_id')
    .where(
      sql<boolean>`run_id = any(array(select runs.run_id from runs where runs.thread_id = ${p.threadId} and runs.acknowledged = 0))`,
    )
    .forNoKeyUpdate(),
);

/**
 * Holds still what the decision of an admission rests on: other admissions to the thread, the rows of its runs, their leases. What
 * is read afterwards stays true until the end of the transaction.
 */
export async function holdStill(tx: Tx, threadId: string): Promise<void> {
  if (tx.serial) return;
  const locks = [
    tx.first(lockAdmissions, { threadId }),
    tx.all(lockHolders, { threadId }),
    tx.all(lockLeases, { threadId }),
  ];
  await Promise.all(locks);
}
