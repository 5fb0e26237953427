import type { Occurrence, Schedule, ScheduleStore } from '@reindeer/protocol';
import { sql } from 'kysely';
import { defineScript, defineStatement, type Tx } from '../executor.ts';
import { enterGate, launched, notLaunched, takeOccurrence, takeOver } from './launch.ts';
import { selectOccurrences, selectSchedules, toOccurrence, toSchedule } from './rows.ts';
import { settleOccurrences } from './settle.ts';

type Input<M extends keyof ScheduleStore> = Parameters<ScheduleStore[M]>[0];

type Params = Omit<Schedule, 'context' | 'active'> & { readonly context: string };

/** What an edit may change. */
const editable = (p: Params) => ({
  title: p.title,
  prompt: p.prompt,
  cron: p.cron,
  run_at: p.runAt,
  timezone: p.timezone,
  context_mode: p.contextMode,
  thread_id: p.threadId,
  assistant_id: p.assistantId,
  context: p.context,
  status: p.status,
  next_run_at: p.nextRunAt,
  last_error: p.lastError,
});
const insert = defineStatement((db, p: Params) =>
  db
    .insertInto('schedules')
    .values({
      ...editable(p),
      schedule_id: p.scheduleId,
      user_id: p.userId,
      kind: p.type,
      last_run_at: p.lastRunAt,
      last_run_id: p.lastRunId,
      last_thread_id: p.lastThreadId,
      run_count: p.runCount,
      revision: p.revision,
      created_at: p.createdAt,
      updated_at: p.updatedAt,
    })
    .onConflict((c) => c.column('schedule_id').doNothing()),
);
const countOf = defineStatement((db, p: { userId: string }) =>
  db
    .selectFrom('schedules')
    .select(sql<number>`cast(count(*) as integer)`.as('schedules'))
    .where('user_id', '=', p.userId),
);
const byId = defineStatement((db, p: { scheduleId: string; userId: string }) =>
  selectSchedules(db).where('schedule_id', '=', p.scheduleId).where('user_id', '=', p.userId),
);
const ofUser = defineStatement((db, p: { userId: string; limit: number; offset: number }) =>
  selectSchedules(db).where('user_id', '=', p.userId).orderBy('schedule_key', 'desc').limit(p.limit).offset(p.offset),
);
const ofThread = defineStatement((db, p: { userId: string; threadId: string; limit: number; offset: number }) =>
  selectSchedules(db)
    .where('user_id', '=', p.userId)
    .where((eb) => eb.or([eb('thread_id', '=', p.threadId), eb('last_thread_id', '=', p.threadId)]))
    .orderBy('schedule_key', 'desc')
    .limit(p.limit)
    .offset(p.offset),
);
/** An edit that another edit, a take or an end has overtaken changes nothing. */
const write = defineStatement((db, p: Params & { readonly now: number }) =>
  db
    .updateTable('schedules')
    .set({
      ...editable(p),
      revision: sql<number>`revision + 1`,
      updated_at: p.now,
    })
    .where('schedule_id', '=', p.scheduleId)
    .where('user_id', '=', p.userId)
    .where('revision', '=', p.revision),
);
const removeOccurrences = defineStatement((db, p: { scheduleId: string; userId: string }) =>
  db
    .deleteFrom('schedule_occurrences')
    .where('schedule_key', 'in', (eb) =>
      eb
        .selectFrom('schedules')
        .select('schedules.schedule_key')
        .where('schedule_id', '=', p.scheduleId)
        .where('user_id', '=', p.userId),
    ),
);
const removeSchedule = defineStatement((db, p: { scheduleId: string; userId: string }) =>
  db.deleteFrom('schedules').where('schedule_id', '=', p.scheduleId).where('user_id', '=', p.userId),
);
const dueNow = defineStatement((db, p: { now: number; limit: number }) =>
  selectSchedules(db)
    .where('status', '=', 'enabled')
    .where('next_run_at', 'is not', null)
    .where('next_run_at', '<=', p.now)
    .orderBy('next_run_at')
    .orderBy('schedule_key')
    .limit(p.limit),
);
const firstDue = defineStatement((db) =>
  db
    .selectFrom('schedules')
    .select('next_run_at')
    .where('status', '=', 'enabled')
    .where('next_run_at', 'is not', null)
    .orderBy('next_run_at')
    .limit(1),
);
const occurrencesOf = defineStatement((db, p: { scheduleId: string; userId: string; limit: number; offset: number }) =>
  selectOccurrences(db)
    .where('schedules.schedule_id', '=', p.scheduleId)
    .where('schedules.user_id', '=', p.userId)
    .orderBy('schedule_occurrences.occurrence_key', 'desc')
    .limit(p.limit)
    .offset(p.offset),
);

async function find(tx: Tx, input: { readonly scheduleId: string; readonly userId: string }): Promise<Schedule | null> {
  const row = await tx.first(byId, input);
  return row === undefined ? null : toSchedule(row);
}

const create = defineScript(
  'schedules.create',
  'durable',
  async (tx, { schedule, limit }: Input<'create'>): Promise<'created' | 'full'> => {
    await enterGate(tx);
    const { scheduleId, userId } = schedule;
    // The same call again, because its first answer was lost.
    if ((await find(tx, { scheduleId, userId })) !== null) return 'created';
    const known = await tx.first(countOf, { userId });
    if ((known?.schedules ?? 0) >= limit) return 'full';
    await tx.run(insert, { ...schedule, context: JSON.stringify(schedule.context) });
    return 'created';
  },
);

const get = defineScript('schedules.get', 'read', (tx, input: Input<'get'>) => find(tx, input));

const list = defineScript('schedules.list', 'read', async (tx, input: Input<'list'>): Promise<Schedule[]> => {
  const { userId, threadId, limit, offset } = input;
  const rows = await (threadId === null
    ? tx.all(ofUser, { userId, limit, offset })
    : tx.all(ofThread, { userId, threadId, limit, offset }));
  return rows.map(toSchedule);
});

const update = defineScript(
  'schedules.update',
  'durable',
  async (tx, input: Input<'update'>): Promise<Schedule | null> => {
    const { scheduleId, userId, revision, edit, now } = input;
    const before = await find(tx, { scheduleId, userId });
    if (before === null || before.revision !== revision) return null;
    const after = { ...before, ...edit };
    const changed = await tx.run(write, { ...after, context: JSON.stringify(after.context), now });
    return changed === 1 ? find(tx, { scheduleId, userId }) : null;
  },
);

const remove = defineScript('schedules.remove', 'durable', async (tx, input: Input<'remove'>): Promise<boolean> => {
  // No occurrence is made meanwhile, which would be left without its schedule.
  await enterGate(tx);
  await tx.run(removeOccurrences, input);
  return (await tx.run(removeSchedule, input)) === 1;
});

const due = defineScript(
  'schedules.due',
  'read',
  async (tx, input: Input<'due'>): Promise<Schedule[]> => (await tx.all(dueNow, input)).map(toSchedule),
);

const nextDue = defineScript('schedules.nextDue', 'read', async (tx, _input: object): Promise<number | null> => {
  const row = await tx.first(firstDue, {});
  return row?.next_run_at ?? null;
});

const occurrences = defineScript(
  'schedules.occurrences',
  'read',
  async (tx, input: Input<'occurrences'>): Promise<Occurrence[] | null> => {
    const { scheduleId, userId } = input;
    if ((await tx.first(byId, { scheduleId, userId })) === undefined) return null;
    return (await tx.all(occurrencesOf, input)).map(toOccurrence);
  },
);

export const scheduleScripts = {
  'schedules.create': create,
  'schedules.get': get,
  'schedules.list': list,
  'schedules.update': update,
  'schedules.remove': remove,
  'schedules.due': due,
  'schedules.nextDue': nextDue,
  'schedules.take': takeOccurrence,
  'schedules.takeOver': takeOver,
  'schedules.launched': launched,
  'schedules.notLaunched': notLaunched,
  'schedules.settle': settleOccurrences,
  'schedules.occurrences': occurrences,
};
