import type { WireMessage } from '@reindeer/protocol';
import { expect, test } from 'vitest';
import { OrderedTokens } from './ordered-tokens.ts';

function scene() {
  const writes = { sent: 0, idle: true };
  const out: string[] = [];
  const sink = { push: (chunk: WireMessage) => out.push(`${chunk.id}:${String(chunk.content)}`) };
  const tokens = new OrderedTokens(sink, writes);
  const push = (id: string, content: string) => tokens.push({ type: 'AIMessageChunk', id, content }, {});
  return { writes, out, tokens, push };
}

test('a token goes out at once when nothing is under way', () => {
  const s = scene();
  s.push('m', 'a');
  expect(s.out).toEqual(['m:a']);
});

test('a token behind a write that is under way waits for exactly that write, pieces of one message joined', () => {
  const s = scene();
  s.writes.sent = 2;
  s.writes.idle = false;
  s.push('m', 'a');
  s.push('m', 'b');
  s.push('other', 'x');
  s.writes.sent = 3;
  s.push('m', 'c');
  expect(s.out).toEqual([]);
  s.tokens.release(1);
  expect(s.out).toEqual([]);
  s.tokens.release(2);
  expect(s.out).toEqual(['m:ab', 'other:x']);
  s.writes.idle = true;
  // Not before what waits.
  s.push('m', 'd');
  s.tokens.release(3);
  expect(s.out).toEqual(['m:ab', 'other:x', 'm:cd']);
  s.push('m', 'e');
  expect(s.out.at(-1)).toBe('m:e');
});
