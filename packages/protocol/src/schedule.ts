import type { JsonObject } from './json.ts';
import type { Run } from './run.ts';

/**
 * Work that starts by itself: a *schedule* says what is asked and when, each time that it is due (or triggered by hand) is an
 * *occurrence*, and an occurrence becomes one run.
 *
 * Schedule:    enabled ⇄ paused; one of type `once` ends as completed | failed | cancelled, and a new time enables it again
 * Occurrence:  queued → running → success | failed | interrupted
 *              queued → failed;  a time that comes while the occurrence before it is at work is written as `skipped`
 *
 * An occurrence is taken in one transaction that also moves the schedule to its next time, so that a time is taken once, by one instance,
 * whatever dies. Whoever launches a queued one holds it by a token; its run has an idempotency key made of the occurrence's id, so
 * that a launch that is repeated after a crash is the same run.
 */
/** In the context of a run: `true` = a schedule began it, and nobody was there to say for whom. Written by the server alone. */
export const SCHEDULED_KEY = 'scheduled';

export type ScheduleType = 'once' | 'cron';
/** A new thread each time, or always the same one. */
export type ScheduleContext = 'fresh_thread_per_run' | 'reuse_thread';
export type ScheduleStatus = 'enabled' | 'paused' | 'completed' | 'failed' | 'cancelled';
export type OccurrenceStatus = 'queued' | 'running' | 'success' | 'failed' | 'skipped' | 'interrupted';
export type OccurrenceTrigger = 'scheduled' | 'manual';

export const isOccurrenceOpen = (status: OccurrenceStatus): boolean => status === 'queued' || status === 'running';

/** What a `skipped` occurrence says of itself. */
export const OVERLAPPED = 'The run before it was still at work.';

/** How an occurrence ends with its run; null = the run is no more. */
export function endOfOccurrence(run: Pick<Run, 'status' | 'error'> | null): Pick<Occurrence, 'status' | 'error'> {
  if (run === null) return { status: 'interrupted', error: 'The run or its thread was deleted.' };
  if (run.status === 'success' || run.status === 'interrupted') return { status: run.status, error: null };
  return { status: 'failed', error: run.error ?? 'The run failed.' };
}

/** Where a schedule of type `once` ends. */
export function endOfOnce(status: OccurrenceStatus): ScheduleStatus {
  if (status === 'success') return 'completed';
  return status === 'interrupted' ? 'cancelled' : 'failed';
}

/** Times are wall-clock milliseconds (UTC). */
export interface Schedule {
  readonly scheduleId: string;
  readonly userId: string;
  readonly title: string;
  readonly prompt: string;
  readonly type: ScheduleType;
  /** For `cron`: five fields, read in `timezone`. */
  readonly cron: string | null;
  /** For `once`. */
  readonly runAt: number | null;
  /** IANA name. */
  readonly timezone: string;
  readonly contextMode: ScheduleContext;
  /** With `reuse_thread`. */
  readonly threadId: string | null;
  readonly assistantId: string;
  /** Run options such as `model_name`. */
  readonly context: JsonObject;
  readonly status: ScheduleStatus;
  /** null = never again, as it stands. */
  readonly nextRunAt: number | null;
  readonly lastRunAt: number | null;
  readonly lastRunId: string | null;
  readonly lastThreadId: string | null;
  readonly lastError: string | null;
  /** Occurrences that were begun, skipped ones not counted. */
  readonly runCount: number;
  /** An occurrence of it is queued or at work. */
  readonly active: boolean;
  /** Counts changes of everything that decides when and what: an edit and a take name the one that they saw. */
  readonly revision: number;
  readonly createdAt: number;
  readonly updatedAt: number;
}

export interface Occurrence {
  readonly occurrenceId: string;
  readonly scheduleId: string;
  /** Set when it is taken: a repeated launch names the same thread. */
  readonly threadId: string;
  readonly runId: string | null;
  readonly scheduledFor: number;
  readonly trigger: OccurrenceTrigger;
  readonly status: OccurrenceStatus;
  readonly error: string | null;
  readonly createdAt: number;
  readonly startedAt: number | null;
  readonly finishedAt: number | null;
}

/** What an edit may change. */
export type ScheduleEdit = Partial<
  Pick<
    Schedule,
    | 'title'
    | 'prompt'
    | 'cron'
    | 'runAt'
    | 'timezone'
    | 'contextMode'
    | 'threadId'
    | 'assistantId'
    | 'context'
    | 'status'
    | 'nextRunAt'
    | 'lastError'
  >
>;

/** What an occurrence's run is asked: as the schedule stood when it was taken, so that a repeated launch asks the very same. */
export interface ScheduledWork {
  readonly prompt: string;
  readonly assistantId: string;
  readonly context: JsonObject;
  /** On a thread that is there already. */
  readonly reuses: boolean;
}

export interface NewOccurrence {
  readonly occurrenceId: string;
  readonly threadId: string;
  readonly work: ScheduledWork;
  readonly scheduledFor: number;
  readonly trigger: OccurrenceTrigger;
}

export type TakeResult =
  | ({ readonly outcome: 'taken' } & QueuedOccurrence)
  /** Its occurrence before is still at work. Of a time that was due a `skipped` row tells; a trigger leaves nothing. */
  | { readonly outcome: 'overlap' }
  /** As many occurrences as may be at once are open, whatever triggered them. Nothing was written. */
  | { readonly outcome: 'full' }
  /** Edited, paused, taken by a peer or removed meanwhile. Nothing was written. */
  | { readonly outcome: 'changed' };

/** An occurrence to launch, with what it needs. */
export interface QueuedOccurrence {
  readonly schedule: Schedule;
  readonly occurrence: Occurrence;
  readonly work: ScheduledWork;
}

export interface ScheduleStore {
  /** `full`: the user has `limit` schedules already. A repeat with the same id answers `created` again. */
  create(input: { readonly schedule: Schedule; readonly limit: number }): Promise<'created' | 'full'>;
  get(input: { readonly scheduleId: string; readonly userId: string }): Promise<Schedule | null>;
  /** Newest first. `threadId`: those that reuse it, or whose newest run was on it. */
  list(input: {
    readonly userId: string;
    readonly threadId: string | null;
    readonly limit: number;
    readonly offset: number;
  }): Promise<readonly Schedule[]>;
  /** Writes if the schedule still has this revision. null = it has not, or there is none. */
  update(input: {
    readonly scheduleId: string;
    readonly userId: string;
    readonly revision: number;
    readonly edit: ScheduleEdit;
    readonly now: number;
  }): Promise<Schedule | null>;
  /** With its occurrences. Runs that are at work go on. */
  remove(input: { readonly scheduleId: string; readonly userId: string }): Promise<boolean>;
  /** Enabled and due, longest due first. */
  due(input: { readonly now: number; readonly limit: number }): Promise<readonly Schedule[]>;
  /** When the next enabled one is due; null = never. */
  nextDue(): Promise<number | null>;
  /**
   * Makes an occurrence, in one transaction with the schedule's next time. `nextRunAt` undefined = it stays as it is (a trigger).
   * `owner` holds the launch until `leaseMs` are over.
   */
  take(input: {
    readonly scheduleId: string;
    readonly revision: number;
    readonly nextRunAt: number | null | undefined;
    readonly occurrence: NewOccurrence;
    readonly owner: string;
    readonly leaseMs: number;
    readonly maxOpen: number;
    /** Finished occurrences of the schedule that are kept; older ones go. */
    readonly keep: number;
    readonly now: number;
  }): Promise<TakeResult>;
  /** Queued occurrences whose launcher's lease is over, under a new token. */
  takeOver(input: {
    readonly owner: string;
    readonly leaseMs: number;
    readonly limit: number;
    readonly now: number;
  }): Promise<readonly QueuedOccurrence[]>;
  /** queued → running, by its launcher. False = somebody else's by now, or removed. */
  launched(input: {
    readonly occurrenceId: string;
    readonly owner: string;
    readonly runId: string;
    readonly threadId: string;
    readonly now: number;
  }): Promise<boolean>;
  /** queued → failed, by its launcher: there is no run. `broken`: it cannot work next time either, the schedule fails as well. */
  notLaunched(input: {
    readonly occurrenceId: string;
    readonly owner: string;
    readonly error: string;
    readonly broken: boolean;
    readonly now: number;
  }): Promise<boolean>;
  /**
   * Ends occurrences whose runs have ended (and are acknowledged) or are gone, and the schedules of type `once` behind them. It reads the rows of
   * the runs themselves, so that no end can be missed. Answers how many; at most `limit`.
   */
  settle(input: { readonly now: number; readonly limit: number }): Promise<number>;
  /** Newest first. null = no such schedule. */
  occurrences(input: {
    readonly scheduleId: string;
    readonly userId: string;
    readonly limit: number;
    readonly offset: number;
  }): Promise<readonly Occurrence[] | null>;
}
