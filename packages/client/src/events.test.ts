import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { type Frame, type RunEvent, RunEvents } from './events.ts';

const about = { run_id: 'r', thread_id: 't' };
const human = { type: 'human', id: 'h1', content: 'go' };
const calls = [{ name: 'write_file', args: { path: '/mnt/user-data/outputs/a.md' }, id: 'call_0', type: 'tool_call' }];
const usage = (input: number, output: number) => ({
  input_tokens: input,
  output_tokens: output,
  total_tokens: input + output,
});
const asks = { type: 'ai', id: 'a1', content: 'I write it.', tool_calls: calls, usage_metadata: usage(100, 10) };
const result = {
  type: 'tool',
  id: 'a1-tool-0',
  name: 'write_file',
  tool_call_id: 'call_0',
  content: 'OK',
  status: 'success',
};
const says = { type: 'ai', id: 'a2', content: 'Done now.', usage_metadata: usage(120, 5) };
const earlier = { type: 'ai', id: 'a0', content: 'Earlier.', tool_calls: calls, usage_metadata: usage(7000, 700) };

const frame = (event: string, data: unknown): Frame => ({ event, data });
const message = (fields: object): Frame => frame('messages', [fields, about]);
const piece = (id: string, content: string, more: object = {}) =>
  message({ type: 'AIMessageChunk', id, content, ...more });
const values = (...messages: object[]): Frame => frame('values', { title: 'Go', messages, thread_data: {} });

/** As a server sent them: one call of a tool, then words in three pieces, on a thread that had a turn before. */
const recorded: readonly Frame[] = [
  frame('metadata', about),
  frame('updates', { prepare: { title: 'Go', context_reminders: [{ before: 'h1' }] } }),
  // A middleware that has repaired the history.
  frame('updates', { prepare: { messages: [earlier] } }),
  values(earlier, human),
  piece('a1', 'I write it.'),
  piece('a1', '', {
    tool_call_chunks: [{ name: 'write_file', args: '{"pa', index: 0 }],
    usage_metadata: usage(100, 10),
  }),
  frame('updates', { model: { messages: [asks] } }),
  values(earlier, human, asks),
  frame('updates', { tools: { messages: [result] } }),
  message(result),
  values(earlier, human, asks, result),
  piece('a2', 'Done '),
  piece('a2', 'now'),
  piece('a2', '.', { usage_metadata: usage(120, 5) }),
  frame('updates', { model: { messages: [says] } }),
  values(earlier, human, asks, result, says),
  frame('custom', { type: 'workspace_changes', run_id: 'r' }),
  frame('end', { run_id: 'r', status: 'success' }),
];

const play = (frames: readonly Frame[], events = new RunEvents()): RunEvent[] =>
  frames.flatMap((one) => [...events.accept(one)]);
const news = (events: readonly RunEvent[]) =>
  events.flatMap((event) => (event.type === 'messages-tuple' ? [event.data] : []));

describe('the events of a run', () => {
  test('come in order, each message once, whatever the states repeat', verifies('CLI-1'), () => {
    const events = play(recorded);
    expect(events.map(({ type }) => type)).toEqual([
      'metadata',
      'values',
      'messages-tuple',
      'messages-tuple',
      'values',
      'messages-tuple',
      'values',
      'messages-tuple',
      'messages-tuple',
      'messages-tuple',
      'values',
      'custom',
      'end',
    ]);
    expect(news(events)).toEqual([
      { type: 'ai', id: 'a1', content: 'I write it.' },
      { type: 'ai', id: 'a1', content: '', tool_calls: calls },
      result,
      { type: 'ai', id: 'a2', content: 'Done ' },
      { type: 'ai', id: 'a2', content: 'now' },
      { type: 'ai', id: 'a2', content: '.' },
    ]);
    expect(events.find(({ type }) => type === 'values')?.data).toEqual({
      title: 'Go',
      messages: [earlier, human],
      artifacts: [],
      interrupts: [],
    });
  });

  test('count the tokens of each message of this run once', verifies('CLI-1'), () => {
    const end = play(recorded).at(-1);
    expect(end).toEqual({ type: 'end', data: { ...about, status: 'success', usage: usage(220, 15) } });
    // Some providers split the numbers of a message over its pieces.
    const split = [piece('a', 'x', { usage_metadata: usage(50, 0) }), piece('a', 'y', { usage_metadata: usage(0, 3) })];
    expect(play([...split, frame('end', {})]).at(-1)?.data).toMatchObject({ usage: usage(50, 3) });
  });

  test('a message that came in pieces is not told again when it is whole; nor is a result', verifies('CLI-1'), () => {
    const events = new RunEvents();
    expect(
      news(play([piece('a1', 'I write it.'), message(asks), message(asks), message(result), message(result)], events)),
    ).toEqual([
      { type: 'ai', id: 'a1', content: 'I write it.' },
      { type: 'ai', id: 'a1', content: '', tool_calls: calls },
      result,
    ]);
    expect(news(play([message({ ...result, content: 'Other.' })], events))).toMatchObject([{ content: 'Other.' }]);
    // A model that does not stream.
    expect(news(play([message(asks)]))).toEqual([
      { type: 'ai', id: 'a1', content: 'I write it.' },
      { type: 'ai', id: 'a1', content: '', tool_calls: calls },
    ]);
  });

  test('what is known of a message only at its end follows once', () => {
    const extra = { reasoning_content: 'Hm.' };
    const whole = frame('updates', { model: { messages: [{ ...says, additional_kwargs: extra }] } });
    expect(news(play([piece('a2', 'Done now.'), whole, whole])).slice(1)).toEqual([
      { type: 'ai', id: 'a2', content: '', additional_kwargs: extra },
    ]);
    const blocks = [
      { type: 'thinking', thinking: 'Hm.' },
      { type: 'text', text: 'Yes.' },
    ];
    expect(news(play([message({ type: 'AIMessageChunk', id: 'b', content: blocks })]))).toEqual([
      { type: 'ai', id: 'b', content: 'Yes.' },
    ]);
  });

  test('a message that is taken back may come anew; one that was never told is not taken back', () => {
    const gone = (id: string) => message({ type: 'remove', id, content: '' });
    const events = play([gone('a2'), piece('a2', 'Do'), gone('a2'), message(says), frame('end', {})]);
    expect(news(events)).toEqual([
      { type: 'ai', id: 'a2', content: 'Do' },
      { type: 'remove', id: 'a2' },
      { type: 'ai', id: 'a2', content: 'Done now.' },
    ]);
    expect(events.at(-1)?.data).toMatchObject({ usage: usage(120, 5) });
  });

  test('a question keeps the state; a failure waits for the end', () => {
    const events = new RunEvents();
    const interrupt = { value: { question: 'May I?' } };
    const told = play([values(human), frame('values', { __interrupt__: [interrupt] })], events);
    expect(told.at(-1)?.data).toMatchObject({ messages: [human], title: 'Go', interrupts: [interrupt] });
    const failed = [
      frame('error', { error: 'RunError', message: 'Too many steps.' }),
      frame('end', { status: 'error' }),
    ];
    expect(play(failed, events).map(({ type }) => type)).toEqual(['end']);
    expect(events.failure).toEqual({ name: 'RunError', message: 'Too many steps.' });
  });
});
