import { type BaseMessage, HumanMessage } from '@langchain/core/messages';
import { type StructuredToolInterface, tool } from '@langchain/core/tools';
import { Command, MemorySaver } from '@langchain/langgraph';
import {
  ClearToolUsesEdit,
  contextEditingMiddleware,
  createAgent,
  dynamicSystemPromptMiddleware,
  humanInTheLoopMiddleware,
  modelCallLimitMiddleware,
  modelFallbackMiddleware,
  modelRetryMiddleware,
  piiMiddleware,
  summarizationMiddleware,
  todoListMiddleware,
  toolCallLimitMiddleware,
  toolEmulatorMiddleware,
  toolErrorMiddleware,
  toolRetryMiddleware,
} from 'langchain';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { canonicalise } from '../history/canonicalise.ts';
import { recordedAttempt } from '../test-support/fake-attempt.ts';
import { FakeModel, plain, type Turn } from '../test-support/fake-model.ts';
import { drain, fixture } from '../test-support/run-loop.ts';
import type { Middleware } from './middleware.ts';

/** LangChain's factories without their type arithmetic. */
type Factory = (...options: unknown[]) => unknown;
const humanInTheLoop = humanInTheLoopMiddleware as unknown as Factory;
const modelRetry = modelRetryMiddleware as unknown as Factory;
const modelFallback = modelFallbackMiddleware as unknown as Factory;
const toolRetry = toolRetryMiddleware as unknown as Factory;
const summarization = summarizationMiddleware as unknown as Factory;
const modelCallLimit = modelCallLimitMiddleware as unknown as Factory;
const toolCallLimit = toolCallLimitMiddleware as unknown as Factory;
const toolEmulator = toolEmulatorMiddleware as unknown as Factory;

/** One conversation: what the user says or decides, turn by turn. Everything is made anew for each of the two loops. */
interface Scenario {
  readonly turns: readonly Turn[];
  readonly middleware: () => readonly unknown[];
  readonly tools?: () => StructuredToolInterface[];
  readonly inputs?: readonly (string | Command)[];
  readonly systemPrompt?: string;
  /** Channels that must agree too. */
  readonly channels?: readonly string[];
}

interface Result {
  readonly messages: readonly unknown[];
  readonly channels: Readonly<Record<string, unknown>>;
  readonly requests: readonly (readonly unknown[])[];
}

const toInput = (input: string | Command): unknown =>
  typeof input === 'string' ? { messages: [new HumanMessage(input)] } : input;
const pick = (values: Record<string, unknown>, keys: readonly string[] = []): Record<string, unknown> =>
  Object.fromEntries(keys.map((key) => [key, values[key]]));
/** Ids of tool calls that a scenario leaves to the model are counted per model, so they agree. */
const requestsOf = (model: FakeModel): unknown[][] =>
  // Results are sent in call order, whatever order a hook answered in.
  model.requests.map((request) => plain(canonicalise(request, { maxCharacters: 1_000_000 })));

async function withCreateAgent(scenario: Scenario): Promise<Result> {
  const model = new FakeModel(scenario.turns);
  const agent = createAgent({
    model,
    tools: scenario.tools?.() ?? [],
    middleware: scenario.middleware() as never,
    checkpointer: new MemorySaver(),
    ...(scenario.systemPrompt === undefined ? {} : { systemPrompt: scenario.systemPrompt }),
  });
  const config = { configurable: { thread_id: 't' } };
  let values: Record<string, unknown> = {};
  for (const input of scenario.inputs ?? ['go'])
    values = (await agent.graph.invoke(toInput(input) as never, config)) as Record<string, unknown>;
  return {
    messages: plain(values.messages as BaseMessage[]),
    channels: pick(values, scenario.channels),
    requests: requestsOf(model),
  };
}

async function withLoop(scenario: Scenario): Promise<Result> {
  const model = new FakeModel(scenario.turns);
  const { start } = fixture({
    model,
    tools: scenario.tools?.() ?? [],
    middleware: scenario.middleware() as readonly Middleware[],
    ...(scenario.systemPrompt === undefined ? {} : { systemPrompt: scenario.systemPrompt }),
  });
  const saver = new MemorySaver();
  let values: Record<string, unknown> = {};
  let rows: ReturnType<typeof recordedAttempt>['rows'] = new Map();
  for (const [index, input] of (scenario.inputs ?? ['go']).entries()) {
    const attempt = recordedAttempt({ attempt: index + 1, rows });
    rows = attempt.rows;
    ({ values } = await drain(start(saver, attempt), toInput(input), attempt));
  }
  return {
    messages: plain(values.messages as BaseMessage[]),
    channels: pick(values, scenario.channels),
    requests: requestsOf(model),
  };
}

const echo = (): StructuredToolInterface =>
  tool(({ text }) => `echo ${text}`, {
    name: 'echo',
    description: 'Echoes.',
    schema: z.object({ text: z.string() }),
  }) as unknown as StructuredToolInterface;

const flaky = (failures: number): StructuredToolInterface => {
  let left = failures;
  return tool(
    () => {
      if (left-- > 0) throw new Error('not yet');
      return 'worked';
    },
    { name: 'flaky', description: 'Fails first.', schema: z.object({}) },
  ) as unknown as StructuredToolInterface;
};

const call = (name: string, args: Record<string, unknown> = {}, id?: string) => ({
  name,
  args,
  ...(id === undefined ? {} : { id }),
});
const say = (text: string): Turn => ({ text });
const echoTwice: Turn = { calls: [call('echo', { text: 'a' }), call('echo', { text: 'b' })] };
const fast = { initialDelayMs: 0, jitter: false } as const;

const scenarios: Record<string, Scenario> = {
  'no middleware, parallel tools': {
    turns: [echoTwice, say('done')],
    middleware: () => [],
    tools: () => [echo()],
  },
  'human in the loop: approve': {
    turns: [echoTwice, say('done')],
    middleware: () => [humanInTheLoop({ interruptOn: { echo: true } })],
    tools: () => [echo()],
    inputs: ['go', new Command({ resume: { decisions: [{ type: 'approve' }, { type: 'approve' }] } })],
  },
  'human in the loop: edit': {
    turns: [{ calls: [call('echo', { text: 'a' })] }, say('done')],
    middleware: () => [humanInTheLoop({ interruptOn: { echo: true } })],
    tools: () => [echo()],
    inputs: [
      'go',
      new Command({
        resume: { decisions: [{ type: 'edit', editedAction: { name: 'echo', args: { text: 'edited' } } }] },
      }),
    ],
  },
  'human in the loop: reject': {
    turns: [{ calls: [call('echo', { text: 'a' })] }, say('I stop.')],
    middleware: () => [humanInTheLoop({ interruptOn: { echo: true } })],
    tools: () => [echo()],
    inputs: ['go', new Command({ resume: { decisions: [{ type: 'reject', message: 'no' }] } })],
  },
  'human in the loop: only some tools': {
    turns: [{ calls: [call('echo', { text: 'a' }), call('flaky')] }, say('done')],
    middleware: () => [humanInTheLoop({ interruptOn: { flaky: true } })],
    tools: () => [echo(), flaky(0)],
    inputs: ['go', new Command({ resume: { decisions: [{ type: 'approve' }] } })],
  },
  'model retry': {
    turns: [{ error: new Error('busy') }, { error: new Error('busy') }, say('at last')],
    middleware: () => [modelRetry({ maxRetries: 3, ...fast })],
  },
  'model retry, given up': {
    turns: [{ error: new Error('busy') }],
    middleware: () => [modelRetry({ maxRetries: 1, onFailure: 'continue', ...fast })],
  },
  'model fallback': {
    turns: [{ error: new Error('down') }],
    middleware: () => [modelFallback(new FakeModel([say('from the second')]))],
  },
  'tool retry': {
    turns: [{ calls: [call('flaky')] }, say('done')],
    middleware: () => [toolRetry({ maxRetries: 3, ...fast })],
    tools: () => [flaky(2)],
  },
  'tool retry, given up': {
    turns: [{ calls: [call('flaky')] }, say('it fails')],
    middleware: () => [toolRetry({ maxRetries: 1, onFailure: 'continue', ...fast })],
    tools: () => [flaky(9)],
  },
  'tool error': {
    turns: [{ calls: [call('flaky')] }, say('it fails')],
    middleware: () => [
      toolErrorMiddleware({ onError: (error: unknown) => `sorry: ${(error as Error).message}` } as never),
    ],
    tools: () => [flaky(9)],
  },
  'to-do list': {
    turns: [
      { calls: [call('write_todos', { todos: [{ content: 'one', status: 'pending' }] })] },
      { calls: [call('echo', { text: 'a' })] },
      say('done'),
    ],
    middleware: () => [todoListMiddleware()],
    tools: () => [echo()],
    systemPrompt: 'You plan.',
    channels: ['todos'],
  },
  'personal data in input, tool results and output': {
    turns: [{ calls: [call('echo', { text: 'bob@example.com' })] }, say('Write to amy@example.com today')],
    middleware: () => [
      piiMiddleware('email', { strategy: 'redact', applyToInput: true, applyToOutput: true, applyToToolResults: true }),
    ],
    tools: () => [echo()],
    inputs: ['my address is joe@example.com', 'again: joe@example.com'],
  },
  summarization: {
    turns: [say('one'), say('two'), say('three')],
    middleware: () => [
      summarization({
        model: new FakeModel([say('a summary')]),
        trigger: { messages: 4 },
        keep: { messages: 2 },
      }),
    ],
    inputs: ['first', 'second', 'third'],
  },
  'model call limit in a run': {
    turns: [{ calls: [call('echo', { text: 'a' })] }],
    middleware: () => [modelCallLimit({ runLimit: 2, exitBehavior: 'end' })],
    tools: () => [echo()],
  },
  'model call limit in a thread': {
    turns: [say('one'), say('two'), say('three')],
    middleware: () => [modelCallLimit({ threadLimit: 2, exitBehavior: 'end' })],
    inputs: ['a', 'b', 'c'],
    channels: ['threadModelCallCount'],
  },
  'tool call limit: the rest continues': {
    turns: [echoTwice, { calls: [call('flaky'), call('echo', { text: 'c' })] }, say('done')],
    middleware: () => [toolCallLimit({ toolName: 'echo', runLimit: 2 })],
    tools: () => [echo(), flaky(0)],
    channels: ['threadToolCallCount'],
  },
  'tool call limit: end': {
    turns: [{ calls: [call('echo', { text: 'a' })] }],
    middleware: () => [toolCallLimit({ runLimit: 1, exitBehavior: 'end' })],
    tools: () => [echo()],
  },
  'context editing': {
    turns: [echoTwice, echoTwice, echoTwice, say('done')],
    middleware: () => [
      contextEditingMiddleware({ edits: [new ClearToolUsesEdit({ trigger: { tokens: 1 }, keep: { messages: 1 } })] }),
    ],
    tools: () => [echo()],
  },
  'dynamic system prompt': {
    turns: [say('hello')],
    middleware: () => [dynamicSystemPromptMiddleware(() => 'Be kind.')],
  },
  'tool emulator': {
    turns: [{ calls: [call('echo', { text: 'a' })] }, say('done')],
    middleware: () => [toolEmulator({ model: new FakeModel([say('emulated')]) })],
    tools: () => [echo()],
  },
  'several together': {
    turns: [
      { error: new Error('busy') },
      { calls: [call('write_todos', { todos: [{ content: 'x', status: 'pending' }] }), call('flaky')] },
      say('mail joe@example.com'),
    ],
    middleware: () => [
      todoListMiddleware(),
      modelRetry({ maxRetries: 2, ...fast }),
      toolRetry({ maxRetries: 2, ...fast }),
      piiMiddleware('email', { strategy: 'mask', applyToOutput: true }),
      modelCallLimit({ runLimit: 5 }),
      toolCallLimit({ runLimit: 5 }),
    ],
    tools: () => [flaky(1)],
    systemPrompt: 'You help.',
    channels: ['todos', 'threadModelCallCount', 'threadToolCallCount'],
  },
};

describe('LangChain middleware gives the same conversation as under createAgent', () => {
  for (const [name, scenario] of Object.entries(scenarios)) {
    test(name, async () => {
      const expected = await withCreateAgent(scenario);
      const actual = await withLoop(scenario);
      expect(actual.messages).toEqual(expected.messages);
      expect(actual.channels).toEqual(expected.channels);
      expect(actual.requests).toEqual(expected.requests);
    });
  }
});

/**
 * The one difference, on purpose. When a hook itself answers every call of a message, createAgent ends the run on that tool
 * message: the user gets no answer, and the model never learns of the refusal. Here the model is asked once more.
 */
const refused: Record<string, Scenario> = {
  'tool call limit: all refused': {
    turns: [echoTwice, { calls: [call('echo', { text: 'c' })] }, say('done')],
    middleware: () => [toolCallLimit({ runLimit: 2 })],
    tools: () => [echo()],
  },
  'to-do list written twice at once': {
    turns: [{ calls: [call('write_todos', { todos: [] }), call('write_todos', { todos: [] })] }, say('done')],
    middleware: () => [todoListMiddleware()],
  },
};

describe('calls that a hook answers itself are shown to the model', () => {
  for (const [name, scenario] of Object.entries(refused)) {
    test(name, async () => {
      const expected = await withCreateAgent(scenario);
      const actual = await withLoop(scenario);
      expect(expected.messages.at(-1)).toMatchObject({ type: 'tool', status: 'error' });
      expect(actual.messages).toEqual([...expected.messages, { type: 'ai', content: 'done' }]);
    });
  }
});
