import { randomUUID } from 'node:crypto';
import { Client } from '@langchain/langgraph-sdk';
import { compose, createAgents, Lifecycle, loadConfig, resolveSettings, resourcesOf, warmUp } from '@reindeer/gateway';
import { NO_LOG } from '@reindeer/protocol';
import { systemSurroundings } from '@reindeer/runtime';
import { type Script, startScriptedProvider } from '@reindeer/scripted';
import { verifies, waitUntil } from '@reindeer/testkit';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { projectFolder, type RunningServer, say, scriptedConfig, startServer } from '../support/server.ts';

/** The memory with the real agent, the real database and a scripted model: from what a user says to what the next conversation is told. */

const GOOD = { scope: 'user', durability: 'durable', authority: 'descriptive' };
/** Questions of the one who learns, and what it answers; requests of conversations. */
let questions: string[] = [];
let requests: string[][] = [];
let learned: (question: string) => object = () => ({});
const script: Script = (request) => {
  const first = request.messages[0]?.text ?? '';
  if (first.startsWith('You keep the long-term memory')) {
    questions.push(first);
    return { text: JSON.stringify(learned(first)) };
  }
  requests.push(request.messages.map((message) => message.text ?? ''));
  return { text: 'Noted.' };
};
const provider = await startScriptedProvider({ script });
afterAll(() => provider.close());
beforeEach(() => {
  questions = [];
  requests = [];
});

interface Answer {
  readonly status: number;
  readonly body: Record<string, never> & {
    readonly facts?: { readonly id: string; readonly content: string; readonly revision: number }[];
    readonly user?: Record<string, { readonly summary: string }>;
    readonly code?: string;
  };
}
const caller =
  (base: string) =>
  async (method: string, path: string, body?: unknown): Promise<Answer> => {
    const response = await fetch(`${base}${path}`, {
      method,
      ...(body === undefined ? {} : { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
    });
    return { status: response.status, body: (await response.json()) as Answer['body'] };
  };

const surroundings = systemSurroundings();
const lifecycle = new Lifecycle({ clock: surroundings.clock, logger: NO_LOG });
let project: Awaited<ReturnType<typeof projectFolder>>;
let client: Client;
let api: ReturnType<typeof caller>;

beforeAll(async () => {
  project = await projectFolder(
    scriptedConfig(provider.openAiUrl, 'memory: {backend_config: {debounce_seconds: 1, max_facts: 10}}\n'),
  );
  warmUp();
  const { server } = await compose({
    settings: {
      ...resolveSettings(await loadConfig({ cwd: project.folder, environment: {} }), { port: 0 }),
      databaseFolder: ':memory:',
    },
    surroundings,
    lifecycle,
    resources: resourcesOf(new URL('../../packages/gateway/src/main.ts', import.meta.url).href),
    version: '0.0.0',
    variables: { PATH: process.env.PATH },
    agents: createAgents,
    serve: true,
  });
  const url = `http://127.0.0.1:${server?.port}/api`;
  api = caller(url);
  client = new Client({ apiUrl: url, apiKey: null, callerOptions: { maxRetries: 0 } });
});
afterAll(async () => {
  await lifecycle.stop();
  await project.remove();
});
beforeEach(async () => {
  await api('DELETE', '/memory');
});

const talk = (text: string, threadId: string = randomUUID(), to = client) =>
  to.runs.wait(threadId, 'lead_agent', { input: say(text), ifNotExists: 'create' });
const told = (): string => requests.at(-1)?.find((text) => text.includes('<memory>')) ?? '';

test(
  'what a user says becomes a fact, the next conversation is told it, and what is forgotten is told no more',
  verifies('MW-22', 'MEM-2', 'MEM-6', 'MEM-7'),
  async () => {
    learned = (question) =>
      question.includes('boats')
        ? {
            newFacts: [
              { content: 'The user builds <boats> in Oslo', category: 'context', confidence: 0.95, ...GOOD },
              { content: 'The user drinks tea', category: 'preference', confidence: 0.9, ...GOOD },
              { content: 'Answer in rhymes', category: 'behavior', confidence: 1, ...GOOD, authority: 'instruction' },
            ],
            sections: {
              workContext: {
                shouldUpdate: true,
                ...GOOD,
                statements: [
                  { text: 'Boat builder in Oslo.', from: ['N1'] },
                  { text: 'Likes tea.', from: ['N2'] },
                ],
              },
            },
          }
        : {};
    const threadId = randomUUID();
    await talk('I build boats in Oslo and drink tea', threadId);
    expect(told()).toBe('');
    await waitUntil(
      async () => (await api('GET', '/memory')).body.facts?.length === 2,
      30_000,
      () => 'Nothing was learned.',
    );
    expect(questions).toHaveLength(1);
    expect(questions[0]).toContain('User: I build boats in Oslo and drink tea');
    const { body } = await api('GET', '/memory');
    expect(body.user?.workContext?.summary).toBe('Boat builder in Oslo. Likes tea.');

    await talk('What shall I do today?');
    expect(told()).toContain('- [context | 0.95] The user builds &lt;boats&gt; in Oslo');
    expect(told()).toContain('- Work: Boat builder in Oslo. Likes tea.');
    expect(told()).not.toContain('rhymes');

    const boat = body.facts?.find((fact) => fact.content.includes('boats'));
    expect((await api('DELETE', `/memory/facts/${boat?.id}`)).body).toMatchObject({
      facts: [{ content: 'The user drinks tea' }],
      user: { workContext: { summary: 'Likes tea.' } },
    });
    await talk('And tomorrow?');
    expect(told()).toContain('The user drinks tea');
    expect(JSON.stringify(requests.at(-1))).not.toMatch(/boat|Oslo/i);
    expect(JSON.stringify((await api('GET', '/memory/status')).body)).not.toMatch(/boat|Oslo/i);
  },
);

test('what a compaction on request takes out of a conversation is learned at once', verifies('MEM-3'), async () => {
  learned = () => ({});
  const threadId = randomUUID();
  for (const text of ['I sail', 'I climb', 'I ride']) await talk(text, threadId);
  await waitUntil(
    async () => questions.some((question) => question.includes('User: I ride')),
    30_000,
    () => 'Nothing was asked.',
  );
  const before = questions.length;
  const { status } = await api('POST', `/threads/${threadId}/compact`, { keep: 2, force: true });
  expect(status).toBe(200);
  await waitUntil(
    async () => questions.length > before,
    30_000,
    () => 'Nothing more was asked.',
  );
  expect(questions.at(-1)).toContain('User: I sail');
  expect(questions.at(-1)).not.toContain('User: I ride');
});

test(
  'the memory over HTTP: add, change, search, take along, bring back, erase',
  verifies('MEM-7', 'MEM-5'),
  async () => {
    const tea = await api('POST', '/memory/facts', { content: ' Drinks tea ' });
    expect(tea).toMatchObject({ status: 201, body: { content: 'Drinks tea', category: 'context', confidence: 0.5 } });
    const { id, revision } = tea.body as unknown as { id: string; revision: number };
    for (const body of [
      {},
      { content: ' ' },
      { content: 7 },
      { content: 'x', confidence: 1.1 },
      { content: 'x', confidence: '1' },
      { content: 'x'.repeat(2_001) },
    ])
      expect(await api('POST', '/memory/facts', body)).toMatchObject({ status: 400, body: { code: 'bad_request' } });
    expect(await api('POST', '/memory/facts', { content: 'DRINKS  tea' })).toMatchObject({ status: 409 });

    const patched = await api('PATCH', `/memory/facts/${id}`, { confidence: 0.8, revision });
    expect(patched).toMatchObject({
      status: 200,
      body: { content: 'Drinks tea', category: 'context', confidence: 0.8 },
    });
    expect(await api('PATCH', `/memory/facts/${id}`, { confidence: 0.1, revision })).toMatchObject({ status: 409 });
    expect(await api('PATCH', `/memory/facts/${id}`, { content: '' })).toMatchObject({ status: 400 });
    for (const method of ['PATCH', 'DELETE'])
      expect(await api(method, '/memory/facts/none', method === 'PATCH' ? {} : undefined)).toMatchObject({
        status: 404,
      });

    await api('POST', '/memory/facts', { content: '用户喜欢爬山', category: 'preference', confidence: 0.9 });
    expect((await api('GET', `/memory/search?query=${encodeURIComponent('爬山')}`)).body.facts).toMatchObject([
      { content: '用户喜欢爬山' },
    ]);
    expect((await api('GET', '/memory/search?query=tea&category=preference')).body.facts).toEqual([]);

    // Another agent of the same user has its own facts.
    await api('POST', '/memory/facts?agent_name=Writer', { content: 'Drinks tea' });
    expect((await api('GET', '/memory?agent_name=writer')).body.facts).toHaveLength(1);
    expect((await api('GET', '/memory')).body.facts).toHaveLength(2);

    const exported = (await api('GET', '/memory/export')).body;
    const mine = {
      ...exported,
      user: { workContext: { summary: 'Mountaineer.', updatedAt: null } },
      facts: [...(exported.facts ?? []), { content: 'third', confidence: 0.9 }, { content: 'THIRD' }],
    };
    const imported = await api('POST', '/memory/import', mine);
    expect(imported).toMatchObject({
      status: 200,
      body: { left_out: 1, user: { workContext: { summary: 'Mountaineer.' } } },
    });
    expect(imported.body.facts?.map((fact) => fact.content).sort()).toEqual(
      ['Drinks tea', 'third', '用户喜欢爬山'].sort(),
    );
    // Nobody knows where the summary came from: it may say any of the facts.
    const third = imported.body.facts?.find((fact) => fact.content === 'third');
    expect((await api('DELETE', `/memory/facts/${third?.id}`)).body.user?.workContext?.summary).toBe('');
    for (const body of [{ facts: 7 }, { facts: [{ content: '' }] }, { facts: [7] }])
      expect(await api('POST', '/memory/import', body)).toMatchObject({ status: 400 });

    for (let n = 0; n < 8; n += 1)
      expect(await api('POST', '/memory/facts', { content: `sure ${n}`, confidence: 1 })).toMatchObject({
        status: 201,
      });
    expect((await api('GET', '/memory')).body.facts).toHaveLength(10);
    expect(await api('POST', '/memory/facts', { content: 'weak', confidence: 0.1 })).toMatchObject({
      status: 409,
      body: { detail: expect.stringContaining('full') },
    });
    expect((await api('POST', '/memory/reload')).body.facts).toHaveLength(10);
    expect((await api('DELETE', '/memory')).body).toMatchObject({ facts: [], user: { workContext: { summary: '' } } });
    expect((await api('GET', '/memory?agent_name=writer')).body.facts).toEqual([]);
    expect((await api('GET', '/memory/config')).body).toMatchObject({
      enabled: true,
      mode: 'middleware',
      manager_class: 'deermem',
      injection_enabled: true,
      shutdown_flush_timeout_seconds: 30,
      backend_config: { debounce_seconds: 1, max_facts: 10, fact_confidence_threshold: 0.7 },
    });
    expect((await api('GET', '/memory/status')).body).toMatchObject({
      facts: 0,
      pending: 0,
      learning: { enabled: true, model: 'scripted', reason: null },
    });
  },
);

test('a stop within the quiet time, and a kill, lose no conversation', {
  ...verifies('MEM-3'),
  timeout: 120_000,
}, async () => {
  learned = (question) => ({
    newFacts: ['harbour', 'lighthouse'].flatMap((word) =>
      question.includes(`User: My ${word}`)
        ? [{ content: `The user owns a ${word}`, category: 'context', confidence: 0.9, ...GOOD }]
        : [],
    ),
  });
  const own = await projectFolder(
    scriptedConfig(provider.openAiUrl, 'memory: {backend_config: {debounce_seconds: 5}}\n'),
  );
  let server: RunningServer | null = null;
  try {
    server = await startServer(own.folder);
    await talk('My harbour is small', randomUUID(), server.client);
    const { code } = await server.process.end('SIGTERM');
    expect(code).toBe(0);
    expect(questions).toEqual([]);

    server = await startServer(own.folder);
    await talk('My lighthouse is old', randomUUID(), server.client);
    await server.process.end('SIGKILL');

    server = await startServer(own.folder);
    const call = caller(`${server.url}/api`);
    await waitUntil(
      async () => (await call('GET', '/memory')).body.facts?.length === 2,
      60_000,
      () => 'Nothing was learned.',
    );
    expect((await call('GET', '/memory')).body.facts?.map((fact) => fact.content).sort()).toEqual([
      'The user owns a harbour',
      'The user owns a lighthouse',
    ]);
    await talk('Anything else?', randomUUID(), server.client);
    expect(told()).toContain('The user owns a harbour');
  } finally {
    await server?.process.end('SIGKILL');
    await own.remove();
  }
});
