import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { checkCron, checkTimezone, nextOfCron, readTime } from './calendar.ts';

const at = (text: string): number => Date.parse(text);
const next = (cron: string, timezone: string, after: string): string | null => {
  const time = nextOfCron(cron, timezone, at(after));
  return time === null ? null : new Date(time).toISOString();
};

describe('cron', () => {
  test('is read in its time zone, in summer and in winter', verifies('SCH-1'), () => {
    expect(next('0 9 * * 1-5', 'Asia/Shanghai', '2026-11-28T00:00:00Z')).toBe('2026-11-30T01:00:00.000Z');
    expect(next('0 9 * * *', 'Europe/Berlin', '2026-07-01T12:00:00Z')).toBe('2026-07-02T07:00:00.000Z');
    expect(next('0 9 * * *', 'Europe/Berlin', '2026-12-01T12:00:00Z')).toBe('2026-12-02T08:00:00.000Z');
  });

  test('a time that spring skips comes an hour later, one that autumn repeats comes once', () => {
    expect(next('30 2 * * *', 'Europe/Berlin', '2026-03-28T12:00:00Z')).toBe('2026-03-29T01:00:00.000Z');
    expect(next('30 2 * * *', 'Europe/Berlin', '2026-10-24T12:00:00Z')).toBe('2026-10-25T00:30:00.000Z');
    expect(next('30 2 * * *', 'Europe/Berlin', '2026-10-25T00:30:00Z')).toBe('2026-10-26T01:30:00.000Z');
  });

  test('exactly five fields, and a day that there is', verifies('SCH-1'), () => {
    const now = at('2026-11-30T00:00:00Z');
    expect(checkCron('  0   9 * * MON ', 'UTC', now)).toBe('0 9 * * MON');
    for (const [text, message] of [
      ['* * * *', /five fields/],
      ['0 0 9 * * *', /five fields/],
      ['@daily', /five fields/],
      ['61 * * * *', /no cron expression: .*61/],
      ['*/0 * * * *', /no cron expression/],
      ['0 0 30 2 *', /never comes/],
    ] as const)
      expect(() => checkCron(text, 'UTC', now), text).toThrow(message);
  });
});

describe('a date and time', () => {
  test('without an offset is what the wall clock of the zone shows', verifies('SCH-1'), () => {
    expect(readTime('2026-12-24T10:00', 'Europe/Berlin')).toBe(at('2026-12-24T09:00:00Z'));
    expect(readTime('2026-12-24 10:00:30.5', 'Asia/Shanghai')).toBe(at('2026-12-24T02:00:30Z'));
    expect(readTime('2026-12-24T10:00:00Z', 'Europe/Berlin')).toBe(at('2026-12-24T10:00:00Z'));
    expect(readTime('2026-12-24T10:00:00+02:00', 'Asia/Shanghai')).toBe(at('2026-12-24T08:00:00Z'));
  });

  test('anything else is refused, with an example', () => {
    for (const text of ['tomorrow', '2026-13-01T00:00', '2026-02-30T10:00:00', '24.12.2026', '', '2026-12-24'])
      expect(() => readTime(text, 'UTC'), text).toThrow(/Write it as 2027-01-31T09:00/);
    expect(() => checkTimezone('Mars/Olympus')).toThrow(/IANA name/);
    expect(checkTimezone('Europe/Berlin')).toBe('Europe/Berlin');
  });
});
