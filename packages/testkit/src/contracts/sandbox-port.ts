import { randomBytes } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import type { ExecResult, Sandbox, SandboxFiles } from '@reindeer/protocol';
import { beforeEach, describe, expect, test } from 'vitest';
import { deferred } from '../deferred.ts';
import { processesThatShow } from '../parts/arguments.ts';
import { waitUntil } from '../parts/processes.ts';
import { verifies } from '../verifies.ts';

const MIB = 1024 * 1024;

/** The limits under which a provider is judged; whoever runs the suite sets them. */
export const SANDBOX_CONTRACT_LIMITS = {
  memoryBytes: 128 * MIB,
  processes: 64,
  diskBytes: 64 * MIB,
  outputBytes: MIB,
  outputEndBytes: 20 * MIB,
};

export interface SandboxContractSubject {
  /** Why it cannot run here; null when it can. */
  missing(): Promise<string | null>;
  /** The sandbox of a thread, made ready for commands. */
  acquire(threadId: string): Promise<Sandbox>;
  /** The thread's files as a person's uploads reach them. */
  files(threadId: string): SandboxFiles;
}

/**
 * What every sandbox that isolates must do, whatever runs the commands: real paths, order, bounds, and the death of all that a command has
 * started. Linux only: it looks for leftovers in `/proc` of this machine.
 */
export function sandboxContract(name: string, subject: SandboxContractSubject): void {
  describe(`sandbox: ${name}`, () => {
    let sandbox: Sandbox;
    beforeEach(async (context) => {
      const missing = await subject.missing();
      if (missing !== null) context.skip(missing);
      sandbox = await subject.acquire('contract');
    });
    const sh = (command: string, options: { timeoutMs?: number; env?: Record<string, string> } = {}) =>
      sandbox.exec({ command, timeoutMs: 30_000, ...options });
    const out = async (command: string) => (await sh(command)).output.trim();

    test('works in the workspace, under real paths and without rights', verifies('ID-3'), async () => {
      await sandbox.files.write('notes/a.txt', 'hello');
      expect(await out('pwd; cat notes/a.txt; echo; cat /mnt/user-data/workspace/notes/a.txt')).toBe(
        '/mnt/user-data/workspace\nhello\nhello',
      );
      const status = await out('cat /proc/self/status; id -u');
      for (const line of ['CapEff', 'CapPrm', 'CapInh', 'CapAmb'])
        expect(status).toContain(`${line}:\t0000000000000000`);
      expect(status).toContain('NoNewPrivs:\t1');
      expect(status).not.toMatch(/\n0$/);
      expect(await sh('exit 7')).toMatchObject({ ended: 'exit', exitCode: 7 });
      expect((await sandbox.exec({ command: 'pwd', cwd: 'notes', timeoutMs: 9_000 })).output).toBe(
        '/mnt/user-data/workspace/notes\n',
      );
      await expect(sandbox.exec({ command: 'pwd', cwd: '/etc', timeoutMs: 9_000 })).rejects.toMatchObject({
        code: 'path_refused',
      });
    });

    test('what file tools write, commands can change, and the other way round', async () => {
      await sandbox.files.write('shared/x.sh', 'echo one\n');
      expect(await out('chmod +x shared/x.sh && echo "echo two" >> shared/x.sh && bash shared/x.sh')).toBe('one\ntwo');
      await sandbox.files.write('shared/x.sh', 'echo three');
      await sh('umask 077; echo private > /mnt/user-data/outputs/made.txt');
      const made = await sandbox.files.read('/mnt/user-data/outputs/made.txt', { maxBytes: 100 });
      expect([await out('bash shared/x.sh; rm -r shared'), Buffer.from(made).toString()]).toEqual([
        'three',
        'private\n',
      ]);
    });

    test('uploads can be read, not changed', async () => {
      const upload = '/mnt/user-data/uploads/given/in.txt';
      await subject.files('contract').write(upload, 'given');
      const attempts = `(echo x > ${upload}) 2>/dev/null || echo refused; rm -rf ${upload} 2>/dev/null || echo refused`;
      expect(await out(`cat ${upload}; echo; ${attempts}`)).toBe('given\nrefused\nrefused');
    });

    test(
      'stdout and stderr keep their order, /dev/stderr can be opened, stdin is empty',
      verifies('SL-11'),
      async () => {
        expect((await sh('echo 1; echo 2 >&2; echo 3; echo 4 > /dev/stderr; echo 5 | tee /dev/stdout')).output).toBe(
          '1\n2\n3\n4\n5\n5\n',
        );
        expect(await sh('cat; read line || echo end')).toMatchObject({ ended: 'exit', output: 'end\n' });
      },
    );

    test('output comes while the command runs', async () => {
      const first = deferred<string>();
      const running = sandbox.exec({
        command: 'echo first; until [ -e go ]; do sleep 0.02; done; echo second; rm go',
        timeoutMs: 30_000,
        onOutput: (text) => first.resolve(text),
      });
      expect(await first.promise).toBe('first\n');
      await sandbox.files.write('go', '');
      expect(await running).toMatchObject({ ended: 'exit', output: 'first\nsecond\n' });
    });

    test('what a command gets as a variable shows in no process’s arguments', verifies('SK-8'), async () => {
      const value = `value-${randomBytes(12).toString('hex')}`;
      const started = deferred<string>();
      const running = sandbox.exec({
        command: 'printf %s "$GIVEN" | wc -c; until [ -e seen ]; do sleep 0.02; done; rm seen',
        timeoutMs: 30_000,
        env: { GIVEN: value },
        onOutput: (text) => started.resolve(text),
      });
      try {
        expect(await started.promise).toBe(`${value.length}\n`);
        expect(await processesThatShow(value)).toEqual([]);
      } finally {
        await sandbox.files.write('seen', '');
        await running;
      }
      expect((await sh('echo "[$GIVEN]"; env')).output).not.toContain(value);
    });

    test('variables are those that were given, and none of the server’s', verifies('SL-13', 'SL-14'), async () => {
      process.env.REINDEER_TEST_SECRET = 'server-secret';
      const seen = await sh('env; cat /proc/*/environ 2>/dev/null | tr "\\0" "\\n"', { env: { GIVEN: 'on purpose' } });
      expect(seen.output).toContain('GIVEN=on purpose\n');
      expect(seen.output).not.toContain('server-secret');
      await expect(sh('env', { env: { '1BAD': 'x' } })).rejects.toMatchObject({ code: 'bad_request' });
    });

    test(
      'a timeout kills all that was started, also what left the group or its environment',
      verifies('SL-09'),
      async () => {
        const mark = nap();
        const escapes = `(setsid sleep ${mark} &); (env -i setsid sleep ${mark} >/dev/null 2>&1 &)`;
        const result = await sh(`echo before; ${escapes}; trap "" TERM INT HUP; sleep ${mark} & sleep ${mark}`, {
          timeoutMs: 400,
        });
        expect(result).toMatchObject({ ended: 'timeout', exitCode: null, output: 'before\n' });
        expect(await living(mark)).toEqual([]);
      },
    );

    test('an abort kills everything before the result is there', verifies('SL-09'), async () => {
      const mark = nap();
      const controller = new AbortController();
      const started = deferred<void>();
      const running = sandbox.exec({
        command: `nohup setsid sleep ${mark} >/dev/null 2>&1 & echo started; sleep ${mark}`,
        timeoutMs: 30_000,
        signal: controller.signal,
        onOutput: () => started.resolve(),
      });
      await started.promise;
      await appears(mark);
      controller.abort();
      expect(await running).toMatchObject({ ended: 'aborted', output: 'started\n' });
      expect(await living(mark)).toEqual([]);
    });

    test('a background process does not hold the call and ends with it', verifies('SL-10'), async () => {
      const mark = nap();
      const result = await sh(`sleep ${mark} & (setsid sleep ${mark} &); echo done`);
      expect(result).toMatchObject({ ended: 'exit', exitCode: 0, output: 'done\n' });
      expect(await living(mark)).toEqual([]);
    });

    test('the end of one command leaves a parallel one alone', async () => {
      const mark = nap();
      const started = deferred<void>();
      const long = sandbox.exec({
        command: `echo started; (setsid sleep ${mark} &); until [ -e over ]; do sleep 0.02; done; echo survived; rm over`,
        timeoutMs: 30_000,
        onOutput: () => started.resolve(),
      });
      await started.promise;
      await appears(mark);
      const other = nap();
      expect(await sh(`(setsid sleep ${other} &); echo short`)).toMatchObject({ ended: 'exit', output: 'short\n' });
      expect([(await living(mark)).length, await living(other)]).toEqual([1, []]);
      await sandbox.files.write('over', '');
      expect(await long).toMatchObject({ ended: 'exit', output: 'started\nsurvived\n' });
      expect(await living(mark)).toEqual([]);
    });

    test('output beyond the bound is dropped with a notice while the command goes on', verifies('SL-12'), async () => {
      const result = await sh('head -c 3000000 /dev/zero | tr "\\0" x; echo; echo the end; touch finished');
      expect(result).toMatchObject({ ended: 'exit', exitCode: 0, truncatedBytes: 3_000_009 - MIB });
      expect(result.output).toContain(`[… ${result.truncatedBytes} bytes of output were dropped here …]`);
      expect(result.output.endsWith('\nthe end\n')).toBe(true);
      expect(await out('ls finished; rm finished')).toBe('finished');
    });

    test('`yes` ends with its limit', async () => {
      expect(await sh('yes')).toMatchObject({ ended: 'limit', limit: 'output', exitCode: null });
    });

    test('a memory hog ends with its limit, and the sandbox works on', async () => {
      const hog = 'text=0123456789abcdef; while :; do text=$text$text; done';
      expect(await sh(hog)).toMatchObject({ ended: 'limit', limit: 'memory' });
      expect(await out('echo works')).toBe('works');
    });

    test('a fork bomb ends, and the sandbox works on', async () => {
      const result: ExecResult = await sh('bomb() { bomb | bomb & bomb; }; bomb 2>/dev/null', { timeoutMs: 1_500 });
      expect(['limit', 'timeout', 'exit']).toContain(result.ended);
      expect(await out('echo works')).toBe('works');
    });

    test('writing ends: one file by its size, many by the space they take', async () => {
      const one = await sh('head -c 10G /dev/zero > big; stat -c %s big; rm big');
      // The file as large as it may be fills the folder too: whoever looks first ends it.
      if (one.ended === 'exit') expect(one.output).toContain(`${SANDBOX_CONTRACT_LIMITS.diskBytes}\n`);
      else expect(one).toMatchObject({ ended: 'limit', limit: 'disk' });
      await out('rm -f big');
      const many = 'for n in $(seq 1000); do head -c 10M /dev/zero > big$n || break; done; sleep 20';
      expect(await sh(many)).toMatchObject({ ended: 'limit', limit: 'disk' });
      expect(await out('rm -f big*; ls | grep -c big')).toBe('0');
    });
  });
}

/** Seconds that nobody else on this machine sleeps. */
function nap(): string {
  return `4711.${randomBytes(4).readUInt32BE()}`;
}

function appears(seconds: string): Promise<void> {
  const there = async () => (await living(seconds)).length > 0;
  return waitUntil(there, 10_000, () => `no process sleeps ${seconds} s`);
}

/** Ids of all living processes on this machine that sleep for so many seconds, in whatever container. */
async function living(seconds: string): Promise<number[]> {
  const found: number[] = [];
  for (const name of await readdir('/proc')) {
    const id = Number(name);
    if (!Number.isInteger(id) || id === process.pid) continue;
    const line = await readFile(`/proc/${id}/cmdline`, 'utf8').catch(() => '');
    const stat = await readFile(`/proc/${id}/stat`, 'utf8').catch(() => '');
    const state = stat.slice(stat.lastIndexOf(')') + 2)[0];
    if (line === `sleep\0${seconds}\0` && state !== 'Z' && state !== 'X') found.push(id);
  }
  return found;
}
