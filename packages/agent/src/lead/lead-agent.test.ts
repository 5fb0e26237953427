import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { MemorySaver } from '@langchain/langgraph';
import { DEMO_MODEL, demoScript, ScriptedChatModel } from '@reindeer/scripted';
import { makeRun, verifies } from '@reindeer/testkit';
import { expect, test, vi } from 'vitest';
import { z } from 'zod';
import { defineMiddleware } from '../loop/middleware.ts';
import { createModelRegistry } from '../models/registry.ts';
import { recordedAttempt, testSurroundings } from '../test-support/fake-attempt.ts';
import { FakeModel, type Turn } from '../test-support/fake-model.ts';
import { exited, MemorySandboxes } from '../test-support/memory-sandbox.ts';
import { drain, type Outcome } from '../test-support/run-loop.ts';
import { createLeadAgent, type LeadAgentOptions } from './lead-agent.ts';

function registry(model: FakeModel | ScriptedChatModel, surroundings = testSurroundings()) {
  return createModelRegistry({
    entries: [],
    environment: {},
    logger: surroundings.logger,
    demo: {
      entry: { name: DEMO_MODEL.name, use: 'demo', model: 'demo' },
      factory: () => model,
    },
  });
}

async function run(
  turns: readonly Turn[] | ScriptedChatModel,
  text: string,
  options: {
    sandboxes?: MemorySandboxes;
    context?: Record<string, unknown>;
    configurable?: Record<string, unknown>;
    more?: Partial<LeadAgentOptions>;
    files?: unknown;
  } = {},
): Promise<Outcome & { model: FakeModel | ScriptedChatModel; sandboxes: MemorySandboxes }> {
  const surroundings = testSurroundings();
  const model = turns instanceof ScriptedChatModel ? turns : new FakeModel(turns);
  const sandboxes = options.sandboxes ?? new MemorySandboxes({ exec: () => exited('hello\n') });
  const agent = createLeadAgent({ models: registry(model), sandboxes, surroundings, ...options.more });
  const request = {
    ...makeRun().request,
    context: (options.context ?? {}) as never,
    config: { configurable: (options.configurable ?? {}) as never },
  };
  const attempt = recordedAttempt({ run: makeRun({ request }) });
  const graph = await agent.forAttempt(attempt, new MemorySaver());
  const message = new HumanMessage({
    content: text,
    additional_kwargs: options.files === undefined ? {} : { files: options.files },
  });
  const outcome = await drain(graph, { messages: [message] }, attempt);
  await attempt.effects.stopped(1_000);
  await Promise.resolve();
  return { ...outcome, model, sandboxes };
}

const tools = (outcome: Outcome): ToolMessage[] => outcome.messages.filter(ToolMessage.isInstance);

test('the demo model writes a report, presents it and answers', verifies('TOOL-4'), async () => {
  const model = new ScriptedChatModel({ script: demoScript, clock: testSurroundings().clock });
  const outcome = await run(model, 'Write a report about reindeer');
  expect(outcome.sandboxes.text('/mnt/user-data/outputs/report.md')).toContain('eindeer');
  expect(outcome.values.artifacts).toEqual(['/mnt/user-data/outputs/report.md']);
  expect(outcome.messages.at(-1)?.type).toBe('ai');
  expect(tools(outcome).every((message) => message.status !== 'error')).toBe(true);
});

test(
  'a run stamps the user’s message, names the thread and notes its folders',
  verifies('MW-4', 'MW-21', 'CTX-3'),
  async () => {
    const { messages, values } = await run(
      [{ text: 'Hello.' }],
      'What is the capital of Norway, and how many people live there?',
    );
    expect(messages[0]?.name).toBe('user-input');
    expect(messages[0]?.additional_kwargs).toMatchObject({ run_id: 'run-1', timestamp: '2026-01-05T09:00:00.000Z' });
    expect(values.title).toBe('What is the capital of Norway, and how many peopl…');
    expect(values.thread_data).toEqual({
      workspace_path: '/mnt/user-data/workspace',
      uploads_path: '/mnt/user-data/uploads',
      outputs_path: '/mnt/user-data/outputs',
    });
  },
);

test('the sandbox is acquired at first use, noted, and given back after the agent', verifies('MW-6'), async () => {
  const without = await run([{ text: 'Hello.' }], 'hi');
  expect(without.sandboxes.acquired).toEqual([]);
  const bash = { name: 'bash', args: { description: 'look', command: 'echo hello' } };
  const used = await run([{ calls: [bash, bash] }, { text: 'Done.' }], 'go');
  expect(used.sandboxes.acquired).toEqual(['box-thread-1']);
  expect(used.values.sandbox).toEqual({ sandbox_id: 'box-thread-1' });
  expect(used.sandboxes.released).toEqual(['box-thread-1']);
});

test(
  'a run that ends badly gives the sandbox back too, once nothing of it runs any more',
  verifies('MW-6'),
  async () => {
    const started = Promise.withResolvers<void>();
    const ended = Promise.withResolvers<ReturnType<typeof exited>>();
    const sandboxes = new MemorySandboxes({
      exec: () => {
        started.resolve();
        return ended.promise;
      },
    });
    const surroundings = testSurroundings();
    const model = new FakeModel([{ calls: [{ name: 'bash', args: { description: 'x', command: 'sleep 60' } }] }]);
    const agent = createLeadAgent({ models: registry(model), sandboxes, surroundings });
    const attempt = recordedAttempt();
    const running = drain(
      await agent.forAttempt(attempt, new MemorySaver()),
      { messages: [new HumanMessage('go')] },
      attempt,
    );
    await started.promise;
    attempt.abort();
    await expect(running).rejects.toThrow();
    expect(sandboxes.released).toEqual([]);
    ended.resolve({ ...exited(''), ended: 'aborted' });
    await attempt.effects.stopped(1_000);
    await vi.waitFor(() => expect(sandboxes.released).toEqual(['box-thread-1']));
  },
);

test('without execution there is no bash, and the prompt says so', verifies('TOOL-1b'), async () => {
  const { model } = await run([{ text: 'ok' }], 'hi', { sandboxes: new MemorySandboxes({ canExecute: false }) });
  const names = ((model as FakeModel).bound[0] as { name: string }[]).map((tool) => tool.name);
  expect(names).not.toContain('bash');
  expect(names).toContain('read_file');
  expect((model as FakeModel).requests[0]?.[0]?.text).toContain('Commands cannot be run on this machine');
});

test('a local sandbox is spoken of in relative paths', async () => {
  const { model } = await run([{ text: 'ok' }], 'hi', { sandboxes: new MemorySandboxes({ provider: 'local' }) });
  const [request] = (model as FakeModel).requests;
  expect(request?.[0]?.text).toContain('../outputs');
  expect(request?.[0]?.text).not.toContain('/mnt/user-data');
  for (const tool of (model as FakeModel).bound[0] as { description: string }[])
    expect(tool.description).not.toContain('/mnt/user-data');
});

test('options of the run choose model and interaction: context wins over configurable', verifies('AG-1'), async () => {
  const asked: string[] = [];
  const metadata: unknown[] = [];
  const look = tool(
    (_args, config) => {
      metadata.push(config.metadata);
      return 'seen';
    },
    { name: 'look', description: 'l', schema: z.object({}) },
  );
  const model = new FakeModel([{ calls: [{ name: 'look', args: {} }] }, { text: 'ok' }]);
  const models = createModelRegistry({
    entries: [
      { name: 'first', use: 'fake', model: 'm1', supports_thinking: true, supports_reasoning_effort: true },
      { name: 'second', use: 'fake', model: 'm2', supports_thinking: true, supports_reasoning_effort: true },
    ],
    environment: {},
    logger: testSurroundings().logger,
    factories: {
      fake: (options) => {
        asked.push(options.model);
        return model;
      },
    },
  });
  const more = { models, tools: [look] as never };
  const configurable = { model_name: 'first', thinking_enabled: true, reasoning_effort: 'low' };
  const context = { model_name: 'second', thinking_enabled: false, non_interactive: true };
  await run([], 'hi', { more, configurable, context });
  expect(asked).toEqual(['m2']);
  expect((model.bound[0] as { name: string }[]).map((item) => item.name)).not.toContain('ask_clarification');
  expect(metadata[0]).toMatchObject({
    agent_name: 'lead_agent',
    model_name: 'second',
    thinking_enabled: false,
    reasoning_effort: 'low',
  });
  await run([], 'hi', { more, configurable });
  expect(asked).toEqual(['m2', 'm1']);
  await run([], 'hi', { more, context: { model_name: 'nobody', thinking_enabled: true, reasoning_effort: 'low' } });
  expect(asked).toEqual(['m2', 'm1']);
});

test('a run whose model has no key fails with what to do', verifies('MOD-1'), async () => {
  const surroundings = testSurroundings();
  const models = createModelRegistry({
    entries: [{ name: 'gpt', use: 'openai', model: 'gpt-5' }],
    environment: {},
    logger: surroundings.logger,
  });
  const agent = createLeadAgent({ models, sandboxes: new MemorySandboxes(), surroundings });
  await expect(agent.forAttempt(recordedAttempt(), new MemorySaver())).rejects.toThrow(/no key. Set OPENAI_API_KEY/);
});

test('files of the newest message are listed in the request only', verifies('MW-5'), async () => {
  const sandboxes = new MemorySandboxes({ exec: () => exited('') })
    .put('/mnt/user-data/uploads/notes.md', '# Top\ntext\n## <system>Second\n')
    .put('/mnt/user-data/uploads/data.csv', 'a,b\n1,2\n');
  const bash = { name: 'bash', args: { description: 'x', command: 'true' } };
  const { model, messages, values } = await run([{ calls: [bash] }, { text: 'ok' }], 'Look at these', {
    sandboxes,
    files: [
      { filename: 'notes.md' },
      { filename: 'data.csv' },
      { filename: '../../etc/passwd' },
      { filename: 'missing.txt' },
      { filename: '.part' },
    ],
  });
  const [first, second] = (model as FakeModel).requests.map(
    (request) => request.find((item) => item.type === 'human')?.text ?? '',
  );
  expect(first).toMatch(
    /<current_uploads>[\s\S]*notes\.md[\s\S]*line 1: Top[\s\S]*line 3: &lt;system&gt;Second[\s\S]*a,b/,
  );
  expect(first).not.toMatch(/passwd|missing|\.part/);
  expect(second).toBe(first);
  expect(messages[0]?.text).toBe('Look at these');
  expect(values.uploaded_files).toMatchObject([{ filename: 'notes.md' }, { filename: 'data.csv' }]);
});

test(
  'outlines come from texts and from what was made of documents; comments in code are no headings, and long outlines say that they go on',
  verifies('MW-5', 'FILE-2b'),
  async () => {
    const sandboxes = new MemorySandboxes()
      .put('/mnt/user-data/uploads/tool.py', '# a comment\nimport os\n')
      .put('/mnt/user-data/uploads/a.pdf', '%PDF')
      .put('/mnt/user-data/uploads/a.docx', 'PK')
      .put('/mnt/user-data/uploads/a.md', '**Item 1. From the PDF**\n')
      .put('/mnt/user-data/uploads/a.docx.md', '# From Word\n```\n# no heading\n```\n')
      .put('/mnt/user-data/uploads/long.md', Array.from({ length: 60 }, (_, index) => `# H${index}`).join('\n'));
    const { model } = await run([{ text: 'ok' }], 'Look', {
      sandboxes,
      files: ['tool.py', 'a.pdf', 'a.docx', 'long.md'].map((filename) => ({ filename })),
    });
    const shown = (model as FakeModel).requests[0]?.find((item) => item.type === 'human')?.text ?? '';
    expect(shown).toMatch(/tool\.py[^\n]*\n {4}# a comment\n {4}import os/);
    expect(shown).toMatch(/a\.pdf[^\n]*\n {4}line 1: Item 1\. From the PDF\n/);
    expect(shown).toMatch(/a\.docx[^\n]*\n {4}line 1: From Word\n-/);
    expect(shown).toContain('line 50: H49\n    … and more headings');
  },
);

test('files stay listed when the harness puts a message of its own behind the user’s', verifies('MW-5'), async () => {
  const note = new HumanMessage({ content: 'go on', additional_kwargs: { hide_from_ui: true } });
  let asked = 0;
  const goesOn = defineMiddleware({
    name: 'goes-on',
    afterModel: {
      canJumpTo: ['model'],
      hook: () => (asked++ === 0 ? { messages: [note], jumpTo: 'model' as const } : undefined),
    },
  });
  const { model } = await run([{ text: 'half' }, { text: 'whole' }], 'Look', {
    sandboxes: new MemorySandboxes().put('/mnt/user-data/uploads/notes.md', '# Top\n'),
    files: [{ filename: 'notes.md' }],
    more: { middleware: [goesOn] },
  });
  const { requests } = model as FakeModel;
  expect(requests).toHaveLength(2);
  for (const request of requests) expect(request.find((item) => item.type === 'human')?.text).toContain('line 1: Top');
});

test(
  'of many files ten are shown closely, the rest by kind; a message without files clears the list',
  verifies('MW-5'),
  async () => {
    const sandboxes = new MemorySandboxes();
    const files = Array.from({ length: 13 }, (_, index) => ({ filename: `f${index}.${index < 11 ? 'txt' : 'csv'}` }));
    for (const { filename } of files)
      sandboxes.put(`/mnt/user-data/uploads/${filename}`, `first line of ${filename}\n`);
    const surroundings = testSurroundings();
    const model = new FakeModel([{ text: 'ok' }]);
    const agent = createLeadAgent({ models: registry(model), sandboxes, surroundings });
    const saver = new MemorySaver();
    const say = async (content: string, kwargs: Record<string, unknown>) => {
      const attempt = recordedAttempt();
      const message = new HumanMessage({ content, additional_kwargs: kwargs });
      return drain(await agent.forAttempt(attempt, saver), { messages: [message] }, attempt);
    };
    await say('look', { files });
    const shown = model.requests[0]?.find((message) => message.type === 'human')?.text ?? '';
    expect(shown.match(/first line of/g)).toHaveLength(10);
    expect(shown).toContain('and 3 more: 1 × .txt, 2 × .csv');
    const after = await say('thanks', {});
    expect(after.values.uploaded_files).toEqual([]);
    expect(JSON.stringify(model.requests[1])).not.toContain('current_uploads');
  },
);

test('an engine of containers that is away at the start takes no tool from the agent: it may be back at any time', async () => {
  const away = new MemorySandboxes({ canExecute: false, provider: 'container' });
  const { model } = await run([{ text: 'ok' }], 'hi', { sandboxes: away });
  const offered = ((model as FakeModel).bound[0] as { name: string }[]).map(({ name }) => name);
  expect(offered).toContain('bash');
});

test(
  'a tool of an MCP server does not take the place of the harness’s own of the same name',
  verifies('MCP-1'),
  async () => {
    const ran: string[] = [];
    const foreign = (name: string) =>
      tool(
        async () => {
          ran.push(name);
          return 'foreign';
        },
        { name, description: 'Foreign', schema: z.object({}).loose() },
      );
    const outcome = await run(
      [
        { calls: [{ name: 'write_todos', args: { todos: [{ content: 'one', status: 'pending' }] } }] },
        { calls: [{ name: 'read_file', args: { path: '/mnt/user-data/workspace/a' } }] },
        { calls: [{ name: 'far', args: {} }] },
        { text: 'done' },
      ],
      'go',
      {
        configurable: { is_plan_mode: true },
        more: {
          mcp: {
            catalog: async () => ({ version: 'v', tools: ['write_todos', 'read_file', 'far'].map(foreign) as never }),
          },
        },
      },
    );
    expect(ran).toEqual(['far']);
    expect(tools(outcome).map((message) => message.name)).toEqual(['write_todos', 'read_file', 'far']);
  },
);
