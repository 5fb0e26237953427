import { expect, test } from 'vitest';
import { speak } from '../words/words.ts';
import {
  cronOf,
  type Draft,
  EMPTY_WHEN,
  lacks,
  localTime,
  lookAfter,
  readTaskRuns,
  readTasks,
  taskBody,
  type When,
  whenOf,
  whenText,
} from './schedules.ts';

const when = (part: Partial<When>): When => ({ ...EMPTY_WHEN, ...part });

test('a rhythm becomes five fields, and is found in them again', () => {
  const rhythms: readonly (readonly [When, string])[] = [
    [when({ rhythm: 'hourly', time: '00:05' }), '5 * * * *'],
    [when({ rhythm: 'daily', time: '09:30' }), '30 9 * * *'],
    [when({ rhythm: 'weekly', time: '18:00', days: [5, 1] }), '0 18 * * 1,5'],
    [when({ rhythm: 'monthly', time: '07:00', dayOfMonth: 31 }), '0 7 31 * *'],
  ];
  for (const [given, cron] of rhythms) {
    expect(cronOf(given)).toBe(cron);
    const found = whenOf({ cron, runAt: null, timezone: 'UTC' });
    expect(found).toMatchObject({ rhythm: given.rhythm, time: given.time });
    expect(cronOf(found)).toBe(cron);
  }
  expect(whenOf({ cron: '0 9 * * 1-5', runAt: null, timezone: 'UTC' })).toMatchObject({ days: [1, 2, 3, 4, 5] });
  expect(whenOf({ cron: '0 9 * * 7', runAt: null, timezone: 'UTC' })).toMatchObject({ days: [0] });
  for (const cron of ['*/5 * * * *', '0 9 1 1 *', '0 9 1 * 1', '0 9 * * MON', '0 9 * * 5-1', '0 * 1 * *'])
    expect(whenOf({ cron, runAt: null, timezone: 'UTC' }), cron).toMatchObject({ rhythm: 'custom', cron });
});

test('a time is shown as the clock in its zone shows it', () => {
  const at = Date.parse('2026-12-24T09:00:00Z');
  expect(localTime(at, 'Europe/Berlin')).toBe('2026-12-24T10:00');
  expect(localTime(Date.parse('2026-12-24T16:30:00Z'), 'Asia/Shanghai')).toBe('2026-12-25T00:30');
  expect(whenOf({ cron: null, runAt: at, timezone: 'Europe/Berlin' }).date).toBe('2026-12-24T10:00');
});

test('what a task says of itself, in both languages', () => {
  const task = { cron: '0 9 * * 1,5', runAt: null, timezone: 'UTC' };
  expect(whenText(task, speak('en'), 'en')).toBe('Mon, Fri at 09:00');
  expect(whenText(task, speak('zh'), 'zh')).toContain('周一、周五');
  expect(whenText({ ...task, cron: '7 * * * *' }, speak('en'), 'en')).toContain('07');
  expect(whenText({ ...task, cron: '*/5 * * * *' }, speak('en'), 'en')).toContain('*/5 * * * *');
});

test('what the form lacks', () => {
  const draft: Draft = { title: 't', prompt: 'p', when: EMPTY_WHEN, timezone: 'UTC', threadId: null, model: null };
  expect(lacks(draft)).toBeNull();
  expect(lacks({ ...draft, title: ' ' })).toBe('title');
  expect(lacks({ ...draft, prompt: '' })).toBe('prompt');
  expect(lacks({ ...draft, when: when({ rhythm: 'once' }) })).toBe('date');
  expect(lacks({ ...draft, when: when({ rhythm: 'weekly', days: [] }) })).toBe('days');
  expect(lacks({ ...draft, when: when({ rhythm: 'custom', cron: '* * *' }) })).toBe('cron');
});

test('a change sends no time that stayed the same, and keeps options that the form does not show', () => {
  const [task] = readTasks([
    {
      id: 'a',
      title: 'T',
      prompt: 'P',
      schedule_spec: { run_at: '2026-01-01T00:00:00.000Z' },
      timezone: 'UTC',
      context: { model_name: 'm', thinking_enabled: true },
      status: 'completed',
    },
    null,
    {},
  ]);
  if (task === undefined) throw new Error('not read');
  expect(task).toMatchObject({ status: 'completed', cron: null, model: 'm', active: false });
  const draft: Draft = { ...task, when: whenOf(task) };
  expect(taskBody(draft, task)).toEqual({
    title: 'T',
    prompt: 'P',
    timezone: 'UTC',
    context_mode: 'fresh_thread_per_run',
    thread_id: null,
    context: { model_name: 'm', thinking_enabled: true },
  });
  const later = { ...draft, model: null, when: { ...draft.when, date: '2030-01-01T10:00' } };
  expect(taskBody(later, task)).toMatchObject({
    schedule_spec: { run_at: '2030-01-01T10:00' },
    context: { thinking_enabled: true },
  });
  expect(taskBody(later, null)).toMatchObject({ schedule_type: 'once', context: {} });
});

test('runs are read, whatever else there is', () => {
  const runs = readTaskRuns([{ id: 'o', run_id: 'r', thread_id: 't', status: 'skipped', trigger: 'manual' }, 5, null]);
  expect(runs).toEqual([
    { id: 'o', threadId: 't', status: 'skipped', isManual: true, scheduledFor: null, error: null },
  ]);
});

test('the page looks again when something can have changed: soon while a task is at work, at the next time, and now and then', () => {
  const task = (nextAt: number | null, active = false) => ({ nextAt, active });
  expect(lookAfter([], 0)).toBe(30_000);
  expect(lookAfter([task(null)], 0)).toBe(30_000);
  expect(lookAfter([task(100_000), task(9_000)], 1_000)).toBe(9_000);
  expect(lookAfter([task(100_000)], 0)).toBe(30_000);
  // One whose time has passed is begun by the server as soon as it can.
  expect(lookAfter([task(0)], 60_000)).toBe(3_000);
  expect(lookAfter([task(100_000), task(null, true)], 0)).toBe(3_000);
});
