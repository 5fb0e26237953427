import { symlink, truncate, utimes, writeFile } from 'node:fs/promises';
import { realSurroundings, verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { type TestThread, temporaryThread } from '../test-support.ts';
import { patchOf } from './patch.ts';
import { WorkspaceChangeWatch, type WorkspaceLimits } from './watch.ts';

const THREAD = { userId: 'default', threadId: 'thread-1' };
const OUT = '/mnt/user-data/outputs';
const WORK = '/mnt/user-data/workspace';

const watchOf = ({ files }: TestThread, limits: Partial<WorkspaceLimits> = {}) =>
  new WorkspaceChangeWatch({ files: () => files, logger: realSurroundings().logger, limits });

describe('what a run changed', () => {
  test('created, modified and deleted files with their differences; others stay out', verifies('FILE-4'), async () => {
    const thread = await temporaryThread();
    const { files } = thread;
    const watch = watchOf(thread);
    await files.write(`${WORK}/same.txt`, 'same\n');
    await files.write(`${WORK}/note.txt`, 'one\ntwo\nthree\n');
    await files.write(`${OUT}/old.md`, 'gone\n');
    await files.write(`${WORK}/.env`, 'KEY=before\n');
    const before = await watch.snapshot(THREAD);
    await files.write(`${WORK}/note.txt`, 'one\n2\nthree\nfour\n');
    await files.remove(`${OUT}/old.md`);
    await files.write(`${OUT}/new.md`, '# New\ntext');
    await files.write(`${WORK}/.env`, 'KEY=after-and-secret\n');
    await files.write(`${WORK}/image.bin`, new Uint8Array([1, 0, 2]));
    await files.write(`${WORK}/node_modules/a/index.js`, 'x');
    await files.write(`${WORK}/.tool-results/r.txt`, 'x');
    await symlink('/etc/passwd', `${thread.paths.userData}/workspace/link`);
    const { summary, files: changes } = await watch.changes(THREAD, before);
    expect(Object.fromEntries(changes.map((change) => [change.path, change.status]))).toEqual({
      [`${OUT}/new.md`]: 'created',
      [`${OUT}/old.md`]: 'deleted',
      [`${WORK}/.env`]: 'modified',
      [`${WORK}/image.bin`]: 'created',
      [`${WORK}/link`]: 'symlink_created',
      [`${WORK}/note.txt`]: 'modified',
    });
    const of = (path: string) => changes.find((change) => change.path === path);
    expect(of(`${WORK}/note.txt`)).toMatchObject({ additions: 2, deletions: 1, root: 'workspace' });
    expect(of(`${WORK}/note.txt`)?.diff).toBe('@@ -1,3 +1,4 @@\n one\n-two\n+2\n three\n+four\n');
    expect(of(`${OUT}/new.md`)?.diff).toBe('@@ -0,0 +1,2 @@\n+# New\n+text\n\\ No newline at end of file\n');
    expect(of(`${OUT}/old.md`)).toMatchObject({ deletions: 1, diff: '@@ -1,1 +0,0 @@\n-gone\n' });
    expect(of(`${WORK}/.env`)).toMatchObject({ sensitive: true, diff: null, sha256_after: null });
    expect(of(`${WORK}/image.bin`)).toMatchObject({ binary: true, diff: null, diff_unavailable_reason: 'binary' });
    expect(of(`${WORK}/link`)).toMatchObject({ symlink: true, diff: null, diff_unavailable_reason: 'symlink' });
    expect(JSON.stringify(changes)).not.toContain('secret');
    expect(summary).toMatchObject({ created: 2, modified: 2, deleted: 1, symlink_created: 1, truncated: false });
  });

  test(
    'a snapshot survives its process; only the content of before is not known then',
    verifies('FILE-4'),
    async () => {
      const thread = await temporaryThread();
      await thread.files.write(`${OUT}/report.md`, 'first\n');
      const before = JSON.parse(JSON.stringify(await watchOf(thread).snapshot(THREAD)));
      await thread.files.write(`${OUT}/report.md`, 'second version\n');
      await thread.files.write(`${OUT}/more.md`, 'more\n');
      const { files } = await watchOf(thread).changes(THREAD, before);
      expect(files.map(({ path, status, diff_unavailable_reason: reason }) => [path, status, reason])).toEqual([
        [`${OUT}/more.md`, 'created', null],
        [`${OUT}/report.md`, 'modified', 'unavailable'],
      ]);
    },
  );

  test('a file that was written anew with what it held is no change', async () => {
    const thread = await temporaryThread();
    const watch = watchOf(thread);
    await thread.files.write(`${OUT}/a.md`, 'same\n');
    const before = await watch.snapshot(THREAD);
    await thread.files.write(`${OUT}/a.md`, 'same\n');
    await utimes(`${thread.paths.userData}/outputs/a.md`, 1, 1);
    expect((await watch.changes(THREAD, before)).files).toEqual([]);
  });

  test(
    'limits: files scanned and reported, bytes of a text, characters of all differences',
    verifies('FILE-4'),
    async () => {
      const thread = await temporaryThread();
      const watch = watchOf(thread, { scanned: 8, reported: 3, textBytes: 100, diffCharacters: 80 });
      const before = await watch.snapshot(THREAD);
      for (let n = 0; n < 12; n += 1) await thread.files.write(`${WORK}/w${n}.txt`, 'x\n');
      await thread.files.write(`${OUT}/a.txt`, `${'line\n'.repeat(8)}`);
      await thread.files.write(`${OUT}/b.txt`, `${'line\n'.repeat(8)}`);
      await writeFile(`${thread.paths.userData}/outputs/c.txt`, '');
      await truncate(`${thread.paths.userData}/outputs/c.txt`, 5_000_000);
      const { files, summary } = await watch.changes(THREAD, before);
      expect(summary).toMatchObject({ truncated: true, created: 3 });
      expect(files.map((change) => [change.path, change.diff_unavailable_reason])).toEqual([
        [`${OUT}/a.txt`, null],
        [`${OUT}/b.txt`, 'truncated'],
        [`${OUT}/c.txt`, 'large'],
      ]);
    },
  );

  test('texts that differ in everything do not hold up the loop for long', async () => {
    const text = (seed: number) => Array.from({ length: 6_000 }, (_, n) => `${seed}-${(n * 7_919) % 6_007}`).join('\n');
    let beats = 0;
    const timer = setInterval(() => {
      beats += 1;
    }, 1);
    const started = performance.now();
    await patchOf(text(1), text(2));
    clearInterval(timer);
    // It yields between steps: timers go on while it searches.
    expect(beats).toBeGreaterThan((performance.now() - started) / 400);
  });

  test('UTF-16 texts are compared as texts', async () => {
    const thread = await temporaryThread();
    const watch = watchOf(thread);
    const before = await watch.snapshot(THREAD);
    await thread.files.write(`${OUT}/u.txt`, new Uint8Array([0xff, 0xfe, 0x41, 0x00, 0x0a, 0x00]));
    const [change] = (await watch.changes(THREAD, before)).files;
    expect(change).toMatchObject({ binary: false, additions: 1 });
    expect(change?.diff).toContain('+A');
  });
});
