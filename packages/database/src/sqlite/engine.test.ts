import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

test('the thread takes what Node compiled from where its maker does', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'reindeer-compiled-'));
  try {
    const thread = `
      import { getCompileCacheDir } from 'node:module';
      import { parentPort } from 'node:worker_threads';
      parentPort.postMessage([getCompileCacheDir() ?? null, process.env.KEPT]);`;
    // In a process of its own: it cannot be switched off again.
    const script = `
      import { enableCompileCache, getCompileCacheDir } from 'node:module';
      enableCompileCache(process.argv[1]);
      const { workerEngine } = await import(${JSON.stringify(new URL('./engine.ts', import.meta.url))});
      const start = workerEngine(new URL('data:text/javascript,' + encodeURIComponent(${JSON.stringify(thread)})), {});
      start({
        onMessage: (told) => console.log(JSON.stringify({ told, own: getCompileCacheDir() })),
        onError: (error) => console.log(String(error)),
        onExit: () => {},
      });`;
    const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', script, folder], {
      env: { ...process.env, KEPT: 'yes' },
    });
    const { told, own } = JSON.parse(stdout) as { told: unknown; own: string };
    expect(own.startsWith(folder)).toBe(true);
    expect(told).toEqual([own, 'yes']);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
