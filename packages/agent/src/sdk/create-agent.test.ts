import { type AIMessage, HumanMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { Command, MemorySaver } from '@langchain/langgraph';
import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { defineMiddleware, type Middleware } from '../loop/middleware.ts';
import { CLARIFICATION } from '../middleware/clarification.ts';
import { LOOP_DETECTION } from '../middleware/loop-detection.ts';
import { testSurroundings } from '../test-support/fake-attempt.ts';
import { FakeModel, type Turn } from '../test-support/fake-model.ts';
import { exited, MemorySandboxes } from '../test-support/memory-sandbox.ts';
import { withExtras } from './anchors.ts';
import { type AgentOptions, createReindeerAgent } from './create-agent.ts';

const named = (name: string): Middleware => defineMiddleware({ name });
const make = (turns: readonly Turn[] = [], more: Partial<AgentOptions> = {}) => {
  const model = new FakeModel(turns);
  return { model, agent: createReindeerAgent({ model, surroundings: testSurroundings(), ...more }) };
};
const ask = (text: string) => ({ messages: [new HumanMessage(text)] });
const sandboxes = () => new MemorySandboxes({ exec: ({ command }) => exited(`ran ${command}`) });

describe('an agent made in code', () => {
  test('works with its sandbox, counts, and goes on in its thread', verifies('AG-5'), async () => {
    const { agent, model } = make(
      [
        { calls: [{ name: 'bash', args: { description: 'look', command: 'ls' }, id: 'c1' }] },
        { text: 'done' },
        { text: 'again' },
      ],
      { sandboxes: sandboxes(), checkpointer: new MemorySaver() },
    );
    const first = await agent.invoke(ask('go'), { threadId: 't' });
    expect(first.values.messages.map((message) => message.text)).toEqual(['go', '', 'ran ls', 'done']);
    expect(first).toMatchObject({ stopReason: null, failure: null, interrupts: [], usage: { modelCalls: 2 } });
    const second = await agent.invoke(ask('and now?'), { threadId: 't' });
    expect(second.values.messages).toHaveLength(6);
    expect(model.requests).toHaveLength(3);
    const modes: string[] = [];
    for await (const [, mode] of make([{ text: 'hi' }]).agent.stream(ask('hi'), { streamMode: ['values'] }))
      modes.push(mode);
    expect(new Set(modes)).toEqual(new Set(['values']));
  });

  test('each feature brings its tools and its middleware, or not', verifies('AG-5'), () => {
    const bare = make().agent;
    expect(bare.tools).toEqual(['ask_clarification']);
    expect(bare.middleware).toContain(LOOP_DETECTION);
    for (const absent of ['sandbox', 'uploads', 'title', 'token-budget', 'summarization', 'guardrail'])
      expect(bare.middleware).not.toContain(absent);
    expect(bare.middleware.at(-1)).toBe(CLARIFICATION);
    const full = make([], {
      sandboxes: sandboxes(),
      planMode: true,
      features: { subagent: true, vision: true, autoTitle: true, tokenBudget: true, loopDetection: false },
    }).agent;
    expect(full.tools).toEqual(expect.arrayContaining(['bash', 'view_image', 'write_todos', 'task']));
    expect(full.middleware).toEqual(expect.arrayContaining(['sandbox', 'title', 'token-budget', 'todos']));
    expect(full.middleware).not.toContain(LOOP_DETECTION);
    // Pictures are of the sandbox.
    expect(make([], { features: { vision: true } }).agent.tools).not.toContain('view_image');
    const own = named('my-summaries');
    const replaced = make([], { features: { summarization: own, guardrail: named('my-policy') } }).agent.middleware;
    expect(replaced).toEqual(expect.arrayContaining(['my-summaries', 'my-policy']));
    expect(replaced.indexOf('llm-errors')).toBeLessThan(replaced.indexOf('my-summaries'));
  });

  test('a tool of the caller’s goes before one that a feature brings', verifies('AG-5'), async () => {
    const bash = tool(() => 'mine', { name: 'bash', description: 'Mine.', schema: z.object({}) });
    const { agent } = make([{ calls: [{ name: 'bash', args: {}, id: 'c1' }] }, { text: 'done' }], {
      sandboxes: sandboxes(),
      tools: [bash],
    });
    expect((await agent.invoke(ask('go'))).values.messages[2]?.text).toBe('mine');
  });

  test('a question to the user waits for its answer', verifies('AG-5'), async () => {
    const gate = defineMiddleware({ name: 'gate' });
    const { agent } = make(
      [
        {
          calls: [
            { name: 'ask_clarification', args: { question: 'Which?', clarification_type: 'missing_info' }, id: 'c1' },
          ],
        },
        { text: 'this one' },
      ],
      { checkpointer: new MemorySaver(), extraMiddleware: [gate] },
    );
    const asked = await agent.invoke(ask('go'), { threadId: 't' });
    expect(JSON.stringify(asked.values.messages)).toContain('Which?');
    const answered = await agent.invoke(asked.interrupts.length > 0 ? new Command({ resume: 'this' }) : ask('this'), {
      threadId: 't',
    });
    expect((answered.values.messages.at(-1) as AIMessage).text).toBe('this one');
  });

  test('taking the chain over excludes the rest', verifies('AG-5'), () => {
    const chain = [named('only')];
    expect(make([], { middleware: chain, sandboxes: sandboxes() }).agent).toMatchObject({
      middleware: ['only'],
      tools: [],
    });
    expect(() => make([], { middleware: chain, features: {} })).toThrow(/excludes features and extraMiddleware/);
    expect(() => make([], { middleware: chain, extraMiddleware: [] })).toThrow(/excludes features/);
  });

  test('what has no beginning of its own must be given', verifies('AG-5'), () => {
    for (const key of ['summarization', 'guardrail', 'memory'])
      expect(() => make([], { features: { [key]: true } as never })).toThrow(
        new RegExp(`features\\.${key}: there is none`),
      );
    expect(() => make([], { features: { sandbox: true } })).toThrow(/needs sandboxes/);
  });
});

describe('places in the chain', () => {
  const chain = ['a', 'b', CLARIFICATION].map(named);
  const names = (extras: Parameters<typeof withExtras>[1]) => withExtras(chain, extras).map(({ name }) => name);

  test('by an anchor, also at each other, else before the questions to the user', verifies('AG-5'), () => {
    expect(
      names([named('x'), { middleware: named('y'), after: 'a' }, { middleware: named('z'), before: 'y' }]),
    ).toEqual(['a', 'z', 'y', 'b', 'x', CLARIFICATION]);
    // In either order of the list.
    expect(
      names([
        { middleware: named('z'), before: 'y' },
        { middleware: named('y'), after: 'a' },
      ]),
    ).toEqual(['a', 'z', 'y', 'b', CLARIFICATION]);
    expect(names([{ middleware: named('x'), before: CLARIFICATION }]).slice(-2)).toEqual(['x', CLARIFICATION]);
  });

  test.each([
    ['both anchors', [{ middleware: named('x'), after: 'a', before: 'b' }], /"x" has both anchors/],
    [
      'two on one side',
      [
        { middleware: named('x'), after: 'a' },
        { middleware: named('y'), after: 'a' },
      ],
      /two stand after "a"/,
    ],
    [
      'an anchor that is nowhere',
      [{ middleware: named('x'), after: 'nobody' }],
      /anchored at "nobody", which is not in/,
    ],
    [
      'a circle',
      [
        { middleware: named('x'), after: 'y' },
        { middleware: named('y'), after: 'x' },
      ],
      /in a circle: x, y/,
    ],
    ['a place behind the last', [{ middleware: named('x'), after: CLARIFICATION }], /which is always last/],
  ])('%s is refused', verifies('AG-5'), (_, extras, message) => {
    expect(() => names(extras)).toThrow(message);
  });
});
