import { spawn } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import type { Sandbox, SandboxProvider } from '@reindeer/protocol';
import { deferred, realClock, realSurroundings, verifies, withEventLoopGate } from '@reindeer/testkit';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { createSandboxProvider } from '../create.ts';
import { pollUntil, processStat } from '../process/signals.ts';
import type { SandboxSettings } from '../settings.ts';

const MIB = 1024 * 1024;
const SETTINGS: Partial<SandboxSettings> = {
  memoryBytes: 128 * MIB,
  processes: 40,
  diskBytes: 64 * MIB,
  outputBytes: MIB,
  outputEndBytes: 20 * MIB,
  bashCommandTimeoutMs: 60_000,
};

let home: string;
let provider: SandboxProvider;
let sandbox: Sandbox;

beforeAll(async () => {
  home = await mkdtemp(`${tmpdir()}/reindeer-bubblewrap-`);
  process.env.REINDEER_TEST_SECRET = 'gateway-secret';
  provider = await createSandboxProvider({
    settings: SETTINGS,
    home,
    surroundings: realSurroundings(),
    environment: process.env,
  });
});

beforeEach(async (context) => {
  const report = provider.report();
  if (!report.canExecute) context.skip(`no bubblewrap here: ${report.reason ?? ''} (${report.remedy ?? ''})`);
  sandbox = await provider.acquire({ userId: 'default', threadId: 'one' });
});

afterAll(async () => {
  await provider.shutdown();
  await rm(home, { recursive: true, force: true });
});

async function sh(
  command: string,
  options: { timeoutMs?: number; env?: Record<string, string>; signal?: AbortSignal } = {},
) {
  return sandbox.exec({ command, timeoutMs: 30_000, ...options });
}

async function out(command: string): Promise<string> {
  return (await sh(command)).output.trim();
}

/** Seconds that no other run of these tests on this machine sleeps. */
function nap(seconds: number): string {
  return `${seconds}.${process.pid}`;
}

/** Ids of all living processes on this machine that sleep for so many seconds. */
async function living(seconds: string): Promise<number[]> {
  const mark = `sleep\0${seconds}`;
  const found: number[] = [];
  for (const name of await readdir('/proc')) {
    const id = Number(name);
    if (!Number.isInteger(id) || id === process.pid) continue;
    const line = await readFile(`/proc/${id}/cmdline`, 'utf8').catch(() => '');
    const stat = await processStat(id);
    if (line.includes(mark) && stat !== null && stat.state !== 'Z') found.push(id);
  }
  return found;
}

test('runs in the workspace under a real path, without rights', verifies('ID-3'), async () => {
  await sandbox.files.write('notes/a.txt', 'hello');
  expect(await out('pwd; cat notes/a.txt; echo; cat /mnt/user-data/workspace/notes/a.txt')).toBe(
    '/mnt/user-data/workspace\nhello\nhello',
  );
  expect(await out('id -u; whoami')).not.toMatch(/^0\n/);
  const status = await out('cat /proc/self/status');
  for (const line of ['CapEff', 'CapPrm', 'CapInh', 'CapAmb']) expect(status).toContain(`${line}:\t0000000000000000`);
  expect(status).toContain('NoNewPrivs:\t1');
  await sh('echo made > /mnt/user-data/outputs/report.md; chmod 600 /mnt/user-data/outputs/report.md');
  expect(Buffer.from(await sandbox.files.read('/mnt/user-data/outputs/report.md', { maxBytes: 100 })).toString()).toBe(
    'made\n',
  );
  expect(await sh('exit 7')).toMatchObject({ ended: 'exit', exitCode: 7 });
  expect((await sandbox.exec({ command: 'pwd', cwd: 'notes', timeoutMs: 9_000 })).output).toBe(
    '/mnt/user-data/workspace/notes\n',
  );
});

test('what file tools write, commands can change, and the other way round', async () => {
  await sandbox.files.write('shared/x.sh', 'echo one\n');
  expect(await out('chmod +x shared/x.sh && echo "echo two" >> shared/x.sh && ./shared/x.sh && touch shared/y')).toBe(
    'one\ntwo',
  );
  await sandbox.files.write('shared/x.sh', 'echo three');
  expect(await out('./shared/x.sh')).toBe('three');
  await sandbox.files.write('shared/y', 'more', { append: true });
  expect(await out('cat shared/y; rm -r shared; ls')).not.toContain('shared');
});

test('uploads can be read, not changed', async () => {
  const upload = '/mnt/user-data/uploads/given/in.txt';
  await provider.files({ userId: 'default', threadId: 'one' }).write(upload, 'given');
  expect(
    await out(
      `cat ${upload}; echo; (echo x > ${upload}) 2>/dev/null || echo refused; rm -rf /mnt/user-data/uploads/given 2>/dev/null || echo refused`,
    ),
  ).toBe('given\nrefused\nrefused');
});

test('stdout and stderr keep their order, /dev/stderr can be opened, stdin is empty', verifies('SL-11'), async () => {
  expect((await sh('echo 1; echo 2 >&2; echo 3; echo 4 > /dev/stderr; echo 5 | tee /dev/stdout')).output).toBe(
    '1\n2\n3\n4\n5\n5\n',
  );
  expect(await sh('cat; read line || echo end', { timeoutMs: 10_000 })).toMatchObject({
    ended: 'exit',
    output: 'end\n',
  });
});

test('the host is out of reach: files, accounts, other threads', verifies('SL-01'), async () => {
  const other = await provider.acquire({ userId: 'default', threadId: 'two' });
  const foreign = await provider.acquire({ userId: 'ada', threadId: 'three' });
  await other.files.write('private.txt', 'of thread two');
  await foreign.files.write('private.txt', 'of another user');
  await writeFile(`${home}/config.yaml`, 'key: gateway-secret');
  for (const path of [
    '/etc/shadow',
    '/root',
    '/home',
    `${home}`,
    `${home}/config.yaml`,
    '/var/run',
    '/var/lib',
    '/sys',
    '/boot',
    '/opt',
    '/srv',
  ]) {
    expect(await out(`ls -d ${path} 2>&1 || true`), path).toContain('No such file');
  }
  expect(await out('find / -xdev -name private.txt 2>/dev/null; find / -name private.txt 2>/dev/null | head')).toBe('');
  expect(await out('grep -rs "of thread two" /mnt /tmp /run /var 2>/dev/null; cat /etc/passwd')).not.toMatch(
    /of thread two|of another user/,
  );
  expect(await out('cat /etc/passwd | wc -l')).toBe('3');
});

test('nothing outside the thread’s folders can be written', async () => {
  for (const path of [
    '/x',
    '/usr/x',
    '/etc/x',
    '/dev/x',
    '/mnt/x',
    '/run/x',
    '/mnt/user-data/x',
    '/mnt/user-data/uploads/x',
    '/proc/sys/kernel/hostname',
  ]) {
    expect(await out(`echo x 2>/dev/null > ${path} && echo WRITTEN || echo refused`), path).toBe('refused');
  }
  expect(
    await out('mount -t tmpfs none /mnt 2>&1 || echo refused; mount -o remount,rw /usr 2>&1 || echo refused'),
  ).toMatch(/refused[\s\S]*refused/);
  expect(await out('echo kept > /tmp/kept; echo shared > /dev/shm/x && echo ok')).toBe('ok');
  expect(await out('cat /tmp/kept')).toBe('kept');
});

test('the server’s environment, arguments and processes are invisible', verifies('SL-13'), async () => {
  const seen = await sh(
    'env; cat /proc/*/environ | tr "\\0" "\\n"; cat /proc/*/cmdline | tr "\\0" "\\n"; ls /proc | grep -c "^[0-9]"',
    {
      env: { MY_SKILL_KEY: 'given-on-purpose' },
    },
  );
  expect(seen.output).toContain('MY_SKILL_KEY=given-on-purpose');
  expect(seen.output).not.toMatch(/gateway-secret|REINDEER_TEST_SECRET|vitest/);
  expect(seen.output).not.toContain(home);
  expect(await out('ls -l /proc/self/fd')).not.toContain(home);
  expect(Number(await out('ls /proc | grep -c "^[0-9]"'))).toBeLessThan(10);
});

test('host paths do not show in mounts, descriptors or errors', verifies('SL-05'), async () => {
  const text = await out('cat /proc/self/mountinfo; ls -l /proc/self/fd /proc/self/cwd; cd /nowhere; readlink -f .');
  // The kernel lists the source of a bind mount by its path within the disk.
  const lines = text.split('\n').filter((line) => !/^\d+ \d+ /.test(line));
  expect(lines.join('\n')).not.toContain(home);
});

test('no network: neither the gateway’s port nor any socket', async () => {
  const hits: string[] = [];
  const server = createServer((request, response) => {
    hits.push(request.url ?? '');
    response.end('reached');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  try {
    expect(await out(`(exec 3<>/dev/tcp/127.0.0.1/${port}) 2>/dev/null && echo REACHED || echo refused`)).toBe(
      'refused',
    );
    expect(await out('(exec 3<>/dev/tcp/1.1.1.1/53) 2>/dev/null && echo REACHED || echo refused')).toBe('refused');
    expect(await out('find / -type s 2>/dev/null | head')).toBe('');
    expect(await out('tail -n +3 /proc/net/dev | cut -d: -f1')).toBe('lo');
    expect(await out('cat /proc/net/unix | tail -n +2 | wc -l')).toBe('0');
  } finally {
    server.close();
  }
  expect(hits).toEqual([]);
});

test('planted links, hard links and FIFOs neither fool nor hang file tools', verifies('SL-01'), async () => {
  await sh(
    'ln -s /etc/passwd link; ln -s / root-link; mkfifo f1 f2 f3 f4 f5; echo x > hard; ln hard hard2; ln -s ../../../../.. up; python3 -c "import socket; socket.socket(socket.AF_UNIX).bind(\'sock\')" || true',
  );
  const { files } = sandbox;
  for (const name of ['f1', 'f2', 'f3', 'f4', 'f5', 'link', 'root-link/etc/passwd', 'hard', 'up/etc/passwd', 'sock']) {
    if (name === 'sock' && (await files.stat('sock')) === null) continue;
    await expect(files.read(name, { maxBytes: 1_000 }), name).rejects.toMatchObject({ code: 'path_refused' });
    await expect(files.write(name, 'x', { append: true }), name).rejects.toMatchObject({ code: 'path_refused' });
    await expect(files.write(name, 'x'), name).rejects.toMatchObject({ code: 'path_refused' });
    await expect(files.openRead(name), name).rejects.toMatchObject({ code: 'path_refused' });
  }
  const grep = await files.grep('x', '.', { literal: true, caseSensitive: true, limit: 10 });
  expect(grep.matches).toEqual([]);
  expect(grep.filesSkipped).toBeGreaterThanOrEqual(10);
  expect((await files.stat('f1'))?.kind).toBe('special');
  await expect(readFile('/etc/hostname')).resolves.toBeDefined();
  await sh('rm -rf ./*');
});

test('a hostile command that swaps folders under file tools gains nothing', verifies('SL-01'), async () => {
  await sandbox.files.write('real/secret.txt', 'harmless');
  const controller = new AbortController();
  const started = deferred<void>();
  await symlink(home, `${home}/users/default/threads/one/user-data/workspace/fake`);
  await writeFile(`${home}/secret.txt`, 'the secret');
  const hostile = sandbox.exec({
    command:
      'echo started; while :; do mv -T real current; mv -T current real; mv -T fake current; mv -T current fake; done 2>/dev/null',
    timeoutMs: 30_000,
    signal: controller.signal,
    onOutput: () => started.resolve(),
  });
  await started.promise;
  const outcomes = new Set<string>();
  for (let turn = 0; turn < 200; turn += 1) {
    outcomes.add(
      await sandbox.files.read('current/secret.txt', { maxBytes: 100 }).then(
        (bytes) => Buffer.from(bytes).toString(),
        (error: { code: string }) => error.code,
      ),
    );
  }
  controller.abort();
  expect(await hostile).toMatchObject({ ended: 'aborted' });
  for (const outcome of outcomes) expect(['harmless', 'not_found', 'path_refused']).toContain(outcome);
  await sh('rm -rf ./*');
});

test('a timeout kills everything, returns the output so far, and nothing is left', verifies('SL-09'), async () => {
  const result = await sh(
    `echo before; (setsid sleep ${nap(4711)} &); trap "" TERM INT HUP; sleep ${nap(4711)} & sleep ${nap(4711)}`,
    {
      timeoutMs: 300,
    },
  );
  expect(result).toMatchObject({ ended: 'timeout', exitCode: null, output: 'before\n' });
  expect(result.durationMs).toBeLessThan(10_000);
  expect(await living(nap(4711))).toEqual([]);
});

test('an abort kills everything before the result is there', verifies('SL-09'), async () => {
  const controller = new AbortController();
  const started = deferred<void>();
  const running = sandbox.exec({
    command: `nohup setsid sleep ${nap(4712)} >/dev/null 2>&1 & echo started; sleep ${nap(4712)}`,
    timeoutMs: 30_000,
    signal: controller.signal,
    onOutput: () => started.resolve(),
  });
  await started.promise;
  // The shell prints before its commands have become what they are.
  await expect.poll(() => living(nap(4712)), { timeout: 10_000 }).not.toEqual([]);
  controller.abort();
  expect(await running).toMatchObject({ ended: 'aborted', output: 'started\n' });
  expect(await living(nap(4712))).toEqual([]);
});

test('a background process does not hold the call and ends with it', verifies('SL-10'), async () => {
  const result = await sh(`sleep ${nap(4713)} & (setsid sleep ${nap(4713)} &); echo done`, { timeoutMs: 20_000 });
  expect(result).toMatchObject({ ended: 'exit', exitCode: 0, output: 'done\n' });
  expect(result.durationMs).toBeLessThan(10_000);
  expect(await living(nap(4713))).toEqual([]);
});

test('output beyond the bound is dropped with a notice while the command goes on', verifies('SL-12'), async () => {
  const result = await sh('head -c 3000000 /dev/zero | tr "\\0" x; echo; echo the end; touch finished');
  expect(result).toMatchObject({ ended: 'exit', exitCode: 0 });
  expect(result.truncatedBytes).toBe(3_000_009 - MIB + 0);
  expect(result.output.endsWith('\nthe end\n')).toBe(true);
  expect(result.output).toContain(`[… ${result.truncatedBytes} bytes of output were dropped here …]`);
  expect(result.output.length).toBeLessThan(MIB + 200);
  expect(await out('ls finished; rm finished')).toBe('finished');
});

/** Runs a command while asking, as a health check would, how long the event loop is away. */
async function whileResponsive(command: string, timeoutMs = 30_000) {
  let worst = 0;
  let last = performance.now();
  const timer = setInterval(() => {
    worst = Math.max(worst, performance.now() - last);
    last = performance.now();
  }, 10);
  const result = await withEventLoopGate(() => sh(command, { timeoutMs }));
  clearInterval(timer);
  expect(worst).toBeLessThan(2_000);
  return result;
}

test('`yes` ends with its limit', async () => {
  expect(await whileResponsive('yes')).toMatchObject({ ended: 'limit', limit: 'output', exitCode: null });
});

test('a memory hog ends with its limit, in small pieces and in one process or many', async () => {
  expect(await whileResponsive('text=0123456789abcdef; while :; do text=$text$text; done')).toMatchObject({
    ended: 'limit',
    limit: 'memory',
  });
  const many = 'for n in 1 2 3 4 5 6 7 8; do (text=$(head -c 40000000 /dev/zero | tr "\\0" x); sleep 20) & done; wait';
  expect(await whileResponsive(many)).toMatchObject({ ended: 'limit', limit: 'memory' });
});

test('a fork bomb ends with its limit, and the sandbox works again at once', async () => {
  const before = performance.now();
  expect(await whileResponsive('bomb() { bomb | bomb & bomb; }; bomb 2>/dev/null')).toMatchObject({
    ended: 'limit',
    limit: 'processes',
  });
  expect(performance.now() - before).toBeLessThan(25_000);
  expect(await out('echo works')).toBe('works');
});

test('a 10 GiB write ends: one file by its size, many files by the space they take', async () => {
  const one = await whileResponsive('head -c 10G /dev/zero > big; echo "status $?"; stat -c %s big; rm big');
  expect(one.output).toMatch(/File size limit exceeded|status (153|1)\b/);
  expect(one.output).toContain(`\n${64 * MIB}\n`);
  const many = 'for n in $(seq 1000); do head -c 10M /dev/zero > big$n || break; done; sleep 20';
  expect(await whileResponsive(many)).toMatchObject({ ended: 'limit', limit: 'disk' });
  // Over its quota a thread can still clean up.
  expect(await out('rm -f big*; ls | wc -l')).toBe('0');
});

test('space held by deleted files counts too', async () => {
  const command = 'for n in 3 4 5 6 7 8; do eval "exec $n<>gone"; rm gone; head -c 30M /dev/zero >&$n; done; sleep 20';
  expect(await whileResponsive(command)).toMatchObject({ ended: 'limit', limit: 'disk' });
});

test('the death of the server takes its commands along', async () => {
  const program = `
    const { createSandboxProvider } = await import(${JSON.stringify(new URL('../create.ts', import.meta.url).href)});
    const quiet = () => {};
    const surroundings = {
      clock: {
        now: () => Date.now(),
        monotonic: () => performance.now(),
        sleep: (ms, signal) => new Promise((resolve, reject) => {
          const timer = setTimeout(resolve, ms);
          signal?.addEventListener('abort', () => { clearTimeout(timer); reject(signal.reason); });
        }),
      },
      random: { uuid: () => crypto.randomUUID(), next: Math.random },
      probe: { at: () => undefined },
      logger: { debug: quiet, info: quiet, warn: quiet, error: quiet },
    };
    const provider = await createSandboxProvider({ home: process.argv[1], surroundings, environment: process.env });
    const sandbox = await provider.acquire({ userId: 'default', threadId: 'dies' });
    await sandbox.exec({
      command: '(setsid sleep ${nap(4714)} &); echo started; sleep ${nap(4714)}',
      timeoutMs: 60000,
      onOutput: (text) => process.stdout.write(text),
    });`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', program, home], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  await new Promise<void>((resolve) => child.stdout.once('data', () => resolve()));
  expect((await living(nap(4714))).length).toBeGreaterThan(0);
  child.kill('SIGKILL');
  await ended;
  expect(await pollUntil(realClock, 10_000, async () => (await living(nap(4714))).length === 0)).toBe(true);
});

test('the report names only limits that were seen to hold', async () => {
  const { limits } = provider.report();
  const named = new Map(limits.map((limit) => [limit.name, limit.enforcedBy]));
  for (const name of ['identity', 'network', 'memory', 'processes', 'disk', 'file size', 'output', 'time']) {
    expect(named.get(name), name).toBeTruthy();
  }
});

test('with the host’s network a command reaches it, and the report says so', async () => {
  const open = await createSandboxProvider({
    settings: { ...SETTINGS, network: 'host' },
    home,
    surroundings: realSurroundings(),
    environment: process.env,
  });
  const server = createServer((_request, response) => response.end('reached'));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  try {
    expect(open.report()).toMatchObject({ network: 'host' });
    expect(open.report().limits.find((limit) => limit.name === 'network')?.enforcedBy).toBeNull();
    const reaching = await open.acquire({ userId: 'default', threadId: 'network' });
    const result = await reaching.exec({
      command: `(exec 3<>/dev/tcp/127.0.0.1/${port}) && echo reached; ls /etc/resolv.conf`,
      timeoutMs: 20_000,
    });
    expect(result.output).toContain('reached\n');
  } finally {
    server.close();
    await open.shutdown();
  }
});

test('a data folder below a mounted folder is covered', async (context) => {
  const inside = await mkdtemp('/usr/local/reindeer-test-').catch(() => null);
  if (inside === null) return context.skip('/usr/local cannot be written here');
  const covered = await createSandboxProvider({
    settings: SETTINGS,
    home: inside,
    surroundings: realSurroundings(),
    environment: process.env,
  });
  try {
    await writeFile(`${inside}/config.yaml`, 'secret');
    const [one, two] = await Promise.all(
      ['one', 'two'].map((threadId) => covered.acquire({ userId: 'default', threadId })),
    );
    await two?.files.write('private.txt', 'of thread two');
    const result = await one?.exec({
      command: `ls -A ${inside}; echo x > ${inside}/y || echo refused; ls -d /usr/local/bin; echo mine > own.txt`,
      timeoutMs: 20_000,
    });
    expect(result?.output).not.toMatch(/config|users|private/);
    expect(result?.output).toMatch(/refused\n\/usr\/local\/bin\n$/);
    expect(await one?.files.stat('own.txt')).toMatchObject({ kind: 'file' });
  } finally {
    await covered.shutdown();
    await rm(inside, { recursive: true, force: true });
  }
});
