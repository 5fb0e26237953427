import { execFile } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import {
  chmod,
  lstat,
  mkdir,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  stat,
  symlink,
  truncate,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { promisify } from 'node:util';
import { realClock } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { temporaryHome } from '../test-support.ts';
import { MirrorClient } from './client.ts';
import { mirrorScene } from './testing/scene.ts';

const sha = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

describe('a copy of the thread’s folders in a sandbox that does not share them', () => {
  test('what is here is there before a command, and what it did is here after it', async () => {
    const { here, skills, there, client, mirror, files, toolFiles } = await mirrorScene();
    await files.write('/mnt/user-data/uploads/table.csv', 'a,b\n');
    await toolFiles.write('/mnt/user-data/workspace/deep/er/program.sh', '#!/bin/bash\n');
    await chmod(`${here.workspace}/deep/er/program.sh`, 0o755);
    await mkdir(`${skills}/one`);
    await writeFile(`${skills}/one/SKILL.md`, 'how');
    await mirror.bring(client);
    expect(await readFile(`${there}/uploads/table.csv`, 'utf8')).toBe('a,b\n');
    expect(await readFile(`${there}/skills/one/SKILL.md`, 'utf8')).toBe('how');
    expect((await stat(`${there}/workspace/deep/er/program.sh`)).mode & 0o777).toBe(0o755);

    await writeFile(`${there}/outputs/result.txt`, 'done');
    await writeFile(`${there}/workspace/deep/er/program.sh`, '#!/bin/bash\necho changed\n');
    await mkdir(`${there}/workspace/empty`);
    await symlink('../deep/er/program.sh', `${there}/workspace/empty/link`);
    expect(await mirror.fetch(client)).toEqual({ notices: [] });
    expect(await readFile(`${here.outputs}/result.txt`, 'utf8')).toBe('done');
    expect(await readFile(`${here.workspace}/deep/er/program.sh`, 'utf8')).toContain('changed');
    expect((await stat(`${here.workspace}/deep/er/program.sh`)).mode & 0o777).toBe(0o755);
    expect(await readlink(`${here.workspace}/empty/link`)).toBe('../deep/er/program.sh');
    expect((await stat(`${here.outputs}/result.txt`)).mtimeMs).toBeCloseTo(
      (await stat(`${there}/outputs/result.txt`)).mtimeMs,
      -1,
    );

    // Removed on either side: gone on both.
    await rm(`${there}/workspace/empty`, { recursive: true });
    await toolFiles.remove('/mnt/user-data/outputs/result.txt');
    expect(await mirror.fetch(client)).toEqual({ notices: [] });
    await mirror.bring(client);
    expect([await readdir(`${there}/outputs`), await readdir(here.workspace)]).toEqual([[], ['deep']]);
    // A folder that became a file, and the other way round.
    await rm(`${there}/workspace/deep`, { recursive: true });
    await writeFile(`${there}/workspace/deep`, 'a file now');
    await mirror.fetch(client);
    expect(await readFile(`${here.workspace}/deep`, 'utf8')).toBe('a file now');
    await toolFiles.remove('/mnt/user-data/workspace/deep');
    await toolFiles.write('/mnt/user-data/workspace/deep/again', 'x');
    await mirror.bring(client);
    expect(await readFile(`${there}/workspace/deep/again`, 'utf8')).toBe('x');
  });

  test('nothing is sent twice, and a change that hides behind its time is seen', async () => {
    const { there, transport, mirror, newMirror, toolFiles, here } = await mirrorScene();
    await toolFiles.write('/mnt/user-data/workspace/a.txt', 'aaaa');
    const calls: string[] = [];
    const counted = new MirrorClient(
      {
        call: (call) => {
          calls.push(call.path);
          return transport.call(call);
        },
      },
      realClock,
    );
    await mirror.bring(counted);
    expect(calls).toEqual(['/v1/mirror/list', '/v1/mirror/write']);
    await mirror.bring(counted);
    await mirror.fetch(counted);
    expect(calls).toEqual(['/v1/mirror/list', '/v1/mirror/write', '/v1/mirror/list']);
    // Another instance compares, and sends nothing either.
    await newMirror().bring(counted);
    expect(calls.slice(3)).toEqual(['/v1/mirror/list']);
    const before = await stat(`${there}/workspace/a.txt`);
    await writeFile(`${there}/workspace/a.txt`, 'bbbb');
    await utimes(`${there}/workspace/a.txt`, before.atime, before.mtime);
    await mirror.fetch(counted);
    expect(await readFile(`${here.workspace}/a.txt`, 'utf8')).toBe('bbbb');
  });

  test('many small files, in many folders and beside large ones, are each what they were, both ways', async () => {
    const { here, there, client, mirror } = await mirrorScene();
    const wanted = new Map<string, string>();
    for (let n = 0; n < 400; n += 1)
      wanted.set(`d${n % 7}/${n % 2 === 0 ? 'deep/er/' : ''}f${n}`, `${n} `.repeat(n % 90));
    // Around the size up to which a file travels beside others.
    for (const size of [65_535, 65_536, 65_537, 300_000]) wanted.set(`d3/size${size}`, 'x'.repeat(size));
    const make = async (root: string) => {
      for (const [path, text] of wanted) {
        await mkdir(`${root}/${path.slice(0, path.lastIndexOf('/'))}`, { recursive: true });
        await writeFile(`${root}/${path}`, text);
      }
    };
    const found = async (root: string) =>
      new Map(
        await Promise.all(
          [...wanted.keys()].map(async (path) => [path, await readFile(`${root}/${path}`, 'utf8')] as const),
        ),
      );
    await make(here.workspace);
    await mirror.bring(client);
    expect(await found(`${there}/workspace`)).toEqual(wanted);
    await make(`${there}/outputs`);
    expect(await mirror.fetch(client)).toEqual({ notices: [] });
    expect(await found(here.outputs)).toEqual(wanted);
    expect(await readdir(`${there}/workspace`)).toEqual(['d0', 'd1', 'd2', 'd3', 'd4', 'd5', 'd6']);
  });

  test('small files of which one cannot be written: the others come, it is told, and it comes once the way is free', async () => {
    const { here, there, client, mirror } = await mirrorScene();
    await mirror.bring(client);
    for (let n = 0; n < 40; n += 1) await writeFile(`${there}/outputs/f${n}`, `${n}`);
    await mkdir(`${here.outputs}/f7`);
    await writeFile(`${here.outputs}/f7/kept`, 'x');
    const { notices } = await mirror.fetch(client);
    expect(notices.join()).toContain('/mnt/user-data/outputs/f7');
    expect(await readFile(`${here.outputs}/f7/kept`, 'utf8')).toBe('x');
    for (let n = 0; n < 40; n += 1) if (n !== 7) expect(await readFile(`${here.outputs}/f${n}`, 'utf8')).toBe(`${n}`);
  });

  test('every byte of 100 MB, both ways', { timeout: 60_000 }, async () => {
    const { here, there, client, mirror } = await mirrorScene();
    const big = randomBytes(100 * 1024 * 1024);
    await writeFile(`${here.uploads}/big.bin`, big);
    await mirror.bring(client);
    expect(sha(await readFile(`${there}/uploads/big.bin`))).toBe(sha(big));
    big.reverse();
    await writeFile(`${there}/outputs/big.bin`, big);
    await mirror.fetch(client);
    expect(sha(await readFile(`${here.outputs}/big.bin`))).toBe(sha(big));
    // One byte more stays where it is, on both sides, and is told of.
    await writeFile(`${there}/outputs/more.bin`, '');
    await truncate(`${there}/outputs/more.bin`, 100 * 1024 * 1024 + 1);
    expect((await mirror.fetch(client)).notices).toEqual([expect.stringContaining('/mnt/user-data/outputs/more.bin')]);
    expect(await readdir(here.outputs)).toEqual(['big.bin']);
    // Grown past it: the copy here is not taken for removed.
    await truncate(`${there}/outputs/big.bin`, 100 * 1024 * 1024 + 1);
    await mirror.fetch(client);
    await mirror.bring(client);
    expect([await readdir(here.outputs), (await stat(`${there}/outputs/big.bin`)).size]).toEqual([
      ['big.bin'],
      100 * 1024 * 1024 + 1,
    ]);
  });

  test('what a tool did while a command ran is not lost, and what both did is told', async () => {
    const { here, there, client, mirror, toolFiles } = await mirrorScene();
    await toolFiles.write('/mnt/user-data/workspace/both.txt', 'old');
    await toolFiles.write('/mnt/user-data/workspace/tool.txt', 'old');
    await mirror.bring(client);
    await toolFiles.write('/mnt/user-data/workspace/both.txt', 'of the tool');
    await toolFiles.write('/mnt/user-data/workspace/tool.txt', 'of the tool');
    await writeFile(`${there}/workspace/both.txt`, 'of the command');
    const { notices } = await mirror.fetch(client);
    expect(notices).toEqual([
      expect.stringMatching(/kept as the tool left it: \/mnt\/user-data\/workspace\/both\.txt$/),
    ]);
    expect(await readFile(`${here.workspace}/both.txt`, 'utf8')).toBe('of the tool');
    await mirror.bring(client);
    for (const name of ['both.txt', 'tool.txt'])
      expect(await readFile(`${there}/workspace/${name}`, 'utf8')).toBe('of the tool');
    expect((await mirror.fetch(client)).notices).toEqual([]);
  });

  test('uploads and skills come back to what they were, and are never taken from a sandbox', async () => {
    const { here, skills, there, client, mirror, files } = await mirrorScene();
    await files.write('/mnt/user-data/uploads/a', 'a');
    await writeFile(`${skills}/s`, 's');
    await mirror.bring(client);
    await writeFile(`${there}/uploads/a`, 'changed');
    await writeFile(`${there}/uploads/new`, 'new');
    await rm(`${there}/skills/s`);
    expect((await mirror.fetch(client)).notices).toEqual([]);
    expect([await readFile(`${here.uploads}/a`, 'utf8'), await readdir(here.uploads), await readdir(skills)]).toEqual([
      'a',
      ['a'],
      ['s'],
    ]);
    await mirror.bring(client);
    expect([
      await readFile(`${there}/uploads/a`, 'utf8'),
      await readdir(`${there}/uploads`),
      await readdir(`${there}/skills`),
    ]).toEqual(['a', ['a'], ['s']]);
  });

  test('links are carried and never followed; FIFOs block nobody', async () => {
    const { here, there, client, mirror, files } = await mirrorScene();
    const outside = await temporaryHome();
    await writeFile(`${outside}/secret`, 'of the host');
    await mirror.bring(client);
    await symlink(outside, `${there}/workspace/out`);
    await symlink(`${outside}/secret`, `${there}/outputs/secret`);
    await promisify(execFile)('mkfifo', [`${there}/workspace/fifo`]);
    const { notices } = await mirror.fetch(client);
    expect(notices).toEqual([expect.stringContaining('/mnt/user-data/workspace/fifo')]);
    expect((await lstat(`${here.outputs}/secret`)).isSymbolicLink()).toBe(true);
    await expect(files.read('/mnt/user-data/outputs/secret', { maxBytes: 100 })).rejects.toMatchObject({
      code: 'path_refused',
    });
    // Here the link leads out of the folder; a file below it that the sandbox invents goes nowhere.
    await rm(`${there}/workspace/out`);
    await mkdir(`${there}/workspace/out`);
    await writeFile(`${there}/workspace/out/planted`, 'x');
    await mirror.fetch(client);
    expect(await readdir(outside)).toEqual(['secret']);
    expect(await readFile(`${here.workspace}/out/planted`, 'utf8')).toBe('x');
  });

  test('more than the thread may have is not taken, at once or little by little, and nothing is lost by it', async () => {
    const { here, there, client, mirror } = await mirrorScene({ maxBytes: 1_000 });
    await mirror.bring(client);
    await writeFile(`${there}/outputs/a`, 'x'.repeat(600));
    await mirror.fetch(client);
    await writeFile(`${there}/outputs/b`, 'x'.repeat(401));
    await expect(mirror.fetch(client)).rejects.toMatchObject({ code: 'too_large' });
    expect(await readdir(here.outputs)).toEqual(['a']);
    await rm(`${there}/outputs/a`);
    await mirror.fetch(client);
    expect(await readdir(here.outputs)).toEqual(['b']);
  });

  test('a folder that is missing on one side is no reason to empty the other one', async () => {
    const { here, there, client, mirror, toolFiles } = await mirrorScene();
    await toolFiles.write('/mnt/user-data/workspace/a', 'a');
    await mirror.bring(client);
    await rename(`${there}/workspace`, `${there}/elsewhere`);
    expect((await mirror.fetch(client)).notices).toEqual([expect.stringContaining('missing')]);
    expect(await readdir(here.workspace)).toEqual(['a']);
    await rename(`${there}/elsewhere`, `${there}/workspace`);
    await rename(here.workspace, `${here.workspace}-away`);
    await mirror.bring(client);
    expect(await readdir(`${there}/workspace`)).toEqual(['a']);
  });

  test('a connection that breaks is made good by the next one', async () => {
    const { here, there, client, mirror, server, toolFiles } = await mirrorScene();
    await toolFiles.write('/mnt/user-data/workspace/a', 'a');
    await mirror.bring(client);
    await writeFile(`${there}/outputs/b`, randomBytes(4 * 1024 * 1024));
    await toolFiles.write('/mnt/user-data/workspace/c', 'c');
    const cut = (path: string) =>
      server.prependOnceListener('request', (request) => {
        if (request.url === path) request.socket.destroy();
      });
    cut('/v1/mirror/write');
    await expect(mirror.bring(client)).rejects.toThrow();
    await mirror.bring(client);
    expect(await readFile(`${there}/workspace/c`, 'utf8')).toBe('c');
    cut('/v1/mirror/list');
    await expect(mirror.fetch(client)).rejects.toThrow();
    expect(await mirror.fetch(client)).toEqual({ notices: [] });
    expect(sha(await readFile(`${here.outputs}/b`))).toBe(sha(await readFile(`${there}/outputs/b`)));
  });
});
