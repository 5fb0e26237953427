import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { LogRecorder, realSurroundings, verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ProcessGuard } from './guard.ts';
import { pollUntil, processStat } from './signals.ts';

let folder: string;
beforeEach(async (context) => {
  if (process.platform !== 'linux') context.skip('no /proc here');
  folder = await mkdtemp(`${tmpdir()}/reindeer-guard-`);
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const { clock, random } = realSurroundings();
const alive = async (id: number): Promise<boolean> => {
  const stat = await processStat(id);
  return stat !== null && stat.state !== 'Z' && stat.state !== 'X';
};
const gone = (ids: readonly number[]): Promise<boolean> =>
  pollUntil(clock, 10_000, async () => !(await Promise.all(ids.map(alive))).includes(true));

/** A server that ends for nothing short of SIGKILL, with a child in its group, one outside of it, and one without any variable. */
const STUBBORN = `
trap '' HUP INT TERM; exec <&-
sleep 600 & echo $! > child
setsid sleep 600 & echo $! > escaped
env -i /bin/sleep 600 & echo $! > bare
echo $$ > leader; while :; do sleep 600; done`;

/** A process of ours with a guard, which starts the stubborn one; `held`: is the watcher told of it? */
const owner = (held: boolean): string => `
import { spawn } from 'node:child_process';
import { ProcessGuard } from ${JSON.stringify(new URL('./guard.ts', import.meta.url).pathname)};
const logger = { debug() {}, info() {}, warn() {}, error() {} };
const guard = new ProcessGuard({ random: { uuid: () => crypto.randomUUID() }, logger });
const env = { PATH: process.env.PATH, ...guard.environment() };
const child = spawn('/bin/sh', ['-c', ${JSON.stringify(STUBBORN)}], { cwd: ${JSON.stringify(folder)}, env, detached: true, stdio: 'pipe' });
${held ? 'guard.hold(child.pid);' : ''}
setInterval(() => {}, 1000);`;

async function startOwner(held: boolean) {
  const process_ = spawn(process.execPath, ['--input-type=module', '-e', owner(held)], { stdio: 'ignore' });
  const ids: Record<string, number> = {};
  const names = ['child', 'escaped', 'bare', 'leader'];
  await pollUntil(clock, 20_000, async () => {
    for (const name of names) ids[name] = Number(await readFile(`${folder}/${name}`, 'utf8').catch(() => 0));
    return names.every((name) => ids[name] !== 0);
  });
  return { kill: () => process_.kill('SIGKILL') && once(process_, 'exit'), ids };
}

test('what was started ends with a kill -9, what left its group too', verifies('MC-12', 'GW-26'), async () => {
  const { kill, ids } = await startOwner(true);
  expect(await Promise.all(Object.values(ids).map(alive))).toEqual([true, true, true, true]);
  await kill();
  expect(await gone(Object.values(ids))).toBe(true);
});

test('killed before the watcher was told of a process, it is found by its mark', verifies('MC-12'), async () => {
  const { kill, ids } = await startOwner(false);
  await kill();
  const { bare = 0, ...marked } = ids;
  expect(await gone(Object.values(marked))).toBe(true);
  process.kill(bare, 'SIGKILL');
});

test('a group that was let go is left alone; a watcher that was killed is replaced and told again', async () => {
  const logger = new LogRecorder();
  const guard = new ProcessGuard({ random, logger });
  const start = () => spawn('/bin/sleep', ['600'], { detached: true, stdio: 'ignore', env: {} });
  const [kept, freed, late] = [start(), start(), start()];
  guard.hold(kept.pid);
  const release = guard.hold(freed.pid);
  release();
  release();
  process.kill(guard.watcher ?? 0, 'SIGKILL');
  await pollUntil(clock, 5_000, async () => logger.lines.length > 0);
  guard.hold(late.pid);
  await guard.close();
  await guard.close();
  expect(await gone([kept.pid ?? 0, late.pid ?? 0])).toBe(true);
  expect(await alive(freed.pid ?? 0)).toBe(true);
  freed.kill('SIGKILL');
  expect(logger.lines).toHaveLength(1);
});
