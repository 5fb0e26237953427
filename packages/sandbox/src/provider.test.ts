import { mkdir, readdir, rm } from 'node:fs/promises';
import type { ExecResult } from '@reindeer/protocol';
import { deferred, realSurroundings, verifies, withEventLoopGate } from '@reindeer/testkit';
import { expect, onTestFinished, test } from 'vitest';
import { createSandboxProvider } from './create.ts';
import type { CheckedRequest, Executor } from './executor.ts';
import { Matcher } from './files/matcher.ts';
import { makeThreadFolders } from './folders.ts';
import { PipePool } from './process/pipes.ts';
import { MAX_SANDBOXES, ThreadSandboxProvider, trashFolder } from './provider.ts';
import { DEFAULT_SANDBOX_SETTINGS, type SandboxSettings } from './settings.ts';
import { temporaryHome } from './test-support.ts';

const DONE: ExecResult = { output: 'done', exitCode: 0, ended: 'exit', truncatedBytes: 0, durationMs: 1 };

/** A provider over an executor of the test: `execute` and `prepare` can be held. */
async function setup(
  parts: { execute?: Executor['execute']; prepare?: () => Promise<void>; settings?: Partial<SandboxSettings> } = {},
) {
  const home = await temporaryHome();
  await mkdir(trashFolder(home), { recursive: true });
  const executor: Executor = {
    report: { provider: 'test', canExecute: true, network: 'none', limits: [] },
    pathStyle: 'virtual',
    prepare: async (paths) => {
      await parts.prepare?.();
      await makeThreadFolders(paths, null);
    },
    execute: parts.execute ?? (async () => DONE),
    close: async () => {},
  };
  const surroundings = realSurroundings();
  const provider = new ThreadSandboxProvider({
    executor,
    settings: { ...DEFAULT_SANDBOX_SETTINGS, ...parts.settings },
    home,
    surroundings,
    matcher: new Matcher(),
    pipes: new PipePool(`${home}/pipes`),
  });
  onTestFinished(() => provider.shutdown());
  return { provider, home, logger: surroundings.logger };
}

const ONE = { userId: 'default', threadId: 'one' };

/** Runs until its signal fires, as a command does; `started` says when it began. */
function longCommand() {
  const started = deferred<void>();
  const execute: Executor['execute'] = (_paths, _key, request) => {
    started.resolve();
    return untilAborted(request);
  };
  return { execute, started: started.promise };
}

function untilAborted(request: CheckedRequest): Promise<ExecResult> {
  return new Promise((resolve) => {
    request.signal.addEventListener('abort', () => resolve({ ...DONE, ended: 'aborted', exitCode: null }), {
      once: true,
    });
  });
}

test('one thread, one sandbox; other threads and users have others', async () => {
  const { provider } = await setup();
  const [first, again, other, foreign] = await Promise.all([
    provider.acquire(ONE),
    provider.acquire(ONE),
    provider.acquire({ ...ONE, threadId: 'two' }),
    provider.acquire({ ...ONE, userId: 'ada' }),
  ]);
  expect(again).toBe(first);
  expect(new Set([first.id, other.id, foreign.id]).size).toBe(3);
  expect(provider.get(first.id)).toBe(first);
  expect(provider.get('sandbox:nobody:none')).toBeUndefined();
  await other.files.write('x', 'of two');
  expect(await first.files.stat('x')).toBeNull();
});

test('knows at most 256 sandboxes and forgets the one unused for longest', verifies('SL-08'), async () => {
  const { provider } = await setup();
  const ids: string[] = [];
  for (let index = 0; index < MAX_SANDBOXES; index += 1)
    ids.push((await provider.acquire({ ...ONE, threadId: `t${index}` })).id);
  const [first = '', second = ''] = ids;
  expect(provider.get(first)).toBeDefined();
  await provider.acquire({ ...ONE, threadId: 'one-more' });
  expect(provider.get(first)).toBeDefined();
  expect(provider.get(second)).toBeUndefined();
});

test(
  'file work happens outside of other threads’ way, and is checked again after',
  verifies('SL-07', 'SQ-05', 'SQ-12'),
  async () => {
    const gate = deferred<void>();
    const entered = deferred<void>();
    let held = true;
    const prepare = () => {
      entered.resolve();
      return held ? gate.promise : Promise.resolve();
    };
    const { provider } = await setup({ prepare });
    const controller = new AbortController();
    const slow = provider.acquire({ ...ONE, signal: controller.signal });
    const waiting = provider.acquire(ONE);
    await entered.promise;
    held = false;
    expect((await provider.acquire({ ...ONE, threadId: 'two' })).id).toContain('two');
    controller.abort();
    gate.resolve();
    await expect(slow).rejects.toMatchObject({ code: 'aborted' });
    expect((await waiting).id).toContain('one');
  },
);

test('a shutdown during an acquire leaves no sandbox behind', verifies('SL-07'), async () => {
  const gate = deferred<void>();
  const entered = deferred<void>();
  const prepare = () => {
    entered.resolve();
    return gate.promise;
  };
  const { provider } = await setup({ prepare });
  const acquiring = expect(provider.acquire(ONE)).rejects.toMatchObject({ code: 'shutting_down' });
  await entered.promise;
  const closing = provider.shutdown();
  gate.resolve();
  await acquiring;
  await closing;
  expect(provider.get('sandbox:default:one')).toBeUndefined();
});

test('shutdown ends live commands, waits for them, refuses new ones, and may be called again', async () => {
  const { execute, started } = longCommand();
  const { provider } = await setup({ execute });
  const sandbox = await provider.acquire(ONE);
  const running = sandbox.exec({ command: 'sleep', timeoutMs: 1_000 });
  await started;
  await Promise.all([provider.shutdown(), provider.shutdown()]);
  expect(await running).toMatchObject({ ended: 'aborted' });
  await expect(sandbox.exec({ command: 'x', timeoutMs: 1_000 })).rejects.toMatchObject({ code: 'shutting_down' });
  await expect(provider.acquire(ONE)).rejects.toMatchObject({ code: 'shutting_down' });
});

test('release costs nothing and leaves a running command alone', async () => {
  const gate = deferred<ExecResult>();
  const { provider } = await setup({ execute: () => gate.promise });
  const sandbox = await provider.acquire(ONE);
  const running = sandbox.exec({ command: 'x', timeoutMs: 1_000 });
  await provider.release(sandbox.id);
  await provider.release('unknown');
  gate.resolve(DONE);
  expect(await running).toEqual(DONE);
});

test('removing a thread ends its commands and takes its files, and only its own', async () => {
  const { execute, started } = longCommand();
  const { provider, home } = await setup({ execute });
  const one = await provider.acquire(ONE);
  const two = await provider.acquire({ ...ONE, threadId: 'two' });
  await one.files.write('x', '1');
  await two.files.write('x', '2');
  const running = one.exec({ command: 'sleep', timeoutMs: 1_000 });
  await started;
  await provider.removeThread(ONE);
  expect(await running).toMatchObject({ ended: 'aborted' });
  expect(provider.get(one.id)).toBeUndefined();
  expect(await readdir(`${home}/users/default/threads`)).toEqual(['two']);
  // What still holds the sandbox makes nothing again.
  await expect(one.files.write('late', '1')).rejects.toThrow('was deleted');
  await expect(one.exec({ command: 'late', timeoutMs: 1_000 })).rejects.toThrow('was deleted');
  expect(await readdir(`${home}/users/default/threads`)).toEqual(['two']);
  expect(await readdir(trashFolder(home))).toEqual([]);
  await provider.removeThread(ONE);
  await provider.removeThread({ userId: 'never', threadId: 'seen' });
  const again = await provider.acquire(ONE);
  await again.files.write('x', '3');
  await expect(one.files.write('x', '1')).rejects.toThrow('was deleted');
  await provider.removeThread(ONE);
  expect(Buffer.from(await two.files.read('x', { maxBytes: 9 })).toString()).toBe('2');
});

test('folders that somebody else removed are made again', async () => {
  const { provider, home } = await setup();
  const sandbox = await provider.acquire(ONE);
  await rm(`${home}/users`, { recursive: true });
  await provider.acquire(ONE);
  await sandbox.files.write('x', '1');
});

test('more commands than allowed at once are refused', async () => {
  const gate = deferred<ExecResult>();
  const started = deferred<void>();
  const execute = () => {
    started.resolve();
    return gate.promise;
  };
  const { provider } = await setup({ execute, settings: { maxCommands: 1 } });
  const sandbox = await provider.acquire(ONE);
  const running = sandbox.exec({ command: 'x', timeoutMs: 1_000 });
  await started.promise;
  await expect(sandbox.exec({ command: 'x', timeoutMs: 1_000 })).rejects.toMatchObject({
    code: 'over_capacity',
    retryable: true,
  });
  gate.resolve(DONE);
  await running;
  expect(await sandbox.exec({ command: 'x', timeoutMs: 1_000 })).toEqual(DONE);
});

test('requests are checked before anything runs', verifies('SL-14'), async () => {
  const seen: CheckedRequest[] = [];
  const { provider } = await setup({
    execute: async (_paths, _key, request) => {
      seen.push(request);
      return DONE;
    },
    settings: { bashCommandTimeoutMs: 5_000 },
  });
  const { exec } = await provider.acquire(ONE).then((sandbox) => ({ exec: sandbox.exec.bind(sandbox) }));
  await expect(exec({ command: 'x', timeoutMs: 1, env: { 'A-B': '1' } })).rejects.toMatchObject({
    code: 'bad_request',
  });
  await expect(exec({ command: ' ', timeoutMs: 1 })).rejects.toMatchObject({ code: 'bad_request' });
  await expect(exec({ command: 'x', timeoutMs: 0 })).rejects.toMatchObject({ code: 'bad_request' });
  await expect(exec({ command: 'x', timeoutMs: 1, cwd: '/etc' })).rejects.toMatchObject({ code: 'path_refused' });
  await expect(exec({ command: 'x', timeoutMs: 1, cwd: 'none' })).rejects.toMatchObject({ code: 'not_found' });
  expect(await exec({ command: 'x', timeoutMs: 1, signal: AbortSignal.abort() })).toMatchObject({ ended: 'aborted' });
  expect(seen).toEqual([]);
  await exec({ command: 'x', timeoutMs: 1e9 });
  expect(seen[0]).toMatchObject({ timeoutMs: 5_000, cwd: { virtual: '/mnt/user-data/workspace' } });
});

test('acquire, file tools and release never block the event loop', verifies('SL-25'), async () => {
  const { provider } = await setup();
  await withEventLoopGate(async () => {
    const sandbox = await provider.acquire(ONE);
    await sandbox.files.write('a/b', 'x');
    await sandbox.files.read('a/b', { maxBytes: 10 });
    await sandbox.files.list('.', { depth: 2, limit: 10 });
    await sandbox.files.glob('*', '.', { includeDirectories: true, limit: 10 });
    await sandbox.files.remove('a');
    await sandbox.exec({ command: 'x', timeoutMs: 10 });
    await provider.release(sandbox.id);
    await provider.removeThread(ONE);
  });
});

test('the local provider runs nothing unless it was allowed; files work all the same', verifies('SL-15'), async () => {
  const home = await temporaryHome();
  const provider = await createSandboxProvider({
    settings: { use: 'local' },
    home,
    surroundings: realSurroundings(),
    environment: process.env,
  });
  onTestFinished(() => provider.shutdown());
  expect(provider.report()).toMatchObject({
    provider: 'files-only',
    canExecute: false,
    remedy: expect.stringContaining('allow_host_bash'),
  });
  const sandbox = await provider.acquire(ONE);
  expect(sandbox.canExecute).toBe(false);
  await expect(sandbox.exec({ command: 'id', timeoutMs: 1_000 })).rejects.toMatchObject({
    code: 'sandbox_unavailable',
    message: expect.stringContaining('allow_host_bash'),
  });
  await sandbox.files.write('x', 'works');
});

test('without bubblewrap only file tools remain, and the report tells how to change that', async () => {
  const home = await temporaryHome();
  const provider = await createSandboxProvider({
    home,
    surroundings: realSurroundings(),
    environment: { PATH: '/nowhere' },
  });
  onTestFinished(() => provider.shutdown());
  expect(provider.report()).toMatchObject({
    provider: 'files-only',
    canExecute: false,
    reason: expect.stringContaining('not installed'),
    remedy: expect.stringContaining('install bubblewrap'),
  });
});

test('settings that make no sense are refused by name', async () => {
  const home = await temporaryHome();
  const create = (settings: Partial<SandboxSettings>) =>
    createSandboxProvider({ settings, home, surroundings: realSurroundings(), environment: {} });
  await expect(create({ processes: 0 })).rejects.toMatchObject({
    code: 'configuration',
    message: expect.stringContaining('processes'),
  });
  const environment = create({ environment: { 'A B': 'secret-value' } });
  await expect(environment).rejects.toMatchObject({
    code: 'configuration',
    message: expect.stringMatching(/^sandbox: environment: "A B"/),
  });
  await expect(create({ memoryBytes: 1.5 })).rejects.toMatchObject({ code: 'configuration' });
  await expect(create({ outputBytes: 10, outputEndBytes: 5 })).rejects.toMatchObject({ code: 'configuration' });
});
