import { AIMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { Command, END, MemorySaver } from '@langchain/langgraph';
import { verifies } from '@reindeer/testkit';
import { createMiddleware } from 'langchain';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { recordedAttempt } from '../test-support/fake-attempt.ts';
import { FakeModel } from '../test-support/fake-model.ts';
import { drain, fixture, runLoop } from '../test-support/run-loop.ts';
import { defineMiddleware, type Middleware } from './middleware.ts';
import { MAX_CALLS } from './nodes.ts';

const echo = tool(({ text }) => `echo ${text}`, {
  name: 'echo',
  description: 'Echoes.',
  schema: z.object({ text: z.string() }),
});
const echoCall = { calls: [{ name: 'echo', args: { text: 'a' } }] };
const go = (): HumanMessage[] => [new HumanMessage('go')];

test('hooks run in list order before and in reverse after; the first wrapper is the outermost', async () => {
  const order: string[] = [];
  const note = (name: string): Middleware =>
    defineMiddleware({
      name,
      beforeAgent: () => void order.push(`${name} before agent`) as undefined,
      beforeModel: () => void order.push(`${name} before model`) as undefined,
      afterModel: () => void order.push(`${name} after model`) as undefined,
      afterAgent: () => void order.push(`${name} after agent`) as undefined,
      async wrapModelCall(request, handler) {
        order.push(`${name} opens model`);
        const message = await handler(request);
        order.push(`${name} closes model`);
        return message;
      },
      async wrapToolCall(request, handler) {
        order.push(`${name} opens tool`);
        const result = await handler(request);
        order.push(`${name} closes tool`);
        return result;
      },
    });
  const model = new FakeModel([echoCall, { text: 'done' }]);
  await runLoop({ model, tools: [echo], middleware: [note('A'), note('B')], input: go() });
  const modelCall = [
    'A before model',
    'B before model',
    'A opens model',
    'B opens model',
    'B closes model',
    'A closes model',
    'B after model',
    'A after model',
  ];
  expect(order).toEqual([
    'A before agent',
    'B before agent',
    ...modelCall,
    'A opens tool',
    'B opens tool',
    'B closes tool',
    'A closes tool',
    ...modelCall,
    'B after agent',
    'A after agent',
  ]);
});

describe('jumps', () => {
  const jumping = (stage: 'beforeAgent' | 'beforeModel' | 'afterModel', to: 'end' | 'model' | 'tools', times = 1) => {
    let left = times;
    return createMiddleware({
      name: 'jumping',
      [stage]: {
        canJumpTo: [to],
        hook: () => (left-- > 0 ? { jumpTo: to, messages: [new AIMessage(`jump to ${to}`)] } : undefined),
      },
    } as never) as unknown as Middleware;
  };

  test('to the end before the model: nobody is asked, the hooks after the agent run', async () => {
    for (const stage of ['beforeAgent', 'beforeModel'] as const) {
      const ended: string[] = [];
      const model = new FakeModel([{ text: 'never' }]);
      const last = defineMiddleware({ name: 'last', afterAgent: () => void ended.push('after agent') as undefined });
      const { messages } = await runLoop({ model, middleware: [jumping(stage, 'end'), last], input: go() });
      expect(messages.map((message) => message.text)).toEqual(['go', 'jump to end']);
      expect(model.requests).toHaveLength(0);
      expect(ended).toEqual(['after agent']);
    }
  });

  test('to the end after the model: its calls do not run', async () => {
    const model = new FakeModel([echoCall, { text: 'never' }]);
    const { messages } = await runLoop({
      model,
      tools: [echo],
      middleware: [jumping('afterModel', 'end')],
      input: go(),
    });
    expect(messages.map((message) => message.type)).toEqual(['human', 'ai', 'ai']);
  });

  test('back to the model, also after a clean answer; a jump is taken once', async () => {
    const model = new FakeModel([{ text: 'too early' }, { text: 'better' }]);
    const { messages } = await runLoop({ model, middleware: [jumping('afterModel', 'model')], input: go() });
    expect(messages.map((message) => message.text)).toEqual(['go', 'too early', 'jump to model', 'better']);
  });

  test('to tools: the calls that a hook wrote run', async () => {
    const writes = createMiddleware({
      name: 'writes',
      beforeAgent: {
        canJumpTo: ['tools'],
        hook: () => ({
          jumpTo: 'tools',
          messages: [
            new AIMessage({ id: 'w', content: '', tool_calls: [{ name: 'echo', args: { text: 'z' }, id: 'c' }] }),
          ],
        }),
      },
    } as never) as unknown as Middleware;
    const model = new FakeModel([{ text: 'done' }]);
    const { messages } = await runLoop({ model, tools: [echo], middleware: [writes], input: go() });
    expect(messages.map((message) => message.text)).toEqual(['go', '', 'echo z', 'done']);
  });

  test('a jump that the hook did not declare is refused by name', async () => {
    const wrong = defineMiddleware({ name: 'wrong', afterModel: () => ({ jumpTo: 'end' }) });
    const model = new FakeModel([{ text: 'x' }]);
    await expect(runLoop({ model, middleware: [wrong], input: go() })).rejects.toThrow(
      /wrong\.afterModel jumps to "end"/,
    );
  });

  test('a tool that ends the turn ends it after the calls beside it; a direct answer too', async () => {
    const stop = tool(
      (_args, config) =>
        new Command({
          update: { messages: [new ToolMessage({ content: 'stop', tool_call_id: config.toolCall.id })] },
          goto: END,
        }),
      { name: 'stop', description: 'Stops.', schema: z.object({}) },
    );
    const direct = tool(() => 'the answer', {
      name: 'direct',
      description: 'd',
      schema: z.object({}),
      returnDirect: true,
    });
    const both = {
      calls: [
        { name: 'stop', args: {} },
        { name: 'echo', args: { text: 'b' } },
      ],
    };
    const ended = await runLoop({
      model: new FakeModel([both, { text: 'never' }]),
      tools: [stop, echo] as never,
      input: go(),
    });
    expect(ended.messages.map((message) => message.text)).toEqual(['go', '', 'stop', 'echo b']);
    const answered = await runLoop({
      model: new FakeModel([{ calls: [{ name: 'direct', args: {} }] }, { text: 'never' }]),
      tools: [direct] as never,
      input: go(),
    });
    expect(answered.messages.at(-1)?.text).toBe('the answer');
  });
});

test('clients see neither the loop’s own channel nor private ones', async () => {
  const middleware = createMiddleware({
    name: 'private',
    stateSchema: z.object({ _own: z.string().optional(), shown: z.string().optional() }),
    afterModel: { canJumpTo: ['end'], hook: () => ({ _own: 'mine', shown: 'yes', jumpTo: 'end' }) },
  } as never) as unknown as Middleware;
  const { start } = fixture({ model: new FakeModel([echoCall]), tools: [echo], middleware: [middleware] });
  const attempt = recordedAttempt();
  const graph = start(new MemorySaver(), attempt);
  const { values } = await drain(graph, { messages: go() }, attempt);
  expect(Object.keys(values).toSorted()).toEqual(['artifacts', 'messages', 'shown']);
  expect(graph.stateKeys).not.toContain('_own');
  for await (const state of graph.getStateHistory({ configurable: { thread_id: attempt.run.threadId } }))
    expect(Object.keys(state.values).filter((key) => key.startsWith('_'))).toEqual([]);
});

describe('requests', () => {
  test('wrappers may change the system prompt, the tools and the model; the change is theirs alone', async () => {
    const other = new FakeModel([{ text: 'from the other' }]);
    const changing = createMiddleware({
      name: 'changing',
      wrapModelCall: (request, handler) =>
        handler({ ...request, systemPrompt: `${request.systemPrompt} Be brief.`, model: other as never, tools: [] }),
    }) as unknown as Middleware;
    const model = new FakeModel([{ text: 'never' }]);
    await runLoop({ model, tools: [echo], middleware: [changing], systemPrompt: 'Help.', input: go() });
    expect(model.requests).toHaveLength(0);
    expect(other.requests[0]?.[0]).toBeInstanceOf(SystemMessage);
    expect(other.requests[0]?.[0]?.text).toBe('Help. Be brief.');
    expect(other.bound).toEqual([]);
  });

  test('state, context defaults and tools that a middleware declares are there', async () => {
    const seen: unknown[] = [];
    const counting = createMiddleware({
      name: 'counting',
      stateSchema: z.object({ count: z.number().default(0) }),
      contextSchema: z.object({ step: z.number().default(2), unit: z.string().optional() }),
      tools: [echo],
      beforeModel: (state, runtime) => {
        seen.push([state.count, runtime.context]);
        return { count: state.count + runtime.context.step };
      },
    }) as unknown as Middleware;
    const model = new FakeModel([echoCall, { text: 'done' }]);
    const { values } = await runLoop({ model, middleware: [counting], input: go(), context: { unit: 'm', other: 1 } });
    expect(seen).toEqual([
      [0, { step: 2, unit: 'm' }],
      [2, { step: 2, unit: 'm' }],
    ]);
    expect(values.count).toBe(4);
  });

  test('a command from a model wrapper adds to the state behind the message', async () => {
    const titled = createMiddleware({
      name: 'titled',
      wrapModelCall: async (request, handler) => {
        await handler(request);
        return new Command({ update: { title: 'named' } });
      },
    }) as unknown as Middleware;
    const { values, messages } = await runLoop({
      model: new FakeModel([{ text: 'hi' }]),
      middleware: [titled],
      input: go(),
    });
    expect(values.title).toBe('named');
    expect(messages.at(-1)?.text).toBe('hi');
  });

  test('two middlewares of one name are refused', () => {
    const twice = defineMiddleware({ name: 'twice' });
    expect(() => fixture({ model: new FakeModel([]), middleware: [twice, twice] })).toThrow(/"twice" is listed twice/);
  });
});

describe('bad updates are refused in the node, and the thread stays usable', () => {
  const bad: [string, Record<string, unknown>, RegExp][] = [
    ['an unknown channel', { nonsense: 1 }, /bad\.afterModel wrote "nonsense"/],
    ['a removal of nothing', { messages: [new RemoveMessage({ id: 'nobody' })] }, /removes message "nobody"/],
    ['no messages', { messages: null }, /wrote no messages/],
    ['no message', { messages: [42] }, /messages\[0\] is not a message/],
  ];
  for (const [name, update, message] of bad)
    test(name, verifies('ST-1a'), async () => {
      let broken = true;
      const middleware = defineMiddleware({ name: 'bad', afterModel: () => (broken ? update : undefined) });
      const { start } = fixture({ model: new FakeModel([{ text: 'hi' }]), middleware: [middleware] });
      const saver = new MemorySaver();
      const attempt = recordedAttempt();
      await expect(drain(start(saver, attempt), { messages: go() }, attempt)).rejects.toThrow(message);
      broken = false;
      const next = recordedAttempt({ attempt: 2 });
      const { messages } = await drain(start(saver, next), { messages: [new HumanMessage('again')] }, next);
      expect(messages.map((item) => item.text)).toEqual(['go', 'again', 'hi']);
    });

  test('what a tool writes is checked too, and its call is always answered', async () => {
    const writing = (name: string, update: Record<string, unknown>) =>
      tool(() => new Command({ update }), { name, description: name, schema: z.object({}) });
    const tools = [writing('bad', { nonsense: 1 }), writing('silent', { title: 'named' })];
    const model = new FakeModel([
      {
        calls: [
          { name: 'bad', args: {} },
          { name: 'silent', args: {} },
        ],
      },
      { text: 'done' },
    ]);
    const { messages, values } = await runLoop({ model, tools: tools as never, input: go() });
    expect(messages.filter(ToolMessage.isInstance).map((message) => message.text)).toEqual([
      expect.stringContaining('bad wrote "nonsense"'),
      'OK',
    ]);
    expect(values.title).toBe('named');
  });

  test('input from a client is checked before any reducer sees it', async () => {
    const { start } = fixture({ model: new FakeModel([{ text: 'hi' }]) });
    const attempt = recordedAttempt();
    const graph = start(new MemorySaver(), attempt);
    await expect(drain(graph, { mesages: [] }, attempt)).rejects.toThrow(/Unknown state key "mesages"/);
    await expect(drain(graph, { messages: [{ role: 'wizard' }] }, attempt)).rejects.toThrow(/messages\[0\]/);
    await expect(drain(graph, { artifacts: { __overwrite__: [] } }, attempt)).rejects.toThrow(/overwriting/);
    await expect(drain(graph, { __jump: { to: 'end' } }, attempt)).rejects.toThrow(/Unknown state key/);
    const { messages } = await drain(graph, { messages: [{ role: 'user', content: 'hello' }] }, attempt);
    expect(messages.map((message) => message.text)).toEqual(['hello', 'hi']);
  });
});

test('calls that nobody can read or knows are answered, and the model goes on', verifies('MW-7'), async () => {
  const model = new FakeModel([
    {
      calls: [
        { name: 'nonsense', args: {} },
        { name: 'echo', args: { wrong: 1 } },
        { name: 'echo', args: { text: 'fine' }, id: null },
      ],
      raw: [{ name: 'write_file', args: '{"path": "/x', id: 'raw' }],
    },
    { text: 'sorry' },
  ]);
  const { messages } = await runLoop({ model, tools: [echo], input: go() });
  const results = messages.filter(ToolMessage.isInstance);
  expect(results.map((message) => message.text)).toEqual([
    expect.stringMatching(/write_file were not valid JSON.*several smaller calls/),
    'Error: nonsense is not a valid tool, try one of [echo].',
    expect.stringMatching(/^Error: Invalid arguments for echo: text: /),
    'echo fine',
  ]);
  for (const result of results) expect(result.text).not.toMatch(/\/work|\.ts:|node_modules|\n\s+at /);
  const ids = (messages[1] as AIMessage).tool_calls?.map((call) => call.id);
  expect(new Set(ids).size).toBe(4);
  expect(messages.at(-1)?.text).toBe('sorry');
  expect(model.requests[1]?.map((message) => message.type)).toEqual(['human', 'ai', 'tool', 'tool', 'tool', 'tool']);
});

test('a message that makes too many calls gets the first hundred run and the others refused', async () => {
  const calls = Array.from({ length: MAX_CALLS + 3 }, (_, index) => ({ name: 'echo', args: { text: `${index}` } }));
  const model = new FakeModel([{ calls }, { text: 'done' }]);
  const { messages } = await runLoop({ model, tools: [echo], input: go() });
  const results = messages.filter(ToolMessage.isInstance);
  expect(results.filter((message) => message.status === 'error')).toHaveLength(3);
  expect(results.filter((message) => message.text.startsWith('echo '))).toHaveLength(MAX_CALLS);
  expect(messages.at(-1)?.text).toBe('done');
});

test('usage is counted, pieces carry the id of the message, and an edit by a client continues the turn', async () => {
  const model = new FakeModel([
    { text: 'one two', usage: { input_tokens: 5, output_tokens: 2, total_tokens: 7 } },
    { text: 'after' },
  ]);
  const { start } = fixture({ model, tools: [echo] });
  const saver = new MemorySaver();
  const attempt = recordedAttempt();
  const graph = start(saver, attempt);
  const { messages } = await drain(graph, { messages: go() }, attempt);
  expect(attempt.counted).toEqual([{ inputTokens: 5, outputTokens: 2, model: 'fake-1' }]);
  expect(attempt.pushed.map((chunk) => [chunk.id, chunk.content])).toEqual([
    [messages[1]?.id, 'one '],
    [messages[1]?.id, 'two'],
    [messages[1]?.id, ''],
  ]);
  const config = { configurable: { thread_id: attempt.run.threadId } };
  const edited = new AIMessage({
    id: messages[1]?.id ?? '',
    content: '',
    tool_calls: [{ name: 'echo', args: { text: 'e' }, id: 'x' }],
  });
  await graph.updateState(config, { messages: [edited] }, 'model');
  expect((await graph.getState(config)).next).toEqual(['tools']);
  const next = recordedAttempt({ attempt: 2 });
  const after = await drain(start(saver, next), null, next);
  expect(after.messages.map((message) => message.text)).toEqual(['go', '', 'echo e', 'after']);
});
