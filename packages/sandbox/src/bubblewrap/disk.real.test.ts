import { chmod, mkdir, truncate, writeFile } from 'node:fs/promises';
import { VirtualClock } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { temporaryHome } from '../test-support.ts';
import { DiskLedger, sizeOf } from './disk.ts';

const MIB = 1024 * 1024;

test('adds up what a folder takes on the disk, and says when a part of it was closed', async (context) => {
  const folder = await temporaryHome();
  if ((await sizeOf(folder)) === null) context.skip('no `du` here');
  await mkdir(`${folder}/a/b`, { recursive: true });
  await writeFile(`${folder}/a/b/x`, Buffer.alloc(3 * MIB, 1));
  await truncate(`${folder}/a/b/x`, 3 * MIB);
  const whole = await sizeOf(folder);
  expect(whole?.complete).toBe(true);
  expect(whole?.bytes).toBeGreaterThanOrEqual(3 * MIB);
  expect(whole?.bytes).toBeLessThan(4 * MIB);
  if (process.getuid?.() === 0) return;
  await chmod(`${folder}/a/b`, 0o000);
  expect((await sizeOf(folder))?.complete).toBe(false);
  await chmod(`${folder}/a/b`, 0o755);
});

test('what short commands wrote one after the other is seen before the next', async (context) => {
  const folder = await temporaryHome();
  if ((await sizeOf(folder)) === null) context.skip('no `du` here');
  const clock = new VirtualClock();
  let free = 1_000 * MIB;
  const ledger = new DiskLedger(clock, async () => free);
  const quota = 64 * MIB;
  expect(await ledger.isOver(folder, quota)).toBe(false);
  for (let turn = 0; turn < 8; turn += 1) {
    await writeFile(`${folder}/${turn}`, Buffer.alloc(10 * MIB, 1));
    free -= 10 * MIB;
    expect(await ledger.isOver(folder, quota)).toBe(turn >= 6);
  }
  // A thread that was over and cleaned up is free again at once.
  for (let turn = 0; turn < 4; turn += 1) await truncate(`${folder}/${turn}`, 0);
  expect(await ledger.isOver(folder, quota)).toBe(false);
});

test('a watch allows a thread over its quota to clean up, not to grow', async (context) => {
  const folder = await temporaryHome();
  if ((await sizeOf(folder)) === null) context.skip('no `du` here');
  const clock = new VirtualClock();
  let free = 1_000 * MIB;
  const ledger = new DiskLedger(clock, async () => free);
  const quota = 16 * MIB;
  await writeFile(`${folder}/before`, Buffer.alloc(24 * MIB, 1));
  const watch = ledger.watch(folder, quota);
  expect(await watch.exceeded(process.pid)).toBe(false);
  await writeFile(`${folder}/more`, Buffer.alloc(20 * MIB, 1));
  free -= 20 * MIB;
  expect(await watch.exceeded(process.pid)).toBe(true);
});
