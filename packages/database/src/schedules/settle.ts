import { endOfOccurrence, endOfOnce, type RunStatus, type ScheduleStore } from '@reindeer/protocol';
import { sql } from 'kysely';
import { defineScript, defineStatement } from '../executor.ts';
import { typed } from '../sql.ts';

const ended = defineStatement((db, p: { limit: number }) =>
  db
    .selectFrom('schedule_occurrences as o')
    .leftJoin('runs', 'runs.run_id', 'o.run_id')
    .select(['o.occurrence_id', 'o.schedule_key', 'runs.status', 'runs.error', 'runs.ended_at'])
    .where('o.status', '=', 'running')
    .where((eb) => eb.or([eb('runs.run_id', 'is', null), eb('runs.acknowledged', '=', 1)]))
    .orderBy('o.occurrence_key')
    .limit(p.limit),
);
const finish = defineStatement(
  (db, p: { occurrenceId: string; status: string; error: string | null; finishedAt: number }) =>
    db
      .updateTable('schedule_occurrences')
      .set({ status: p.status, error: p.error, finished_at: p.finishedAt })
      .where('occurrence_id', '=', p.occurrenceId)
      .where('status', '=', 'running'),
);
/** A schedule of type `once` that got a new time meanwhile goes on. */
const close = defineStatement(
  (db, p: { scheduleKey: number; end: string; error: string | null; now: number }, dialect) =>
    db
      .updateTable('schedules')
      .set({
        last_error: typed(dialect, p.error, 'text'),
        status: sql<string>`case when kind = 'once' and next_run_at is null and status = 'enabled' then ${typed(dialect, p.end, 'text')} else status end`,
        revision: sql<number>`revision + 1`,
        updated_at: p.now,
      })
      .where('schedule_key', '=', p.scheduleKey),
);

export const settleOccurrences = defineScript(
  'schedules.settle',
  'write',
  async (tx, { now, limit }: Parameters<ScheduleStore['settle']>[0]): Promise<number> => {
    let settled = 0;
    for (const row of await tx.all(ended, { limit })) {
      const run = row.status === null ? null : { status: row.status as RunStatus, error: row.error };
      const { status, error } = endOfOccurrence(run);
      const finishedAt = row.ended_at ?? now;
      if ((await tx.run(finish, { occurrenceId: row.occurrence_id, status, error, finishedAt })) === 0) continue;
      await tx.run(close, { scheduleKey: row.schedule_key, end: endOfOnce(status), error, now });
      settled += 1;
    }
    return settled;
  },
);
