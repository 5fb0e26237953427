import { expect, test } from 'vitest';
import { endNotice, LONG_MS, switchNotices, wantsNotices } from './notice.ts';

const success = { how: 'success', trouble: null } as const;
const run = { tookMs: LONG_MS, hidden: true, ended: success, asks: false };

test('only the end of a long run that nobody looks at and nobody stopped is told', () => {
  expect(endNotice(run)).toBe('notify.done');
  expect(endNotice({ ...run, asks: true })).toBe('notify.asks');
  expect(endNotice({ ...run, ended: { how: 'failed', trouble: null } })).toBe('notify.failed');
  expect(endNotice({ ...run, hidden: false })).toBeNull();
  expect(endNotice({ ...run, tookMs: LONG_MS - 1 })).toBeNull();
  expect(endNotice({ ...run, ended: { how: 'stopped', trouble: null } })).toBeNull();
});

test('a browser without notifications is not asked, and nothing is kept', async () => {
  const kept = new Map<string, string>();
  const local = {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => void kept.set(key, value),
    removeItem: (key: string) => void kept.delete(key),
  };
  expect(await switchNotices(local, true)).toBe('unsupported');
  expect(wantsNotices(local)).toBe(false);
  expect(kept.size).toBe(0);
});
