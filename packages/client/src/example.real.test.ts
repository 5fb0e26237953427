import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../../..');
const PATIENCE_MS = 60_000;

test('the program of docs/client.md works as it stands, and ends by itself', verifies('CLI-1'), async () => {
  const page = await readFile(join(ROOT, 'docs/client.md'), 'utf8');
  const program = /```ts\n([\s\S]*?)```/.exec(page)?.[1] ?? '';
  const folder = await mkdtemp(join(tmpdir(), 'reindeer-example-'));
  try {
    await mkdir(join(folder, 'project'));
    await mkdir(join(folder, 'node_modules'));
    // As `npm install ../reindeer` leaves it.
    await symlink(ROOT, join(folder, 'node_modules/reindeer'));
    await writeFile(join(folder, 'program.mts'), program);
    const { stdout, stderr } = await promisify(execFile)(process.execPath, ['program.mts'], {
      cwd: folder,
      env: { PATH: process.env.PATH },
      // It is killed then, and its code is none.
      timeout: PATIENCE_MS,
    });
    expect(stderr).toBe('');
    expect(stdout).toMatch(/\nsuccess: \d+ tokens\n[\s\S]+ text\/markdown [1-9]\d*\n$/);
  } finally {
    await rm(folder, { recursive: true, force: true, maxRetries: 5 });
  }
});
