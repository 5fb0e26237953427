import { chmod, mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { IsolationReport } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { accessToken, keptToken, sandboxReachesServer, startUrl } from './access.ts';
import type { Settings } from './config/settings.ts';

let home: string;
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'reindeer-access-'));
});
afterEach(() => rm(home, { recursive: true, force: true }));

const report = (part: Partial<IsolationReport>): IsolationReport => ({
  provider: 'bubblewrap',
  canExecute: true,
  network: 'none',
  limits: [],
  ...part,
});
const settings = (token: string | null) => ({ home, server: { token } }) as unknown as Settings;

describe('access', () => {
  test('which sandboxes reach the loopback', () => {
    expect(sandboxReachesServer(report({}))).toBe(false);
    expect(sandboxReachesServer(report({ network: 'host' }))).toBe(true);
    expect(sandboxReachesServer(report({ provider: 'local' }))).toBe(true);
    expect(sandboxReachesServer(report({ network: 'host', canExecute: false }))).toBe(false);
  });

  test(
    'a token of its own is made once, for this user alone, and only where it is needed',
    verifies('BL-06'),
    async () => {
      expect(await accessToken(settings(null), report({}))).toBeNull();
      expect(await keptToken({ home })).toBeNull();
      const made = await accessToken(settings(null), report({ network: 'host' }));
      expect(made).toMatch(/^[A-Za-z0-9_-]{43}$/);
      expect(await accessToken(settings(null), report({ network: 'host' }))).toBe(made);
      expect(await keptToken({ home })).toBe(made);
      const mode = async () => (await stat(join(home, 'token'))).mode & 0o777;
      expect(await mode()).toBe(0o600);
      await chmod(join(home, 'token'), 0o644);
      expect(await accessToken(settings(null), report({ network: 'host' }))).toBe(made);
      expect(await mode()).toBe(0o600);
      expect(await accessToken(settings('the-operators-token'), report({}))).toBe('the-operators-token');
      await writeFile(join(home, 'token'), '\n');
      expect((await accessToken(settings(null), report({ network: 'host' })))?.length).toBe(43);
    },
  );

  test('addresses for a browser', () => {
    expect(startUrl('127.0.0.1', 2026, null)).toBe('http://127.0.0.1:2026/');
    expect(startUrl('0.0.0.0', 1, 'a/b')).toBe('http://127.0.0.1:1/#token=a%2Fb');
    expect(startUrl('::1', 1, null)).toBe('http://[::1]:1/');
  });
});
