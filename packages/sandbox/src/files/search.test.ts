import { symlink } from 'node:fs/promises';
import { VirtualClock, verifies, withEventLoopGate } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { temporaryThread } from '../test-support.ts';
import { MAX_LINE, Matcher } from './matcher.ts';
import { MAX_GREP_FILE_BYTES } from './search.ts';

const WORKSPACE = '/mnt/user-data/workspace';

test('glob: names at any depth, paths with slashes exactly, ignored folders left out', async () => {
  const { files } = await temporaryThread();
  for (const path of [
    'top.py',
    'src/a.py',
    'src/deep/b.py',
    'src/c.ts',
    '.git/x.py',
    'node_modules/y.py',
    '.hidden.py',
  ]) {
    await files.write(path, 'x');
  }
  const find = async (pattern: string, options = {}) =>
    (await files.glob(pattern, '.', { includeDirectories: false, limit: 200, ...options })).paths.map((path) =>
      path.slice(WORKSPACE.length + 1),
    );
  expect(await find('*.py')).toEqual(['.hidden.py', 'top.py', 'src/a.py', 'src/deep/b.py']);
  expect(await find('src/*.py')).toEqual(['src/a.py']);
  expect(await find('**/*.{py,ts}')).toEqual(['.hidden.py', 'top.py', 'src/a.py', 'src/c.ts', 'src/deep/b.py']);
  expect(await find('src/**', { includeDirectories: true })).toEqual([
    'src',
    'src/a.py',
    'src/c.ts',
    'src/deep',
    'src/deep/b.py',
  ]);
  expect(await files.glob('*.py', '.', { includeDirectories: false, limit: 2 })).toMatchObject({ truncated: true });
  await expect(files.glob('../*', '.', { includeDirectories: false, limit: 2 })).rejects.toMatchObject({
    code: 'path_refused',
  });
  await expect(files.glob('*', '.', { includeDirectories: false, limit: 0 })).rejects.toMatchObject({
    code: 'bad_request',
  });
});

test('grep: literal and regular expressions, case, one file glob, limits and skips', async () => {
  const { files, paths } = await temporaryThread();
  await files.write('a.txt', 'first\nThe Needle (1)\r\nlast needle');
  await files.write('b/c.md', 'needle in b');
  await files.write('binary.txt', Buffer.from('needle\0'));
  await files.write('large.txt', `needle${'x'.repeat(MAX_GREP_FILE_BYTES)}`);
  await files.write('long-line.txt', `needle${'x'.repeat(MAX_LINE)}\nshort needle`);
  await symlink(`${paths.folders.workspace}/a.txt`, `${paths.folders.workspace}/link.txt`);
  const search = async (pattern: string, options = {}) =>
    files.grep(pattern, '.', { literal: false, caseSensitive: false, limit: 100, ...options });
  const all = await search('needle');
  expect(all.matches.map(({ path, line, text }) => [path.slice(WORKSPACE.length + 1), line, text])).toEqual([
    ['a.txt', 2, 'The Needle (1)'],
    ['a.txt', 3, 'last needle'],
    ['long-line.txt', 2, 'short needle'],
    ['b/c.md', 1, 'needle in b'],
  ]);
  expect(all).toMatchObject({ truncated: false, filesSkipped: 3 });
  expect((await search('needle', { caseSensitive: true })).matches.length).toBe(3);
  expect((await search('(?i)NEEDLE', { caseSensitive: true })).matches.length).toBe(4);
  expect((await search('Needle (1)', { literal: true })).matches.length).toBe(1);
  expect((await search('^need\\w+ in', { glob: '*.md' })).matches.length).toBe(1);
  expect(await search('needle', { limit: 2 })).toMatchObject({ truncated: true, matches: { length: 2 } });
  expect(await search('needle', { limit: 4 })).toMatchObject({ truncated: false });
  await expect(search('(unclosed')).rejects.toMatchObject({ code: 'bad_request' });
  await expect(files.grep('x', 'missing', { literal: true, caseSensitive: true, limit: 1 })).rejects.toMatchObject({
    code: 'not_found',
  });
});

test('an expression that explodes is ended, and the next search works', verifies('SL-25'), async () => {
  const matcher = new Matcher(1_000);
  const { files } = await temporaryThread({ matcher });
  await files.write('trap.txt', `${'a'.repeat(40)}!`);
  let turns = 0;
  const timer = setInterval(() => {
    turns += 1;
  }, 5);
  await withEventLoopGate(() =>
    expect(files.grep('^(a+)+$', '.', { literal: false, caseSensitive: true, limit: 10 })).rejects.toMatchObject({
      code: 'bad_request',
      message: expect.stringContaining('too long'),
    }),
  );
  clearInterval(timer);
  // The loop went on turning while the worker was stuck.
  expect(turns).toBeGreaterThan(5);
  expect((await files.grep('a+!', '.', { literal: false, caseSensitive: true, limit: 10 })).matches.length).toBe(1);
});

test('searches beyond two wait their turn; cancelled and closed ones are told so', async () => {
  const matcher = new Matcher();
  const task = { kind: 'paths', expression: { source: 'a', flags: '' }, paths: ['a', 'b'] } as const;
  const answers = await Promise.all(Array.from({ length: 10 }, () => matcher.run(task)));
  expect(answers).toEqual(Array.from({ length: 10 }, () => ({ kind: 'paths', matches: [true, false] })));
  await expect(matcher.run(task, AbortSignal.abort())).rejects.toMatchObject({ code: 'aborted' });
  const stuck = { kind: 'paths', expression: { source: '^(a+)+$', flags: '' }, paths: [`${'a'.repeat(50)}!`] } as const;
  const controller = new AbortController();
  const cancelled = expect(matcher.run(stuck, controller.signal)).rejects.toMatchObject({ code: 'aborted' });
  controller.abort();
  await cancelled;
  const ended = expect(Promise.all([matcher.run(stuck), matcher.run(stuck), matcher.run(stuck)])).rejects.toMatchObject(
    {
      code: 'shutting_down',
    },
  );
  await matcher.close();
  await ended;
  await expect(matcher.run(task)).rejects.toMatchObject({ code: 'shutting_down' });
});

test('a search that takes too long returns what it has and says that it was cut short', async () => {
  const clock = new VirtualClock();
  const { files } = await temporaryThread({ clock });
  await files.write('a.txt', 'x');
  await files.write('b/c.txt', 'x');
  const search = files.glob('*.txt', '.', { includeDirectories: false, limit: 10 });
  await clock.advance(31_000);
  expect(await search).toEqual({ paths: [], truncated: true });
  expect((await files.glob('*.txt', '.', { includeDirectories: false, limit: 10 })).paths.length).toBe(2);
});
