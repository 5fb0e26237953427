import { Client } from '@langchain/langgraph-sdk';
import { ReindeerError } from '@reindeer/protocol';
import { makeRun, verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { didYouMean } from '../nearest.ts';
import { type Fixture, makeState, rawRequest, startFixture } from '../testing/http-fixture.ts';
import { MAX_PROBLEMS } from './errors.ts';
import { JSON_DEPTH_LIMIT } from './route.ts';

// Calls go through; they are only counted.
vi.mock('../nearest.ts', { spy: true });

let fixture: Fixture;
beforeEach(async () => {
  fixture = await startFixture();
  fixture.threads.add('thread-1');
});
afterEach(() => fixture.close());

const post = (path: string, body: unknown, headers: Record<string, string> = {}) =>
  fetch(`${fixture.url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
const bodyOf = async (response: Response) => (await response.json()) as Record<string, unknown>;
const detailOf = async (response: Response) =>
  (await response.json()) as { detail: string | { loc: string[]; msg: string; type: string }[]; code: string };
const RUNS = '/api/threads/thread-1/runs';
const client = () => new Client({ apiUrl: `${fixture.url}/api`, apiKey: null, callerOptions: { maxRetries: 0 } });

describe('creating a run', () => {
  test('what the SDK sends with all its defaults is taken', verifies('API-04'), async () => {
    const run = await client().runs.create('thread-1', 'lead_agent', {
      input: { messages: [{ role: 'user', content: 'hi' }] },
      streamResumable: false,
      durability: 'exit',
      checkpointDuring: true,
      multitaskStrategy: 'interrupt',
      ifNotExists: 'create',
      config: {
        recursion_limit: 5000,
        tags: ['a'],
        configurable: { thread_id: 'thread-1', user_id: 'root', __x: 1, mine: 2 },
      },
      context: { model_name: 'demo', user_id: 'root', is_internal: true, oauth_id: 'x' },
      metadata: { owner_id: 'root', note: 'kept' },
    });
    expect(run).toMatchObject({ thread_id: 'thread-1', status: 'running', assistant_id: 'lead_agent' });
    const [input] = fixture.runs.created;
    expect(input).toMatchObject({
      threadId: 'thread-1',
      multitaskStrategy: 'interrupt',
      createThread: true,
      onDisconnect: 'continue',
      metadata: { note: 'kept' },
    });
    expect(input?.metadata).not.toHaveProperty('owner_id');
    expect(input?.request.config).toEqual({ recursion_limit: 1000, tags: ['a'], configurable: { mine: 2 } });
  });

  test('identity keys never come from a client', verifies('SEC-06'), async () => {
    await post(RUNS, {
      context: { user_id: 'root', user_role: 'admin', is_internal: true, oauth_id: '1', __secret: 1, thread_id: 'x' },
      config: { configurable: { user_id: 'root', model_name: 'demo' } },
    });
    const [input] = fixture.runs.created;
    expect(input?.userId).toBe('default');
    expect(input?.request.context).toEqual({ model_name: 'demo' });
    expect(JSON.stringify(input?.request)).not.toContain('root');
  });

  test('unknown fields are refused with the nearest valid name', verifies('API-04'), async () => {
    const response = await post(RUNS, { strem_mode: 'values', input: null, context: { modle_name: 'x' } });
    expect(response.status).toBe(422);
    const { detail, code } = await detailOf(response);
    expect(code).toBe('validation_failed');
    expect(detail).toEqual([
      {
        loc: ['body', 'strem_mode'],
        msg: 'Unknown field "strem_mode". Did you mean "stream_mode"?',
        type: 'unknown_field',
      },
    ]);
    const context = await detailOf(await post(RUNS, { context: { modle_name: 'x' } }));
    expect(context.detail).toMatchObject([
      { loc: ['body', 'context', 'modle_name'], msg: expect.stringContaining('model_name') },
    ]);
    for (const interruptOn of ['bash', [1], { bash: 'yes' }]) {
      const asked = await detailOf(await post(RUNS, { context: { interrupt_on: interruptOn } }));
      expect(asked.detail).toMatchObject([{ loc: ['body', 'context', 'interrupt_on'] }]);
    }
    expect(fixture.runs.created).toEqual([]);
  });

  test.each([
    [{ stream_mode: 'events' }, 'stream_mode'],
    [{ stream_mode: ['values', 'lights'] }, 'stream_mode'],
    [{ webhook: 'https://x.example' }, 'webhook'],
    [{ after_seconds: 5 }, 'after_seconds'],
    [{ feedback_keys: ['x'] }, 'feedback_keys'],
    [{ on_completion: 'delete' }, 'on_completion'],
    [{ checkpoint: { checkpoint_ns: 'sub', checkpoint_id: 'c' } }, 'checkpoint'],
  ])('%j cannot be honoured and says so', verifies('API-04'), async (body, field) => {
    const response = await post(RUNS, body);
    expect(response.status).toBe(422);
    const answer = await detailOf(response);
    expect(answer.code).toBe('unsupported_option');
    expect(answer.detail).toMatchObject([{ loc: expect.arrayContaining(['body', field]) }]);
    expect(fixture.runs.created).toEqual([]);
  });

  test('null and empty forms of the same fields are fine', async () => {
    const response = await post(RUNS, {
      webhook: null,
      after_seconds: null,
      feedback_keys: [],
      on_completion: 'keep',
      stream_resumable: false,
      checkpoint: null,
      stream_mode: [],
    });
    expect(response.status).toBe(200);
    expect(fixture.runs.created[0]?.request.streamModes).toEqual(['values']);
  });

  test('malformed messages are refused with their index', async () => {
    const response = await post(RUNS, {
      input: {
        messages: [
          { role: 'user', content: 'ok' },
          { role: 'wizard', content: 'x' },
          { type: 'tool', content: 'x' },
          5,
        ],
      },
    });
    expect(response.status).toBe(400);
    const { detail } = await detailOf(response);
    expect((detail as { loc: unknown[] }[]).map((entry) => entry.loc.at(-1))).toEqual([1, 2, 3]);
  });

  test('input and command exclude each other; unknown command fields are named', async () => {
    expect((await post(RUNS, { input: { messages: [] }, command: { resume: 1 } })).status).toBe(422);
    expect((await post(RUNS, { command: { resme: 1 } })).status).toBe(422);
    expect((await post(RUNS, { command: { resume: null } })).status).toBe(200);
    expect(fixture.runs.created[0]?.request.command).toEqual({ resume: null });
  });

  test('unknown models, assistants, checkpoints and threads are named', async () => {
    const model = await post(RUNS, { context: { model_name: 'demi' } });
    expect(model.status).toBe(400);
    expect((await detailOf(model)).detail).toContain('Did you mean "demo"');
    expect((await post(RUNS, { assistant_id: 'nobody' })).status).toBe(404);
    expect((await post(RUNS, { checkpoint_id: 'missing' })).status).toBe(404);
    const thread = await post('/api/threads/unknown/runs', {});
    expect(thread.status).toBe(404);
    expect((await detailOf(thread)).detail).toContain('if_not_exists');
    fixture.threads.states.set('thread-1', [makeState('thread-1', 'c1')]);
    expect((await post(RUNS, { checkpoint: { checkpoint_id: 'c1', checkpoint_ns: '' } })).status).toBe(200);
    expect((await post(RUNS, { checkpoint: { checkpoint_id: 'c1', thread_id: 'other' } })).status).toBe(404);
  });

  test(
    'secrets have no place in metadata and are masked in what is read back',
    verifies('SEC-05', 'RT-30'),
    async () => {
      const refused = await post(RUNS, { metadata: { deep: { apiKey: 'sk-123' } } });
      expect(refused.status).toBe(422);
      const answer = await post(RUNS, { config: { configurable: { service_token: 'abc', max_tokens: 5 } } });
      const text = await answer.text();
      expect(text).not.toContain('abc');
      expect(text).toContain('"max_tokens":5');
      expect(JSON.stringify(fixture.runs.created.at(-1))).not.toContain('abc');
      fixture.runs.rows.set(
        'old',
        makeRun({
          runId: 'old',
          metadata: { password: 'hunter2' },
          request: { ...makeRun().request, config: { configurable: { authorization: 'Bearer x' } } },
        }),
      );
      // Also rows of before, alone and in lists.
      for (const path of [`${RUNS}/old`, RUNS]) {
        const read = await (await fetch(`${fixture.url}${path}`)).text();
        expect(read).toContain('"run_id":"old"');
        expect(read).not.toContain('hunter2');
        expect(read).not.toContain('Bearer x');
      }
    },
  );

  test('a busy thread answers 409 and says what can be done', verifies('API-05'), async () => {
    fixture.runs.admission = () => ({ outcome: 'conflict', reason: 'busy', active: makeRun({ runId: 'other' }) });
    const response = await post(RUNS, {});
    expect(response.status).toBe(409);
    const body = await bodyOf(response);
    expect(body).toMatchObject({ code: 'conflict', info: { reason: 'busy', run_id: 'other' } });
    expect(body.detail).toContain('multitask_strategy');
  });

  test('a run of another instance: come again when its lease is over', verifies('RL-28'), async () => {
    const conflict = { outcome: 'conflict', reason: 'live_elsewhere', active: makeRun({ runId: 'other' }) } as const;
    fixture.runs.admission = () => ({ ...conflict, leaseLeftMs: 7_001 });
    const response = await post(RUNS, { multitask_strategy: 'interrupt' });
    expect(response.status).toBe(409);
    expect(response.headers.get('retry-after')).toBe('8');
    expect(await bodyOf(response)).toMatchObject({ info: { run_id: 'other', retry_after_seconds: 8 } });
  });

  test('a run that waits for its turn is answered as pending; a full queue answers 429', async () => {
    fixture.runs.admission = () => ({
      outcome: 'queued',
      run: makeRun({ status: 'pending', queued: true, owner: null, attempt: 0 }),
      ahead: 3,
      free: false,
    });
    const queued = await post(RUNS, { multitask_strategy: 'enqueue' });
    expect(queued.status).toBe(200);
    expect(fixture.runs.created[0]?.multitaskStrategy).toBe('enqueue');
    expect(await bodyOf(queued)).toMatchObject({ run_id: 'run-1', status: 'pending' });
    fixture.runs.admission = () => ({ outcome: 'conflict', reason: 'queue_full', active: makeRun() });
    const full = await post(RUNS, { multitask_strategy: 'enqueue' });
    expect(full.status).toBe(429);
    expect(Number(full.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(await bodyOf(full)).toMatchObject({ code: 'queue_full', info: { reason: 'queue_full' } });
  });

  test('the idempotency key goes through; a malformed one is refused', async () => {
    await post(RUNS, {}, { 'idempotency-key': 'k-1' });
    expect(fixture.runs.created[0]?.idempotencyKey).toBe('k-1');
    expect((await post(RUNS, {}, { 'idempotency-key': 'a b' })).status).toBe(400);
  });

  test('no new run while the server stops', verifies('GW-20'), async () => {
    fixture.intake = { ready: false, stopping: true };
    const response = await post(RUNS, {});
    expect(response.status).toBe(503);
    expect(response.headers.get('retry-after')).toBe('5');
    expect(await response.json()).toMatchObject({ code: 'shutting_down' });
    expect(fixture.runs.created).toEqual([]);
    expect((await fetch(`${fixture.url}/health`)).status).toBe(200);
    expect((await fetch(`${fixture.url}/health/ready`)).status).toBe(503);
  });
});

describe('bad requests', () => {
  test('malformed JSON, wrong ids and oversized bodies are answered with advice', async () => {
    const broken = await post(RUNS, '{"input": ');
    expect(broken.status).toBe(400);
    expect((await detailOf(broken)).detail).toContain('not valid JSON');
    const id = await post('/api/threads/a%2Fb/runs', {});
    expect(id.status).toBe(422);
    expect((await post(`/api/threads/${'x'.repeat(65)}/runs`, {})).status).toBe(422);
    const large = await rawRequest(fixture.port, {
      method: 'POST',
      path: RUNS,
      headers: { host: '127.0.0.1', 'content-type': 'application/json', 'content-length': String(21 * 1024 * 1024) },
      body: '{',
    }).catch((error: unknown) => String(error));
    expect(large).toMatchObject({ status: 413 });
    expect((await post(RUNS, Buffer.from([0x22, 0xff, 0x22]).toString('latin1'))).status).toBe(422);
  });

  test('a body that is too deep is refused before anything recurses over it', async () => {
    const nested = (levels: number) => `${'['.repeat(levels)}1${']'.repeat(levels)}`;
    for (const body of [
      `{"metadata": {"a": ${nested(200_000)}}}`,
      `{"input": {"messages": [{"type": "human", "content": [{"type": "text", "text": ${nested(5_000)}}]}]}}`,
      `{"command": {"resume": ${'{"a":'.repeat(5_000)}1${'}'.repeat(5_000)}}}`,
      `{"metadata": {"a": ${nested(JSON_DEPTH_LIMIT - 1)}}}`,
    ]) {
      const response = await post(RUNS, body);
      expect(response.status).toBe(400);
      expect((await detailOf(response)).detail).toContain('levels');
    }
    expect(fixture.runs.created).toHaveLength(0);
    expect((await post(RUNS, `{"metadata": {"a": ${nested(JSON_DEPTH_LIMIT - 2)}}}`)).status).toBe(200);
  });

  test('unknown fields without end cost no more than the ones that are named', async () => {
    const many = Object.fromEntries(Array.from({ length: 20_000 }, (_, n) => [`unknown_field_${n}`, 1]));
    vi.mocked(didYouMean).mockClear();
    for (const body of [many, { context: many }, { command: many }, { config: { context: many } }]) {
      const response = await post(RUNS, body);
      expect(response.status).toBe(422);
      expect((await detailOf(response)).detail).toHaveLength(MAX_PROBLEMS);
    }
    expect(vi.mocked(didYouMean).mock.calls.length).toBeLessThanOrEqual(4 * MAX_PROBLEMS);
  });

  test('unknown addresses and methods are answered as JSON with the nearest', async () => {
    const unknown = await fetch(`${fixture.url}/api/thread/search`);
    expect(unknown.status).toBe(404);
    expect((await detailOf(unknown)).detail).toContain('Did you mean "/threads/search"');
    const method = await fetch(`${fixture.url}/api/threads/x/copy`);
    expect((await detailOf(method)).detail).toContain('POST');
  });

  test('what the SDK knows and this version does not do is told apart', async () => {
    for (const call of [
      client().store.getItem(['a'], 'b'),
      client().runs.createBatch([]),
      client().threads.prune(['a']),
      client().assistants.create({ graphId: 'x' }),
    ])
      await expect(call).rejects.toThrow(/501.*not supported by this version/s);
  });

  test('faults inside leak nothing', async () => {
    fixture.runs.admission = () => {
      throw new Error('SELECT * FROM /root/secret');
    };
    const plain = await post(RUNS, {});
    expect(plain.status).toBe(500);
    expect(await plain.text()).not.toContain('SELECT');
    fixture.runs.admission = () => {
      throw new ReindeerError('store_unavailable', '/home/me/.reindeer/data.db is busy', {
        retryable: true,
        detail: { file: '/home/me' },
      });
    };
    const store = await post(RUNS, {});
    expect(store.status).toBe(503);
    expect(store.headers.get('retry-after')).toBe('2');
    expect(await store.text()).not.toContain('/home/me');
  });
});

describe('cancelling', () => {
  beforeEach(() => {
    fixture.runs.rows.set('run-1', makeRun());
  });

  test('202 at once, 204 when stopped, 202 when something still runs', verifies('API-05'), async () => {
    expect((await post(`${RUNS}/run-1/cancel`, '')).status).toBe(202);
    expect((await post(`${RUNS}/run-1/cancel?wait=1&action=rollback`, '')).status).toBe(204);
    expect(fixture.runs.cancels).toEqual([
      { runId: 'run-1', action: 'interrupt', wait: false },
      { runId: 'run-1', action: 'rollback', wait: true },
    ]);
    fixture.runs.cancelResult = (run) => ({ outcome: 'accepted', run, stopped: false, stillRunning: ['bash'] });
    const still = await post(`${RUNS}/run-1/cancel?wait=true`, '');
    expect(still.status).toBe(202);
    expect(await still.json()).toEqual({ run_id: 'run-1', stopped: false, still_running: ['bash'] });
    await client().runs.cancel('thread-1', 'run-1', false);
  });

  test('an ended run is told apart from everything else', async () => {
    fixture.runs.cancelResult = (run) => ({ outcome: 'terminal', run: { ...run, status: 'success' } });
    const response = await post(`${RUNS}/run-1/cancel`, '');
    expect(response.status).toBe(409);
    const body = await bodyOf(response);
    expect(body.detail).toContain('is not cancellable');
    expect(body.info).toEqual({ reason: 'terminal', status: 'success' });
    expect((await post(`${RUNS}/none/cancel`, '')).status).toBe(404);
    expect((await post(`${RUNS}/run-1/cancel?action=explode`, '')).status).toBe(422);
  });

  test('a GET cannot cancel: pages elsewhere can cause GETs', verifies('SEC-02'), async () => {
    expect((await fetch(`${fixture.url}${RUNS}/run-1/stream?action=interrupt`)).status).toBe(400);
    expect(fixture.runs.cancels).toEqual([]);
    expect((await post(`${RUNS}/run-1/stream?action=interrupt&wait=1`, '')).status).toBe(204);
  });

  test('several runs at once, as the SDK asks', async () => {
    await client().runs.cancelMany({ threadId: 'thread-1', runIds: ['run-1'], action: 'interrupt' });
    expect(fixture.runs.cancels).toHaveLength(1);
  });

  test('an active run is not deleted, a finished one is', async () => {
    await expect(client().runs.delete('thread-1', 'run-1')).rejects.toThrow('409');
    fixture.runs.rows.set('run-1', makeRun({ acknowledged: true, status: 'success' }));
    await client().runs.delete('thread-1', 'run-1');
    expect(await client().runs.list('thread-1')).toEqual([]);
  });
});

describe('runs without a thread', () => {
  test('make their own, or use the configured one', async () => {
    await client().runs.wait(null, 'lead_agent', { input: null });
    await post('/api/runs', { config: { configurable: { thread_id: 'mine' } } });
    expect(fixture.runs.created.map((run) => [run.threadId, run.createThread])).toEqual([
      [null, true],
      ['mine', true],
    ]);
    expect((await post('/api/runs', { config: { configurable: { thread_id: '../x' } } })).status).toBe(422);
    const parts: string[] = [];
    for await (const part of client().runs.stream(null, 'lead_agent', { input: null })) parts.push(part.event);
    expect(parts).toEqual(['metadata', 'values', 'end']);
  });
});
