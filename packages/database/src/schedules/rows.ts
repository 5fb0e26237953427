import type {
  JsonObject,
  Occurrence,
  OccurrenceStatus,
  OccurrenceTrigger,
  Schedule,
  ScheduleContext,
  ScheduleStatus,
  ScheduleType,
} from '@reindeer/protocol';
import { type Kysely, sql } from 'kysely';
import type { Database } from '../schema.ts';

/** Queued or at work. */
export const OPEN = ['queued', 'running'] as const;

export const selectSchedules = (db: Kysely<Database>) =>
  db
    .selectFrom('schedules')
    .selectAll('schedules')
    .select(
      sql<number>`(case when exists (select 1 from schedule_occurrences o where o.schedule_key = schedules.schedule_key
        and o.status in ('queued', 'running')) then 1 else 0 end)`.as('active'),
    );
export type ScheduleRecord = Awaited<ReturnType<ReturnType<typeof selectSchedules>['execute']>>[number];

export const toSchedule = (row: ScheduleRecord): Schedule => ({
  scheduleId: row.schedule_id,
  userId: row.user_id,
  title: row.title,
  prompt: row.prompt,
  type: row.kind as ScheduleType,
  cron: row.cron,
  runAt: row.run_at,
  timezone: row.timezone,
  contextMode: row.context_mode as ScheduleContext,
  threadId: row.thread_id,
  assistantId: row.assistant_id,
  context: JSON.parse(row.context) as JsonObject,
  status: row.status as ScheduleStatus,
  nextRunAt: row.next_run_at,
  lastRunAt: row.last_run_at,
  lastRunId: row.last_run_id,
  lastThreadId: row.last_thread_id,
  lastError: row.last_error,
  runCount: row.run_count,
  active: row.active === 1,
  revision: row.revision,
  createdAt: row.created_at,
  updatedAt: row.updated_at,
});

export const selectOccurrences = (db: Kysely<Database>) =>
  db
    .selectFrom('schedule_occurrences')
    .innerJoin('schedules', 'schedules.schedule_key', 'schedule_occurrences.schedule_key')
    .select([
      'schedule_occurrences.occurrence_key',
      'schedule_occurrences.occurrence_id',
      'schedule_occurrences.schedule_key',
      'schedules.schedule_id',
      'schedule_occurrences.thread_id',
      'schedule_occurrences.run_id',
      'schedule_occurrences.scheduled_for',
      'schedule_occurrences.cause',
      'schedule_occurrences.status',
      'schedule_occurrences.error',
      'schedule_occurrences.created_at',
      'schedule_occurrences.started_at',
      'schedule_occurrences.finished_at',
    ]);
export type OccurrenceRecord = Awaited<ReturnType<ReturnType<typeof selectOccurrences>['execute']>>[number];

export const toOccurrence = (row: OccurrenceRecord): Occurrence => ({
  occurrenceId: row.occurrence_id,
  scheduleId: row.schedule_id,
  threadId: row.thread_id,
  runId: row.run_id,
  scheduledFor: row.scheduled_for,
  trigger: row.cause as OccurrenceTrigger,
  status: row.status as OccurrenceStatus,
  error: row.error,
  createdAt: row.created_at,
  startedAt: row.started_at,
  finishedAt: row.finished_at,
});
