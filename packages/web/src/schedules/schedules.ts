import { isDictionary, listOf, textOr } from '../chat/wire.ts';
import type { Language, Say } from '../words/words.ts';

/** A scheduled task, as the page shows it. */
export interface Task {
  readonly id: string;
  readonly title: string;
  readonly prompt: string;
  /** Five fields; null = it runs once. */
  readonly cron: string | null;
  /** Milliseconds; null = it repeats. */
  readonly runAt: number | null;
  readonly timezone: string;
  /** The chat that it always uses; null = a new one each time. */
  readonly threadId: string | null;
  readonly model: string | null;
  readonly context: Readonly<Record<string, unknown>>;
  readonly status: TaskStatus;
  readonly active: boolean;
  readonly nextAt: number | null;
  readonly lastError: string | null;
  readonly runCount: number;
}
const TASK_STATUSES = ['enabled', 'running', 'paused', 'completed', 'failed', 'cancelled'] as const;
export type TaskStatus = (typeof TASK_STATUSES)[number];

export interface TaskRun {
  readonly id: string;
  readonly threadId: string | null;
  readonly status: string;
  readonly isManual: boolean;
  readonly scheduledFor: number | null;
  readonly error: string | null;
}

const timeOr = (value: unknown): number | null => {
  const at = typeof value === 'string' ? Date.parse(value) : Number.NaN;
  return Number.isFinite(at) ? at : null;
};

function readTask(value: unknown): Task | null {
  if (!isDictionary(value)) return null;
  const id = textOr(value.id, '');
  if (id === '') return null;
  const spec = isDictionary(value.schedule_spec) ? value.schedule_spec : {};
  const context = isDictionary(value.context) ? value.context : {};
  return {
    id,
    title: textOr(value.title, ''),
    prompt: textOr(value.prompt, ''),
    cron: textOr(spec.cron, null),
    runAt: timeOr(spec.run_at),
    timezone: textOr(value.timezone, 'UTC'),
    threadId: textOr(value.thread_id, null),
    model: textOr(context.model_name, null),
    context,
    status: TASK_STATUSES.find((status) => status === value.status) ?? 'enabled',
    active: value.active === true,
    nextAt: timeOr(value.next_run_at),
    lastError: textOr(value.last_error, null),
    runCount: typeof value.run_count === 'number' ? value.run_count : 0,
  };
}

export const readTasks = (value: unknown): readonly Task[] =>
  listOf(value)
    .map(readTask)
    .filter((task) => task !== null);

export const readTaskRuns = (value: unknown): readonly TaskRun[] =>
  listOf(value).flatMap((entry) =>
    isDictionary(entry)
      ? [
          {
            id: textOr(entry.id, ''),
            threadId: textOr(entry.thread_id, null),
            status: textOr(entry.status, ''),
            isManual: entry.trigger === 'manual',
            scheduledFor: timeOr(entry.scheduled_for),
            error: textOr(entry.error, null),
          },
        ]
      : [],
  );

/** How long the page looks at what it knows: while a task is at work, and at most. Other windows and agents make tasks, too. */
const SOON_MS = 3_000;
const MOST_MS = 30_000;
/** The server begins a task a little after its time. */
const BEGINS_AFTER_MS = 1_000;

/** After how many milliseconds something of these tasks can have changed. */
export function lookAfter(tasks: readonly Pick<Task, 'active' | 'nextAt'>[], now: number): number {
  if (tasks.some((task) => task.active)) return SOON_MS;
  const next = tasks.flatMap(({ nextAt }) => (nextAt === null ? [] : [nextAt - now + BEGINS_AFTER_MS]));
  return Math.max(SOON_MS, Math.min(MOST_MS, ...next));
}

/** How often, as the form asks it. */
export const RHYTHMS = ['once', 'hourly', 'daily', 'weekly', 'monthly', 'custom'] as const;
export type Rhythm = (typeof RHYTHMS)[number];

/** When, as the form holds it: every rhythm keeps its fields while another one is looked at. */
export interface When {
  readonly rhythm: Rhythm;
  /** `2027-01-31T09:00`, in the time zone. */
  readonly date: string;
  /** `09:00` */
  readonly time: string;
  /** 0 = Sunday … 6. */
  readonly days: readonly number[];
  readonly dayOfMonth: number;
  readonly cron: string;
}

export const EMPTY_WHEN: When = {
  rhythm: 'daily',
  date: '',
  time: '09:00',
  days: [1, 2, 3, 4, 5],
  dayOfMonth: 1,
  cron: '0 9 * * *',
};

/** The cron fields of a rhythm; null = it runs once. */
export function cronOf(when: When): string | null {
  const [hour = '0', minute = '0'] = when.time.split(':').map((part) => String(Number(part)));
  switch (when.rhythm) {
    case 'once':
      return null;
    case 'hourly':
      return `${minute} * * * *`;
    case 'daily':
      return `${minute} ${hour} * * *`;
    case 'weekly':
      return `${minute} ${hour} * * ${when.days.toSorted((a, b) => a - b).join(',')}`;
    case 'monthly':
      return `${minute} ${hour} ${when.dayOfMonth} * *`;
    case 'custom':
      return when.cron.trim();
  }
}

const two = (value: string): string => value.padStart(2, '0');

/** The rhythm that these cron fields are; whatever is none of ours stays as it is written. */
export function whenOf(task: Pick<Task, 'cron' | 'runAt' | 'timezone'>): When {
  const { cron, runAt, timezone } = task;
  if (cron === null) return { ...EMPTY_WHEN, rhythm: 'once', date: runAt === null ? '' : localTime(runAt, timezone) };
  const base = { ...EMPTY_WHEN, cron };
  const fields = /^(\d{1,2}) (\d{1,2}|\*) (\d{1,2}|\*) \* (\*|[\d,-]+)$/.exec(cron);
  const [, minute = '0', hour = '*', day = '*', week = '*'] = fields ?? [];
  const custom: When = { ...base, rhythm: 'custom' };
  if (fields === null || Number(minute) > 59 || (hour !== '*' && Number(hour) > 23)) return custom;
  const time = `${two(hour === '*' ? '0' : hour)}:${two(minute)}`;
  if (hour === '*') return day === '*' && week === '*' ? { ...base, rhythm: 'hourly', time } : custom;
  if (day === '*' && week === '*') return { ...base, rhythm: 'daily', time };
  if (day === '*') {
    const days = daysOf(week);
    return days === null ? custom : { ...base, rhythm: 'weekly', time, days };
  }
  return week === '*' ? { ...base, rhythm: 'monthly', time, dayOfMonth: Number(day) } : custom;
}

function daysOf(text: string): readonly number[] | null {
  const days = new Set<number>();
  for (const part of text.split(',')) {
    const [from, to = from] = part.split('-').map(Number);
    if (from === undefined || to === undefined || !(from <= to) || from < 0 || to > 7) return null;
    for (let day = from; day <= to; day += 1) days.add(day % 7);
  }
  return [...days].sort((a, b) => a - b);
}

/** What the clock on the wall of a zone shows, as a form field holds it. */
export function localTime(at: number, timezone: string): string {
  const text = new Intl.DateTimeFormat('sv-SE', {
    timeZone: timezone,
    dateStyle: 'short',
    timeStyle: 'short',
    hourCycle: 'h23',
  }).format(at);
  return text.replace(' ', 'T').slice(0, 16);
}

/** A weekday's short name in the language. 0 = Sunday. */
export const dayName = (day: number, language: Language): string =>
  // The second of January 2000 was a Sunday.
  new Intl.DateTimeFormat(language === 'zh' ? 'zh-CN' : 'en', { weekday: 'short', timeZone: 'UTC' }).format(
    Date.UTC(2000, 0, 2 + day),
  );

/** When a task runs, in a few words. */
export function whenText(task: Pick<Task, 'cron' | 'runAt' | 'timezone'>, say: Say, language: Language): string {
  const when = whenOf(task);
  switch (when.rhythm) {
    case 'once':
      return say('schedules.says.once', { time: when.date.replace('T', ' ') });
    case 'hourly':
      return say('schedules.says.hourly', { minute: when.time.slice(3) });
    case 'daily':
      return say('schedules.says.daily', { time: when.time });
    case 'weekly':
      return say('schedules.says.weekly', {
        time: when.time,
        days: when.days.map((day) => dayName(day, language)).join(language === 'zh' ? '、' : ', '),
      });
    case 'monthly':
      return say('schedules.says.monthly', { time: when.time, day: when.dayOfMonth });
    case 'custom':
      return say('schedules.says.custom', { cron: when.cron });
  }
}

/** What the form holds. */
export interface Draft {
  readonly title: string;
  readonly prompt: string;
  readonly when: When;
  readonly timezone: string;
  readonly threadId: string | null;
  readonly model: string | null;
}

/** Why a draft cannot be sent yet; null = it can. */
export function lacks({ title, prompt, when }: Draft): 'title' | 'prompt' | 'date' | 'days' | 'cron' | null {
  if (title.trim() === '') return 'title';
  if (prompt.trim() === '') return 'prompt';
  if (when.rhythm === 'once' && when.date === '') return 'date';
  if (when.rhythm === 'weekly' && when.days.length === 0) return 'days';
  return when.rhythm === 'custom' && when.cron.trim().split(/\s+/).length !== 5 ? 'cron' : null;
}

/** The body of a new task, or of a change of `before`: what it does not show it leaves as it is. */
export function taskBody(draft: Draft, before: Task | null): Record<string, unknown> {
  const cron = cronOf(draft.when);
  const spec = cron === null ? { run_at: draft.when.date } : { cron };
  // An unchanged time that has passed would be refused.
  const sameTime =
    before !== null &&
    before.timezone === draft.timezone &&
    (cron === null ? whenOf(before).date === draft.when.date : cron === before.cron);
  const { model_name: _model, ...context } = before?.context ?? {};
  return {
    title: draft.title.trim(),
    prompt: draft.prompt.trim(),
    timezone: draft.timezone,
    context_mode: draft.threadId === null ? 'fresh_thread_per_run' : 'reuse_thread',
    thread_id: draft.threadId,
    context: draft.model === null ? context : { ...context, model_name: draft.model },
    ...(before === null ? { schedule_type: cron === null ? 'once' : 'cron' } : {}),
    ...(sameTime ? {} : { schedule_spec: spec }),
  };
}
