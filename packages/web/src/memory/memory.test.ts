import { expect, test } from 'vitest';
import { categoriesOf, followsFrom, listed, readMemory, readStatus } from './memory.ts';

const document = readMemory({
  user: {
    workContext: {
      statements: [
        { text: 'Breeds reindeer.', sources: ['a', 'b'] },
        { text: 'Origin unknown.', sources: [] },
      ],
    },
  },
  history: {
    recentMonths: { statements: [{ text: 'Moved north.', sources: ['b'] }] },
    earlierContext: { statements: [] },
  },
  facts: [
    { id: 'a', content: 'A', category: 'context', createdAt: '2026-01-01T00:00:00Z' },
    { id: 'b', content: 'B', category: 'goal', createdAt: '2026-02-01T00:00:00Z' },
    { content: 'without an id' },
    7,
  ],
});

test('a document is read with care, in the order of its sections', () => {
  expect(document.facts.map(({ id }) => id)).toEqual(['a', 'b']);
  expect(document.sections.map(({ name }) => name)).toEqual(['workContext', 'recentMonths']);
  for (const value of [null, 7, [], {}]) expect(readMemory(value)).toEqual({ facts: [], sections: [] });
});

test('what follows from a fact are the statements that name it', () => {
  expect(followsFrom(document, 'b').map(({ text }) => text)).toEqual(['Breeds reindeer.', 'Moved north.']);
  expect(followsFrom(document, 'a').map(({ text }) => text)).toEqual(['Breeds reindeer.']);
});

test('facts are listed newest first, of one category when asked', () => {
  expect(listed(document.facts, '').map(({ id }) => id)).toEqual(['b', 'a']);
  expect(listed(document.facts, 'goal').map(({ id }) => id)).toEqual(['b']);
  expect(categoriesOf(document.facts)).toEqual(['context', 'goal']);
});

test('a memory that does not learn says why', () => {
  expect(
    readStatus({ enabled: true, learning: { enabled: false, reason: 'only the demo model' }, pending: 2 }),
  ).toEqual({
    enabled: true,
    injected: false,
    learns: false,
    model: null,
    reason: 'only the demo model',
    pending: 2,
  });
});
