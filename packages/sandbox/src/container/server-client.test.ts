import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { realClock } from '@reindeer/testkit';
import { expect, onTestFinished, test } from 'vitest';
import { ServerClient } from './server-client.ts';
import { ServerTransport } from './transport.ts';

test('the public image: a command that has not begun yet is no command that has ended', async () => {
  const states = [
    { stdout: '', offset: 0, status: 'pending', exit_code: null },
    { stdout: 'half', offset: 4, status: 'running', exit_code: null },
    { stdout: ' whole', offset: 10, status: 'completed', exit_code: 3 },
  ];
  const asked: string[] = [];
  const server = createServer((request, response) => {
    request.resume();
    const path = request.url ?? '';
    asked.push(path);
    const say = (data: unknown) => response.end(JSON.stringify({ success: true, message: '', data }));
    if (path === '/v1/sandbox') return response.end(JSON.stringify({ success: true, home_dir: '/', version: '1.9.3' }));
    if (path === '/v1/bash/exec') return say({ session_id: 's', command_id: 'c', command: 'x', status: 'pending' });
    const { status, exit_code, ...seen } = states.shift() ?? { status: 'completed', exit_code: null };
    return say({ session_id: 's', ...seen, command: { command_id: 'c', command: 'x', status, exit_code } });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const client = new ServerClient(
    new ServerTransport({ kind: 'url', url: new URL(`http://127.0.0.1:${port}`) }, null),
    realClock,
    () => 'u',
  );
  onTestFinished(async () => {
    await client.close();
    await new Promise((resolve) => server.close(resolve));
  });
  const sizes = { outputBytes: 1_000, outputEndBytes: 10_000, fileBytes: 1_000 };
  const { signal } = new AbortController();
  const result = await client.run({ command: 'x', cwd: '/', env: {}, timeoutMs: 5_000, signal, ...sizes });
  expect(result).toMatchObject({ ended: 'exit', exitCode: 3, output: 'half whole' });
  expect(asked).toEqual(['/v1/sandbox', '/v1/bash/exec', ...Array.from({ length: 3 }, () => '/v1/bash/output')]);
});
