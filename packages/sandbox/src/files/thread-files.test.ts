import { chmod, link, lstat, mkdir, readdir, readFile, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { type ErrorCode, ReindeerError } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { makeThreadFolders } from '../folders.ts';
import { type TestThread, temporaryThread } from '../test-support.ts';
import { Staging } from './staging.ts';

const WORKSPACE = '/mnt/user-data/workspace';

/** A thread with folders on disk, and a secret beside them that no path may reach. */
async function thread(): Promise<TestThread & { readonly workspace: string; readonly secret: string }> {
  const made = await temporaryThread();
  await makeThreadFolders(made.paths, null);
  const secret = `${made.home}/secret.txt`;
  await writeFile(secret, 'the secret');
  return { ...made, workspace: made.paths.folders.workspace, secret };
}

/** Expects a refusal that names the virtual path and no real one (SL-05). */
async function expectRefused(action: Promise<unknown>, home: string, ...codes: ErrorCode[]): Promise<void> {
  const error = await action.then(
    () => null,
    (reason: unknown) => reason,
  );
  if (!ReindeerError.is(error)) throw new Error(`expected a refusal, got ${String(error)}`);
  expect(codes.length === 0 ? ['path_refused'] : codes).toContain(error.code);
  expect(error.message).not.toContain(home);
  expect(JSON.stringify(error.detail ?? {})).not.toContain(home);
  expect(error.message).toContain('/mnt/user-data');
}

test('writes, reads, appends and replaces; parents appear by themselves', async () => {
  const { files, paths } = await thread();
  await files.write('a/b/c.txt', 'one');
  await files.write('a/b/c.txt', ' two', { append: true });
  expect(Buffer.from(await files.read(`${WORKSPACE}/a/b/c.txt`, { maxBytes: 100 })).toString()).toBe('one two');
  const info = await files.write('a/b/c.txt', 'new');
  expect(info).toMatchObject({ path: `${WORKSPACE}/a/b/c.txt`, kind: 'file', size: 3 });
  expect(await files.stat('a/b/c.txt')).toMatchObject({ size: 3 });
  expect(await files.stat('a/none')).toBeNull();
  expect(await readdir(paths.staging)).toEqual([]);
});

test('a replaced script stays executable', async () => {
  const { files, workspace } = await thread();
  await files.write('run.sh', 'echo 1');
  await chmod(`${workspace}/run.sh`, 0o755);
  await files.write('run.sh', 'echo 2');
  expect((await readFile(`${workspace}/run.sh`, 'utf8')).trim()).toBe('echo 2');
  expect((await stat(`${workspace}/run.sh`)).mode & 0o777).toBe(0o755);
});

test('bytes come back exactly as they were stored', verifies('SL-06'), async () => {
  const { files, paths } = await thread();
  const bytes = Buffer.from(`${paths.folders.workspace}/x and /mnt/user-data/workspace/x \xff\0`, 'latin1');
  await files.write('/mnt/user-data/uploads/raw.bin', bytes);
  expect(Buffer.from(await files.read('/mnt/user-data/uploads/raw.bin', { maxBytes: 1_000 })).equals(bytes)).toBe(true);
});

test('a read is bounded', async () => {
  const { files, home } = await thread();
  await files.write('big', 'x'.repeat(1_001));
  await expectRefused(files.read('big', { maxBytes: 1_000 }), home, 'too_large');
  expect((await files.read('big', { maxBytes: 1_001 })).length).toBe(1_001);
});

test('links are never followed: file, folder, parent, dangling', verifies('SL-01', 'SL-05'), async () => {
  const { files, home, workspace, secret } = await thread();
  await symlink(secret, `${workspace}/file-link`);
  await symlink(home, `${workspace}/folder-link`);
  await symlink(`${home}/made-through-a-link`, `${workspace}/dangling`);
  for (const path of ['file-link', 'folder-link/secret.txt']) {
    await expectRefused(files.read(path, { maxBytes: 1_000 }), home);
    await expectRefused(files.write(path, 'overwritten'), home);
    await expectRefused(files.write(path, 'overwritten', { append: true }), home);
    await expectRefused(files.openRead(path), home);
  }
  await expectRefused(files.write('dangling', 'x'), home);
  await expectRefused(files.write('dangling', 'x', { append: true }), home);
  await expectRefused(files.write('folder-link/new/deep.txt', 'x'), home);
  await expectRefused(files.list('folder-link', { depth: 1, limit: 10 }), home);
  await expectRefused(files.glob('*', 'folder-link', { includeDirectories: true, limit: 10 }), home);
  await expectRefused(files.remove('folder-link/secret.txt'), home);
  expect(await files.stat('file-link')).toMatchObject({ kind: 'link' });
  const listed = await files.list(WORKSPACE, { depth: 5, limit: 100 });
  expect(listed.entries.map((entry) => entry.kind)).toEqual(['link', 'link', 'link']);
  const found = await files.grep('secret', WORKSPACE, { literal: true, caseSensitive: true, limit: 10 });
  expect(found).toMatchObject({ matches: [], filesSkipped: 3 });
  expect(await readFile(secret, 'utf8')).toBe('the secret');
  expect(await readdir(home)).not.toContain('made-through-a-link');
});

test('a hard-linked file is refused', verifies('SL-01'), async () => {
  const { files, home, workspace, secret } = await thread();
  await link(secret, `${workspace}/hard`);
  await expectRefused(files.read('hard', { maxBytes: 1_000 }), home);
  await expectRefused(files.write('hard', 'x'), home);
  await expectRefused(files.write('hard', 'x', { append: true }), home);
  await expectRefused(files.openRead('hard'), home);
  expect(await readFile(secret, 'utf8')).toBe('the secret');
});

test('removing never reaches through a link', async () => {
  const { files, home, workspace, secret, paths } = await thread();
  await mkdir(`${workspace}/tree/inner`, { recursive: true });
  await symlink(home, `${workspace}/tree/inner/up`);
  await writeFile(`${workspace}/tree/inner/closed.txt`, '');
  await chmod(`${workspace}/tree/inner`, 0o000);
  expect(await files.remove('tree')).toBe(true);
  expect(await files.remove('tree')).toBe(false);
  await symlink(secret, `${workspace}/link`);
  expect(await files.remove('link')).toBe(true);
  expect(await readFile(secret, 'utf8')).toBe('the secret');
  expect(await readdir(workspace)).toEqual([]);
  expect(await readdir(paths.staging)).toEqual([]);
  await expectRefused(files.remove(WORKSPACE), home);
});

test('removes a tree that is deeper than the bound on open folders', async () => {
  const { files, workspace, paths } = await thread();
  await mkdir(`${workspace}/deep/${'d/'.repeat(200)}`, { recursive: true });
  expect(await files.remove('deep')).toBe(true);
  expect(await readdir(workspace)).toEqual([]);
  expect(await readdir(paths.staging)).toEqual([]);
});

test('a folder that is swapped for a link all the time never leads outside', verifies('SL-01'), async () => {
  const { files, home, workspace, secret } = await thread();
  await mkdir(`${workspace}/real`, { recursive: true });
  await writeFile(`${workspace}/real/secret.txt`, 'harmless');
  await symlink(home, `${workspace}/fake`);
  let swapping = true;
  const swapper = (async () => {
    while (swapping) {
      for (const name of ['real', 'fake']) {
        // A write may have made a folder of its own in the instant between; it goes away again.
        await rename(`${workspace}/${name}`, `${workspace}/current`).catch(() => {});
        await rename(`${workspace}/current`, `${workspace}/${name}`).catch(() => {});
      }
      const left = await lstat(`${workspace}/current`).catch(() => null);
      if (left?.isDirectory() === true) await rm(`${workspace}/current`, { recursive: true, force: true });
    }
  })();
  const outcomes = new Set<string>();
  for (let turn = 0; turn < 300; turn += 1) {
    const read = await files.read('current/secret.txt', { maxBytes: 100 }).then(
      (bytes) => Buffer.from(bytes).toString(),
      (error: unknown) => (ReindeerError.is(error) ? error.code : String(error)),
    );
    outcomes.add(read);
    await files.write(`current/made-${turn}`, 'x').catch((error: unknown) => {
      if (!ReindeerError.is(error)) throw error;
    });
  }
  swapping = false;
  await swapper;
  expect([...outcomes].filter((outcome) => !['harmless', 'not_found', 'path_refused'].includes(outcome))).toEqual([]);
  expect(await readFile(secret, 'utf8')).toBe('the secret');
  expect((await readdir(home)).sort()).toEqual(['secret.txt', 'users']);
});

test('a read-only folder refuses changes and says which', verifies('SL-04'), async () => {
  const { files, toolFiles, home } = await thread();
  const path = '/mnt/user-data/uploads/in.txt';
  await files.write(path, 'given');
  await expectRefused(toolFiles.write(path, 'x'), home, 'forbidden');
  await expectRefused(toolFiles.write(path, 'x', { append: true }), home, 'forbidden');
  await expectRefused(toolFiles.remove(path), home, 'forbidden');
  await expectRefused(
    toolFiles.writeStream(path, (async function* () {})(), { maxBytes: 1, overwrite: true }),
    home,
    'forbidden',
  );
  expect(Buffer.from(await toolFiles.read(path, { maxBytes: 10 })).toString()).toBe('given');
  await toolFiles.write('/mnt/user-data/outputs/out.txt', 'made');
});

test(
  'listing goes breadth first, within its bounds, and knows a missing folder from an empty one',
  verifies('SL-27'),
  async () => {
    const { files, home } = await thread();
    for (const path of ['b/two.txt', 'a/one.txt', 'a/deep/er/x.txt', 'node_modules/x.js']) await files.write(path, 'x');
    const paths = async (options: { depth: number; limit: number; ignore?: string[] }) => {
      const { entries, truncated } = await files.list('.', options);
      return [...entries.map((entry) => entry.path.slice(WORKSPACE.length + 1)), ...(truncated ? ['…'] : [])];
    };
    expect(await paths({ depth: 2, limit: 100, ignore: ['node_modules'] })).toEqual([
      'a',
      'b',
      'a/deep',
      'a/one.txt',
      'b/two.txt',
    ]);
    expect(await paths({ depth: 2, limit: 2, ignore: ['node_modules'] })).toEqual(['a', 'b', '…']);
    expect(await paths({ depth: 1, limit: 3 })).toEqual(['a', 'b', 'node_modules']);
    await expectRefused(files.list('missing', { depth: 1, limit: 10 }), home, 'not_found');
    expect((await files.list('/mnt/user-data', { depth: 1, limit: 10 })).entries.map((entry) => entry.path)).toEqual([
      '/mnt/user-data/outputs',
      '/mnt/user-data/uploads',
      '/mnt/user-data/workspace',
    ]);
  },
);

test('before anything was written a thread has empty folders and leaves none on disk', async () => {
  const { files, home } = await temporaryThread();
  expect(await files.list(WORKSPACE, { depth: 2, limit: 10 })).toEqual({ entries: [], truncated: false });
  expect(await files.glob('*', WORKSPACE, { includeDirectories: true, limit: 10 })).toEqual({
    paths: [],
    truncated: false,
  });
  expect(await files.stat('x')).toBeNull();
  expect(await files.stat(WORKSPACE)).toMatchObject({ kind: 'directory' });
  await expectRefused(files.read('x', { maxBytes: 1 }), home, 'not_found');
  await expectRefused(files.list('missing', { depth: 1, limit: 10 }), home, 'not_found');
  await expectRefused(files.glob('*', 'missing', { includeDirectories: true, limit: 10 }), home, 'not_found');
  expect(await readdir(home)).toEqual([]);
});

test('ranges of a download: exact bytes, and errors for what does not exist', async () => {
  const { files } = await thread();
  await files.write('data', '0123456789');
  const textOf = async (range?: { start: number; end: number }) =>
    new Response((await files.openRead('data', range)).stream).text();
  expect(await textOf()).toBe('0123456789');
  expect(await textOf({ start: 2, end: 5 })).toBe('234');
  expect(await textOf({ start: 8, end: 100 })).toBe('89');
  for (const range of [
    { start: 10, end: 12 },
    { start: -1, end: 3 },
    { start: 5, end: 5 },
  ]) {
    await expect(files.openRead('data', range)).rejects.toMatchObject({ code: 'range_not_satisfiable' });
  }
});

test('a stream is stored whole or not at all', async () => {
  const { files, paths, home } = await thread();
  async function* chunks(count: number, failing = false): AsyncGenerator<Uint8Array> {
    for (let index = 0; index < count; index += 1) yield Buffer.from('0123456789');
    if (failing) throw new ReindeerError('aborted', '/mnt/user-data: the sender went away');
  }
  const path = '/mnt/user-data/uploads/file.bin';
  await expectRefused(files.writeStream(path, chunks(11), { maxBytes: 100, overwrite: false }), home, 'too_large');
  await expectRefused(files.writeStream(path, chunks(5, true), { maxBytes: 100, overwrite: false }), home, 'aborted');
  expect(await readdir(paths.folders.uploads)).toEqual([]);
  expect(await readdir(paths.staging)).toEqual([]);
  expect(await files.writeStream(path, chunks(10), { maxBytes: 100, overwrite: false })).toMatchObject({ size: 100 });
  await expectRefused(files.writeStream(path, chunks(1), { maxBytes: 100, overwrite: false }), home, 'conflict');
  expect(await files.writeStream(path, chunks(1), { maxBytes: 100, overwrite: true })).toMatchObject({ size: 10 });
});

test('of two uploads of one new name exactly one wins', async () => {
  const { files } = await thread();
  async function* body(text: string): AsyncGenerator<Uint8Array> {
    yield Buffer.from(text);
  }
  const both = await Promise.allSettled(
    ['one', 'two'].map((text) =>
      files.writeStream('/mnt/user-data/uploads/x', body(text), { maxBytes: 10, overwrite: false }),
    ),
  );
  expect(both.map((result) => result.status).sort()).toEqual(['fulfilled', 'rejected']);
});

test('leftovers of a crash in the staging folder are swept', async () => {
  const { paths } = await thread();
  await writeFile(`${paths.staging}/left`, 'x');
  await mkdir(`${paths.staging}/tree/deep`, { recursive: true });
  const staging = new Staging(paths.staging, { uuid: () => 'unused', next: () => 0 });
  await staging.sweep(Date.now(), 60_000);
  expect((await readdir(paths.staging)).length).toBe(2);
  await staging.sweep(Date.now() + 120_000, 60_000);
  expect(await readdir(paths.staging)).toEqual([]);
});

test('a path through a file is refused, a folder is not a file', async () => {
  const { files, home } = await thread();
  await files.write('plain', 'x');
  await expectRefused(files.write('plain/below', 'x'), home);
  await expectRefused(files.read('plain/below', { maxBytes: 1 }), home);
  await files.write('folder/x', 'x');
  await expectRefused(files.read('folder', { maxBytes: 1 }), home);
  await expectRefused(files.write('folder', 'x'), home);
  await rm(`${home}/secret.txt`);
});
