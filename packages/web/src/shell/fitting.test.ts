import { expect, test } from 'vitest';
import { moved } from '../parts/choice.ts';
import { besides, fitting } from './fitting.ts';

const entries = ['New chat', 'Memory', 'A report about memory', '驯鹿报告', 'Reindeer in Lapland'].map((name) => ({
  name,
}));
const names = (text: string) => fitting(text, entries).map(({ name }) => name);

test('names are found by their words in any order, and beginnings come first', () => {
  expect(names('memory')).toEqual(['Memory', 'A report about memory']);
  expect(names(' lapland  REIN')).toEqual(['Reindeer in Lapland']);
  expect(names('报告')).toEqual(['驯鹿报告']);
  expect(names('nothing')).toEqual([]);
  expect(names('')).toHaveLength(5);
  expect(
    fitting(
      'a',
      Array.from({ length: 500 }, () => ({ name: 'a' })),
    ),
  ).toHaveLength(12);
});

test('arrows go round, and nowhere in an empty list', () => {
  expect([moved(0, 3, 'ArrowUp'), moved(2, 3, 'ArrowDown'), moved(0, 3, 'x'), moved(0, 0, 'ArrowDown')]).toEqual([
    2,
    0,
    null,
    null,
  ]);
});

test('a chat that is shown already is not shown again', () => {
  expect(besides(['b'], ['a', 'b', 'c', 'a'], (entry) => entry)).toEqual(['a', 'c']);
});
