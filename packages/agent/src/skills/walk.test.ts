import { execFile } from 'node:child_process';
import { chmod, mkdir, mkdtemp, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { copyFiles, filesOf, readListed } from './walk.ts';

let root: string;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'reindeer-walk-'));
  await mkdir(join(root, 'skill/assets'), { recursive: true });
});
afterEach(() => rm(root, { recursive: true, force: true }));

test('templates with a dot are content; keys and what systems leave are not', verifies('SK-2'), async () => {
  for (const name of [
    'SKILL.md',
    'assets/.dockerignore',
    'assets/.env.example',
    '.env',
    '.env.local',
    '.DS_Store',
    '._x',
  ])
    await writeFile(join(root, 'skill', name), 'x');
  await mkdir(join(root, 'skill/.git'));
  await writeFile(join(root, 'skill/.git/config'), 'x');
  const files = await filesOf(join(root, 'skill'));
  expect(files.map((file) => file.path)).toEqual(['SKILL.md', 'assets/.dockerignore', 'assets/.env.example']);
});

test('copies what was listed, with its bits, and no more than was listed', verifies('SK-3'), async () => {
  await writeFile(join(root, 'skill/SKILL.md'), 'short');
  await writeFile(join(root, 'skill/assets/empty'), '');
  await writeFile(join(root, 'skill/run.sh'), 'x'.repeat(300_000));
  await chmod(join(root, 'skill/run.sh'), 0o700);
  const files = await filesOf(join(root, 'skill'));
  await writeFile(join(root, 'skill/SKILL.md'), 'short and then without an end');
  await copyFiles(join(root, 'skill'), join(root, 'to'), files);
  expect(await readFile(join(root, 'to/SKILL.md'), 'utf8')).toBe('short');
  expect((await stat(join(root, 'to/run.sh'))).size).toBe(300_000);
  expect((await stat(join(root, 'to/assets/empty'))).size).toBe(0);
  expect([
    (await stat(join(root, 'to/run.sh'))).mode & 0o777,
    (await stat(join(root, 'to/SKILL.md'))).mode & 0o777,
  ]).toEqual([0o755, 0o644]);
});

test(
  'a file that became a link or a pipe after it was listed is neither followed nor waited for',
  verifies('SK-3'),
  async () => {
    const path = join(root, 'skill/SKILL.md');
    await writeFile(path, 'x');
    await writeFile(join(root, 'secret'), 'secret');
    const files = await filesOf(join(root, 'skill'));
    await rm(path);
    await symlink(join(root, 'secret'), path);
    await expect(copyFiles(join(root, 'skill'), join(root, 'a'), files)).rejects.toMatchObject({ code: 'ENOENT' });
    await expect(readListed(path, 100)).rejects.toMatchObject({ code: 'ENOENT' });
    await rm(path);
    await promisify(execFile)('mkfifo', [path]);
    await expect(copyFiles(join(root, 'skill'), join(root, 'b'), files)).rejects.toMatchObject({ code: 'ENOENT' });
    await expect(readListed(path, 100)).rejects.toMatchObject({ code: 'ENOENT' });
  },
);
