import { spawn } from 'node:child_process';
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { realSurroundings, verifies } from '@reindeer/testkit';
import { afterEach, expect, test } from 'vitest';
import { AttemptScope, SCOPE } from '../loop/scope.ts';
import { recordedAttempt } from '../test-support/fake-attempt.ts';
import { McpServers } from './servers.ts';

const stops: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

interface Message {
  readonly id?: number;
  readonly method?: string;
  readonly params?: { readonly protocolVersion?: string; readonly name?: string };
}
interface Exchange {
  readonly message: Message;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  answer(result: unknown): string;
}

async function listening(handle: RequestListener): Promise<string> {
  const server = createServer(handle);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  stops.push(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  let body = '';
  for await (const chunk of request) body += String(chunk);
  return body;
}

/** A server at the level of HTTP: what it does not handle itself is answered as a good server would. */
async function serve(own: (exchange: Exchange) => boolean | Promise<boolean>, tools: unknown[] = [TOOL]) {
  const seen: string[] = [];
  const url = await listening(async (request, response) => {
    const body = await bodyOf(request);
    const message = (body === '' ? {} : JSON.parse(body)) as Message;
    seen.push(`${request.method} ${request.url} ${message.method ?? ''}`.trim());
    const answer = (result: unknown) => JSON.stringify({ jsonrpc: '2.0', id: message.id, result });
    if (await own({ message, request, response, answer })) return;
    if (request.method !== 'POST') return void response.writeHead(405).end();
    if (message.id === undefined) return void response.writeHead(202).end();
    const results: Record<string, unknown> = {
      initialize: {
        protocolVersion: message.params?.protocolVersion,
        capabilities: { tools: {} },
        serverInfo: { name: 's', version: '1' },
      },
      'tools/list': { tools },
      'tools/call': { content: [{ type: 'text', text: `did ${message.params?.name}` }] },
    };
    response.writeHead(200, { 'content-type': 'application/json' }).end(answer(results[message.method ?? '']));
  });
  return { url, seen };
}
const TOOL = { name: 'do', inputSchema: { type: 'object' } };

/** Servers with the one to try as `s`. */
async function using(entry: Record<string, unknown>, others: Record<string, unknown> = {}) {
  const { clock, random, logger } = realSurroundings();
  const servers = new McpServers({
    read: async () => ({ s: { type: 'http', session_init_timeout: 10, ...entry }, ...others }),
    folder: async () => tmpdir(),
    environment: {},
    clock,
    random,
    logger,
  });
  stops.push(() => servers.close());
  const { tools } = await servers.catalog();
  const { run } = recordedAttempt();
  return {
    servers,
    tools,
    logger,
    run,
    call: async (name = 's_do', args: Record<string, unknown> = {}): Promise<string> => {
      const tool = tools.find((one) => one.name === name);
      const scope = new AttemptScope(recordedAttempt(), null);
      const config = { configurable: { [SCOPE]: scope }, toolCallId: 'c' };
      const message = await tool?.invoke({ name, args, id: 'c', type: 'tool_call' } as never, config as never);
      return (message as { text: string }).text;
    },
  };
}

test.each([
  [404, 'Session not found'],
  [400, 'Bad Request: No valid session ID provided'],
])(
  'a session that the server has forgotten (%i) is replaced, and the call is made in the new one',
  verifies('MCP-3'),
  async (status, text) => {
    let known = new Set<string>();
    let opened = 0;
    const { url, seen } = await serve(({ message, request, response }) => {
      const id = request.headers['mcp-session-id'];
      if (message.method === 'initialize') {
        opened += 1;
        known.add(`session-${opened}`);
        response.setHeader('mcp-session-id', `session-${opened}`);
        return false;
      }
      if (known.has(String(id))) return false;
      response.writeHead(status).end(text);
      return true;
    });
    const { call } = await using({ url });
    expect(await call()).toBe('did do');
    const before = opened;
    // It was restarted.
    known = new Set();
    expect(await call()).toBe('did do');
    expect(await call()).toBe('did do');
    expect(opened).toBe(before + 1);
    expect(seen.filter((line) => line.endsWith('tools/call'))).toHaveLength(4);
  },
);

test('a stream that breaks off before the answer ends the call: nobody waits for ever', verifies('MCP-1'), async () => {
  let how = 'destroy';
  const { url } = await serve(({ message, request, response, answer }) => {
    const resumed = request.headers['last-event-id'];
    if (request.method === 'GET' && resumed !== undefined) {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.end(
        `data: ${answer({ content: [{ type: 'text', text: `after ${resumed}` }] }).replace('{', `{"id":${how},`)}\n\n`,
      );
      return true;
    }
    if (message.method !== 'tools/call') return false;
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    if (how === 'destroy') response.write(': wait\n\n', () => response.destroy());
    else if (how === 'end') response.end(': wait\n\n');
    else {
      how = String(message.id);
      response.end('retry: 10\nid: e1\ndata: \n\n');
    }
    return true;
  });
  const { call } = await using({ url });
  await expect(call()).rejects.toThrow(/broke off during the call. Whether the call took effect is not known/);
  how = 'end';
  await expect(call()).rejects.toThrow(/broke off/);
  // One that can be resumed is.
  how = 'resume';
  expect(await call()).toBe('after e1');
});

test('a server over SSE that goes away ends the calls under way, and is greeted anew', verifies('MCP-1'), async () => {
  let stream: ServerResponse | null = null;
  let opened = 0;
  let silent = true;
  const { url } = await serve(({ message, request, response, answer }) => {
    if (request.method === 'GET') {
      opened += 1;
      stream = response;
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(`event: endpoint\ndata: /post?session=${opened}\n\n`);
      return true;
    }
    response.writeHead(202).end();
    if (message.id === undefined) return true;
    if (message.method === 'tools/call' && silent) {
      silent = false;
      stream?.destroy();
      return true;
    }
    const result =
      message.method === 'initialize'
        ? {
            protocolVersion: message.params?.protocolVersion,
            capabilities: {},
            serverInfo: { name: 's', version: '1' },
          }
        : message.method === 'tools/list'
          ? { tools: [TOOL] }
          : { content: [{ type: 'text', text: 'told' }] };
    stream?.write(`data: ${answer(result)}\n\n`);
    return true;
  });
  const { call } = await using({ url: `${url}/sse`, type: 'sse' });
  await expect(call()).rejects.toThrow(/Whether the call took effect is not known/);
  expect(await call()).toBe('told');
});

test('a session that nobody needs is given up at the server', verifies('MCP-3'), async () => {
  const { url, seen } = await serve(({ message, request, response }) => {
    if (message.method === 'initialize') response.setHeader('mcp-session-id', 'one');
    if (request.method !== 'DELETE') return false;
    response.writeHead(200).end();
    return true;
  });
  const { call, servers, run } = await using({ url });
  await call();
  expect(seen.filter((line) => line.startsWith('DELETE'))).toHaveLength(1);
  await servers.closeThread({ userId: run.userId, threadId: run.threadId });
  expect(seen.filter((line) => line.startsWith('DELETE'))).toHaveLength(2);
});

test(
  'a redirect is followed to the same server, and no header goes to another one',
  verifies('MCP-1', 'SEC-05'),
  async () => {
    const headers = { 'x-api-key': 'hush' };
    const other = await serve(() => false);
    const { url } = await serve(({ request, response }) => {
      if (request.headers['x-api-key'] !== 'hush') return void response.writeHead(401).end() === undefined;
      if (request.url === '/mcp/') return false;
      response.writeHead(307, { location: request.url === '/mcp' ? '/mcp/' : `${other.url}/mcp` }).end();
      return true;
    });
    expect(await (await using({ url: `${url}/mcp`, headers })).call()).toBe('did do');
    const away = await using({ url: `${url}/away`, headers });
    expect(away.tools).toEqual([]);
    expect(away.servers.status()[0]?.reason).toMatch(/leads on to another address/);
    expect(other.seen).toEqual([]);
  },
);

test('a tool that makes no sense costs only itself, and is named in the log', verifies('MCP-1'), async () => {
  const odd = [{ name: 'text', inputSchema: { type: 'string' } }, { description: 'nameless' }, { name: 'bare' }, 7];
  const { url } = await serve(() => false, [TOOL, ...odd]);
  const { tools, logger, call } = await using({ url });
  expect(tools.map((tool) => tool.name)).toEqual(['s_do', 's_bare']);
  expect(await call('s_bare')).toBe('did bare');
  expect(logger.lines.find((line) => line.message.includes('left out'))).toMatchObject({
    fields: { tools: ['text', '(without a name)', '(without a name)'] },
  });
});

const EVERYTHING = createRequire(import.meta.url).resolve('@modelcontextprotocol/server-everything/dist/index.js');

test.each(['streamableHttp', 'sse'])('the everything-server over %s', verifies('MCP-1'), async (kind) => {
  const port = 20_000 + Math.floor(Math.random() * 20_000);
  const child = spawn(process.execPath, [EVERYTHING, kind], {
    env: { PATH: process.env.PATH, PORT: String(port) },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  stops.push(async () => void child.kill('SIGKILL'));
  await new Promise<void>((resolve, reject) => {
    const heard = (chunk: Buffer): void => {
      if (/listening|running/i.test(String(chunk))) resolve();
    };
    child.stderr.on('data', heard);
    child.stdout.on('data', heard);
    child.once('exit', () => reject(new Error('the server ended')));
  });
  const [type, path] = kind === 'sse' ? ['sse', 'sse'] : ['http', 'mcp'];
  const { call } = await using({ type, url: `http://127.0.0.1:${port}/${path}` });
  expect(await call('s_echo', { message: 'far' })).toBe('Echo: far');
});

test.each(['application/json', 'text/event-stream'])(
  'an answer without an end (%s) costs only its server, not the memory of all',
  verifies('MCP-1', 'MC-07'),
  async (type) => {
    let sent = 0;
    const url = await listening((request, response) => {
      request.resume();
      response.writeHead(200, { 'content-type': type });
      const more = (): void => {
        while (sent < 400 * 1024 * 1024) {
          sent += 1 << 20;
          if (!response.write(Buffer.alloc(1 << 20, 120))) return void response.once('drain', more);
        }
        response.end();
      };
      more();
    });
    const { servers, tools } = await using({ url, session_init_timeout: 3 });
    expect(tools).toEqual([]);
    expect(servers.status()).toMatchObject([{ state: 'failed' }]);
    expect(sent).toBeLessThan(64 * 1024 * 1024);
  },
);

/** Gives tokens out. */
async function issuer(answer: (form: URLSearchParams, count: number) => { status?: number; json: unknown }) {
  const asked: URLSearchParams[] = [];
  const url = await listening(async (request, response) => {
    const form = new URLSearchParams(await bodyOf(request));
    asked.push(form);
    const { status = 200, json } = answer(form, asked.length);
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(json));
  });
  return { token_url: `${url}/token`, asked };
}

test(
  'a token is asked for once for all who need it, kept, and replaced when the server refuses it; what rotates is used',
  verifies('MCP-6'),
  async () => {
    let accepted = 'Bearer first';
    const { token_url, asked } = await issuer((form, count) => ({
      json:
        count === 1
          ? { access_token: 'first', token_type: 'bearer', expires_in: 3600, refresh_token: 'two' }
          : { access_token: 'second', expires_in: 3600, note: form.get('refresh_token') },
    }));
    const shown: unknown[] = [];
    const { url } = await serve(({ request, response }) => {
      shown.push(request.headers.authorization);
      if (request.headers.authorization === accepted) return false;
      response.writeHead(401).end();
      return true;
    });
    const oauth = {
      token_url,
      grant_type: 'refresh_token',
      client_id: 'me',
      client_secret: 'hush',
      refresh_token: 'one',
      extra_token_params: { grant_type: 'password', resource: 'x' },
    };
    const { call } = await using({ url, oauth });
    await Promise.all([call(), call()]);
    expect(asked).toHaveLength(1);
    expect(Object.fromEntries(asked[0] ?? [])).toEqual({
      grant_type: 'refresh_token',
      resource: 'x',
      client_id: 'me',
      client_secret: 'hush',
      refresh_token: 'one',
    });
    accepted = 'Bearer second';
    expect(await call()).toBe('did do');
    expect(asked[1]?.get('refresh_token')).toBe('two');
    expect(shown.at(-1)).toBe('Bearer second');
  },
);

test(
  'a server whose token cannot be had costs only itself, and no secret is told',
  verifies('MCP-6', 'MC-07'),
  async () => {
    const { token_url } = await issuer(() => ({ status: 500, json: { error: 'hush-hush' } }));
    const { url } = await serve(() => false);
    const oauth = { token_url, client_id: 'me', client_secret: 'hush-hush' };
    const { servers, tools, logger } = await using({ url, oauth }, { open: { type: 'http', url } });
    expect(tools.map((tool) => tool.name)).toEqual(['open_do']);
    const failed = servers.status().find((one) => one.name === 's');
    expect(failed?.reason).toMatch(/token address .* status 500/);
    expect(JSON.stringify([failed, logger.lines])).not.toContain('hush-hush');
  },
);
