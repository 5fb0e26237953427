import { AIMessage, type BaseMessage, HumanMessage, SystemMessage, ToolMessage } from '@langchain/core/messages';
import { verifies } from '@reindeer/testkit';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { COMMON_CALL_IDS, MISTRAL_CALL_IDS } from './call-ids.ts';
import { canonicalise, isInOrder, paired } from './canonicalise.ts';
import { sizeOf } from './fit.ts';

const LIMITS = { maxCharacters: 1_000_000 };
const ai = (content: string, ...calls: [name: string, id: string | undefined][]): AIMessage =>
  new AIMessage({
    id: `ai-${content}-${calls.map(([, id]) => id).join()}`,
    content,
    tool_calls: calls.map(([name, id]) => ({ name, args: {}, id: id as string, type: 'tool_call' })),
  });
const result = (id: string, content = `result of ${id}`): ToolMessage => new ToolMessage({ tool_call_id: id, content });
const shape = (messages: readonly BaseMessage[]): string[] =>
  messages.map((message) => {
    if (message.type === 'tool') return `tool ${(message as ToolMessage).tool_call_id}: ${message.text}`;
    const calls = ((message as AIMessage).tool_calls ?? []).map((call) => `${call.name}#${call.id}`);
    return [message.type, message.text, ...calls].join(' ').trim();
  });

/** Everything that a strict provider checks, written apart from the code under test. */
function problems(messages: readonly BaseMessage[], grammar = /^[a-zA-Z0-9_-]{1,40}$/): string[] {
  const found: string[] = [];
  const ids = new Set<unknown>();
  const first = messages.find((message) => message.type !== 'system');
  if (first !== undefined && first.type !== 'human') found.push(`starts with ${first.type}`);
  for (const [position, message] of messages.entries()) {
    // As it goes over the wire: half of a pair is written as an escape there.
    if (/\\ud[89a-f]/i.test(JSON.stringify([message.content, (message as AIMessage).tool_calls])))
      found.push('half a character');
    if (message.type === 'human' && message.text.trim() === '') found.push('empty human');
    if (message.type === 'tool') {
      let owner = position;
      while (messages[owner]?.type === 'tool') owner--;
      const calls = (messages[owner] as AIMessage | undefined)?.tool_calls ?? [];
      if (calls[position - owner - 1]?.id !== (message as ToolMessage).tool_call_id)
        found.push(`orphan at ${position}`);
    }
    if (message.type !== 'ai') continue;
    const { tool_calls: calls = [], content } = message as AIMessage;
    if (calls.length === 0 && message.text.trim() === '') found.push('empty ai');
    for (const [index, call] of calls.entries()) {
      if (ids.has(call.id)) found.push('repeated id');
      ids.add(call.id);
      if (!call.id) found.push('no id');
      else if (!grammar.test(call.id)) found.push(`refused id ${call.id}`);
      if (!call.name) found.push('no name');
      if (typeof call.args !== 'object' || call.args === null || Array.isArray(call.args)) found.push('no object');
      const answer = messages[position + 1 + index];
      if (answer?.type !== 'tool' || (answer as ToolMessage).tool_call_id !== call.id) found.push('unanswered');
    }
    if (Array.isArray(content))
      for (const block of content)
        if (block.type === 'tool_use' && !calls.some((call) => call.id === block.id)) found.push('foreign block');
  }
  return found;
}

describe('repairs', () => {
  test('a valid history is answered as the same array', verifies('MW-7'), () => {
    const history = [
      new SystemMessage('s'),
      new HumanMessage('go'),
      ai('', ['bash', 'a'], ['ls', 'b']),
      result('a'),
      result('b'),
      ai('done'),
      new HumanMessage('more'),
    ];
    expect(canonicalise(history, LIMITS)).toBe(history);
  });

  test(
    'an unanswered call gets an error right behind its message; what the user wrote since stays',
    verifies('MW-7'),
    () => {
      const fixed = canonicalise(
        [new HumanMessage('go'), ai('', ['bash', 'a'], ['ls', 'b']), result('b'), new HumanMessage('hi')],
        LIMITS,
      );
      expect(shape(fixed)).toEqual([
        'human go',
        'ai  bash#a ls#b',
        expect.stringMatching(/^tool a: Error: the call of bash was interrupted/),
        'tool b: result of b',
        'human hi',
      ]);
      expect((fixed[2] as ToolMessage).status).toBe('error');
    },
  );

  test('results move next to their call and into call order; orphans go', verifies('MW-7'), () => {
    const fixed = canonicalise(
      [
        new HumanMessage('go'),
        result('orphan'),
        ai('', ['bash', 'a'], ['ls', 'b']),
        new HumanMessage('warning'),
        result('b'),
        result('a'),
        result('a', 'again'),
      ],
      LIMITS,
    );
    expect(shape(fixed)).toEqual([
      'human go',
      'ai  bash#a ls#b',
      'tool a: result of a',
      'tool b: result of b',
      'human warning',
    ]);
  });

  test('an id that a later turn uses again pairs within its own turn, under an id of its own', verifies('MW-7'), () => {
    const fixed = canonicalise(
      [
        new HumanMessage('one'),
        ai('', ['bash', 'x']),
        new HumanMessage('two'),
        ai('', ['bash', 'x']),
        result('x', 'second'),
        result('x', 'stray'),
      ],
      LIMITS,
    );
    expect(shape(fixed)).toEqual([
      'human one',
      'ai  bash#x',
      expect.stringContaining('interrupted'),
      'human two',
      'ai  bash#call_ai--x_0',
      'tool call_ai--x_0: second',
    ]);
  });

  test('a provider that counts its calls from zero in every answer leaves a history that others accept', () => {
    const history = [
      new HumanMessage('go'),
      ai('', ['bash', 'call_0'], ['ls', 'call_1']),
      result('call_0'),
      result('call_1'),
      new AIMessage({
        id: '7d3c0b52-5b0e-4a53-9a3e-3f4a6c9c7f10',
        content: [{ type: 'tool_use', id: 'call_0', name: 'bash', input: {} }],
        tool_calls: [{ name: 'bash', args: {}, id: 'call_0', type: 'tool_call' }],
      }),
      result('call_0', 'second'),
    ];
    expect(isInOrder(history)).toBe(false);
    const fixed = canonicalise(history, LIMITS);
    expect(problems(fixed)).toEqual([]);
    expect(fixed.slice(0, 4)).toEqual(history.slice(0, 4));
    expect(fixed.at(-1)?.text).toBe('second');
    // OpenAI takes ids up to 40 characters.
    expect((fixed.at(-1) as ToolMessage).tool_call_id.length).toBeLessThanOrEqual(40);
  });

  test(
    'equal ids in one message pair in order; a lone result for two of them belongs to nobody',
    verifies('MW-7'),
    () => {
      const both = canonicalise(
        [new HumanMessage('go'), ai('', ['ls', 'x'], ['ls', 'x']), result('x', '1'), result('x', '2')],
        LIMITS,
      );
      expect(problems(both)).toEqual([]);
      expect(both.filter((message) => message.type === 'tool').map((message) => message.text)).toEqual(['1', '2']);
      const lone = canonicalise([new HumanMessage('go'), ai('', ['ls', 'x'], ['ls', 'x']), result('x', '1')], LIMITS);
      expect(problems(lone)).toEqual([]);
      expect(lone.filter((message) => message.text === '1')).toEqual([]);
    },
  );

  test('calls without name or id and with unreadable arguments become answerable', verifies('MW-7'), () => {
    const message = new AIMessage({
      id: 'm',
      content: '',
      tool_calls: [{ name: '', args: {}, id: undefined as never, type: 'tool_call' }],
      invalid_tool_calls: [
        { name: 'write_file', args: '{"path": "/a', id: 'w', error: 'x'.repeat(900), type: 'invalid_tool_call' },
      ],
      additional_kwargs: {
        tool_calls: [{ id: 'w', type: 'function', function: { name: 'write_file', arguments: '{"path": "/a' } }],
      },
    });
    const fixed = canonicalise([new HumanMessage('go'), message], LIMITS);
    expect(problems(fixed)).toEqual([]);
    expect(shape(fixed)).toEqual([
      'human go',
      'ai  unknown_tool#call_m_0 write_file#w',
      expect.stringContaining('unknown_tool was interrupted'),
      expect.stringMatching(/write_file were not valid JSON .* several smaller calls/),
    ]);
    for (const answer of fixed.slice(2)) expect(answer.text.length).toBeLessThanOrEqual(500);
    expect((fixed[1] as AIMessage).additional_kwargs).toEqual({});
  });

  test('a call that only the raw view or a content block shows is not lost and not doubled', verifies('MW-7'), () => {
    const raw = new AIMessage({
      id: 'r',
      content: '',
      additional_kwargs: {
        tool_calls: [{ id: 'a', type: 'function', function: { name: 'ls', arguments: '{"path":"/x"}' } }],
      },
    });
    raw.tool_calls = [];
    const block = new AIMessage({
      id: 'b',
      content: [
        { type: 'text', text: 'hm' },
        { type: 'tool_use', id: 'k', name: 'ls', input: { path: '/y' } },
      ] as never,
    });
    block.tool_calls = [];
    const fixed = canonicalise([new HumanMessage('go'), raw, result('a'), block, result('k')], LIMITS);
    expect(problems(fixed)).toEqual([]);
    expect(fixed.flatMap((message) => (message as AIMessage).tool_calls ?? [])).toMatchObject([
      { id: 'a', name: 'ls', args: { path: '/x' } },
      { id: 'k', name: 'ls', args: { path: '/y' } },
    ]);
  });

  test('the content block of an edited call does not contradict the call', () => {
    const edited = new AIMessage({
      id: 'e',
      content: [{ type: 'tool_use', id: 'k', name: 'bash', input: { command: 'rm -rf /' } }] as never,
      tool_calls: [{ id: 'k', name: 'bash', args: { command: 'ls' }, type: 'tool_call' }],
    });
    const [, fixed] = canonicalise([new HumanMessage('go'), edited, result('k')], LIMITS);
    expect(JSON.stringify(fixed?.content)).not.toContain('rm -rf');
    expect((fixed as AIMessage).tool_calls).toMatchObject([{ args: { command: 'ls' } }]);
  });

  test('nothing empty is sent, reasoning alone is nothing, and a person speaks first', () => {
    const reasoning = new AIMessage({
      id: 't',
      content: [{ type: 'thinking', thinking: 'hm', signature: 's' }] as never,
    });
    const fixed = canonicalise(
      [ai('Hello!'), new HumanMessage(''), ai(''), reasoning, new HumanMessage({ content: [] })],
      LIMITS,
    );
    expect(shape(fixed)).toEqual([
      'human (The conversation continues.)',
      'ai Hello!',
      'human (empty message)',
      'human (empty message)',
    ]);
  });

  test('a history beyond the limit loses old tool text first, then old turns, never the newest turn', () => {
    const turn = (name: string): BaseMessage[] => [
      new HumanMessage(`ask ${name}`),
      ai('', ['bash', name]),
      result(name, name.repeat(6_000)),
      ai(`answer ${name}`),
    ];
    const history = [...turn('a'), ...turn('b'), ...turn('c'), new HumanMessage('now')];
    const shorter = canonicalise(history, { maxCharacters: 14_500 });
    expect(shorter.filter((message) => message.text.includes('characters left out here'))).toHaveLength(1);
    expect(shorter).toHaveLength(history.length);
    const fewer = canonicalise(history, { maxCharacters: 2_600 });
    expect(problems(fewer)).toEqual([]);
    expect(shape(fewer)[0]).toContain('left out to fit the model');
    expect(shape(fewer).join()).not.toContain('ask a');
    expect(shape(fewer).at(-1)).toBe('human now');
    expect(fewer.reduce((sum, message) => sum + sizeOf(message), 0)).toBeLessThanOrEqual(2_600);
  });
});

test(
  'a thread that moves to a provider with other ids keeps its pairs, and marks on its calls',
  verifies('MW-7'),
  () => {
    const asked = ai('', ['bash', 'functions.bash:0'], ['ls', 'functions.ls:1']);
    asked.additional_kwargs.thought_signatures = { 'functions.ls:1': 'mark', '': 'text' };
    const history = [new HumanMessage('go'), asked, result('functions.ls:1'), result('functions.bash:0')];
    for (const grammar of [COMMON_CALL_IDS, MISTRAL_CALL_IDS]) {
      const [, message, first, second] = canonicalise(history, LIMITS, grammar) as [
        never,
        AIMessage,
        ToolMessage,
        ToolMessage,
      ];
      const [bash, ls] = message.tool_calls ?? [];
      expect([first.tool_call_id, first.text]).toEqual([bash?.id, 'result of functions.bash:0']);
      expect([second.tool_call_id, second.text]).toEqual([ls?.id, 'result of functions.ls:1']);
      expect(message.additional_kwargs.thought_signatures).toEqual({ [ls?.id ?? '']: 'mark', '': 'text' });
      // The same for every request, whatever stands before or behind.
      const later = canonicalise([new HumanMessage('before'), ...history, new HumanMessage('more')], LIMITS, grammar);
      expect((later[2] as AIMessage).tool_calls?.map(({ id }) => id)).toEqual([bash?.id, ls?.id]);
    }
    // Back at the provider that it came from nothing is lost: the history itself was never changed.
    expect(asked.tool_calls?.map(({ id }) => id)).toEqual(['functions.bash:0', 'functions.ls:1']);
  },
);

describe('properties', () => {
  const id = fc.oneof(
    fc.constantFrom('a', 'b', 'c', '', undefined),
    fc.constantFrom('functions.bash:0', 'tool call 1', 'é', 'abcdefghi', `fc_${'1'.repeat(60)}`),
  );
  const call = fc.record({
    name: fc.constantFrom('bash', 'ls', '', undefined),
    id,
    args: fc.constantFrom<unknown>({}, { x: 1 }, { x: ['\udc00', { '\ud83d': 1 }] }, 'text', null),
  });
  const message: fc.Arbitrary<BaseMessage> = fc.oneof(
    fc.constantFrom('hello', '', '  ', 'cut \ud83d').map((content) => new HumanMessage(content)),
    fc
      .record({
        content: fc.constantFrom('text', '', '\udc8d cut'),
        calls: fc.array(call, { maxLength: 3 }),
        invalid: fc.array(call, { maxLength: 2 }),
        raw: fc.array(call, { maxLength: 2 }),
        key: fc.uuid(),
      })
      .map(({ content, calls, invalid, raw, key }) => {
        const made = new AIMessage({ id: key, content });
        made.tool_calls = calls as never;
        made.invalid_tool_calls = invalid.map((entry) => ({ ...entry, args: '{', error: 'bad' })) as never;
        if (raw.length > 0)
          made.additional_kwargs.tool_calls = raw.map((entry) => ({
            id: entry.id,
            function: { name: entry.name, arguments: '{}' },
          })) as never;
        return made;
      }),
    fc
      .record({ to: id, content: fc.oneof(fc.string({ maxLength: 8 }), fc.constant('\ud83e')) })
      .map(({ to, content }) => {
        const made = new ToolMessage({ tool_call_id: to ?? '', content });
        if (to === undefined) made.tool_call_id = undefined as never;
        return made;
      }),
  );
  const history = fc.array(message, { maxLength: 14 });

  test('whatever came before, a provider accepts the request', verifies('MW-7'), () => {
    fc.assert(
      fc.property(history, (messages) => {
        expect(problems(canonicalise(messages, LIMITS))).toEqual([]);
      }),
      { numRuns: 2_000 },
    );
  });

  test(
    'so does one that takes nine letters or digits only, and the ids stay when the history grows',
    verifies('MW-7'),
    () => {
      fc.assert(
        fc.property(history, history, (messages, more) => {
          const fixed = canonicalise(messages, LIMITS, MISTRAL_CALL_IDS);
          expect(problems(fixed, /^[a-zA-Z0-9]{9}$/)).toEqual([]);
          expect(canonicalise(fixed, LIMITS, MISTRAL_CALL_IDS)).toBe(fixed);
          // Of the messages before the last user turn: what comes later may still answer a call of the last one.
          const callsIn = (list: readonly BaseMessage[]) =>
            list.flatMap((item) => ((item as AIMessage).tool_calls ?? []).map((call) => call.id));
          const grown = canonicalise([...messages, ...more], LIMITS, MISTRAL_CALL_IDS);
          expect(callsIn(grown).slice(0, callsIn(fixed).length)).toEqual(callsIn(fixed));
        }),
        { numRuns: 1_000 },
      );
    },
  );

  test('what the quick look passes, the general case leaves alone', () => {
    fc.assert(
      fc.property(history, (messages) => {
        const once = paired(messages);
        if (isInOrder(messages)) expect(once).toBe(messages);
        expect(paired(once)).toBe(once);
      }),
      { numRuns: 2_000 },
    );
  });

  test('what is fine stays the same object: a second pass changes nothing', () => {
    fc.assert(
      fc.property(history, (messages) => {
        const once = canonicalise(messages, LIMITS);
        expect(canonicalise(once, LIMITS)).toBe(once);
      }),
      { numRuns: 1_000 },
    );
  });

  test('the newest turn of the user stays, and the size stays near the limit', () => {
    fc.assert(
      fc.property(history, fc.integer({ min: 150, max: 400 }), (messages, maxCharacters) => {
        const before = JSON.stringify(messages);
        const fixed = canonicalise(messages, { maxCharacters });
        expect(JSON.stringify(messages)).toBe(before);
        const newest = messages.findLast((candidate) => candidate.type === 'human');
        if (newest !== undefined && newest.text.trim() !== '')
          expect(fixed.map((item) => item.text)).toContain(newest.text.toWellFormed());
        const kept = fixed.slice(fixed.findLastIndex((candidate) => candidate.type === 'human'));
        const size = (list: readonly BaseMessage[]): number => list.reduce((sum, item) => sum + sizeOf(item), 0);
        expect(size(fixed)).toBeLessThanOrEqual(Math.max(maxCharacters, size(kept) + 200));
      }),
      { numRuns: 1_000 },
    );
  });

  test('every result that has its call is kept with its text', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom('a', 'b', 'c'), { minLength: 1, maxLength: 3 }), (ids) => {
        const unique = [...new Set(ids)];
        const messages = [
          new HumanMessage('go'),
          ai('', ...unique.map((key): [string, string] => ['ls', key])),
          ...[...unique].reverse().map((key) => result(key)),
        ];
        const texts = canonicalise(messages, LIMITS)
          .filter((item) => item.type === 'tool')
          .map((item) => item.text);
        expect(texts).toEqual(unique.map((key) => `result of ${key}`));
      }),
    );
  });
});
