import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

test('only a bundle whose build made the folder keeps what Node compiled, and keeps it there', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'reindeer-compiled-'));
  try {
    await mkdir(join(folder, 'compiled'));
    // In a process of its own: it cannot be switched off again.
    const script = `
      import { getCompileCacheDir } from 'node:module';
      const { useCompileCache } = await import(${JSON.stringify(new URL('./compile-cache.ts', import.meta.url))});
      for (const entry of process.argv.slice(1)) {
        await useCompileCache(entry);
        console.log(getCompileCacheDir() ?? 'nowhere');
      }`;
    const entries = ['server/main.ts', 'elsewhere/server/main.js', 'server/main.js'];
    const { stdout } = await promisify(execFile)(process.execPath, [
      ...['--input-type=module', '--eval', script],
      ...entries.map((entry) => pathToFileURL(join(folder, entry)).href),
    ]);
    const [source, unprepared, bundle] = stdout.split('\n');
    expect([source, unprepared]).toEqual(['nowhere', 'nowhere']);
    expect(bundle?.startsWith(join(folder, 'compiled/'))).toBe(true);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
