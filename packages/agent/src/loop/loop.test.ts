import { HumanMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { MemorySaver } from '@langchain/langgraph';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { FakeModel, plain } from '../test-support/fake-model.ts';
import { runLoop } from '../test-support/run-loop.ts';

const add = tool(({ a, b }) => String(a + b), {
  name: 'add',
  description: 'Adds.',
  schema: z.object({ a: z.number(), b: z.number() }),
});

test('calls tools until the model answers', async () => {
  const model = new FakeModel([
    { text: 'Let me add.', calls: [{ name: 'add', args: { a: 1, b: 2 } }] },
    { text: 'It is 3.' },
  ]);
  const { messages, attempt } = await runLoop({
    model,
    tools: [add],
    input: [new HumanMessage('1 + 2?')],
    saver: new MemorySaver(),
  });
  expect(plain(messages)).toMatchObject([
    { type: 'human' },
    { type: 'ai', content: 'Let me add.', tool_calls: [{ name: 'add', args: { a: 1, b: 2 } }] },
    { type: 'tool', content: '3' },
    { type: 'ai', content: 'It is 3.' },
  ]);
  expect([...attempt.named.values()]).toEqual(['prepare', 'model', 'tools', 'model']);
  const [, asked] = messages;
  expect(new Set(attempt.pushed.slice(0, 4).map((chunk) => chunk.id))).toEqual(new Set([asked?.id]));
});

test('keeps the results of many parallel calls in the order of the calls', async () => {
  const calls = Array.from({ length: 12 }, (_, index) => ({ name: 'add', args: { a: index, b: 0 } }));
  const model = new FakeModel([{ calls }, { text: 'done' }]);
  const { messages } = await runLoop({
    model,
    tools: [add],
    input: [new HumanMessage('go')],
    saver: new MemorySaver(),
  });
  expect(messages.filter((message) => message.type === 'tool').map((message) => message.content)).toEqual(
    Array.from({ length: 12 }, (_, index) => String(index)),
  );
});
