import { verifies } from '@reindeer/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Fixture, rawRequest, startFixture } from '../testing/http-fixture.ts';
import { isLoopbackName, parseHost, tokenMatches } from './guards.ts';

let open: Fixture;
let guarded: Fixture;
beforeAll(async () => {
  open = await startFixture({
    guards: { allowedHosts: ['reindeer.example'], allowedOrigins: ['https://app.example'], token: null },
  });
  guarded = await startFixture({ guards: { allowedHosts: [], allowedOrigins: [], token: 'secret-token-of-sixteen' } });
});
afterAll(async () => {
  await open.close();
  await guarded.close();
});

const json = { 'content-type': 'application/json' };
const create = (headers: Record<string, string>, body = '{}') =>
  rawRequest(open.port, {
    method: 'POST',
    path: '/api/threads',
    headers: { host: `127.0.0.1:${open.port}`, ...json, ...headers },
    body,
  });

describe('host', () => {
  test('a rebound name gets nothing, on any path', verifies('SEC-02'), async () => {
    for (const path of [
      '/api/threads/search',
      '/api/models',
      '/',
      '/health',
      '/openapi.json',
      '/api/langgraph/models',
    ]) {
      const answer = await rawRequest(open.port, { path, headers: { host: 'evil.example' } });
      expect([path, answer.status]).toEqual([path, 403]);
      expect(JSON.parse(answer.body)).toMatchObject({ code: 'forbidden' });
    }
    expect(open.threads.rows.size).toBe(0);
  });

  test.each([
    'localhost:2026',
    '127.0.0.1',
    '127.8.9.1:80',
    '[::1]:2026',
    'x.localhost',
    'reindeer.example',
    'REINDEER.example:8080',
  ])('%s is answered', async (host) => {
    expect((await rawRequest(open.port, { path: '/api/models', headers: { host } })).status).toBe(200);
  });

  test.each(['127.0.0.1.evil.example', 'localhost.evil.example', 'reindeer.example.evil', 'evil', '10.0.0.1', 'a b'])(
    '"%s" is not',
    async (host) => {
      expect([403, 400]).toContain((await rawRequest(open.port, { path: '/api/models', headers: { host } })).status);
    },
  );

  test('host headers are taken apart', () => {
    expect(parseHost('[::1]:2026')).toEqual({ name: '::1', host: '[::1]:2026' });
    expect(parseHost('Localhost.')).toMatchObject({ name: 'localhost' });
    expect(parseHost('a@b')).toBeNull();
    expect(isLoopbackName('127.evil')).toBe(false);
  });
});

describe('origin', () => {
  test('pages of other origins get nothing', verifies('SEC-02'), async () => {
    for (const origin of [
      'https://evil.example',
      'null',
      `http://127.0.0.1:${open.port + 1}`,
      'http://localhost.evil.example',
      'file://',
      `ftp://127.0.0.1:${open.port}`,
    ]) {
      const answer = await create({ origin });
      expect([origin, answer.status]).toEqual([origin, 403]);
      expect(answer.headers['access-control-allow-origin']).toBeUndefined();
    }
    const read = await rawRequest(open.port, {
      path: '/api/models',
      headers: { host: '127.0.0.1', origin: 'https://evil.example' },
    });
    expect(read.status).toBe(403);
    expect(open.threads.rows.size).toBe(0);
  });

  test('a GET that another page triggers without an Origin gets nothing either', async () => {
    for (const site of ['cross-site', 'same-site']) {
      const answer = await rawRequest(open.port, {
        path: '/api/models',
        headers: { host: '127.0.0.1', 'sec-fetch-site': site },
      });
      expect(answer.status).toBe(403);
    }
    // A link to the page itself is fine.
    expect(
      (await rawRequest(open.port, { path: '/', headers: { host: '127.0.0.1', 'sec-fetch-site': 'cross-site' } }))
        .status,
    ).toBe(200);
  });

  test('the own page and configured origins work, with what the SDK needs to read', async () => {
    expect((await create({ origin: `http://127.0.0.1:${open.port}` })).status).toBe(200);
    const configured = await create({ origin: 'https://app.example' });
    expect(configured.status).toBe(200);
    expect(configured.headers['access-control-allow-origin']).toBe('https://app.example');
    expect(configured.headers['access-control-expose-headers']).toContain('Content-Location');
    const preflight = await rawRequest(open.port, {
      method: 'OPTIONS',
      path: '/api/threads',
      headers: { host: '127.0.0.1', origin: 'https://app.example' },
    });
    expect(preflight.status).toBe(204);
    const refused = await rawRequest(open.port, {
      method: 'OPTIONS',
      path: '/api/threads',
      headers: { host: '127.0.0.1', origin: 'https://evil.example' },
    });
    expect(refused.status).toBe(403);
  });
});

describe('content type', () => {
  test('what a page can send without asking gets nothing', verifies('SEC-02'), async () => {
    const before = open.threads.rows.size;
    for (const type of [
      'text/plain',
      'application/x-www-form-urlencoded',
      'multipart/form-data; boundary=x',
      'text/plain; application/json',
      'application/jsonx',
    ])
      expect([type, (await create({ 'content-type': type })).status]).toEqual([type, 415]);
    const none = await rawRequest(open.port, {
      method: 'POST',
      path: '/api/threads',
      headers: { host: '127.0.0.1', 'content-length': '2' },
      body: '{}',
    });
    expect(none.status).toBe(415);
    expect(open.threads.rows.size).toBe(before);
    expect((await create({ 'content-type': 'application/json; charset=utf-8' })).status).toBe(200);
  });
});

describe('token', () => {
  const call = (headers: Record<string, string>, path = '/api/models') =>
    rawRequest(guarded.port, { path, headers: { host: '127.0.0.1', ...headers } });

  test('everything below /api needs it', async () => {
    for (const path of [
      '/api/models',
      '/api/langgraph/models',
      '/api/threads/x/artifacts/mnt/user-data/outputs/a',
      '/api/nothing',
    ]) {
      const answer = await call({}, path);
      expect([path, answer.status]).toEqual([path, 401]);
      expect(answer.headers['www-authenticate']).toContain('Bearer');
    }
    expect((await call({ authorization: 'Bearer wrong' })).status).toBe(401);
    expect((await call({ authorization: 'Bearer secret-token-of-sixteen' })).status).toBe(200);
    expect((await call({ 'x-api-key': 'secret-token-of-sixteen' })).status).toBe(200);
    expect((await call({}, '/health')).status).toBe(200);
    expect((await call({}, '/')).status).toBe(200);
  });

  test('no spelling of the address gets around it', async () => {
    for (const path of [
      '/%61pi/models',
      '/api//models',
      '//api/models',
      '/api/./models',
      '/x/../api/models',
      '/API/models',
      '/api/langgraph/../models',
      '/api;x/models',
      '/api/models/',
      '/api%2fmodels',
    ]) {
      const answer = await call({}, path);
      expect([path, answer.body.includes('display_name')]).toEqual([path, false]);
    }
  });

  test('a token does not open the door to other origins', async () => {
    expect(
      (await call({ authorization: 'Bearer secret-token-of-sixteen', origin: 'https://evil.example' })).status,
    ).toBe(403);
  });

  test('tokens are compared whole', () => {
    expect(tokenMatches('abc', 'abc')).toBe(true);
    expect(tokenMatches('abc', 'abcd')).toBe(false);
    expect(tokenMatches('', 'abcd')).toBe(false);
  });
});

test('every answer carries the security headers', async () => {
  const api = await rawRequest(open.port, { path: '/api/models', headers: { host: '127.0.0.1' } });
  expect(api.headers).toMatchObject({
    'x-content-type-options': 'nosniff',
    'x-frame-options': 'DENY',
    'cross-origin-resource-policy': 'same-origin',
  });
  expect(api.headers['content-security-policy']).toContain("default-src 'none'");
  expect(api.headers['x-request-id']).toMatch(/^[0-9a-f-]{36}$/);
  const page = await rawRequest(open.port, { path: '/', headers: { host: '127.0.0.1', accept: 'text/html' } });
  expect(page.headers['content-security-policy']).toContain("frame-ancestors 'none'");
  expect(page.body).toContain('npm run build');
});
