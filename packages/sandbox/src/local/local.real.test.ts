import { mkdir, mkdtemp, readdir, readFile, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Sandbox, SandboxProvider } from '@reindeer/protocol';
import { deferred, processesThatShow, realSurroundings, verifies, withEventLoopGate } from '@reindeer/testkit';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { createSandboxProvider } from '../create.ts';
import { skillFolders } from '../folders.ts';
import { processStat } from '../process/signals.ts';

const MIB = 1024 * 1024;
let home: string;
let provider: SandboxProvider;
let sandbox: Sandbox;

beforeAll(async () => {
  home = await mkdtemp(`${tmpdir()}/reindeer-local-`);
  provider = await createSandboxProvider({
    settings: {
      use: 'local',
      allowHostBash: true,
      outputEndBytes: 40 * MIB,
      environment: { CONFIGURED: 'by the operator' },
    },
    home,
    surroundings: realSurroundings(),
    environment: {
      ...process.env,
      OPENAI_API_KEY: 'host-secret',
      DATABASE_URL: 'postgres://host-secret',
      PLAIN: 'visible',
    },
  });
});

beforeEach(async (context) => {
  if (process.platform === 'win32') context.skip('no bash here');
  sandbox = await provider.acquire({ userId: 'default', threadId: 'one' });
});

afterAll(async () => {
  await provider.shutdown();
  await rm(home, { recursive: true, force: true });
});

function sh(command: string, timeoutMs = 20_000, env: Record<string, string> = {}) {
  return sandbox.exec({ command, timeoutMs, env });
}

/** Seconds that no other run of these tests on this machine sleeps. */
function nap(seconds: number): string {
  return `${seconds}.${process.pid}`;
}

/** Ids of living processes that sleep for so many seconds. */
async function living(seconds: string): Promise<number[]> {
  const mark = `sleep\0${seconds}`;
  const found: number[] = [];
  for (const name of await readdir('/proc')) {
    const line = await readFile(`/proc/${name}/cmdline`, 'utf8').catch(() => '');
    if (!line.includes(mark)) continue;
    const stat = await processStat(Number(name));
    if (stat !== null && stat.state !== 'Z') found.push(Number(name));
  }
  return found;
}

test('runs in the working folder with relative paths; the report claims nothing', async () => {
  expect(sandbox.pathStyle).toBe('relative');
  await sandbox.files.write('a.txt', 'hello');
  expect(await sh('cat a.txt; pwd')).toMatchObject({
    ended: 'exit',
    exitCode: 0,
    output: `hello${await realpath(home)}/users/default/threads/one/user-data/workspace\n`,
  });
  expect(await sh('exit 3')).toMatchObject({ exitCode: 3 });
  const report = provider.report();
  expect(report).toMatchObject({ provider: 'local', canExecute: true, network: 'host' });
  for (const name of ['files', 'memory', 'processes', 'disk']) {
    expect(report.limits.find((limit) => limit.name === name)?.enforcedBy).toBeNull();
  }
});

test('secrets of the host are absent, what was added on purpose is there', verifies('SL-13'), async () => {
  const { output } = await sh('env', 20_000, { MY_TOKEN: 'given' });
  expect(output).not.toContain('host-secret');
  for (const line of ['PLAIN=visible', 'MY_TOKEN=given', 'CONFIGURED=by the operator']) expect(output).toContain(line);
});

test('what a command gets as a variable shows in no process’s arguments', verifies('SK-8'), async () => {
  const value = `value-${crypto.randomUUID()}`;
  const started = deferred<string>();
  const running = sandbox.exec({
    command: 'printf %s "$GIVEN" | wc -c; until [ -e seen ]; do sleep 0.02; done; rm seen',
    timeoutMs: 20_000,
    env: { GIVEN: value },
    onOutput: (text) => started.resolve(text),
  });
  expect(await started.promise).toBe(`${value.length}\n`);
  expect(await processesThatShow(value)).toEqual([]);
  await sandbox.files.write('seen', '');
  await running;
});

test('commands find the user’s skills, and file tools the same ones', verifies('SK-3'), async () => {
  const { view } = skillFolders(home, 'default');
  await mkdir(join(view, 'public/greet/scripts'), { recursive: true });
  await writeFile(join(view, 'public/greet/scripts/hi.sh'), 'echo "hi from $(basename "$(dirname "$0")")"\n');
  expect((await sh('bash "$SKILLS/public/greet/scripts/hi.sh"')).output).toBe('hi from scripts\n');
  const bytes = await sandbox.files.read('/mnt/skills/public/greet/scripts/hi.sh', { maxBytes: 100 });
  expect(Buffer.from(bytes).toString()).toContain('hi from');
});

test('stdin is empty and streams keep their order', verifies('SL-11'), async () => {
  expect((await sh('cat; echo 1; echo 2 >&2; echo 3 > /dev/stderr; echo 4')).output).toBe('1\n2\n3\n4\n');
});

test('a timeout kills the whole process group and returns the output so far', verifies('SL-09'), async () => {
  const result = await sh(`echo before; trap "" TERM; sleep ${nap(4721)} & sleep ${nap(4721)}`, 300);
  expect(result).toMatchObject({ ended: 'timeout', exitCode: null, output: 'before\n' });
  expect(await living(nap(4721))).toEqual([]);
});

test('an abort kills the whole process group', async () => {
  const controller = new AbortController();
  const started = deferred<void>();
  const running = sandbox.exec({
    command: `echo started; sleep ${nap(4722)} & wait`,
    timeoutMs: 20_000,
    signal: controller.signal,
    onOutput: () => started.resolve(),
  });
  await started.promise;
  controller.abort();
  expect(await running).toMatchObject({ ended: 'aborted', output: 'started\n' });
  expect(await living(nap(4722))).toEqual([]);
});

test('a background process does not hold the call, not even one that left its group', verifies('SL-10'), async () => {
  const result = await sh(`sleep ${nap(4723)} & setsid sleep 2 & echo done`);
  expect(result).toMatchObject({ ended: 'exit', exitCode: 0, output: 'done\n' });
  expect(result.durationMs).toBeLessThan(1_900);
  expect(await living(nap(4723))).toEqual([]);
  expect((await sh('echo next')).output).toBe('next\n');
});

test(
  'output beyond 10 MiB is dropped with a notice while the command goes on',
  verifies('SL-12', 'SL-25'),
  async () => {
    const result = await withEventLoopGate(() => sh('head -c 12000000 /dev/zero | tr "\\0" x; echo; echo the end'));
    expect(result).toMatchObject({ ended: 'exit', exitCode: 0, truncatedBytes: 12_000_009 - 10 * MIB });
    expect(result.output.endsWith('\nthe end\n')).toBe(true);
    expect(await sh('yes')).toMatchObject({ ended: 'limit', limit: 'output' });
  },
);
