import { ReindeerError } from '@reindeer/protocol';
import { expect, test } from 'vitest';
import { toPlainError, toReindeerError } from './errors.ts';

const ofSqlite = (errcode: number) => Object.assign(new Error('text'), { code: 'ERR_SQLITE_ERROR', errcode });

test.each([
  ['busy', 5, 'store_unavailable', true],
  ['busy snapshot', 517, 'store_unavailable', true],
  ['locked', 6, 'store_unavailable', true],
  ['disk full', 13, 'store_unavailable', true],
  ['disk trouble on fsync', 1034, 'store_unavailable', true],
  ['read-only', 8, 'store_unavailable', false],
  ['cannot open', 14, 'store_unavailable', false],
  ['damaged', 11, 'store_unavailable', false],
  ['not a database', 26, 'store_unavailable', false],
  ['unique', 2067, 'conflict', false],
  ['not null', 1299, 'internal', false],
  ['syntax', 1, 'internal', false],
])('%s (%i) is %s', (_name, errcode, code, retryable) => {
  const error = toReindeerError(ofSqlite(errcode));
  expect(error).toMatchObject({ code, retryable, detail: { sqlite: errcode } });
});

test('an error of ours keeps everything on its way between threads; another loses its text, not its cause', () => {
  const ours = new ReindeerError('data_too_new', 'New.', { retryable: true, detail: { format: 3 }, cause: 'why' });
  const back = ReindeerError.fromPlain(structuredClone(toPlainError(ours)));
  expect(back).toMatchObject({
    code: 'data_too_new',
    message: 'New.',
    retryable: true,
    detail: { format: 3 },
    cause: 'why',
  });
  const bug = ReindeerError.fromPlain(structuredClone(toPlainError(new TypeError('secret'))));
  expect(bug.code).toBe('internal');
  expect(bug.message).not.toContain('secret');
  expect(String(bug.cause)).toContain('secret');
});
