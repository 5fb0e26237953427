import { expect, test } from 'vitest';
import { asApiError, troubleOf } from './trouble.ts';

test.each([
  [401, 'token'],
  [404, 'not-found'],
  [409, 'busy'],
  [413, 'too-large'],
  [500, 'server'],
  [422, 'server'],
] as const)('status %i is trouble of the kind %s', (status, kind) => {
  expect(troubleOf(status, '{"detail":"Why.","code":"x"}').trouble).toEqual({ kind, detail: 'Why.' });
});

test('problems are listed with their fields, and anything else is no detail', () => {
  const body = JSON.stringify({ detail: [{ loc: ['body', 'input', 'messages'], msg: 'is missing' }] });
  expect(troubleOf(422, body).trouble.detail).toBe('input.messages: is missing');
  expect(troubleOf(502, '<html>').trouble.detail).toBeNull();
});

test('errors of the client library and of fetch are understood', () => {
  const http = Object.assign(new Error('HTTP 409'), { status: 409, text: '{"detail":"Busy.","info":{"run_id":"r"}}' });
  expect(asApiError(http)).toMatchObject({
    status: 409,
    trouble: { kind: 'busy', detail: 'Busy.' },
    info: { run_id: 'r' },
  });
  expect(asApiError(new TypeError('Failed to fetch'))).toMatchObject({ status: 0, trouble: { kind: 'network' } });
});
