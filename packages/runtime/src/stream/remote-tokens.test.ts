import type { RelayedFrame } from '@reindeer/protocol';
import { describe, expect, test } from 'vitest';
import { RemoteTokens } from './remote-tokens.ts';

const frame = (n: number, content: string, more: Partial<RelayedFrame> = {}): RelayedFrame => ({
  attempt: 1,
  messageId: 'm',
  ns: '',
  metadata: {},
  first: { seq: 5, n: 1 },
  position: { seq: 5, n },
  after: n - 1,
  whole: false,
  chunks: [{ type: 'AIMessageChunk', id: 'm', content }],
  ...more,
});

/** Everything that a reader gets from a position on. */
function read(tokens: RemoteTokens, from = { seq: 0, n: 0 }): Record<string, string> {
  const texts: Record<string, string> = {};
  let position = from;
  for (let next = tokens.next(position, 99); next !== null; next = tokens.next(position, 99)) {
    const { messageId, chunks } = next.frame;
    texts[messageId] = (texts[messageId] ?? '') + chunks.map(({ content }) => String(content)).join('');
    position = next.frame.position;
  }
  return texts;
}

describe('tokens that a peer tells', () => {
  test('an attempt that was overtaken says nothing any more', () => {
    const tokens = new RemoteTokens();
    const second = { attempt: 2, messageId: 'n', first: { seq: 7, n: 1 }, position: { seq: 7, n: 1 } };
    expect(tokens.accept([frame(1, 'a'), frame(2, 'b')])).toBe(true);
    expect(tokens.accept([frame(1, 'new', second)])).toBe(true);
    expect(tokens.accept([frame(3, 'ZOMBIE'), frame(9, 'ZOMBIE', { whole: true, after: 9 })])).toBe(true);
    expect(read(tokens)).toEqual({ n: 'new' });
    expect(tokens.head).toBe(7);
  });

  test('what was missed is asked for, and a whole that crossed later frames takes nothing back', () => {
    const tokens = new RemoteTokens();
    expect(tokens.accept([frame(2, 'b')])).toBe(false);
    expect(read(tokens)).toEqual({});
    expect(tokens.accept([frame(3, 'abc', { whole: true, after: 3 })])).toBe(true);
    expect(tokens.accept([frame(4, 'd'), frame(5, 'e')])).toBe(true);
    expect(tokens.accept([frame(3, 'abc', { whole: true, after: 3 })])).toBe(true);
    expect(read(tokens)).toEqual({ m: 'abcde' });
    expect(tokens.accept([frame(7, 'g')])).toBe(false);
    expect(tokens.has('m')).toBe(false);
  });

  test('a message that begins behind a hole is complete all the same', () => {
    const tokens = new RemoteTokens();
    const other = { messageId: 'n', first: { seq: 5, n: 9 }, position: { seq: 5, n: 9 }, after: 8 };
    expect(tokens.accept([frame(1, 'a')])).toBe(true);
    expect(tokens.accept([frame(9, 'whole', other)])).toBe(false);
    expect(read(tokens)).toEqual({ n: 'whole' });
  });
});
