import { describe, expect, test } from 'vitest';
import { formText, missingFields, readQuestion, replyMessage } from './question.ts';

const base = {
  kind: 'human_input_request',
  version: 2,
  source: 'ask_clarification',
  request_id: 'q',
  question: 'Which?',
};
const read = (extra: object) => readQuestion({ human_input: { ...base, ...extra } });

describe('the artifact of a question', () => {
  test.each([
    ['nothing', undefined],
    ['another artifact', { rows: [] }],
    ['another kind', { human_input: { ...base, kind: 'x', input_mode: 'free_text' } }],
    ['no id', { human_input: { ...base, request_id: '', input_mode: 'free_text' } }],
    ['an unknown mode', { human_input: { ...base, input_mode: 'telepathy' } }],
    ['a choice of nothing', { human_input: { ...base, input_mode: 'single_choice', options: [] } }],
    ['a form of nothing', { human_input: { ...base, input_mode: 'form', fields: [] } }],
    [
      'a field that would change an object',
      { human_input: { ...base, input_mode: 'form', fields: [{ name: '__proto__', type: 'text' }] } },
    ],
    ['one field twice', { human_input: { ...base, input_mode: 'form', fields: [{ name: 'a' }, { name: 'a' }] } }],
    [
      'a select without options',
      { human_input: { ...base, input_mode: 'form', fields: [{ name: 'a', type: 'select' }] } },
    ],
  ])('falls back to text for %s', (_what, artifact) => {
    expect(readQuestion(artifact)).toBeNull();
  });

  test('reads choices and forms', () => {
    expect(read({ input_mode: 'free_text' })).toMatchObject({ mode: 'text', question: 'Which?' });
    expect(
      read({ input_mode: 'choice_with_other', options: ['Red', { id: 'g', label: 'Green', value: 'green' }] })?.options,
    ).toEqual([
      { id: 'option-1', label: 'Red', value: 'Red' },
      { id: 'g', label: 'Green', value: 'green' },
    ]);
    expect(
      read({ input_mode: 'form', fields: [{ name: 'n', label: 'N', type: 'magic', required: true }] })?.fields,
    ).toMatchObject([{ name: 'n', label: 'N', type: 'text', required: true }]);
  });
});

test('a reply is a hidden message that names its question', () => {
  expect(replyMessage('m', { requestId: 'q', source: 's' }, { kind: 'option', value: 'Red', optionId: 'o' })).toEqual({
    type: 'human',
    id: 'm',
    content: 'Red',
    additional_kwargs: {
      hide_from_ui: true,
      human_input_response: {
        version: 1,
        kind: 'human_input_response',
        source: 's',
        request_id: 'q',
        response_kind: 'option',
        value: 'Red',
        option_id: 'o',
      },
    },
  });
});

test('a form becomes lines, and misses what is required', () => {
  const field = (name: string, type: 'text' | 'checkbox' | 'multi_select', required: boolean) => ({
    name,
    label: name.toUpperCase(),
    type,
    required,
    placeholder: '',
    options: [],
  });
  const fields = [
    field('a', 'text', true),
    field('b', 'checkbox', true),
    field('c', 'multi_select', true),
    field('d', 'text', false),
  ];
  expect(
    missingFields(
      fields,
      new Map<string, string | boolean | string[]>([
        ['a', ' '],
        ['b', false],
        ['c', []],
      ]),
    ),
  ).toEqual(['a', 'b', 'c']);
  const values = new Map<string, string | boolean | string[]>([
    ['a', 'x'],
    ['b', true],
    ['c', ['1', '2']],
    ['d', ''],
  ]);
  expect(missingFields(fields, values)).toEqual([]);
  expect(formText(fields, values)).toBe('A: x\nB: yes\nC: 1, 2');
});
