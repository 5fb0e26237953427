import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Settings } from '../config/settings.ts';
import { announce, announced, runningServer } from './running.ts';

let home: string;
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'reindeer-running-'));
});
afterEach(() => rm(home, { recursive: true, force: true }));

const place = (part: object = {}) =>
  ({ home, postgres: null, server: { host: '127.0.0.1', port: 2026, token: null }, ...part }) as unknown as Settings;
const urlOf = async (line: { host?: string; port?: number } = {}, part: object = {}) =>
  (await runningServer(place(part), line)).url;

test('a command finds the server of its data folder, whichever port it was given', async () => {
  expect(await urlOf()).toBe('http://127.0.0.1:2026');
  const takeBack = await announce(place(), '0.0.0.0', 3470);
  expect(await urlOf()).toBe('http://127.0.0.1:3470');
  expect((await stat(join(home, 'address'))).mode & 0o077).toBe(0);
  // What the command line says counts; what it leaves out is as configured.
  expect(await urlOf({ port: 2026 })).toBe('http://127.0.0.1:2026');
  // Which of several instances would be meant is not known.
  expect(await urlOf({}, { postgres: {} })).toBe('http://127.0.0.1:2026');
  await takeBack();
  expect(await urlOf()).toBe('http://127.0.0.1:2026');
  await takeBack();
});

test.each(['', '{}', 'null', '{"host":"a b","port":1}', '{"host":"x","port":"1"}', '{"host":"x@y","port":1}'])(
  'what cannot be an address is none: %s',
  async (text) => {
    await writeFile(join(home, 'address'), text);
    expect(await announced(place())).toBeNull();
  },
);
