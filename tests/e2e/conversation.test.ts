import { randomUUID } from 'node:crypto';
import { Client } from '@langchain/langgraph-sdk';
import { compose, createAgents, Lifecycle, loadConfig, resolveSettings, resourcesOf, warmUp } from '@reindeer/gateway';
import { NO_LOG } from '@reindeer/protocol';
import { systemSurroundings } from '@reindeer/runtime';
import { type Script, startScriptedProvider } from '@reindeer/scripted';
import { verifies } from '@reindeer/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { projectFolder, say, scriptedConfig } from '../support/server.ts';

/** Goals, compaction and suggestions over HTTP, with the real agent and the real client behind them. */

let answers = 0;
let verdicts: string[] = [];
const script: Script = (request) => {
  const first = request.messages[0]?.text ?? '';
  if (first.startsWith('You judge whether a goal')) {
    const blocker = verdicts.shift() ?? 'none';
    return {
      text: JSON.stringify({ satisfied: blocker === 'none', blocker, reason: 'one is red', evidence_summary: '' }),
    };
  }
  if (first.startsWith('Write down what must not be forgotten')) return { text: 'THE NOTES' };
  if (first.includes('short questions that the user may want to ask')) return { text: '["And then?", "Why?"]' };
  return { text: `answer ${++answers}` };
};

const provider = await startScriptedProvider({ script });
let url = '';
let client: Client;
const surroundings = systemSurroundings();
const lifecycle = new Lifecycle({ clock: surroundings.clock, logger: NO_LOG });
let project: Awaited<ReturnType<typeof projectFolder>>;

beforeAll(async () => {
  project = await projectFolder(
    scriptedConfig(provider.openAiUrl, 'summarization: {keep: {type: messages, value: 2}}\n'),
  );
  const loaded = await loadConfig({ cwd: project.folder, environment: {} });
  warmUp();
  const { server } = await compose({
    settings: { ...resolveSettings(loaded, { port: 0 }), databaseFolder: ':memory:' },
    surroundings,
    lifecycle,
    resources: resourcesOf(new URL('../../packages/gateway/src/main.ts', import.meta.url).href),
    version: '0.0.0',
    variables: { PATH: process.env.PATH },
    agents: createAgents,
    serve: true,
  });
  url = `http://127.0.0.1:${server?.port}/api`;
  client = new Client({ apiUrl: url, apiKey: null, callerOptions: { maxRetries: 0 } });
});
afterAll(async () => {
  await lifecycle.stop();
  await provider.close();
  await project.remove();
});

const send = async (method: string, path: string, body?: object) => {
  const response = await fetch(`${url}${path}`, {
    method,
    ...(body === undefined ? {} : { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
  });
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
};
interface Values {
  readonly messages: { readonly type: string; readonly content: string }[];
  readonly goal: object | null;
  readonly summary_text?: string;
}
const stateOf = async (threadId: string) => (await client.threads.getState<Values>(threadId)).values;

test(
  'a goal on a new thread drives its run until it is met, and is gone then',
  verifies('GOAL-1', 'RG-07'),
  async () => {
    const threadId = randomUUID();
    verdicts = ['goal_not_met_yet', 'none'];
    expect(await send('PUT', `/threads/${threadId}/goal`, { objective: 'all green' })).toMatchObject({ status: 200 });
    expect((await send('GET', `/threads/${threadId}/goal`)).body.goal).toMatchObject({ objective: 'all green' });
    await client.runs.wait(threadId, 'lead_agent', { input: say('go') });
    const { messages, goal } = await stateOf(threadId);
    expect(messages.map((message) => message.type)).toEqual(['human', 'ai', 'human', 'ai']);
    expect(goal ?? null).toBeNull();
    expect((await send('GET', `/threads/${threadId}/goal`)).body).toEqual({ goal: null });
    await send('PUT', `/threads/${threadId}/goal`, { objective: 'more' });
    expect(await send('DELETE', `/threads/${threadId}/goal`)).toMatchObject({ status: 200, body: { goal: null } });
    expect((await send('GET', `/threads/${threadId}/goal`)).body).toEqual({ goal: null });
    expect(await stateOf(threadId)).toMatchObject({ messages: [{}, {}, {}, {}] });
    const runs = await client.runs.list(threadId);
    expect(runs.map((run) => run.status)).toEqual(['success']);
  },
);

test('compaction on request leaves a summary that the next request begins with', verifies('CTX-2'), async () => {
  const { thread_id: threadId } = await client.threads.create();
  expect(await send('POST', `/threads/${threadId}/compact`, {})).toMatchObject({
    status: 200,
    body: { compacted: false, reason: 'empty', checkpoint_id: null },
  });
  for (const text of ['one', 'two', 'three']) await client.runs.wait(threadId, 'lead_agent', { input: say(text) });
  const { body } = await send('POST', `/threads/${threadId}/compact`, {});
  expect(body).toMatchObject({
    thread_id: threadId,
    compacted: true,
    removed_message_count: 4,
    preserved_message_count: 2,
    summary_updated: true,
  });
  const state = await client.threads.getState<Values>(threadId);
  expect(state.checkpoint.checkpoint_id).toBe(body.checkpoint_id);
  expect(state.values.messages.map((message) => message.content)).toEqual(['three', expect.stringMatching(/^answer/)]);
  expect(state.values.summary_text).toBe('THE NOTES');
  expect(state.next).toEqual([]);
  await client.runs.wait(threadId, 'lead_agent', { input: say('four') });
  const sent = JSON.stringify(provider.requests().at(-1)?.body.messages);
  expect(sent).toContain('THE NOTES');
  expect(sent).toContain('four');
  expect(sent).not.toContain('two');
  expect(
    provider
      .requests()
      .map(({ refused }) => refused)
      .filter((reason) => reason !== null),
  ).toEqual([]);
  expect(await send('POST', `/threads/${threadId}/compact`, { force: false })).toMatchObject({
    body: { reason: 'below_threshold' },
  });
});

test('suggestions come from the model, and no more than the server gives', verifies('CTX-4'), async () => {
  const { thread_id: threadId } = await client.threads.create();
  const messages = [
    { role: 'user', content: 'hi' },
    { role: 'assistant', content: 'hello' },
  ];
  expect((await send('POST', `/threads/${threadId}/suggestions`, { messages, n: 1 })).body).toEqual({
    suggestions: ['And then?'],
  });
});
