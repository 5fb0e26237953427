import { expect, test } from 'vitest';
import { type Kept, KeptTexts } from './kept-texts.ts';

const kept = (text: string): Kept => ({ size: text.length, modifiedAt: 1, text, sha256: '' });

test('what is kept of all threads is bounded, the oldest goes first, and threads without files leave nothing', () => {
  const texts = new KeptTexts(10_000);
  for (let n = 0; n < 1_000; n += 1) texts.set(`empty-${n}`, new Map());
  expect(texts.size).toBe(0);
  for (let n = 0; n < 100; n += 1) texts.set(`t${n}`, new Map([['a', kept('x'.repeat(100))]]));
  expect(texts.size).toBeLessThanOrEqual(11);
  expect(texts.get('t99', 'a', 100, 1)?.text).toHaveLength(100);
  expect(texts.get('t0', 'a', 100, 1)).toBeNull();
  // Another file at the same place, and one that is too large for all of the room.
  expect(texts.get('t99', 'a', 101, 1)).toBeNull();
  texts.set('t99', new Map([['a', kept('x'.repeat(6_000))]]));
  expect(texts.get('t99', 'a', 6_000, 1)).toBeNull();
  texts.set('t98', new Map());
  expect(texts.get('t98', 'a', 100, 1)).toBeNull();
});
