import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Fixture, rawRequest, startFixture } from '../testing/http-fixture.ts';
import { loadPage, NO_PAGE } from './page.ts';

let folder: string;
let fixture: Fixture;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'reindeer-page-'));
  await mkdir(join(folder, 'web/assets'), { recursive: true });
  await writeFile(join(folder, 'secret.txt'), 'hidden words');
  await writeFile(join(folder, 'web/index.html'), '<!doctype html><title>App</title>');
  await writeFile(join(folder, 'web/assets/main-a1b2c3d4.js'), 'run()');
  await writeFile(join(folder, 'web/assets/main-a1b2c3d4.js.map'), '{}');
  await symlink(join(folder, 'secret.txt'), join(folder, 'web/link.txt'));
  fixture = await startFixture({ page: await loadPage(join(folder, 'web')) });
});
afterAll(async () => {
  await fixture.close();
  await rm(folder, { recursive: true, force: true });
});

const get = (path: string, accept = 'text/html') =>
  rawRequest(fixture.port, { path, headers: { host: '127.0.0.1', accept } });

describe('the page', () => {
  test('files of the build, with their types and times', async () => {
    const page = await get('/');
    expect([page.status, page.headers['content-type'], page.headers['cache-control']]).toEqual([
      200,
      'text/html; charset=utf-8',
      'no-cache',
    ]);
    expect(page.headers['content-security-policy']).toContain("script-src 'self'");
    const asset = await get('/assets/main-a1b2c3d4.js', '*/*');
    expect([asset.body, asset.headers['content-type']]).toEqual(['run()', 'text/javascript; charset=utf-8']);
    expect(asset.headers['cache-control']).toContain('immutable');
  });

  test('addresses that only the app knows lead to the app; missing files do not', async () => {
    expect((await get('/threads/abc')).body).toContain('<title>App');
    expect((await get('/assets/gone.js', '*/*')).status).toBe(404);
    expect((await get('/threads/abc', 'application/json')).status).toBe(404);
  });

  test('nothing beside the build is reachable', async () => {
    for (const path of [
      '/../secret.txt',
      '/..%2fsecret.txt',
      '/%2e%2e/secret.txt',
      '/assets/..%2f..%2fsecret.txt',
      '/link.txt',
      '/assets/main-a1b2c3d4.js.map',
    ])
      expect([path, (await get(path, '*/*')).body.includes('hidden words')]).toEqual([path, false]);
    expect((await get('/assets/main-a1b2c3d4.js.map', '*/*')).status).toBe(404);
  });

  test('a missing build is no fault', async () => {
    expect(await loadPage(join(folder, 'none'))).toBe(NO_PAGE);
  });
});
