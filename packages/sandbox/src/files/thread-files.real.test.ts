import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { makeThreadFolders } from '../folders.ts';
import { temporaryThread } from '../test-support.ts';

const run = promisify(execFile);

test('FIFOs are refused at once and hold up nothing', verifies('SL-01', 'SL-25'), async (context) => {
  const { files, paths } = await temporaryThread();
  await makeThreadFolders(paths, null);
  const names = Array.from({ length: 8 }, (_, index) => `fifo${index}`);
  const made = await run(
    'mkfifo',
    names.map((name) => `${paths.folders.workspace}/${name}`),
  ).then(
    () => true,
    () => false,
  );
  if (!made) context.skip('no mkfifo here');
  await files.write('plain.txt', 'needle');
  // Four blocked opens would stop every file and name look-up of the process.
  await Promise.all(
    names.flatMap((name) => [
      expect(files.read(name, { maxBytes: 10 })).rejects.toMatchObject({ code: 'path_refused' }),
      expect(files.write(name, 'x')).rejects.toMatchObject({ code: 'path_refused' }),
      expect(files.write(name, 'x', { append: true })).rejects.toMatchObject({ code: 'path_refused' }),
      expect(files.openRead(name)).rejects.toMatchObject({ code: 'path_refused' }),
    ]),
  );
  expect((await files.grep('needle', '.', { literal: true, caseSensitive: true, limit: 10 })).matches.length).toBe(1);
  expect(await readFile(`${paths.folders.workspace}/plain.txt`, 'utf8')).toBe('needle');
  expect(
    (await files.list('.', { depth: 1, limit: 100 })).entries.filter((entry) => entry.kind === 'special').length,
  ).toBe(8);
  for (const name of names) expect(await files.remove(name)).toBe(true);
});
