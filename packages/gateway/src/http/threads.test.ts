import { Client } from '@langchain/langgraph-sdk';
import { verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Fixture, makeState, startFixture } from '../testing/http-fixture.ts';

let fixture: Fixture;
let client: Client;
beforeEach(async () => {
  fixture = await startFixture();
  client = new Client({ apiUrl: `${fixture.url}/api`, apiKey: null, callerOptions: { maxRetries: 0 } });
});
afterEach(() => fixture.close());

const send = async (method: string, path: string, body?: unknown) => {
  const response = await fetch(`${fixture.url}/api${path}`, {
    method,
    ...(body === undefined ? {} : { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
  });
  const text = await response.text();
  return { status: response.status, body: (text === '' ? null : JSON.parse(text)) as Record<string, unknown> };
};

describe('threads', () => {
  test('create is idempotent for the same user; ids have a grammar', verifies('ID-1'), async () => {
    const thread = await client.threads.create({ threadId: 'my-thread', metadata: { a: 1, user_id: 'root' } });
    expect(thread).toMatchObject({
      thread_id: 'my-thread',
      status: 'idle',
      metadata: { a: 1 },
      values: {},
      interrupts: {},
    });
    expect(thread.metadata).not.toHaveProperty('user_id');
    expect((await client.threads.create({ threadId: 'my-thread' })).metadata).toMatchObject({ a: 1 });
    await expect(client.threads.create({ threadId: 'my-thread', ifExists: 'raise' })).rejects.toThrow('409');
    for (const bad of ['', 'a/b', 'a b', '..', 'x'.repeat(65), 'ü'])
      expect((await send('POST', '/threads', { thread_id: bad })).status).toBe(422);
    expect((await client.threads.create()).thread_id).toMatch(/^[0-9a-f-]{36}$/);
  });

  test('threads of other users do not exist, on any route', verifies('SEC-01'), async () => {
    fixture.threads.add('theirs', 'somebody');
    const calls: [string, string, unknown?][] = [
      ['GET', '/threads/theirs'],
      ['PATCH', '/threads/theirs', { metadata: { a: 1 } }],
      ['DELETE', '/threads/theirs'],
      ['POST', '/threads/theirs/copy'],
      ['POST', '/threads', { thread_id: 'theirs' }],
      ['GET', '/threads/theirs/state'],
      ['GET', '/threads/theirs/state/c1'],
      ['POST', '/threads/theirs/state', { values: {} }],
      ['PATCH', '/threads/theirs/state', { metadata: {} }],
      ['POST', '/threads/theirs/state/checkpoint', { checkpoint: {} }],
      ['GET', '/threads/theirs/history'],
      ['POST', '/threads/theirs/history', {}],
      ['GET', '/threads/theirs/messages'],
      ['GET', '/threads/theirs/messages/page'],
      ['GET', '/threads/theirs/facts'],
      ['GET', '/threads/theirs/runs'],
      ['POST', '/threads/theirs/runs', {}],
    ];
    for (const [method, path, body] of calls)
      expect([method, path, (await send(method, path, body)).status]).toEqual([method, path, 404]);
    expect((await client.threads.search()).length).toBe(0);
    expect(fixture.threads.rows.get('theirs')?.metadata).toEqual({});
    expect(fixture.threads.rows.has('theirs')).toBe(true);
  });

  test('search, count, ids, select', async () => {
    for (const id of ['a', 'b', 'c']) fixture.threads.add(id);
    expect(
      (await client.threads.search({ limit: 2, sortBy: 'created_at', sortOrder: 'asc' })).map(
        (thread) => thread.thread_id,
      ),
    ).toEqual(['a', 'b']);
    expect((await client.threads.search({ ids: ['c', 'none'] })).map((thread) => thread.thread_id)).toEqual(['c']);
    expect(await client.threads.search({ limit: 1, select: ['thread_id'] })).toEqual([{ thread_id: 'a' }]);
    expect(await client.threads.count()).toBe(3);
    expect((await send('POST', '/threads/search', { limit: 1001 })).status).toBe(422);
    expect((await send('POST', '/threads/search', { metadata: { 'a b': 1 } })).status).toBe(422);
    expect((await send('POST', '/threads/search', { metadata: { a: { b: 1 } } })).status).toBe(422);
    expect((await send('POST', '/threads/search', { values: { title: 'x' } })).body).toMatchObject({
      code: 'unsupported_option',
    });
    expect((await send('POST', '/threads/search', { metdata: {} })).body).toMatchObject({
      detail: [{ msg: expect.stringContaining('"metadata"') }],
    });
  });

  test('a thread shows its values and its interrupts by task', async () => {
    fixture.threads.add('t');
    fixture.threads.states.set('t', [
      {
        ...makeState('t', 'c1', { title: 'T', messages: [], __pregel_x: 1 }),
        tasks: [{ id: 'task', name: 'review', interrupts: [{ id: 'i', value: 'ok?' }] }],
      },
    ]);
    const thread = await client.threads.get('t');
    expect(thread.values).toEqual({ title: 'T', messages: [] });
    expect(thread.interrupts).toEqual({ task: [{ id: 'i', value: 'ok?' }] });
  });

  test('patch merges; delete refuses a busy thread', async () => {
    fixture.threads.add('t');
    expect((await client.threads.update('t', { metadata: { a: 1 } })).metadata).toEqual({ a: 1 });
    expect((await send('PATCH', '/threads/t', { metadata: { token: 'x' } })).status).toBe(422);
    fixture.threads.deleteOutcome = 'busy';
    await expect(client.threads.delete('t')).rejects.toThrow('409');
    fixture.threads.deleteOutcome = 'deleted';
    await client.threads.delete('t');
    expect((await client.threads.copy('t').catch((error: unknown) => String(error))) as unknown).toContain('404');
  });
});

describe('state', () => {
  beforeEach(() => {
    fixture.threads.add('t');
    const older = makeState('t', 'c1', { title: 'old' });
    fixture.threads.states.set('t', [
      { ...makeState('t', 'c2', { title: 'new', messages: [1, 2] }), parentCheckpoint: older.checkpoint },
      older,
    ]);
  });

  test('newest, at a checkpoint by path and by body, history, selection', async () => {
    const state = await client.threads.getState('t');
    expect(state).toMatchObject({
      values: { title: 'new' },
      checkpoint: { thread_id: 't', checkpoint_ns: '', checkpoint_id: 'c2', checkpoint_map: null },
      parent_checkpoint: { checkpoint_id: 'c1' },
      next: [],
      tasks: [],
    });
    expect((await client.threads.getState('t', 'c1')).values).toEqual({ title: 'old' });
    expect((await client.threads.getState('t', state.parent_checkpoint ?? undefined)).values).toEqual({ title: 'old' });
    expect(await client.threads.getState('t', undefined, { select: ['values.title', 'next'] })).toEqual({
      values: { title: 'new' },
      next: [],
    });
    await expect(client.threads.getState('t', 'c7')).rejects.toThrow('404');
    expect((await client.threads.getHistory('t', { limit: 1 })).map((entry) => entry.checkpoint.checkpoint_id)).toEqual(
      ['c2'],
    );
    expect((await send('GET', '/threads/t/history?limit=5')).body).toHaveLength(2);
    expect(
      (await send('POST', '/threads/t/history', { before: { configurable: { checkpoint_id: 'c2' } } })).status,
    ).toBe(200);
  });

  test('an existing thread without a checkpoint has an empty state', async () => {
    fixture.threads.add('fresh');
    expect((await client.threads.getState('fresh')).values).toEqual({});
    expect(await client.threads.getHistory('fresh')).toEqual([]);
  });

  test('writing: done, refused while busy, unknown fields named', async () => {
    const done = await client.threads.updateState('t', {
      values: { title: 'x' },
      asNode: 'model',
      checkpoint: { thread_id: 't', checkpoint_ns: '', checkpoint_id: 'c1', checkpoint_map: null },
    });
    expect(done).toMatchObject({ checkpoint: { checkpoint_id: 'c9' } });
    expect(fixture.threads.updates).toMatchObject([{ values: { title: 'x' }, asNode: 'model', checkpointId: 'c1' }]);
    fixture.threads.updateOutcome = 'busy';
    expect((await send('POST', '/threads/t/state', { values: {} })).status).toBe(409);
    fixture.threads.updateOutcome = 'invalid';
    expect((await send('POST', '/threads/t/state', { values: { colour: 1 } })).body).toMatchObject({
      detail: [{ msg: 'Unknown state field "colour".' }],
    });
    expect((await send('POST', '/threads/t/state', { values: { messages: [{ role: 'wizard' }] } })).status).toBe(400);
  });

  test('inline images of hidden messages stay out, visible messages are untouched', async () => {
    const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } };
    const text = { type: 'text', text: 'hi' };
    const messages = [
      { type: 'human', id: '1', content: [text, image], additional_kwargs: { hide_from_ui: true } },
      { type: 'human', id: '2', content: [text, image] },
    ];
    fixture.threads.states.set('t', [makeState('t', 'c3', { messages })]);
    const { values } = await client.threads.getState<{ messages: { content: unknown }[] }>('t');
    expect(values.messages.map((message) => message.content)).toEqual([[text], [text, image]]);
  });
});

describe('messages and facts', () => {
  test('a plan that replaces another tells what it changed', verifies('MW-20'), async () => {
    fixture.threads.add('planned');
    const writing = (seq: number, status: string) => {
      const tool_calls = [
        {
          id: `c${seq}`,
          name: 'write_todos',
          args: {
            todos: [
              { content: 'a', status },
              { content: 'b', status: 'pending' },
            ],
          },
        },
      ];
      const message = { type: 'ai', id: `m${seq}`, content: '', tool_calls };
      return { threadId: 'planned', seq, runId: 'r', at: seq, body: { kind: 'message' as const, ns: '', message } };
    };
    fixture.threads.facts_.push(writing(3, 'in_progress'), writing(5, 'completed'));
    const { body } = await send('GET', '/threads/planned/messages/page?limit=2');
    const rows = body.data as { metadata: { token_usage_attribution: { steps: unknown } } }[];
    expect(rows.map(({ metadata }) => metadata.token_usage_attribution.steps)).toEqual([
      [
        { kind: 'todo_start', label: 'a' },
        { kind: 'todo_add', label: 'b' },
      ],
      [{ kind: 'todo_complete', label: 'a' }],
    ]);
  });

  test('pages are oldest first and lead to the page before', async () => {
    fixture.threads.add('t');
    const message = (seq: number, type: string) => ({
      threadId: 't',
      seq,
      runId: 'r',
      at: 1000 * seq,
      body: { kind: 'message' as const, ns: '', message: { type, id: `m${seq}`, content: 'x' } },
    });
    fixture.threads.facts_.push(message(3, 'human'), message(5, 'ai'), message(7, 'tool'));
    const page = await send('GET', '/threads/t/messages/page?limit=3');
    expect(page.body).toMatchObject({
      has_more: true,
      next_before_seq: 3,
      data: [
        { seq: 3, event_type: 'llm.human.input' },
        { seq: 5, event_type: 'llm.ai.response' },
        { seq: 7, event_type: 'llm.tool.result' },
      ],
    });
    expect((await send('GET', '/threads/t/messages/page?before_seq=3')).body).toMatchObject({
      has_more: false,
      next_before_seq: null,
    });
    expect((await send('GET', '/threads/t/messages/page?after_seq=3')).status).toBe(422);
    expect((await send('GET', '/threads/t/messages/page?limit=201')).status).toBe(422);
    expect((await send('GET', '/threads/t/facts?after_seq=3')).body).toMatchObject({
      head: 7,
      data: [{ seq: 5 }, { seq: 7 }],
    });
  });
});

describe('about', () => {
  test('models, features, assistants, documentation', verifies('MISC-1', 'MISC-2'), async () => {
    expect((await send('GET', '/models')).body).toMatchObject({
      models: [{ name: 'demo', demo: true }],
      token_usage: { enabled: true },
    });
    expect((await send('GET', '/models/none')).status).toBe(404);
    expect((await client.assistants.search()).map((assistant) => assistant.assistant_id)).toEqual(['lead_agent']);
    expect(await client.assistants.search({ graphId: 'other' })).toEqual([]);
    expect(await client.assistants.count()).toBe(1);
    expect((await client.assistants.get('lead_agent')).graph_id).toBe('lead_agent');
    expect((await client.assistants.getSchemas('lead_agent')).graph_id).toBe('lead_agent');
    expect((await client.assistants.getGraph('lead_agent')).nodes.length).toBeGreaterThan(2);
    await expect(client.assistants.get('other')).rejects.toThrow('404');
    const document = (await (await fetch(`${fixture.url}/openapi.json`)).json()) as {
      openapi: string;
      paths: Record<string, Record<string, unknown>>;
    };
    expect(document.openapi).toBe('3.1.0');
    expect(document.paths['/threads/{thread_id}/runs/stream']?.post).toMatchObject({
      requestBody: { content: { 'application/json': {} } },
    });
    expect(Object.keys(document.paths).length).toBeGreaterThan(25);
    // Each address names exactly the parameters that stand in it.
    for (const [path, methods] of Object.entries(document.paths))
      for (const operation of Object.values(methods) as { parameters?: { in: string; name: string }[] }[]) {
        const declared = (operation.parameters ?? [])
          .filter((parameter) => parameter.in === 'path')
          .map((parameter) => parameter.name);
        expect([path, declared.sort()]).toEqual([
          path,
          [...path.matchAll(/\{(\w+)\}/g)].map((match) => match[1]).sort(),
        ]);
      }
    expect((await send('GET', '/features')).body).toMatchObject({
      agents_api: { enabled: false },
      browser_control: { enabled: false },
      mcp_tasks: { enabled: false },
      sandbox: { provider: 'files-only' },
    });
  });

  test('the same surface stands below /api/langgraph', async () => {
    fixture.threads.add('t');
    const other = new Client({
      apiUrl: `${fixture.url}/api/langgraph`,
      apiKey: null,
      callerOptions: { maxRetries: 0 },
    });
    expect((await other.threads.get('t')).thread_id).toBe('t');
  });
});
