import { AIMessage, HumanMessage, RemoveMessage, ToolMessage } from '@langchain/core/messages';
import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { messagesOfUpdates, StepCapture } from './steps.ts';

const ai = (id: string, content: string, args?: Record<string, unknown>) =>
  new AIMessage({
    id,
    content,
    tool_calls: args === undefined ? [] : [{ name: 'f', args, id: 'c', type: 'tool_call' as const }],
  });
const result = (id: string, content: string) => new ToolMessage({ id, content, tool_call_id: 'c', name: 'f' });

test('each message of the model and of tools is a step once, also after the history shrank', verifies('SA-14'), () => {
  const capture = new StepCapture();
  const frames: unknown[] = [
    { model: { messages: [ai('1', 'a', { x: 1 })] } },
    { tools: [{ messages: [result('2', 'b')] }, { messages: [result('3', 'c')] }] },
    {
      model: {
        messages: [new RemoveMessage({ id: '1' }), new HumanMessage({ id: 'h', content: 'summary' }), ai('4', 'd')],
      },
    },
    { model: { messages: [ai('1', 'a'), ai('4', 'd again')] } },
    { prepare: null },
    null,
  ];
  const steps = frames.flatMap((frame) => capture.take(messagesOfUpdates(frame)));
  expect(steps.map(({ id, type, content }) => [id, type, content])).toEqual([
    ['1', 'ai', 'a'],
    ['2', 'tool', 'b'],
    ['3', 'tool', 'c'],
    ['4', 'ai', 'd'],
  ]);
  expect(capture.count).toBe(4);
});

test('the usage of a model call counts once, and stays when a compaction takes the call out of the history', () => {
  const capture = new StepCapture();
  const used = (id: string, input: number) => {
    const usage_metadata = { input_tokens: input, output_tokens: 1, total_tokens: input + 1 };
    return Object.assign(ai(id, 'x'), { usage_metadata });
  };
  capture.take([used('1', 10), result('2', 'b')]);
  capture.take([new RemoveMessage({ id: '1' }), used('3', 5)]);
  capture.take([used('1', 10), used('3', 5)]);
  expect(capture.usage).toEqual({ input_tokens: 15, output_tokens: 2, total_tokens: 17 });
});

test('long text and arguments are cut and flagged; short ones keep their form', verifies('SA-15'), () => {
  const capture = new StepCapture();
  const long = 'x'.repeat(10_000);
  const [text, small, big, output] = capture.take([
    ai('1', long),
    ai('2', '', { path: 'a', deep: { list: [1, 2] } }),
    ai('3', '', { content: long }),
    result('4', long),
  ]);
  expect(text).toMatchObject({ truncated: true });
  expect(String(text?.content)).toHaveLength(8_192);
  expect(small).not.toHaveProperty('truncated');
  expect(small?.tool_calls).toEqual([{ name: 'f', id: 'c', args: { path: 'a', deep: { list: [1, 2] } } }]);
  const [call] = (big?.tool_calls ?? []) as unknown as { args: string; truncated: boolean }[];
  expect([typeof call?.args, call?.args.length, call?.truncated]).toEqual(['string', 2_048, true]);
  expect(output).toMatchObject({ truncated: true, status: 'success' });
});
