import { execFile, spawn } from 'node:child_process';
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const root = join(import.meta.dirname, '../..');

test('without a network the start says so soon, and what to do', { timeout: 60_000 }, async () => {
  const folder = await mkdtemp(join(tmpdir(), 'reindeer-offline-'));
  try {
    await cp(join(root, 'scripts'), join(folder, 'scripts'), { recursive: true });
    const dependencies = { 'left-out': '1.0.0' };
    await writeFile(join(folder, 'package.json'), JSON.stringify({ name: 'x', version: '1.0.0', dependencies }));
    const packages = {
      '': { name: 'x', version: '1.0.0', dependencies },
      'node_modules/left-out': {
        version: '1.0.0',
        resolved: 'http://127.0.0.1:9/left-out-1.0.0.tgz',
        integrity: `sha512-${Buffer.alloc(64).toString('base64')}`,
      },
    };
    await writeFile(
      join(folder, 'package-lock.json'),
      JSON.stringify({ name: 'x', version: '1.0.0', lockfileVersion: 3, packages }),
    );
    const env = {
      ...process.env,
      npm_config_registry: 'http://127.0.0.1:9/',
      npm_config_cache: join(folder, 'cache'),
    };
    // Node 24 is there, so the first thing to fetch are the dependencies.
    const told = await promisify(execFile)(process.execPath, [join(folder, 'scripts/start.mjs')], {
      env,
      timeout: 50_000,
    }).then(
      () => 'it started',
      (error: { stderr: string; killed: boolean }) => (error.killed ? 'it waited on' : error.stderr),
    );
    expect(told).toContain('needs the npm registry, and it cannot be reached');
    expect(told).toContain('start again');
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

test('a test run that is stopped takes its suite along', { timeout: 60_000 }, async () => {
  const runner = spawn(process.execPath, [join(root, 'scripts/test.ts'), '--only', 'simulation'], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const gone = new Promise((resolve) => runner.once('exit', resolve));
  // The suite has the same standard output: it closes when the last of both is gone.
  const closed = new Promise((resolve) => runner.stdout.once('close', resolve));
  await new Promise((resolve) => runner.stdout.once('data', resolve));
  runner.kill('SIGTERM');
  expect(await gone).toBe(130);
  await closed;
});
