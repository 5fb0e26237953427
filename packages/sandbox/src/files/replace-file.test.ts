import { chmod, lstat, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { replaceFile } from './replace-file.ts';

let folder = '';
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'replace-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));
const modeOf = async (file: string): Promise<number> => (await stat(file)).mode & 0o777;

test('a new file is private, in a folder that is made for it; nothing else is left there', async () => {
  const file = join(folder, 'a/b/file.json');
  await replaceFile(file, 'one');
  await replaceFile(file, 'two');
  expect(await readFile(file, 'utf8')).toBe('two');
  expect([await modeOf(file), await modeOf(join(folder, 'a/b'))]).toEqual([0o600, 0o700]);
  expect(await readdir(join(folder, 'a/b'))).toEqual(['file.json']);
});

test('a file keeps its mode, and a link stays one', async () => {
  const file = join(folder, 'file');
  const link = join(folder, 'link');
  await writeFile(file, 'one');
  await chmod(file, 0o644);
  await symlink(file, link);
  await replaceFile(link, 'two');
  expect((await lstat(link)).isSymbolicLink()).toBe(true);
  expect([await readFile(file, 'utf8'), await modeOf(file)]).toEqual(['two', 0o644]);
});

test('what cannot be replaced stays as it is, without anything beside it', async () => {
  const taken = join(folder, 'taken');
  await replaceFile(join(taken, 'file'), 'one');
  await expect(replaceFile(taken, 'two')).rejects.toThrow(/EISDIR|ENOTEMPTY|EEXIST/);
  expect(await readdir(folder)).toEqual(['taken']);
});
