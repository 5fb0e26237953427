import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { createServer, request as httpRequest } from 'node:http';
import type { AddressInfo } from 'node:net';
import { deferred, processesThatShow, realClock, verifies } from '@reindeer/testkit';
import { describe, expect, onTestFinished, test } from 'vitest';
import { ServerClient, type ServerCommand } from '../container/server-client.ts';
import { ServerTransport } from '../container/transport.ts';
import { PipePool } from '../process/pipes.ts';
import { temporaryHome } from '../test-support.ts';
import { CommandRunner } from './commands.ts';
import { digest } from './http.ts';
import { createSandboxServer } from './server.ts';

const SECRET = 'a secret of at least thirty-two characters';

interface Subject {
  readonly home: string;
  readonly port: number;
  readonly runner: CommandRunner;
  call(method: string, path: string, body?: unknown, secret?: string): Promise<Response>;
  data(path: string, body: unknown): Promise<Record<string, unknown>>;
}

/** The server on this machine: it owns no container, so it ends only what a command can be seen to have started. */
async function serve(): Promise<Subject> {
  const home = await temporaryHome();
  const pipes = new PipePool(`${home}/pipes`);
  const environment = { PATH: process.env.PATH ?? '', LANG: 'C.UTF-8' };
  const runner = new CommandRunner({ clock: realClock, uuid: randomUUID, pipes, environment, ownsContainer: false });
  const server = createSandboxServer({
    secretHash: digest(SECRET),
    runner,
    clock: realClock,
    uuid: randomUUID,
    version: '1.9.3',
    home,
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  onTestFinished(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    await pipes.close();
  });
  const call: Subject['call'] = (method, path, body, secret = SECRET) =>
    fetch(`http://127.0.0.1:${port}${path}`, {
      method,
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  return {
    home,
    port,
    runner,
    call,
    data: async (path, body) => {
      const answer = (await (await call('POST', path, body)).json()) as {
        success: boolean;
        data: Record<string, unknown>;
      };
      expect(answer).toMatchObject({ success: true });
      return answer.data;
    },
  };
}

describe('the server in a sandbox', () => {
  test('lets in whoever has the secret, and nobody else', async () => {
    const { call } = await serve();
    expect(await (await call('GET', '/v1/sandbox')).json()).toMatchObject({
      success: true,
      version: '1.9.3',
      reindeer: 1,
    });
    for (const wrong of ['', 'x', `${SECRET}x`, SECRET.slice(1)]) {
      const refused = await call('GET', '/v1/sandbox', undefined, wrong);
      expect([refused.status, await refused.json()]).toMatchObject([401, { success: false, data: null }]);
    }
    const refused = await call('POST', '/v1/bash/exec', { command: 'touch made' }, 'x');
    expect(refused.status).toBe(401);
  });

  test('runs commands as the public image does: at once, in the background, and ends them', async () => {
    const { home, data, call } = await serve();
    expect(
      await data('/v1/bash/exec', { command: 'echo $A; pwd; exit 3', exec_dir: home, env: { A: 'b' } }),
    ).toMatchObject({
      status: 'completed',
      stdout: `b\n${home}\n`,
      stderr: '',
      exit_code: 3,
    });
    const running = await data('/v1/bash/exec', { command: 'echo one; sleep 60', exec_dir: home, async_mode: true });
    const { session_id } = running;
    const seen = await data('/v1/bash/output', { session_id, offset: 0, wait: true, wait_timeout: 10 });
    expect(seen).toMatchObject({ stdout: 'one\n', offset: 4, command: { status: 'running' } });
    await data('/v1/bash/kill', { session_id, signal: 'SIGKILL' });
    expect(await data('/v1/bash/output', { session_id, offset: 4, wait: true, wait_timeout: 10 })).toMatchObject({
      stdout: '',
      command: { status: 'killed' },
    });
    expect(await data('/v1/bash/exec', { command: 'sleep 60', exec_dir: home, hard_timeout: 0.2 })).toMatchObject({
      status: 'timed_out',
    });
    expect(await data('/v1/shell/exec', { command: 'echo hi >&2; false', exec_dir: home })).toMatchObject({
      status: 'completed',
      output: 'hi\n',
      exit_code: 1,
    });
    const shell = { id: 'mine', command: 'sleep 60', exec_dir: home, async_mode: true };
    expect(await data('/v1/shell/exec', shell)).toMatchObject({
      session_id: 'mine',
      status: 'running',
      exit_code: null,
    });
    expect(await data('/v1/shell/kill', { id: 'mine' })).toMatchObject({ status: 'terminated' });
    expect(await data('/v1/shell/view', { id: 'mine' })).toMatchObject({ status: 'terminated', output: '' });
    expect(await data('/v1/shell/exec', { command: 'sleep 60', exec_dir: home, hard_timeout: 0.2 })).toMatchObject({
      status: 'hard_timeout',
    });
    expect((await call('POST', '/v1/bash/output', { session_id: 'none' })).status).toBe(404);
  });

  test('bad requests are told what is wrong', async () => {
    const { home, call } = await serve();
    const said = async (path: string, body: unknown) => {
      const answer = await call('POST', path, body);
      return [answer.status, ((await answer.json()) as { message: string }).message];
    };
    expect(await said('/v1/bash/exec', { command: 5 })).toEqual([422, 'command must be a text.']);
    expect(await said('/v1/bash/exec', { command: ' ', exec_dir: home })).toEqual([422, 'The command is empty.']);
    expect(await said('/v1/bash/exec', { command: 'x', exec_dir: '/no-such-folder' })).toEqual([
      404,
      '/no-such-folder: no such folder to start in',
    ]);
    expect(await said('/v1/bash/exec', { command: 'x', exec_dir: home, env: { 'A B': 'x' } })).toMatchObject([
      422,
      /A B/,
    ]);
    expect(await said('/v1/file/read', { file: 'relative' })).toEqual([422, 'The path must be absolute.']);
    expect(await said('/v1/nothing', {})).toEqual([404, 'There is no such route.']);
    expect((await call('POST', '/v1/bash/exec', [])).status).toBe(422);
    expect((await call('DELETE', '/v1/shell/sessions/%ff')).status).toBe(422);
  });

  test('files: text and bytes, whole and in pieces, exact to 100 MB', verifies('SX-17'), async () => {
    const { home, data, call } = await serve();
    const file = `${home}/deep/er/a.txt`;
    await data('/v1/file/write', { file, content: 'one\ntwo\nthree\n' });
    await data('/v1/file/write', { file, content: 'four', append: true, trailing_newline: true });
    expect(await data('/v1/file/read', { file })).toEqual({ content: 'one\ntwo\nthree\nfour\n', file });
    expect((await data('/v1/file/read', { file, start_line: 1, end_line: 3 })).content).toBe('two\nthree');
    await data('/v1/file/write', { file, content: '' });
    expect((await data('/v1/file/read', { file })).content).toBe('');

    const bytes = Buffer.alloc(100 * 1024 * 1024, randomBytes(1024 * 1024));
    const big = `${home}/big.bin`;
    const piece = 12 * 1024 * 1024;
    for (let at = 0; at < bytes.length; at += piece)
      await data('/v1/file/write', {
        file: big,
        content: bytes.subarray(at, at + piece).toString('base64'),
        encoding: 'base64',
        append: at > 0,
      });
    const back = Buffer.from(
      await (await call('GET', `/v1/file/download?path=${encodeURIComponent(big)}`)).arrayBuffer(),
    );
    const hash = (data: Buffer) => createHash('sha256').update(data).digest('hex');
    expect([back.length, hash(back)]).toEqual([bytes.length, hash(bytes)]);
    expect(hash(await readFile(big))).toBe(hash(bytes));
    await data('/v1/file/write', { file: big, content: 'x', append: true });
    expect((await call('GET', `/v1/file/download?path=${encodeURIComponent(big)}`)).status).toBe(413);
  });

  test('a FIFO, a folder or a missing file holds nobody up', async () => {
    const { home, call, data } = await serve();
    await data('/v1/bash/exec', { command: 'mkfifo pipe; mkdir folder; ln -s pipe link', exec_dir: home });
    for (const name of ['pipe', 'link', 'folder'])
      expect((await call('POST', '/v1/file/read', { file: `${home}/${name}` })).status, name).toBeGreaterThanOrEqual(
        400,
      );
    expect(
      (await call('POST', '/v1/file/write', { file: `${home}/pipe`, content: 'x' })).status,
    ).toBeGreaterThanOrEqual(400);
    expect((await call('GET', `/v1/file/download?path=${home}/none`)).status).toBe(404);
    const listed = await data('/v1/file/list', { path: home, recursive: true });
    const names = (listed.files as { name: string }[]).map(({ name }) => name);
    expect(names).toEqual(expect.arrayContaining(['folder', 'link', 'pipe']));
    expect((await call('POST', '/v1/file/list', { path: `${home}/none` })).status).toBe(404);
  });

  test('whoever hangs up takes the command along', verifies('SL-09'), async () => {
    const { home, port, runner } = await serve();
    const hangUp = new AbortController();
    const answer = await fetch(`http://127.0.0.1:${port}/v1/bash/exec`, {
      method: 'POST',
      headers: { authorization: `Bearer ${SECRET}`, accept: 'application/x-ndjson' },
      body: JSON.stringify({ command: '(setsid sleep 60 &); echo started; sleep 60; touch survived', exec_dir: home }),
      signal: hangUp.signal,
    });
    const reader = answer.body?.getReader();
    expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe('{"output":"started\\n"}\n');
    expect(runner.running).toBe(1);
    hangUp.abort();
    const deadline = performance.now() + 10_000;
    while (runner.running > 0 && performance.now() < deadline) await realClock.sleep(10);
    expect(runner.running).toBe(0);
  });
});

/** As the public image: the same routes, and no word of what only ours can. */
async function publicImage(port: number): Promise<number> {
  const front = createServer((request, response) => {
    if (request.url === '/v1/sandbox') {
      response.end(JSON.stringify({ success: true, home_dir: '/home/gem', version: '1.9.3' }));
      return;
    }
    // It knows one kind of answer only.
    const headers = { ...request.headers, accept: 'application/json' };
    const behind = httpRequest({ port, method: request.method, path: request.url, headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 500, answer.headers);
      answer.pipe(response);
    });
    behind.on('error', () => response.destroy());
    request.pipe(behind);
  });
  await new Promise<void>((resolve) => front.listen(0, '127.0.0.1', resolve));
  onTestFinished(async () => {
    front.closeAllConnections();
    await new Promise((resolve) => front.close(resolve));
  });
  return (front.address() as AddressInfo).port;
}

for (const [name, front] of [
  ['ours', async (port: number) => port],
  ['the public image', publicImage],
] as const)
  describe(`the client, with ${name}`, () => {
    async function client(): Promise<{
      run(part: Partial<ServerCommand> & { command: string }): ReturnType<ServerClient['run']>;
      home: string;
      runner: CommandRunner;
    }> {
      const { port: behind, home, runner } = await serve();
      const port = await front(behind);
      const made = new ServerClient(
        new ServerTransport({ kind: 'url', url: new URL(`http://127.0.0.1:${port}`) }, SECRET, process.env),
        realClock,
        randomUUID,
      );
      onTestFinished(() => made.close());
      const signal = new AbortController().signal;
      return {
        home,
        runner,
        run: (part) =>
          made.run({
            cwd: home,
            env: {},
            timeoutMs: 20_000,
            outputBytes: 20_000,
            outputEndBytes: 200_000,
            fileBytes: 1e9,
            signal,
            ...part,
          }),
      };
    }

    test('order, exit code, variables and folder', async () => {
      const { run, home } = await client();
      expect(await run({ command: 'echo 1; echo 2 >&2; echo $A; pwd; exit 4', env: { A: 'given' } })).toMatchObject({
        ended: 'exit',
        exitCode: 4,
        output: `1\n2\ngiven\n${home}\n`,
        truncatedBytes: 0,
      });
      await mkdir(`${home}/sub`);
      expect((await run({ command: 'cat <<< é; pwd', cwd: `${home}/sub` })).output).toBe(`é\n${home}/sub\n`);
      await expect(run({ command: 'x', cwd: '/no-such-folder' })).rejects.toMatchObject({ code: 'not_found' });
    });

    test('no proxy of the environment is asked', verifies('SX-10'), async () => {
      const asked: string[] = [];
      const proxy = createServer((request, response) => {
        asked.push(request.url ?? '');
        response.end('{}');
      });
      await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
      const before = { ...process.env };
      const address = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
      Object.assign(process.env, {
        HTTP_PROXY: address,
        http_proxy: address,
        ALL_PROXY: address,
        NODE_USE_ENV_PROXY: '1',
      });
      try {
        const { run } = await client();
        expect((await run({ command: 'echo direct' })).output).toBe('direct\n');
      } finally {
        process.env = before;
        await new Promise((resolve) => proxy.close(resolve));
      }
      expect(asked).toEqual([]);
    });

    test('what a command gets as a variable shows in no process’s arguments', verifies('SK-8'), async () => {
      const { run, home } = await client();
      const value = `value-${crypto.randomUUID()}`;
      const first = deferred<string>();
      const running = run({
        command: 'printf %s "$GIVEN" | wc -c; until [ -e seen ]; do sleep 0.02; done',
        env: { GIVEN: value },
        onOutput: (text) => first.resolve(text),
      });
      expect(await first.promise).toBe(`${value.length}\n`);
      expect(await processesThatShow(value)).toEqual([]);
      await writeFile(`${home}/seen`, '');
      expect(await running).toMatchObject({ ended: 'exit', exitCode: 0 });
    });

    test('output as it comes, timeouts, aborts and bounds', verifies('SL-09', 'SL-12'), async () => {
      const { run, home, runner } = await client();
      const first = deferred<string>();
      const running = run({
        command: 'echo first; until [ -e go ]; do sleep 0.02; done; echo second',
        onOutput: (text) => first.resolve(text),
      });
      expect(await first.promise).toBe('first\n');
      await writeFile(`${home}/go`, '');
      expect(await running).toMatchObject({ ended: 'exit', output: 'first\nsecond\n' });

      expect(await run({ command: 'echo before; sleep 60', timeoutMs: 300 })).toMatchObject({
        ended: 'timeout',
        exitCode: null,
        output: 'before\n',
      });

      const controller = new AbortController();
      const started = deferred<void>();
      const long = run({ command: 'echo on; sleep 60', signal: controller.signal, onOutput: () => started.resolve() });
      await started.promise;
      controller.abort();
      expect(await long).toMatchObject({ ended: 'aborted', output: 'on\n' });
      // Told only when it is dead: the server was asked to end it, and nobody hung up on it.
      expect(runner.running).toBe(0);

      const much = await run({ command: 'head -c 100000 /dev/zero | tr "\\0" x' });
      expect(much).toMatchObject({ ended: 'exit', exitCode: 0 });
      expect([much.output.length < 21_000, much.output.includes('bytes of output were dropped')]).toEqual([true, true]);
      expect(await run({ command: 'yes' })).toMatchObject({ ended: 'limit', limit: 'output' });
    });
  });
