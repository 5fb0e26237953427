import { describe, expect, test } from 'vitest';
import { refusalOf } from './errors.ts';

const none = new Headers();

describe('a refusal', () => {
  test('has the code and the words of the server', () => {
    const text = JSON.stringify({ detail: 'The thread is busy.', code: 'conflict', info: { run_id: 'r' } });
    expect(refusalOf(409, text, new Headers({ 'retry-after': '2' }))).toMatchObject({
      name: 'ReindeerError',
      code: 'conflict',
      message: 'The thread is busy.',
      retryable: true,
      detail: { run_id: 'r', status: 409 },
    });
  });

  test('names each problem of a request that was wrong in several places', () => {
    const detail = [
      { loc: ['body', 'n'], msg: 'must be a number', type: 'x' },
      { loc: ['body', 'colour'], msg: 'Unknown field "colour".', type: 'y' },
    ];
    const refusal = refusalOf(422, JSON.stringify({ detail, code: 'validation_failed' }), none);
    expect(refusal.message).toBe('body.n: must be a number; body.colour: Unknown field "colour".');
    expect(refusal.detail).toMatchObject({ problems: detail });
  });

  test('of somebody else is still one', () => {
    expect(refusalOf(502, '<h1>Bad gateway</h1>', none)).toMatchObject({ code: 'store_unavailable', retryable: false });
    expect(refusalOf(404, '', none)).toMatchObject({ code: 'not_found', message: 'The server answered 404.' });
    expect(refusalOf(418, '[]', none).code).toBe('bad_request');
  });
});
