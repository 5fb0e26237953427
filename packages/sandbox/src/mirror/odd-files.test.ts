import { execFile } from 'node:child_process';
import { mkdir, readdir, readFile, truncate, writeFile } from 'node:fs/promises';
import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { realClock } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { MirrorClient } from './client.ts';
import { checkedEntry, fileEntry, type MirrorEntry } from './entry.ts';
import { headerFrame } from './frames.ts';
import { FolderMirror } from './mirror.ts';
import { mirrorScene } from './testing/scene.ts';
import { Tree } from './tree.ts';

const shell = (folder: string, script: string) => promisify(execFile)('bash', ['-c', script], { cwd: folder });

describe('files of unusual kinds', () => {
  test('a path that is longer than any side may name stays where it is, and the rest is carried', async () => {
    const { here, there, client, mirror } = await mirrorScene();
    await mirror.bring(client);
    const name = 'd'.repeat(120);
    const down = `for n in $(seq 40); do mkdir ${name} && cd ${name} || exit 1; done; echo deep >file`;
    await shell(`${there}/workspace`, down);
    try {
      await writeFile(`${there}/workspace/beside`, 'beside');
      const { notices } = await mirror.fetch(client);
      expect(notices).toEqual([expect.stringContaining('only in the sandbox')]);
      expect(await readFile(`${here.workspace}/beside`, 'utf8')).toBe('beside');
    } finally {
      for (const folder of [there, here.workspace]) await shell(folder, 'rm -rf -- *');
    }
  });

  test('a name is never cut within a character', async () => {
    const { there, client, mirror } = await mirrorScene();
    await mirror.bring(client);
    for (const first of ['', 'a']) {
      const folder = `${there}/workspace/${first}${'🙂'.repeat(50)}`;
      await mkdir(folder);
      await shell(folder, `mkfifo ${'🙂'.repeat(60)}`);
    }
    const { notices } = await mirror.fetch(client);
    expect(notices).toHaveLength(1);
    expect(notices[0]?.isWellFormed()).toBe(true);
  });

  test('a time that no number can hold is carried as the latest one', () => {
    const stats = { size: 1, mode: 0o100644, nlink: 1, ino: 1, ctimeMs: 1, isFile: () => true };
    for (const mtimeMs of [9.2e21, -1, 1.5]) {
      const entry = fileEntry('workspace/a', { ...stats, mtimeMs }, true);
      expect(checkedEntry(entry)).toEqual(entry);
    }
  });
});

describe('what cannot be brought', () => {
  test('what is too large is told with every command, not left out in silence', async () => {
    const { here, there, client, mirror } = await mirrorScene();
    await writeFile(`${here.uploads}/huge.bin`, '');
    await truncate(`${here.uploads}/huge.bin`, 100 * 1024 * 1024 + 1);
    await writeFile(`${here.uploads}/small`, 'x');
    const { notices } = await mirror.bring(client);
    expect(notices).toEqual([
      expect.stringMatching(/not in the sandbox.*100 MB.*\/mnt\/user-data\/uploads\/huge\.bin/),
    ]);
    expect(await readdir(`${there}/uploads`)).toEqual(['small']);
    expect((await mirror.bring(client)).notices).toEqual(notices);
  });

  test('what stands in the way in the sandbox is named', async () => {
    const { here, there, client, mirror } = await mirrorScene();
    await shell(`${there}/uploads`, 'mkdir table.csv && mkfifo table.csv/fifo');
    await writeFile(`${here.uploads}/table.csv`, 'a,b');
    for (let turn = 0; turn < 2; turn += 1) {
      const { notices } = await mirror.bring(client);
      expect(notices).toEqual([expect.stringMatching(/in its place.*\/mnt\/user-data\/uploads\/table\.csv/)]);
      await mirror.fetch(client);
    }
    await shell(`${there}/uploads`, 'rm -r table.csv');
    expect((await mirror.bring(client)).notices).toEqual([]);
    expect(await readFile(`${there}/uploads/table.csv`, 'utf8')).toBe('a,b');
  });
});

test('a full disk is named, nothing half is left, and what could not be read back comes once there is room', async () => {
  const { here, skills, there, client, mirror } = await mirrorScene();
  await mirror.bring(client);
  await writeFile(`${there}/outputs/a`, 'made');
  const full = Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' });
  const folders = new Map(
    [...Object.entries(here), ['skills', skills] as const].filter(([name]) => name !== 'temporary'),
  );
  const place = async () => {
    throw full;
  };
  const onFull = new FolderMirror(new Tree({ folders, place, commands: false }), 1_000);
  const { list } = client;
  client.list = async () => ({ entries: new Map(), leftOut: new Set(), complete: true });
  await onFull.bring(client);
  client.list = list;
  await expect(onFull.fetch(client)).rejects.toMatchObject({
    code: 'over_capacity',
    message: expect.stringContaining('/mnt/user-data/outputs/a: no space is left on the disk'),
  });
  expect(await readdir(here.outputs)).toEqual([]);
  await mirror.fetch(client);
  expect(await readFile(`${here.outputs}/a`, 'utf8')).toBe('made');
});

describe('a sandbox whose server is no longer ours', () => {
  const entry = (path: string, size = 1): MirrorEntry => ({
    path,
    kind: 'file',
    size,
    mode: 0o644,
    modifiedAt: 1,
    target: '',
    stamp: path,
  });
  const listing = (...entries: readonly MirrorEntry[]) => ({
    entries: new Map(entries.map((one) => [one.path, one])),
    leftOut: new Set<string>(),
    complete: false,
  });

  test('sends more bytes than it said: the thread’s disk space holds', async () => {
    const { here, client, mirror } = await mirrorScene({ maxBytes: 1_000 });
    await mirror.bring(client);
    client.list = async () => listing(entry('outputs/a'), entry('outputs/b'));
    client.read = async (wanted, take) => {
      for (const one of wanted) await take(one, Readable.from([Buffer.alloc(600)]));
    };
    await expect(mirror.fetch(client)).rejects.toMatchObject({ code: 'too_large' });
    expect(await readdir(here.outputs)).toEqual(['a']);
  });

  test('names other files each time: a thread has so many entries and no more', async () => {
    const { here, client, mirror } = await mirrorScene({ maxEntries: 3 });
    await mirror.bring(client);
    client.read = async (wanted, take) => {
      for (const one of wanted) await take(one, Readable.from([Buffer.alloc(1)]));
    };
    client.list = async () => listing(entry('outputs/a'), entry('outputs/b'));
    await mirror.fetch(client);
    client.list = async () => listing(entry('outputs/c'), entry('outputs/d'));
    await expect(mirror.fetch(client)).rejects.toMatchObject({ code: 'too_large' });
    expect(await readdir(here.outputs)).toEqual(['a', 'b']);
  });

  test('tells of its files without end: the listing is bounded in bytes', async () => {
    let sent = 0;
    const long = 'x'.repeat(200);
    const path = `workspace/${Array.from({ length: 19 }, () => long).join('/')}`;
    const lines = function* () {
      for (let n = 0; n < 40_000; n += 1) {
        const line = headerFrame(entry(`${path}/${n}`));
        sent += line.length;
        yield line;
      }
      yield headerFrame({ complete: true });
    };
    const response = Object.assign(new IncomingMessage(new Socket()), { statusCode: 200 });
    const source = Readable.from(lines());
    Object.defineProperty(response, Symbol.asyncIterator, { value: () => source[Symbol.asyncIterator]() });
    const client = new MirrorClient({ call: async () => response }, realClock);
    await expect(client.list()).rejects.toMatchObject({ code: 'sandbox_unavailable' });
    expect(sent).toBeLessThan(34 * 1024 * 1024);
  });
});
