import { EventEmitter, once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { BatchesOnServer } from './batches-on-server.ts';
import type { Host } from './host.ts';

const view = (status: string, succeeded: number) => ({ batch_id: 'b', thread_id: 't', status, counts: { succeeded } });
type Answer = (response: ServerResponse) => void;
const events =
  (...sent: readonly object[]): Answer =>
  (response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    for (const one of sent) response.write(`event: progress\ndata: ${JSON.stringify(one)}\n\n`);
  };
const cut =
  (answer: Answer): Answer =>
  (response) => {
    answer(response);
    setImmediate(() => response.destroy());
  };
const status =
  (code: number, detail: string): Answer =>
  (response) =>
    response.writeHead(code, { 'content-type': 'application/json' }).end(JSON.stringify({ detail }));

const closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing.splice(0)) close();
});

/** Watches a batch on a server whose streams are answered one after the other so. */
async function watched(streams: Answer[]) {
  const server = createServer((request, response) => {
    if (request.url?.endsWith('/stream') !== true) response.end(JSON.stringify(view('running', 0)));
    else (streams.shift() ?? status(404, 'There is no batch "b".'))(response);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  closing.push(() => {
    server.closeAllConnections();
    server.close();
  });
  const said: string[] = [];
  const host = { process: new EventEmitter(), say: (text: string) => void said.push(text) } as unknown as Host;
  const { port } = server.address() as AddressInfo;
  const batches = new BatchesOnServer(host, { url: `http://127.0.0.1:${port}`, token: null }, 1);
  const seen: unknown[] = [];
  try {
    for await (const { status, counts } of batches.watch('b', new AbortController().signal))
      seen.push(`${status} ${counts.succeeded}`);
  } finally {
    await batches.close(0);
  }
  return { seen, said };
}

test('a batch is followed on after a cut, and after a server that is being started again', async () => {
  const { seen, said } = await watched([
    cut(events(view('running', 1))),
    status(503, 'The server is stopping.'),
    cut(() => {}),
    events(view('running', 2), view('completed', 3)),
  ]);
  expect(seen).toEqual(['running 1', 'running 2', 'completed 3']);
  expect(said).toEqual([expect.stringContaining('The connection to the server was cut')]);
});

test('a batch that went with its thread is followed no further; a refusal is told at once', async () => {
  expect((await watched([cut(events(view('running', 1)))])).seen).toEqual(['running 1']);
  await expect(watched([status(401, 'Who are you?')])).rejects.toThrow(/answered 401: Who are you/);
  await expect(watched([])).rejects.toThrow(/answered 404: There is no batch/);
});
