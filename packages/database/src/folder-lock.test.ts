import { chmod, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { lockFolder } from './folder-lock.ts';

let base = '';
beforeEach(async () => {
  base = await mkdtemp(join(tmpdir(), 'reindeer-lock-'));
});
afterEach(() => rm(base, { recursive: true, force: true }));

test('a folder is made for its owner only, and taken once', async () => {
  const folder = join(base, 'a', 'b');
  const lock = await lockFolder(folder);
  expect((await stat(folder)).mode & 0o777).toBe(0o700);
  await expect(lockFolder(folder)).rejects.toMatchObject({
    code: 'data_folder_locked',
    message: expect.stringContaining(`${folder} is in use by another Reindeer (process ${process.pid})`),
    detail: { folder, pid: process.pid },
  });
  // Another folder is another lock.
  await (await lockFolder(join(base, 'other'))).release();
  await lock.release();
  await lock.release();
  const again = await lockFolder(folder);
  // The earlier lock is spent: releasing it once more must not open the new one.
  await lock.release();
  await expect(lockFolder(folder)).rejects.toMatchObject({ code: 'data_folder_locked' });
  await again.release();
  expect(await readdir(folder)).toEqual(['reindeer.lock']);
});

test('many at once: one has it', async () => {
  const results = await Promise.allSettled(Array.from({ length: 8 }, () => lockFolder(base)));
  const locks = results.filter((result) => result.status === 'fulfilled');
  expect(locks).toHaveLength(1);
  await locks[0]?.value.release();
});

test('a file in the way is named', async () => {
  const file = join(base, 'file');
  await writeFile(file, '');
  for (const folder of [file, join(file, 'below')])
    await expect(lockFolder(folder)).rejects.toMatchObject({
      code: 'configuration',
      message: expect.stringContaining(folder),
      detail: { folder },
    });
});

test('a place where nothing can be made ends with a message', { timeout: 10_000 }, async (ctx) => {
  if (process.platform !== 'linux') return ctx.skip('needs /proc, where every try answers "no such file"');
  await expect(lockFolder('/proc/reindeer/data')).rejects.toMatchObject({
    code: 'configuration',
    message: expect.stringContaining('/proc/reindeer/data'),
  });
});

test('a folder that cannot be written is named', async (ctx) => {
  if (process.getuid?.() === 0) ctx.skip('the system administrator may write everywhere');
  await chmod(base, 0o500);
  await expect(lockFolder(join(base, 'below'))).rejects.toMatchObject({
    code: 'configuration',
    message: expect.stringContaining('permissions'),
  });
});
