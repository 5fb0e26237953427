import {
  type NewOccurrence,
  type Occurrence,
  OVERLAPPED,
  type QueuedOccurrence,
  type ScheduledWork,
  type ScheduleStore,
  type TakeResult,
} from '@reindeer/protocol';
import { sql } from 'kysely';
import { defineScript, defineStatement, Overtaken, type Tx } from '../executor.ts';
import { typed } from '../sql.ts';
import { OPEN, selectOccurrences, selectSchedules, toOccurrence, toSchedule } from './rows.ts';

type Input<M extends keyof ScheduleStore> = Parameters<ScheduleStore[M]>[0];

const pass = defineStatement((db) =>
  db
    .insertInto('schedule_gate')
    .values({ gate: 1, takes: 1 })
    .onConflict((c) => c.column('gate').doUpdateSet({ takes: sql<number>`schedule_gate.takes + 1` })),
);

/** From here to the end of the transaction no other one makes or removes occurrences. */
export async function enterGate(tx: Tx): Promise<void> {
  if (!tx.serial) await tx.run(pass, {});
}

const atRevision = defineStatement((db, p: { scheduleId: string; revision: number }) =>
  selectSchedules(db).where('schedule_id', '=', p.scheduleId).where('revision', '=', p.revision),
);
const byKey = defineStatement((db, p: { scheduleKey: number }) =>
  selectSchedules(db).where('schedule_key', '=', p.scheduleKey),
);
const openNow = defineStatement((db) =>
  db
    .selectFrom('schedule_occurrences')
    .select(sql<number>`cast(count(*) as integer)`.as('open'))
    .where('status', 'in', OPEN),
);
/** The revision that the caller saw is part of the write: a time is taken once. */
const advance = defineStatement(
  (db, p: { scheduleKey: number; revision: number; moves: number; nextRunAt: number | null; now: number }, dialect) =>
    db
      .updateTable('schedules')
      .set({
        next_run_at: sql<number>`case when ${p.moves} = 1 then ${typed(dialect, p.nextRunAt, 'bigint')} else next_run_at end`,
        revision: sql<number>`revision + 1`,
        updated_at: p.now,
      })
      .where('schedule_key', '=', p.scheduleKey)
      .where('revision', '=', p.revision),
);
const begun = defineStatement((db, p: { scheduleKey: number; threadId: string; now: number }) =>
  db
    .updateTable('schedules')
    .set({ run_count: sql<number>`run_count + 1`, last_run_at: p.now, last_thread_id: p.threadId, last_error: null })
    .where('schedule_key', '=', p.scheduleKey),
);
interface NewRow extends Omit<NewOccurrence, 'work'> {
  /** JSON. */
  readonly work: string;
  readonly scheduleKey: number;
  readonly status: 'queued' | 'skipped';
  readonly error: string | null;
  readonly owner: string | null;
  readonly leaseExpiresAt: number | null;
  readonly finishedAt: number | null;
  readonly now: number;
}
const insert = defineStatement((db, p: NewRow) =>
  db
    .insertInto('schedule_occurrences')
    .values({
      occurrence_id: p.occurrenceId,
      schedule_key: p.scheduleKey,
      thread_id: p.threadId,
      run_id: null,
      work: p.work,
      scheduled_for: p.scheduledFor,
      cause: p.trigger,
      status: p.status,
      error: p.error,
      owner: p.owner,
      lease_expires_at: p.leaseExpiresAt,
      created_at: p.now,
      started_at: null,
      finished_at: p.finishedAt,
    })
    .onConflict((c) => c.doNothing()),
);
const forget = defineStatement((db, p: { scheduleKey: number; keep: number }) =>
  db
    .deleteFrom('schedule_occurrences')
    .where('schedule_key', '=', p.scheduleKey)
    .where('status', 'not in', OPEN)
    .where('occurrence_key', '<=', (eb) =>
      eb
        .selectFrom('schedule_occurrences as newer')
        .select('newer.occurrence_key')
        .where('newer.schedule_key', '=', p.scheduleKey)
        .orderBy('newer.occurrence_key', 'desc')
        .limit(1)
        .offset(p.keep),
    ),
);
const byId = defineStatement((db, p: { occurrenceId: string }) =>
  selectOccurrences(db).where('schedule_occurrences.occurrence_id', '=', p.occurrenceId),
);

async function find(tx: Tx, occurrenceId: string): Promise<Occurrence> {
  const row = await tx.first(byId, { occurrenceId });
  if (row === undefined) throw new Overtaken('The occurrence of a schedule was removed while it was made.');
  return toOccurrence(row);
}

export const takeOccurrence = defineScript(
  'schedules.take',
  'durable',
  async (tx, input: Input<'take'>): Promise<TakeResult> => {
    const { scheduleId, revision, nextRunAt, occurrence, owner, leaseMs, maxOpen, keep, now } = input;
    await enterGate(tx);
    const row = await tx.first(atRevision, { scheduleId, revision });
    if (row === undefined) return { outcome: 'changed' };
    const scheduleKey = row.schedule_key;
    const move = { scheduleKey, revision, moves: nextRunAt === undefined ? 0 : 1, nextRunAt: nextRunAt ?? null, now };
    const made = { ...occurrence, work: JSON.stringify(occurrence.work), scheduleKey, now };
    if (row.active === 1) {
      if (occurrence.trigger === 'manual') return { outcome: 'overlap' };
      if ((await tx.run(advance, move)) === 0) return { outcome: 'changed' };
      const skipped = {
        status: 'skipped',
        error: OVERLAPPED,
        owner: null,
        leaseExpiresAt: null,
        finishedAt: now,
      } as const;
      await tx.run(insert, { ...made, ...skipped });
      await tx.run(forget, { scheduleKey, keep });
      return { outcome: 'overlap' };
    }
    if (((await tx.first(openNow, {}))?.open ?? 0) >= maxOpen) return { outcome: 'full' };
    if ((await tx.run(advance, move)) === 0) return { outcome: 'changed' };
    const queued = { status: 'queued', error: null, owner, leaseExpiresAt: now + leaseMs, finishedAt: null } as const;
    if ((await tx.run(insert, { ...made, ...queued })) === 0)
      throw new Overtaken('Another occurrence of the schedule was made meanwhile.');
    await tx.run(begun, { scheduleKey, threadId: occurrence.threadId, now });
    await tx.run(forget, { scheduleKey, keep });
    const schedule = await tx.first(byKey, { scheduleKey });
    if (schedule === undefined) throw new Overtaken('The schedule was removed while its occurrence was made.');
    const { work, occurrenceId } = occurrence;
    return { outcome: 'taken', schedule: toSchedule(schedule), occurrence: await find(tx, occurrenceId), work };
  },
);

const expired = defineStatement((db, p: { now: number; limit: number }, dialect) =>
  db
    .selectFrom('schedule_occurrences')
    .select(['occurrence_id', 'schedule_key', 'work'])
    .where('status', '=', 'queued')
    .where('lease_expires_at', '<=', p.now)
    .orderBy('occurrence_key')
    .limit(p.limit)
    .$if(dialect.name === 'postgres', (query) => query.forNoKeyUpdate().skipLocked()),
);
const hold = defineStatement((db, p: { occurrenceId: string; owner: string; leaseExpiresAt: number; now: number }) =>
  db
    .updateTable('schedule_occurrences')
    .set({ owner: p.owner, lease_expires_at: p.leaseExpiresAt })
    .where('occurrence_id', '=', p.occurrenceId)
    .where('status', '=', 'queued')
    .where('lease_expires_at', '<=', p.now),
);

export const takeOver = defineScript(
  'schedules.takeOver',
  'durable',
  async (tx, input: Input<'takeOver'>): Promise<QueuedOccurrence[]> => {
    const { owner, leaseMs, limit, now } = input;
    const held: QueuedOccurrence[] = [];
    for (const row of await tx.all(expired, { now, limit })) {
      const { occurrence_id: occurrenceId, schedule_key: scheduleKey } = row;
      if ((await tx.run(hold, { occurrenceId, owner, leaseExpiresAt: now + leaseMs, now })) === 0) continue;
      const schedule = await tx.first(byKey, { scheduleKey });
      if (schedule === undefined) continue;
      held.push({
        schedule: toSchedule(schedule),
        occurrence: await find(tx, occurrenceId),
        work: JSON.parse(row.work) as ScheduledWork,
      });
    }
    return held;
  },
);

const begin = defineStatement(
  (db, p: { occurrenceId: string; owner: string; runId: string; threadId: string; now: number }) =>
    db
      .updateTable('schedule_occurrences')
      .set({
        status: 'running',
        run_id: p.runId,
        thread_id: p.threadId,
        owner: null,
        lease_expires_at: null,
        started_at: p.now,
      })
      .where('occurrence_id', '=', p.occurrenceId)
      .where('status', '=', 'queued')
      .where('owner', '=', p.owner)
      .returning('schedule_key'),
);
const noteRun = defineStatement((db, p: { scheduleKey: number; runId: string; threadId: string; now: number }) =>
  db
    .updateTable('schedules')
    .set({ last_run_id: p.runId, last_thread_id: p.threadId, updated_at: p.now })
    .where('schedule_key', '=', p.scheduleKey),
);

export const launched = defineScript(
  'schedules.launched',
  'durable',
  async (tx, input: Input<'launched'>): Promise<boolean> => {
    const row = await tx.first(begin, input);
    if (row === undefined) return false;
    const { runId, threadId, now } = input;
    await tx.run(noteRun, { scheduleKey: row.schedule_key, runId, threadId, now });
    return true;
  },
);

const fail = defineStatement((db, p: { occurrenceId: string; owner: string; error: string; now: number }) =>
  db
    .updateTable('schedule_occurrences')
    .set({ status: 'failed', error: p.error, owner: null, lease_expires_at: null, finished_at: p.now })
    .where('occurrence_id', '=', p.occurrenceId)
    .where('status', '=', 'queued')
    .where('owner', '=', p.owner)
    .returning('schedule_key'),
);
/** One of type `once` that has no other time fails with it. */
const blame = defineStatement((db, p: { scheduleKey: number; error: string; broken: number; now: number }) =>
  db
    .updateTable('schedules')
    .set({
      last_error: p.error,
      status: sql<string>`case when ${p.broken} = 1 or (kind = 'once' and next_run_at is null and status = 'enabled')
        then 'failed' else status end`,
      next_run_at: sql<number>`case when ${p.broken} = 1 then null else next_run_at end`,
      revision: sql<number>`revision + 1`,
      updated_at: p.now,
    })
    .where('schedule_key', '=', p.scheduleKey),
);

export const notLaunched = defineScript(
  'schedules.notLaunched',
  'durable',
  async (tx, input: Input<'notLaunched'>): Promise<boolean> => {
    const { occurrenceId, owner, error, broken, now } = input;
    const row = await tx.first(fail, { occurrenceId, owner, error, now });
    if (row === undefined) return false;
    await tx.run(blame, { scheduleKey: row.schedule_key, error, broken: broken ? 1 : 0, now });
    return true;
  },
);
