import { ReindeerError } from '@reindeer/protocol';
import { Cron } from 'croner';

/** When things are due, in the time zone of whoever asked. A time that the clock skips in spring comes an hour later, one that it has twice in autumn, once. */

const LOCAL = /^(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2})(:\d{2})?(\.\d{1,9})?$/;
const WITH_OFFSET = /^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:?\d{2})$/i;

/** @throws ReindeerError `validation_failed` */
export function checkTimezone(timezone: string): string {
  try {
    return new Intl.DateTimeFormat('en', { timeZone: timezone }).resolvedOptions().timeZone === '' ? 'UTC' : timezone;
  } catch {
    throw invalid(
      'timezone',
      `There is no time zone "${timezone.slice(0, 60)}". Give an IANA name such as Europe/Berlin, Asia/Shanghai or UTC.`,
    );
  }
}

/**
 * Reads five cron fields: minute, hour, day of month, month, day of week.
 * @throws ReindeerError `validation_failed`: the text is no cron expression, or never comes true
 */
export function checkCron(text: string, timezone: string, now: number): string {
  const cron = text.trim().replaceAll(/\s+/g, ' ');
  if (cron.split(' ').length !== 5)
    throw invalid(
      'schedule_spec.cron',
      "Give five fields: minute, hour, day of month, month, day of week. For example 0 9 * * 1-5 is nine o'clock from Monday to Friday.",
    );
  let next: number | null;
  try {
    next = nextOfCron(cron, timezone, now);
  } catch (error) {
    const why = error instanceof Error ? error.message.replace(/^CronPattern: /, '').slice(0, 200) : '';
    throw invalid('schedule_spec.cron', `"${cron.slice(0, 100)}" is no cron expression: ${why}`, error);
  }
  if (next === null) throw invalid('schedule_spec.cron', `"${cron.slice(0, 100)}" never comes: there is no such day.`);
  return cron;
}

/** The first time after `after`; null = never. Both in wall-clock milliseconds (UTC). */
export function nextOfCron(cron: string, timezone: string, after: number): number | null {
  // Only asked, never started: no timer is made.
  const pattern = new Cron(cron, { timezone, paused: true });
  return pattern.nextRun(new Date(after))?.getTime() ?? null;
}

/**
 * Reads a date and time. Without an offset it is what the clock on the wall of `timezone` shows.
 * @throws ReindeerError `validation_failed`
 */
export function readTime(text: string, timezone: string): number {
  const isDay = !Number.isNaN(Date.parse(text.slice(0, 10))) && dayOf(text) === text.slice(0, 10);
  if (isDay && WITH_OFFSET.test(text)) {
    const at = Date.parse(text.replace(' ', 'T'));
    if (Number.isFinite(at)) return at;
  }
  const local = isDay ? LOCAL.exec(text) : null;
  if (local !== null) {
    const [, day, minutes, seconds = ':00'] = local;
    try {
      const at = new Cron(`${day}T${minutes}${seconds}`, { timezone, paused: true }).nextRun(new Date(0));
      if (at !== null) return at.getTime();
    } catch {
      // Told below.
    }
  }
  throw invalid(
    'schedule_spec.run_at',
    `"${text.slice(0, 60)}" is no date and time. Write it as 2027-01-31T09:00, or with an offset as 2027-01-31T09:00:00+01:00.`,
  );
}

/** `2026-02-30` would become the second of March. */
const dayOf = (text: string): string => new Date(`${text.slice(0, 10)}T00:00:00Z`).toISOString().slice(0, 10);

export function invalid(field: string, message: string, cause?: unknown): ReindeerError {
  return new ReindeerError('validation_failed', `${field}: ${message}`, {
    detail: { field },
    ...(cause === undefined ? {} : { cause }),
  });
}
