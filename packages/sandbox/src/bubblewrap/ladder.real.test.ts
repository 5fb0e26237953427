import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import type { ExecResult } from '@reindeer/protocol';
import { realSurroundings } from '@reindeer/testkit';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { threadPaths } from '../folders.ts';
import { ProcessGuard } from '../process/guard.ts';
import { PipePool } from '../process/pipes.ts';
import { DEFAULT_SANDBOX_SETTINGS, type SandboxSettings } from '../settings.ts';
import { BubblewrapExecutor } from './executor.ts';
import { markOf } from './orphans.ts';
import { type BubblewrapFindings, type ProbeResult, probeBubblewrap } from './probe.ts';

/** The lower rungs: what holds where the machine offers less than this one may. */

const MIB = 1024 * 1024;
const SETTINGS: SandboxSettings = {
  ...DEFAULT_SANDBOX_SETTINGS,
  memoryBytes: 96 * MIB,
  processes: 40,
  diskBytes: 64 * MIB,
};
const BOMB = 'bomb() { bomb | bomb & bomb; }; bomb 2>/dev/null';
const HOG = 'text=0123456789abcdef; while :; do text=$text$text; done';

let home: string;
let pipes: PipePool;
let guard: ProcessGuard;
let probed: ProbeResult;

beforeAll(async () => {
  home = await mkdtemp(`${tmpdir()}/reindeer-ladder-`);
  pipes = new PipePool(`${home}/pipes`);
  guard = new ProcessGuard(realSurroundings());
  probed = await probeBubblewrap({
    settings: SETTINGS,
    surroundings: realSurroundings(),
    pipes,
    guard,
    folder: `${home}/probe`,
    hidden: [home],
    systemFolder: home,
    mark: markOf(home),
    searchPath: process.env.PATH ?? '',
  });
});

afterAll(async () => {
  await pipes.close();
  await guard.close();
  await rm(home, { recursive: true, force: true });
});

let findings: BubblewrapFindings;
beforeEach((context) => {
  if (!probed.ok) return context.skip(`no bubblewrap here: ${probed.reason}`);
  findings = probed.findings;
});

/** Runs one command with only some of what was found. */
async function runWith(less: Partial<BubblewrapFindings>, command: string): Promise<ExecResult> {
  const executor = new BubblewrapExecutor({ ...findings, ...less }, SETTINGS, realSurroundings(), pipes, guard, home);
  const key = { userId: 'default', threadId: less.identity?.kind ?? 'own' };
  const paths = threadPaths(home, key.userId, key.threadId);
  await executor.prepare(paths, key);
  return executor.execute(paths, key, {
    command,
    cwd: { virtual: '/mnt/user-data/workspace', real: paths.folders.workspace },
    env: {},
    timeoutMs: 30_000,
    signal: new AbortController().signal,
  });
}

function withoutGroups(): Partial<BubblewrapFindings> {
  return { cgroups: null, confirmed: { ...findings.confirmed, memoryGroup: false, processGroup: false } };
}

test('without control groups the watch from outside ends a memory hog', async (context) => {
  if (!findings.confirmed.watchdog) return context.skip('the processes of a sandbox cannot be seen from outside here');
  expect(await runWith(withoutGroups(), HOG)).toMatchObject({ ended: 'limit', limit: 'memory' });
});

test('without control groups a fork bomb stays within the private limit and is ended', async (context) => {
  if (!findings.confirmed.processUlimit) return context.skip('no private process limit here');
  expect(await runWith(withoutGroups(), BOMB)).toMatchObject({ ended: 'limit', limit: 'processes' });
  const counted = await runWith(
    withoutGroups(),
    'for n in $(seq 60); do sleep 5 & done 2>/tmp/refused & for ((n=0; n<200000; n++)); do [[ -s /tmp/refused ]] && break; done; set -- /proc/[0-9]*; echo $#',
  );
  expect(Number(counted.output.trim())).toBeLessThanOrEqual(SETTINGS.processes + 2);
});

test('with no process limit at all the watch from outside ends a command that starts too many', async (context) => {
  if (!findings.confirmed.watchdog) return context.skip('the processes of a sandbox cannot be seen from outside here');
  const less = withoutGroups();
  const confirmed = { ...findings.confirmed, ...less.confirmed, processUlimit: false };
  // Not a bomb: nothing but the watch holds here, and it would be too late for one. The report does not claim otherwise.
  const result = await runWith({ ...less, confirmed }, 'for n in $(seq 60); do sleep 20 & done; wait');
  expect(result).toMatchObject({ ended: 'limit', limit: 'processes' });
  const { report } = new BubblewrapExecutor(
    { ...findings, ...less, confirmed },
    SETTINGS,
    realSurroundings(),
    pipes,
    guard,
    home,
  );
  expect(report.limits.find((limit) => limit.name === 'processes')?.enforcedBy).toBeNull();
});

test('root falls back to a user namespace where it may not change its user id', async (context) => {
  if (process.getuid?.() !== 0) return context.skip('not root');
  const identity = { kind: 'user-namespace', disableNested: false } as const;
  const result = await runWith(
    { identity },
    'id -u; cat /etc/shadow; ls -d /root; grep CapEff /proc/self/status; echo x > /usr/x; echo y > /dev/y',
  );
  expect(result.output).toMatch(/^1000\n/);
  expect(result.output).toContain('CapEff:\t0000000000000000');
  expect(result.output.match(/No such file/g)?.length).toBe(2);
  expect(result.output.match(/Read-only file system/g)?.length).toBe(2);
});

test('a command makes no namespaces, mounts, keys or VM sockets', async (context) => {
  if (findings.filter === null) return context.skip('no filter for this processor');
  const python = [
    'import ctypes, os, socket',
    'libc = ctypes.CDLL(None, use_errno=True)',
    'def call(*words): return (libc.syscall(*words), ctypes.get_errno())',
    `numbers = ${JSON.stringify(process.arch === 'x64' ? { keyctl: 250, clone3: 435, unshare: 272, uring: 425 } : { keyctl: 219, clone3: 435, unshare: 97, uring: 425 })}`,
    'print("keyctl", call(numbers["keyctl"], 0, -3, 1))',
    'print("clone3", call(numbers["clone3"], 0, 0))',
    'print("uring", call(numbers["uring"], 1, 0))',
    'print("unshare", call(numbers["unshare"], 0x10000000))',
    'print("files", call(numbers["unshare"], 0x400))',
    'try: socket.socket(40, socket.SOCK_STREAM); print("vsock OPEN")',
    'except OSError as error: print("vsock", error.errno)',
  ].join('\n');
  const script = `unshare -Ur true 2>/dev/null && echo NESTED; unshare -n true 2>/dev/null && echo NESTED; command -v python3 >/dev/null || { echo no python; exit; }; python3 -c '${python}'`;
  const { output } = await runWith({}, script);
  expect(output).not.toMatch(/NESTED|OPEN/);
  if (output.includes('no python')) return;
  expect(output.trim().split('\n')).toEqual([
    'keyctl (-1, 1)',
    'clone3 (-1, 38)',
    'uring (-1, 38)',
    'unshare (-1, 1)',
    'files (0, 1)',
    'vsock 97',
  ]);
});

test('threads, pipes and local sockets work under the filter', async () => {
  const node =
    'const { Worker } = require("node:worker_threads"); new Worker("1", { eval: true }).on("exit", () => console.log("thread"));';
  const script = `(echo child) | cat; command -v node >/dev/null && node -e '${node}' || echo thread`;
  expect((await runWith({}, script)).output).toBe('child\nthread\n');
});
