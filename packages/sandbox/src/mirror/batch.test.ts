import { expect, test } from 'vitest';
import type { Directory } from '../files/directory.ts';
import { FolderBatch } from './batch.ts';
import { Beside } from './beside.ts';
import { packed, piecesOf } from './frames.ts';

function folders() {
  const opened: string[] = [];
  const closed: string[] = [];
  const open = (key: string) => async () => {
    opened.push(key);
    await new Promise((resolve) => setImmediate(resolve));
    return { key, close: async () => void closed.push(key) } as unknown as Directory & { readonly key: string };
  };
  return { opened, closed, open };
}

test('each use gets the folder that it names, opened once in a row, and every folder is closed once', async () => {
  const { opened, closed, open } = folders();
  const batch = new FolderBatch();
  const names = ['a', 'a', 'b', 'a', 'b', 'b', 'c', 'a'];
  const got = await Promise.all(
    names.map((name) =>
      batch.use(name, open(name), async (folder) => {
        await new Promise((resolve) => setImmediate(resolve));
        expect(closed.filter((one) => one === name).length).toBeLessThan(opened.filter((one) => one === name).length);
        return (folder as Directory & { readonly key: string }).key;
      }),
    ),
  );
  await batch.close();
  await batch.close();
  expect(got).toEqual(names);
  expect(opened).toEqual(['a', 'b', 'a', 'b', 'c', 'a']);
  expect(closed.toSorted()).toEqual(opened.toSorted());
});

test('a folder that cannot be opened, or fails, is opened anew by the next', async () => {
  const { opened, closed, open } = folders();
  const batch = new FolderBatch();
  const gone = () => Promise.reject(new Error('gone'));
  await expect(batch.use('a', gone, async () => 1)).rejects.toThrow('gone');
  expect(await batch.use('a', open('a'), async () => 2)).toBe(2);
  await expect(batch.use('a', open('a'), () => Promise.reject(new Error('no')))).rejects.toThrow('no');
  expect(closed).toEqual(['a']);
  expect(await batch.use('a', open('a'), async () => 3)).toBe(3);
  await batch.close();
  expect([opened.length, closed.length]).toEqual([2, 2]);
});

test('frames of a few bytes go together, and lose none', async () => {
  const frames = Array.from({ length: 50_000 }, (_, n) => Buffer.from(`${n};`));
  const packs: Buffer[] = [];
  for await (const pack of packed(piecesOf(frames))) packs.push(pack);
  expect(Buffer.concat(packs).equals(Buffer.concat(frames))).toBe(true);
  expect(packs.length).toBeLessThan(6);
  expect(Math.max(...packs.map((pack) => pack.length))).toBeLessThan(70_000);
});

test('so much at once and no more; the first failure is told, and nothing goes on behind the end', async () => {
  const beside = new Beside(2);
  let running = 0;
  let most = 0;
  let done = 0;
  const work = async () => {
    running += 1;
    most = Math.max(most, running);
    await new Promise((resolve) => setImmediate(resolve));
    running -= 1;
    done += 1;
  };
  for (let n = 0; n < 5; n += 1) await beside.add(work);
  await beside.end();
  expect([most, done]).toEqual([2, 5]);
  await beside.add(() => Promise.reject(new Error('first')));
  await beside.add(work).catch(() => {});
  await expect(beside.end()).rejects.toThrow('first');
  await expect(beside.add(work)).rejects.toThrow('first');
  expect(running).toBe(0);
});
