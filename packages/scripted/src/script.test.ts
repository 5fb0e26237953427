import { describe, expect, test } from 'vitest';
import { answer } from './pieces.ts';
import {
  AttemptCounter,
  byCaller,
  conversationKey,
  nameToolResults,
  type ScriptMessage,
  ScriptMiss,
  type ScriptRequest,
  turns,
} from './script.ts';

const message = (role: ScriptMessage['role'], text: string): ScriptMessage => ({
  role,
  text,
  toolCalls: [],
  toolCallId: null,
  toolName: null,
  failed: false,
  reasoning: null,
});
const request = (...messages: ScriptMessage[]): ScriptRequest => ({
  caller: 'c',
  model: 'm',
  messages,
  tools: [],
  attempt: 1,
});

describe('a list of turns', () => {
  test('is indexed by the assistant messages and then by the attempt', () => {
    const script = turns([{ text: 'a' }, [{ text: 'b1' }, { text: 'b2' }]]);
    expect(script(request(message('user', 'x')))).toEqual({ text: 'a' });
    const later = request(message('user', 'x'), message('assistant', 'a'), message('user', 'y'));
    expect(script(later)).toEqual({ text: 'b1' });
    expect(script({ ...later, attempt: 2 })).toEqual({ text: 'b2' });
    expect(script({ ...later, attempt: 9 })).toEqual({ text: 'b2' });
  });

  test('misses loudly', () => {
    expect(() => turns([])(request())).toThrow(ScriptMiss);
    expect(() => byCaller({})(request())).toThrow(ScriptMiss);
    expect(() => byCaller({ toString: turns([]) })({ ...request(), caller: 'valueOf' })).toThrow(/No script/);
  });
});

describe('the identity of a conversation', () => {
  test('ignores what changes from day to day', () => {
    const key = (text: string) => conversationKey(request(message('system', text), message('user', `look at ${text}`)));
    expect(key('2026-01-02T03:04:05Z')).toBe(key('2027-11-12 13:14'));
    expect(key('5f0c1f9e-27a4-4d3e-9d7a-0d6b6f1c2a3b')).toBe(key('11111111-2222-3333-4444-555555555555'));
    expect(key('/tmp/abc/x.txt')).toBe(key('/tmp/other'));
    expect(key('one')).not.toBe(key('two'));
  });

  test('keeps callers and roles apart', () => {
    const one = request(message('user', 'x'));
    expect(conversationKey(one)).not.toBe(conversationKey({ ...one, caller: 'd' }));
    expect(conversationKey(one)).not.toBe(conversationKey(request(message('assistant', 'x'))));
  });

  test('counts attempts within a bound', () => {
    const counter = new AttemptCounter(2);
    expect([counter.next('a'), counter.next('a'), counter.next('b'), counter.next('c'), counter.next('a')]).toEqual([
      1, 2, 1, 1, 1,
    ]);
  });
});

describe('pieces', () => {
  test('never split a character and put together what was scripted', () => {
    const text = '🦌🦌é驯鹿🦌';
    const reply = answer(request(), { text, pieceSize: 1 });
    expect(reply.pieces.map((piece) => ('text' in piece ? piece.text : ''))).toEqual([
      '🦌',
      '🦌',
      'é',
      '驯',
      '鹿',
      '🦌',
    ]);
  });

  test('a call has at least one piece of arguments besides its head, and ids differ between calls and conversations', () => {
    const turn = {
      toolCalls: [
        { name: 'a', args: {} },
        { name: 'a', args: {} },
      ],
    };
    const one = answer(request(message('user', '1')), turn);
    const two = answer(request(message('user', '2')), turn);
    expect(one.pieces.map((piece) => piece.kind)).toEqual(['call', 'arguments', 'call', 'arguments']);
    expect(new Set([...one.calls, ...two.calls].map((call) => call.id)).size).toBe(4);
  });
});

test('marks around what a person wrote are taken off; notes have none', () => {
  const plain = {
    role: 'user' as const,
    toolCalls: [],
    toolCallId: null,
    toolName: null,
    failed: false,
    reasoning: null,
  };
  const [written, note] = nameToolResults([
    { ...plain, text: 'files\n\n--- BEGIN USER INPUT ---\nhello\n--- END USER INPUT ---' },
    { ...plain, text: 'a note' },
  ]);
  expect(written).toMatchObject({ text: 'files\n\nhello', written: true });
  expect(note).toEqual({ ...plain, text: 'a note' });
});
