import { connect } from 'node:net';
import { Client } from '@langchain/langgraph-sdk';
import { ReindeerError } from '@reindeer/protocol';
import { makeRun, verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Fixture, makeState, startFixture } from '../testing/http-fixture.ts';

let fixture: Fixture;
beforeEach(async () => {
  fixture = await startFixture();
  fixture.threads.add('thread-1');
});
afterEach(() => fixture.close());

const RUNS = '/api/threads/thread-1/runs';
const post = (path: string, body: unknown, signal: AbortSignal | null = null) =>
  fetch(`${fixture.url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
    signal,
  });
const client = () => new Client({ apiUrl: `${fixture.url}/api`, apiKey: null, callerOptions: { maxRetries: 0 } });

describe('streaming', () => {
  test(
    'the SDK streams a run: run id from Content-Location, metadata first, end last',
    verifies('API-03'),
    async () => {
      const created: unknown[] = [];
      const events: unknown[] = [];
      for await (const part of client().runs.stream('thread-1', 'lead_agent', {
        input: { messages: [] },
        streamMode: ['values', 'custom'],
        onRunCreated: (run) => created.push(run),
      }))
        events.push(part.event);
      const [run] = [...fixture.runs.rows.values()];
      expect(created).toEqual([{ run_id: run?.runId, thread_id: 'thread-1' }]);
      expect(events[0]).toBe('metadata');
      expect(events.at(-1)).toBe('end');
      expect(run?.request.streamModes).toEqual(['values', 'custom']);
      expect(run?.onDisconnect).toBe('cancel');
    },
  );

  test('headers are exactly those that clients and proxies need', verifies('API-03'), async () => {
    const response = await post('/api/langgraph/threads/thread-1/runs/stream', { stream_resumable: true });
    const [run] = [...fixture.runs.rows.values()];
    expect(response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
    expect(response.headers.get('content-location')).toBe(`/api/threads/thread-1/runs/${run?.runId}`);
    expect(response.headers.get('location')).toBe(`/threads/thread-1/runs/${run?.runId}/stream`);
    expect(response.headers.get('x-accel-buffering')).toBe('no');
    expect(response.headers.get('x-content-type-options')).toBe('nosniff');
    expect(run?.onDisconnect).toBe('continue');
    expect(await response.text()).toBe(
      `event: metadata\ndata: {"run_id":"${run?.runId}","thread_id":"thread-1"}\n\nid: e-1\nevent: values\ndata: {"messages":[]}\n\nevent: end\ndata: null\n\n`,
    );
    expect(fixture.runs.disconnections).toEqual([]);
  });

  test('a client that leaves is reported once, after its stream was released', async () => {
    const released = Promise.withResolvers<void>();
    const reported = Promise.withResolvers<void>();
    fixture.runs.onDisconnected = () => reported.resolve();
    fixture.runs.source = async function* (input) {
      try {
        yield { id: 'e-1', event: 'values', data: '{}' };
        await new Promise<void>((resolve) => input.signal.addEventListener('abort', () => resolve(), { once: true }));
      } finally {
        released.resolve();
      }
    };
    const controller = new AbortController();
    const response = await post(`${RUNS}/stream`, {}, controller.signal);
    const reader = response.body?.getReader();
    await reader?.read();
    controller.abort();
    await released.promise;
    await reported.promise;
    expect(fixture.runs.disconnections).toHaveLength(1);
    expect(fixture.runs.cancels).toEqual([]);
  });

  test('`cancel_on_disconnect` cancels when this reader leaves', async () => {
    const reported = Promise.withResolvers<void>();
    fixture.runs.onDisconnected = () => reported.resolve();
    fixture.runs.rows.set('run-1', makeRun());
    fixture.runs.source = async function* (input) {
      yield { id: 'e-1', event: 'values', data: '{}' };
      await new Promise<void>((resolve) => input.signal.addEventListener('abort', () => resolve(), { once: true }));
    };
    const controller = new AbortController();
    const response = await fetch(
      `${fixture.url}${RUNS}/run-1/stream?cancel_on_disconnect=1&stream_mode=values&stream_mode=custom`,
      { headers: { 'last-event-id': '-1' }, signal: controller.signal },
    );
    await response.body?.getReader().read();
    controller.abort();
    await reported.promise;
    expect(fixture.runs.cancels).toEqual([{ runId: 'run-1', action: 'interrupt', wait: false }]);
    expect(fixture.runs.streams[0]).toMatchObject({ lastEventId: '-1', modes: ['values', 'custom'] });
  });

  test(
    'a slow reader makes the source wait instead of filling memory, and is let go in the end',
    verifies('RS-21', 'ND-09'),
    async () => {
      const patient = await startFixture({ stalledMs: 300 });
      try {
        patient.runs.rows.set('run-1', makeRun());
        patient.threads.add('thread-1');
        const chunk = 'x'.repeat(64 * 1024);
        let produced = 0;
        const ended = Promise.withResolvers<void>();
        const reported = Promise.withResolvers<void>();
        patient.runs.onDisconnected = () => reported.resolve();
        patient.runs.source = async function* () {
          try {
            for (;;) {
              produced += 1;
              yield { id: `e-${produced}`, event: 'values', data: chunk };
            }
          } finally {
            ended.resolve();
          }
        };
        const socket = connect(patient.port, '127.0.0.1');
        socket.on('error', () => {});
        socket.write(`GET ${RUNS}/run-1/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`);
        await new Promise<void>((resolve) => socket.once('data', () => resolve()));
        socket.pause();
        // Endless data and a reader that takes nothing: what was produced is what the socket buffers hold.
        await ended.promise;
        await reported.promise;
        expect(produced).toBeLessThan(400);
        socket.destroy();
      } finally {
        await patient.close();
      }
    },
  );

  test('heartbeats are comments; a source that fails ends with error and end', async () => {
    fixture.runs.source = async function* () {
      yield 'heartbeat' as const;
      throw new ReindeerError('store_unavailable', 'secret path');
    };
    const text = await (await post(`${RUNS}/stream`, {})).text();
    expect(text.startsWith(': heartbeat\n\nevent: error\ndata: {"error":"store_unavailable"')).toBe(true);
    expect(text.endsWith('event: end\ndata: null\n\n')).toBe(true);
    expect(text).not.toContain('secret path');
  });

  test('attaching needs the run of this thread', verifies('SEC-01'), async () => {
    fixture.runs.rows.set('run-1', makeRun({ userId: 'somebody' }));
    fixture.runs.rows.set('run-2', makeRun({ runId: 'run-2', threadId: 'other' }));
    for (const run of ['run-1', 'run-2', 'none'])
      for (const path of ['', '/stream', '/join', '/messages', '/events'])
        expect((await fetch(`${fixture.url}${RUNS}/${run}${path}`)).status).toBe(404);
    expect((await post(`${RUNS}/run-1/cancel`, {})).status).toBe(404);
    expect(fixture.runs.cancels).toEqual([]);
  });
});

describe('waiting and joining', () => {
  test('wait answers the final values and names the run at once', async () => {
    fixture.threads.states.set('thread-1', [
      {
        ...makeState('thread-1', 'c1', { messages: [], title: 'T', __pregel: 1 }),
        interrupts: [{ id: 'i', value: 1 }],
      },
    ]);
    const response = await post(`${RUNS}/wait`, {});
    expect(response.headers.get('content-location')).toMatch(/^\/api\/threads\/thread-1\/runs\/[^/]+$/);
    expect(await response.json()).toEqual({ messages: [], title: 'T', __interrupt__: [{ id: 'i', value: 1 }] });
  });

  test('a failed run makes the SDK throw its message', async () => {
    fixture.runs.joined = async (run) => ({ ...run, status: 'error', error: 'The model failed.' });
    await expect(client().runs.wait('thread-1', 'lead_agent', { input: null })).rejects.toThrow('The model failed.');
  });

  test('a long wait keeps the line alive with spaces', async () => {
    const quick = await startFixture({ heartbeatMs: 5 });
    try {
      quick.threads.add('thread-1');
      const release = Promise.withResolvers<void>();
      quick.runs.joined = async (run) => {
        await release.promise;
        return { ...run, status: 'success' };
      };
      const response = await fetch(`${quick.url}${RUNS}/wait`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: '{}',
      });
      const reader = response.body?.getReader();
      const first = await reader?.read();
      expect(new TextDecoder().decode(first?.value)).toMatch(/^ +$/);
      release.resolve();
      let rest = '';
      for (let part = await reader?.read(); part?.done === false; part = await reader?.read())
        rest += new TextDecoder().decode(part.value);
      expect(JSON.parse(rest)).toEqual({});
    } finally {
      await quick.close();
    }
  });

  test('join answers JSON, or the stream when asked for it', async () => {
    fixture.runs.rows.set('run-1', makeRun());
    fixture.threads.states.set('thread-1', [makeState('thread-1', 'c1', { title: 'T' })]);
    expect(await client().runs.join('thread-1', 'run-1')).toEqual({ title: 'T' });
    const stream = await fetch(`${fixture.url}${RUNS}/run-1/join`, {
      headers: { accept: 'text/event-stream', 'last-event-id': 'e-1' },
    });
    expect(await stream.text()).toContain('event: end');
    expect(fixture.runs.streams[0]?.lastEventId).toBe('e-1');
  });

  test('a waiting client that leaves is reported', async () => {
    const reported = Promise.withResolvers<void>();
    fixture.runs.onDisconnected = () => reported.resolve();
    fixture.runs.joined = (_, signal) =>
      new Promise((resolve) => signal?.addEventListener('abort', () => resolve(null), { once: true }));
    const controller = new AbortController();
    const response = await post(`${RUNS}/wait`, {}, controller.signal);
    expect(response.status).toBe(200);
    controller.abort();
    await response.text().catch(() => '');
    await reported.promise;
  });
});
