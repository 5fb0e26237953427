import { describe, expect, test } from 'vitest';
import { type ChatMessage, readMessage } from './message.ts';
import { presentedFiles, toTurns } from './turns.ts';
import type { WireMessage } from './wire.ts';

const read = (...wires: WireMessage[]): ChatMessage[] =>
  wires.map((wire, index) => readMessage({ id: `m${index}`, ...wire }, index)).filter((message) => message !== null);
const human = (text: string): WireMessage => ({ type: 'human', content: text });
const calls = (...list: [id: string | null, name: string, args?: object][]): WireMessage => ({
  type: 'ai',
  content: '',
  tool_calls: list.map(([id, name, args]) => ({ id, name, args: args ?? {} })),
});
const result = (id: string | null, extra: Partial<WireMessage> = {}): WireMessage => ({
  type: 'tool',
  tool_call_id: id,
  content: `result of ${id}`,
  ...extra,
});
const statuses = (messages: ChatMessage[], active = false) =>
  toTurns(messages, active).flatMap((turn) =>
    turn.kind === 'agent'
      ? turn.steps.flatMap((step) => step.calls.map((view) => [view.status, view.result?.text ?? null]))
      : [],
  );

describe('tool calls and their results', () => {
  test('pair by id, in whatever order they come', () => {
    expect(
      statuses(read(human('x'), calls(['a', 'bash'], ['b', 'ls']), result('b'), result('a', { status: 'error' }))),
    ).toEqual([
      ['failed', 'result of a'],
      ['done', 'result of b'],
    ]);
  });

  test('pair in order where ids repeat, and by name where they are missing', () => {
    const messages = read(
      calls(['a', 'bash'], ['a', 'bash']),
      result('a', { content: '1' }),
      result('a', { content: '2' }),
    );
    expect(statuses(messages)).toEqual([
      ['done', '1'],
      ['done', '2'],
    ]);
    expect(statuses(read(calls([null, 'ls']), result(null, { name: 'ls' })))).toEqual([['done', 'result of null']]);
  });

  test("never take a later turn's result", () => {
    const messages = read(calls(['a', 'bash']), { type: 'ai', content: 'hm' }, calls(['a', 'bash']), result('a'));
    expect(statuses(messages).map(([status]) => status)).toEqual(['no-result', 'done']);
  });

  test('without a result run while the run is active; else nobody says that they did not run', () => {
    const messages = read(calls(['a', 'bash']));
    expect(statuses(messages, true)).toEqual([['running', null]]);
    expect(statuses(messages, false)).toEqual([['no-result', null]]);
    const writing = messages.map((message) => (message.kind === 'ai' ? { ...message, streaming: true } : message));
    expect(statuses(writing, true)).toEqual([['writing', null]]);
  });

  test('an outcome that nobody knows is told as such', () => {
    const unknown = result('a', { status: 'error', additional_kwargs: { outcome: 'unknown' } });
    expect(statuses(read(calls(['a', 'bash']), unknown))).toEqual([['unknown', 'result of a']]);
    const said = result('a', { status: 'error', content: 'Error: the outcome of bash is unknown. Check it.' });
    expect(statuses(read(calls(['a', 'bash']), said))[0]?.[0]).toBe('unknown');
  });

  test('arguments that are no JSON are kept as text', () => {
    const message = read({ type: 'ai', content: '', invalid_tool_calls: [{ id: 'a', name: 'bash', args: '{"x' }] })[0];
    expect(message).toMatchObject({ calls: [{ id: 'a', name: 'bash', args: null, argsText: '{"x' }] });
  });
});

describe('turns', () => {
  test('everything that the agent does until the user speaks again is one turn', () => {
    const turns = toTurns(
      read(human('1'), calls(['a', 'ls']), result('a'), { type: 'ai', content: 'done' }, human('2'), {
        type: 'ai',
        content: 'ok',
      }),
      false,
    );
    expect(turns.map((turn) => (turn.kind === 'agent' ? turn.steps.length : turn.message.text))).toEqual([
      '1',
      2,
      '2',
      1,
    ]);
  });

  test('files count as presented only when the tool said so', () => {
    const files = { filepaths: ['/mnt/user-data/outputs/a b#1.md', '../outputs/c.md', 7] };
    const view = (outcome: Partial<WireMessage>) => {
      const turn = toTurns(read(calls(['a', 'present_files', files]), result('a', outcome)), false)[0];
      const call = turn?.kind === 'agent' ? turn.steps[0]?.calls[0] : undefined;
      return call === undefined ? null : presentedFiles(call);
    };
    expect(view({})).toEqual(['/mnt/user-data/outputs/a b#1.md', '/mnt/user-data/outputs/c.md']);
    expect(view({ status: 'error' })).toEqual([]);
  });
});

describe('questions', () => {
  const request = {
    kind: 'human_input_request',
    version: 1,
    source: 'ask',
    request_id: 'q1',
    question: 'Which?',
    input_mode: 'choice_with_other',
    options: [{ id: 'o1', label: 'Red', value: 'red' }],
  };
  const asked = (id = 'q1') => [
    calls(['a', 'ask_clarification']),
    result('a', { artifact: { human_input: { ...request, request_id: id } } }),
  ];
  const question = (messages: ChatMessage[]) =>
    toTurns(messages, false).flatMap((turn) =>
      turn.kind === 'agent' ? turn.steps.flatMap((step) => step.calls.map((view) => view.question)) : [],
    );

  test('are open until they are answered by a button or by typing', () => {
    expect(question(read(...asked()))).toMatchObject([{ open: true, answer: null }]);
    expect(question(read(...asked(), human('blue')))).toMatchObject([{ open: false, answer: 'blue' }]);
    const button = {
      ...human('red'),
      additional_kwargs: {
        hide_from_ui: true,
        human_input_response: { kind: 'human_input_response', request_id: 'q1', value: 'red' },
      },
    };
    expect(question(read(...asked(), button))).toMatchObject([{ open: false, answer: 'red' }]);
  });

  test('only the newest takes an answer', () => {
    expect(question(read(...asked('q1'), ...asked('q2')))).toMatchObject([{ open: false }, { open: true }]);
  });
});
