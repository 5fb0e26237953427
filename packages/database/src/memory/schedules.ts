import {
  endOfOccurrence,
  endOfOnce,
  isOccurrenceOpen,
  type Occurrence,
  OVERLAPPED,
  type Schedule,
  type ScheduledWork,
  type ScheduleStore,
} from '@reindeer/protocol';
import type { MemoryDatabase } from './data.ts';
import { copyJson } from './data.ts';
import type { Transact } from './runs.ts';

export interface OccurrenceRow {
  readonly work: ScheduledWork;
  occurrence: Occurrence;
  owner: string | null;
  leaseExpiresAt: number | null;
}

/** `active` is worked out when it is read. */
export interface ScheduleRow {
  schedule: Schedule;
  /** By the order of their making. */
  occurrences: OccurrenceRow[];
}

/** Schedules of a memory database, by the order of their making. */
export function memorySchedules(database: MemoryDatabase, transact: Transact): ScheduleStore {
  const { schedules } = database;
  const openOf = (row: ScheduleRow): OccurrenceRow | undefined =>
    row.occurrences.find(({ occurrence }) => isOccurrenceOpen(occurrence.status));
  const read = (row: ScheduleRow): Schedule => ({
    ...row.schedule,
    context: copyJson(row.schedule.context),
    active: openOf(row) !== undefined,
  });
  const owned = (scheduleId: string, userId: string): ScheduleRow | null => {
    const row = schedules.get(scheduleId);
    return row === undefined || row.schedule.userId !== userId ? null : row;
  };
  const edit = (row: ScheduleRow, change: Partial<Schedule>, now: number): void => {
    row.schedule = { ...row.schedule, ...change, revision: row.schedule.revision + 1, updatedAt: now };
  };
  const launcherOf = (occurrenceId: string, owner: string) => {
    for (const row of schedules.values()) {
      const found = row.occurrences.find(({ occurrence }) => occurrence.occurrenceId === occurrenceId);
      if (found !== undefined)
        return found.occurrence.status === 'queued' && found.owner === owner ? { row, found } : null;
    }
    return null;
  };
  const forget = (row: ScheduleRow, keep: number): void => {
    const old = row.occurrences.length - keep;
    row.occurrences = row.occurrences.filter(
      ({ occurrence }, index) => index >= old || isOccurrenceOpen(occurrence.status),
    );
  };
  const endsWith = (schedule: Schedule): boolean =>
    schedule.type === 'once' && schedule.nextRunAt === null && schedule.status === 'enabled';

  return {
    create: ({ schedule, limit }) =>
      transact(() => {
        if (schedules.has(schedule.scheduleId)) return 'created';
        const own = [...schedules.values()].filter((row) => row.schedule.userId === schedule.userId);
        if (own.length >= limit) return 'full';
        schedules.set(schedule.scheduleId, {
          schedule: { ...schedule, context: copyJson(schedule.context) },
          occurrences: [],
        });
        return 'created';
      }),

    get: ({ scheduleId, userId }) =>
      transact(() => {
        const row = owned(scheduleId, userId);
        return row === null ? null : read(row);
      }),

    list: ({ userId, threadId, limit, offset }) =>
      transact(() =>
        [...schedules.values()]
          .reverse()
          .filter(({ schedule }) => schedule.userId === userId)
          .filter(
            ({ schedule }) => threadId === null || schedule.threadId === threadId || schedule.lastThreadId === threadId,
          )
          .slice(offset, offset + limit)
          .map(read),
      ),

    update: ({ scheduleId, userId, revision, edit: change, now }) =>
      transact(() => {
        const row = owned(scheduleId, userId);
        if (row === null || row.schedule.revision !== revision) return null;
        edit(row, change, now);
        return read(row);
      }),

    remove: ({ scheduleId, userId }) =>
      transact(() => owned(scheduleId, userId) !== null && schedules.delete(scheduleId)),

    due: ({ now, limit }) =>
      transact(() =>
        [...schedules.values()]
          .filter(({ schedule }) => schedule.status === 'enabled' && (schedule.nextRunAt ?? Infinity) <= now)
          .sort((a, b) => (a.schedule.nextRunAt ?? 0) - (b.schedule.nextRunAt ?? 0))
          .slice(0, limit)
          .map(read),
      ),

    nextDue: () =>
      transact(() => {
        const times = [...schedules.values()].flatMap(({ schedule }) =>
          schedule.status === 'enabled' && schedule.nextRunAt !== null ? [schedule.nextRunAt] : [],
        );
        return times.length === 0 ? null : Math.min(...times);
      }),

    take: ({
      scheduleId,
      revision,
      nextRunAt,
      occurrence: { work, ...occurrence },
      owner,
      leaseMs,
      maxOpen,
      keep,
      now,
    }) =>
      transact(() => {
        const row = schedules.get(scheduleId);
        if (row === undefined || row.schedule.revision !== revision) return { outcome: 'changed' };
        const moved = nextRunAt === undefined ? {} : { nextRunAt };
        const made = { ...occurrence, scheduleId, runId: null, createdAt: now, startedAt: null };
        if (openOf(row) !== undefined) {
          if (occurrence.trigger === 'manual') return { outcome: 'overlap' };
          edit(row, moved, now);
          const skipped: Occurrence = { ...made, status: 'skipped', error: OVERLAPPED, finishedAt: now };
          row.occurrences.push({ work, occurrence: skipped, owner: null, leaseExpiresAt: null });
          forget(row, keep);
          return { outcome: 'overlap' };
        }
        if ([...schedules.values()].filter((one) => openOf(one) !== undefined).length >= maxOpen)
          return { outcome: 'full' };
        const { runCount } = row.schedule;
        const { threadId } = occurrence;
        edit(row, { ...moved, runCount: runCount + 1, lastRunAt: now, lastThreadId: threadId, lastError: null }, now);
        const queued: Occurrence = { ...made, status: 'queued', error: null, finishedAt: null };
        row.occurrences.push({ work, occurrence: queued, owner, leaseExpiresAt: now + leaseMs });
        forget(row, keep);
        return { outcome: 'taken', schedule: read(row), occurrence: { ...queued }, work };
      }),

    takeOver: ({ owner, leaseMs, limit, now }) =>
      transact(() => {
        const expired = [...schedules.values()].flatMap((row) =>
          row.occurrences
            .filter(({ occurrence, leaseExpiresAt }) => occurrence.status === 'queued' && (leaseExpiresAt ?? 0) <= now)
            .map((found) => ({ row, found })),
        );
        return expired.slice(0, limit).map(({ row, found }) => {
          found.owner = owner;
          found.leaseExpiresAt = now + leaseMs;
          return { schedule: read(row), occurrence: { ...found.occurrence }, work: found.work };
        });
      }),

    launched: ({ occurrenceId, owner, runId, threadId, now }) =>
      transact(() => {
        const held = launcherOf(occurrenceId, owner);
        if (held === null) return false;
        const { row, found } = held;
        found.occurrence = { ...found.occurrence, status: 'running', runId, threadId, startedAt: now };
        found.owner = null;
        found.leaseExpiresAt = null;
        row.schedule = { ...row.schedule, lastRunId: runId, lastThreadId: threadId, updatedAt: now };
        return true;
      }),

    notLaunched: ({ occurrenceId, owner, error, broken, now }) =>
      transact(() => {
        const held = launcherOf(occurrenceId, owner);
        if (held === null) return false;
        const { row, found } = held;
        found.occurrence = { ...found.occurrence, status: 'failed', error, finishedAt: now };
        found.owner = null;
        found.leaseExpiresAt = null;
        const failed = broken || endsWith(row.schedule) ? { status: 'failed' as const } : {};
        edit(row, { lastError: error, ...failed, ...(broken ? { nextRunAt: null } : {}) }, now);
        return true;
      }),

    settle: ({ now, limit }) =>
      transact(() => {
        let settled = 0;
        for (const row of schedules.values())
          for (const found of row.occurrences) {
            if (found.occurrence.status !== 'running' || settled >= limit) continue;
            const run = database.runs.get(found.occurrence.runId ?? '')?.run ?? null;
            if (run !== null && !run.acknowledged) continue;
            const ended = endOfOccurrence(run);
            found.occurrence = { ...found.occurrence, ...ended, finishedAt: run?.endedAt ?? now };
            const end = endsWith(row.schedule) ? { status: endOfOnce(ended.status) } : {};
            edit(row, { lastError: ended.error, ...end }, now);
            settled += 1;
          }
        return settled;
      }),

    occurrences: ({ scheduleId, userId, limit, offset }) =>
      transact(() => {
        const row = owned(scheduleId, userId);
        if (row === null) return null;
        return row.occurrences
          .toReversed()
          .slice(offset, offset + limit)
          .map(({ occurrence }) => ({ ...occurrence }));
      }),
  };
}
