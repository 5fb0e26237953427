import { describe, expect, test } from 'vitest';
import type { StreamPart } from './api.ts';
import { httpApi } from './http-api.ts';
import { ApiError } from './trouble.ts';

interface Call {
  readonly method: string;
  readonly path: string;
  readonly headers: Headers;
  readonly body: string | FormData | null;
}

function serve(answer: (call: Call) => Response | Error, token: string | null = null) {
  const calls: Call[] = [];
  const reached: boolean[] = [];
  let ids = 0;
  const api = httpApi({
    url: 'http://reindeer.test/api',
    token: () => token,
    newId: () => `key-${++ids}`,
    onConnection: (now) => reached.push(now),
    fetch: async (input, init) => {
      const url = new URL(String(input));
      const call: Call = {
        method: init?.method ?? 'GET',
        path: url.pathname + url.search,
        headers: new Headers(init?.headers),
        body: (init?.body ?? null) as Call['body'],
      };
      calls.push(call);
      const response = answer(call);
      if (response instanceof Error) throw response;
      return response;
    },
  });
  return { api, calls, reached };
}

const json = (value: unknown, init: ResponseInit = {}) => Response.json(value, init);
const events = (text: string, headers: Record<string, string> = {}) =>
  new Response(text, { headers: { 'content-type': 'text/event-stream', ...headers } });
const never = new AbortController().signal;

async function collect(stream: AsyncIterable<StreamPart>): Promise<StreamPart[]> {
  const parts: StreamPart[] = [];
  for await (const part of stream) parts.push(part);
  return parts;
}

describe('runs', () => {
  test('start so that they outlive the page, with the token and a key of their own', async () => {
    const { api, calls } = serve(
      () =>
        events(
          'event: metadata\ndata: {"run_id":"r1"}\n\nid: e-1\nevent: values\ndata: {"messages":[]}\n\nevent: end\ndata: null\n\n',
          { 'content-location': '/api/threads/t/runs/r1' },
        ),
      'secret',
    );
    const names: string[] = [];
    const start = { threadId: 't', model: 'demo', signal: never, onRun: (id: string) => names.push(id) };
    const parts = await collect(api.startRun({ ...start, input: { messages: [] } }));
    expect(parts.find((part) => part.event === 'values')).toMatchObject({ id: 'e-1', data: { messages: [] } });
    expect(names).toEqual(['r1']);
    await collect(api.startRun({ ...start, input: null, resume: { decisions: [] } }));
    expect(
      calls.map((call) => [
        call.method,
        call.path,
        call.headers.get('authorization'),
        call.headers.get('idempotency-key'),
      ]),
    ).toEqual([
      ['POST', '/api/threads/t/runs/stream', 'Bearer secret', 'key-1'],
      ['POST', '/api/threads/t/runs/stream', 'Bearer secret', 'key-2'],
    ]);
    const bodies = calls.map((call) => JSON.parse(String(call.body)) as object);
    expect(bodies[0]).toMatchObject({
      assistant_id: 'lead_agent',
      input: { messages: [] },
      context: { model_name: 'demo' },
      stream_mode: ['values', 'messages-tuple', 'custom'],
      on_disconnect: 'continue',
      multitask_strategy: 'reject',
    });
    expect(bodies[1]).toMatchObject({ command: { resume: { decisions: [] } } });
    expect(bodies[1]).not.toHaveProperty('input');
  });

  test('are joined after the event that was seen last, or from their beginning', async () => {
    const { api, calls } = serve(() => events('event: end\ndata: null\n\n'));
    await collect(api.joinRun({ threadId: 't', runId: 'r', lastEventId: 'e-7', signal: never }));
    await collect(api.joinRun({ threadId: 't', runId: 'r', lastEventId: null, signal: never }));
    expect(calls.map((call) => call.headers.get('last-event-id'))).toEqual(['e-7', '-1']);
    expect(calls[0]?.path).toContain('/api/threads/t/runs/r/stream?');
    expect(calls[0]?.path).toContain('cancel_on_disconnect=0');
  });

  test('a refusal carries what the server said', async () => {
    const { api } = serve(() => json({ detail: 'The thread is busy.', code: 'conflict' }, { status: 409 }));
    const error = await collect(
      api.startRun({ threadId: 't', model: null, signal: never, onRun: () => {}, input: {} }),
    ).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(ApiError);
    expect(error).toMatchObject({ status: 409, trouble: { kind: 'busy', detail: 'The thread is busy.' } });
  });

  test('a stop tells apart what has stopped, what still runs and what had ended before', async () => {
    const answers = [
      new Response(null, { status: 204 }),
      json({ stopped: false, still_running: ['bash'] }, { status: 202 }),
      json({ detail: 'It has ended.' }, { status: 409 }),
      json({ detail: 'No.' }, { status: 503 }),
    ];
    const { api, calls } = serve(() => answers.shift() ?? new Error('too many'));
    expect(await api.stopRun('t', 'r')).toEqual({ stopped: true, stillRunning: [] });
    expect(await api.stopRun('t', 'r')).toEqual({ stopped: false, stillRunning: ['bash'] });
    expect(await api.stopRun('t', 'r')).toEqual({ stopped: true, stillRunning: [] });
    await expect(api.stopRun('t', 'r')).rejects.toMatchObject({ trouble: { kind: 'server', detail: 'No.' } });
    expect(calls[0]?.path).toBe('/api/threads/t/runs/r/cancel?wait=1&action=interrupt');
  });
});

describe('threads', () => {
  test('that do not exist are null, and other failures are failures', async () => {
    const status = { now: 404 };
    const { api } = serve(() => json({ detail: 'x' }, { status: status.now }));
    expect(await api.state('t')).toBeNull();
    expect(await api.newestRun('t')).toBeNull();
    status.now = 401;
    await expect(api.state('t')).rejects.toMatchObject({ trouble: { kind: 'token' } });
  });

  test('tell what they wait for, wherever it stands', async () => {
    const interrupt = { id: 'i', value: 'Sure?' };
    const states = [
      { values: {}, next: ['x'], interrupts: [interrupt], tasks: [] },
      { values: {}, next: ['x'], tasks: [{ id: 't', name: 'x', interrupts: [interrupt] }] },
    ];
    const { api } = serve(() => json(states.shift()));
    expect((await api.state('t'))?.interrupts).toEqual([interrupt]);
    expect((await api.state('t'))?.interrupts).toEqual([interrupt]);
  });
});

describe('files', () => {
  test('are asked for in part, and whole when they are empty', async () => {
    const { api, calls } = serve((call) =>
      call.path.endsWith('empty.txt')
        ? call.headers.has('range')
          ? json({ detail: 'no such range' }, { status: 416 })
          : new Response('')
        : new Response('part', { status: 206, headers: { 'content-range': 'bytes 0-3/900' } }),
    );
    const part = await api.file('t', '/mnt/user-data/outputs/a b#.txt', 4, never);
    expect([await part.blob.text(), part.size]).toEqual(['part', 900]);
    expect(calls[0]?.path).toBe('/api/threads/t/artifacts/mnt/user-data/outputs/a%20b%23.txt');
    expect(calls[0]?.headers.get('range')).toBe('bytes=0-3');
    const empty = await api.file('t', '/mnt/user-data/outputs/empty.txt', 4, never);
    expect([await empty.blob.text(), empty.size]).toEqual(['', 0]);
  });

  test('are sent as a form, and what was not taken is told', async () => {
    const { api, calls } = serve(() =>
      json({
        files: [{ filename: 'a.txt', size: 1, virtual_path: '/mnt/user-data/uploads/a.txt' }],
        skipped_files: [{ filename: 'b', reason: 'bad name' }],
      }),
    );
    const result = await api.upload('t', [new File(['x'], 'a.txt')], never);
    expect(result).toEqual({
      files: [{ name: 'a.txt', path: '/mnt/user-data/uploads/a.txt', size: 1 }],
      skipped: ['b: bad name'],
    });
    const body = calls[0]?.body;
    expect(body).toBeInstanceOf(FormData);
    expect((body as FormData).getAll('files')).toHaveLength(1);
  });
});

test('models, sandbox and limits are read with care', async () => {
  const { api } = serve((call) => {
    if (call.path.endsWith('/models'))
      return json({
        models: [
          { name: 'demo', display_name: 'Demo', demo: true },
          { name: 'x', supports_reasoning_effort: true },
          { nonsense: 1 },
          7,
        ],
      });
    if (call.path.endsWith('/features'))
      return json({
        agents_api: { enabled: true },
        sandbox: { provider: 'p', canExecute: false, reason: 'r', remedy: 'm' },
      });
    return json({});
  });
  const abilities = { thinks: false, effort: false, sees: false };
  expect(await api.models()).toEqual([
    { name: 'demo', displayName: 'Demo', description: '', demo: true, ...abilities, model: '' },
    { name: 'x', displayName: 'x', description: '', demo: false, ...abilities, effort: true, model: '' },
  ]);
  expect(await api.features()).toEqual({
    agents: true,
    sandbox: { provider: 'p', canExecute: false, reason: 'r', remedy: 'm' },
  });
  expect(await api.uploadLimits('t')).toMatchObject({ maxFiles: 10 });
});

test('a chat is pinned by its metadata, and loosed by taking that away', async () => {
  const bodies: unknown[] = [];
  const { api } = serve((call) => {
    bodies.push(JSON.parse(String(call.body)));
    return json(call.path.endsWith('/search') ? [{ thread_id: 't', metadata: { pinned: true } }] : {});
  });
  await api.pinThread('t', true);
  await api.pinThread('t', false);
  expect(bodies).toMatchObject([{ metadata: { pinned: true } }, { metadata: { pinned: null } }]);
  expect((await api.searchThreads(1, 0))[0]?.pinned).toBe(true);
});

test('chats are found by what is said in them', async () => {
  const asked: unknown[] = [];
  const { api } = serve((call) => {
    asked.push([call.method, call.path, JSON.parse(String(call.body))]);
    return json({
      data: [
        { thread: { thread_id: 't', values: { title: 'Winter' } }, match: { snippet: 'reindeer see' } },
        { thread: { thread_id: 'u', values: {} }, match: {} },
      ],
      complete: false,
    });
  });
  expect(await api.findInChats('reindeer', new AbortController().signal)).toEqual({
    chats: [
      { threadId: 't', title: 'Winter', snippet: 'reindeer see' },
      { threadId: 'u', title: null, snippet: '' },
    ],
    complete: false,
  });
  expect(asked).toEqual([['POST', '/api/threads/messages/search', { query: 'reindeer', limit: 20 }]]);
});

test('a server that is not there is noticed, and its return as well', async () => {
  const answers = [new TypeError('Failed to fetch'), json({ models: [] })];
  const { api, reached } = serve(() => answers.shift() ?? new Error('too many'));
  await expect(api.models()).rejects.toMatchObject({ trouble: { kind: 'network' } });
  await api.models();
  expect(reached).toEqual([false, true]);
});
