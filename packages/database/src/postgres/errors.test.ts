import { ReindeerError } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { isConnectionLost, isLockTimeout, isUndoneByOthers, isUniqueViolation, toReindeerError } from './errors.ts';

const failure = (code: string | undefined, message = 'boom') =>
  Object.assign(new Error(message), code === undefined ? {} : { code });

test('a broken uniqueness is recognised by its code alone', verifies('RA-13'), () => {
  expect(isUniqueViolation(failure('23505'))).toBe(true);
  expect(isUniqueViolation(failure(undefined, 'duplicate key value violates unique constraint'))).toBe(false);
  expect(isUniqueViolation(new ReindeerError('conflict', 'unique constraint'))).toBe(false);
  expect(toReindeerError(failure('23505'))).toMatchObject({ code: 'conflict', retryable: false });
  expect(toReindeerError(failure('23502', 'unique')).code).toBe('internal');
});

test('what can pass is retryable, what cannot is not, and each says what to do', () => {
  for (const code of [
    '40001',
    '40P01',
    '55P03',
    '57014',
    '57P01',
    '57P02',
    '57P03',
    '53100',
    '53200',
    '53300',
    '25006',
    '25P03',
    '58030',
    '08006',
    '08003',
    'ECONNREFUSED',
    'ECONNRESET',
    'EPIPE',
    'ETIMEDOUT',
    'ENOTFOUND',
  ]) {
    const error = toReindeerError(failure(code));
    expect([code, error.code, error.retryable]).toEqual([code, 'store_unavailable', true]);
    expect(error.detail).toEqual({ postgres: code });
  }
  for (const message of ['Connection terminated unexpectedly', 'timeout exceeded when trying to connect'])
    expect(toReindeerError(failure(undefined, message))).toMatchObject({ code: 'store_unavailable', retryable: true });
  for (const code of ['28P01', '28000', '3D000', '42501'])
    expect(toReindeerError(failure(code))).toMatchObject({ code: 'configuration', retryable: false });
  for (const error of [failure('42601'), failure('22P02'), new TypeError('x'), 'text', null])
    expect(toReindeerError(error)).toMatchObject({ code: 'internal', retryable: false });
  const own = new ReindeerError('fenced', 'own');
  expect(toReindeerError(own)).toBe(own);
});

test('a lost connection, a lost race and a lock in vain are told apart', () => {
  const kinds = (error: unknown) => [isConnectionLost(error), isUndoneByOthers(error), isLockTimeout(error)];
  for (const code of ['57P01', '08006', '25P03', 'ECONNRESET'])
    expect(kinds(failure(code))).toEqual([true, false, false]);
  for (const code of ['40001', '40P01']) expect(kinds(failure(code))).toEqual([false, true, false]);
  expect(kinds(failure('55P03'))).toEqual([false, false, true]);
  expect(kinds(toReindeerError(failure('55P03')))).toEqual([false, false, true]);
  for (const code of ['23505', '57014', '42601', 'ERR_INVALID_ARG_TYPE'])
    expect(kinds(failure(code))).toEqual([false, false, false]);
  expect(kinds(new TypeError('x is not a function'))).toEqual([false, false, false]);
});
