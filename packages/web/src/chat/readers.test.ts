import { expect, test } from 'vitest';
import { readChanges, readDiff, readSummary } from './change-list.ts';
import { earlierOf } from './earlier.tsx';
import { toldOf } from './suggestions.tsx';
import { readFacts, TurnFacts } from './turn-facts.ts';
import { readUsage } from './usage.ts';

test('a run that has not ended, or changed nothing, has no summary', () => {
  expect(readSummary({ available: false, summary: null })).toBeNull();
  expect(readSummary(null)).toBeNull();
  expect(
    readSummary({ available: true, summary: { created: 1, modified: 2, deleted: 0, additions: 5, deletions: 3 } }),
  ).toEqual({ files: 3, additions: 5, deletions: 3 });
});

test('a diff keeps lines that only look like its head', () => {
  expect(readDiff('@@ -1,2 +1,2 @@\n-- a comment\n+++ b\n same\n').map(({ kind, text }) => [kind, text])).toEqual([
    ['place', '@@ -1,2 +1,2 @@'],
    ['minus', '-- a comment'],
    ['plus', '+++ b'],
    ['same', ' same'],
  ]);
});

test('changed files without a diff say why', () => {
  expect(
    readChanges({
      files: [
        { path: '/mnt/user-data/outputs/a', status: 'symlink_created', diff: null, diff_unavailable_reason: 'symlink' },
        { status: 'created' },
      ],
    }),
  ).toEqual([
    {
      path: '/mnt/user-data/outputs/a',
      status: 'symlink',
      additions: 0,
      deletions: 0,
      diff: null,
      reason: 'symlink',
    },
  ]);
});

test('usage is read with care', () => {
  expect(readUsage(null).total).toBe(0);
  const models = { a: { tokens: 2, cost: { amount: 0.5, currency: 'EUR' } }, b: { tokens: 7, cost: {} }, c: 5 };
  expect(readUsage({ total_tokens: 9, by_model: models }).models).toEqual([
    { name: 'b', tokens: 7, cost: null },
    { name: 'a', tokens: 2, cost: { amount: 0.5, currency: 'EUR' } },
    { name: 'c', tokens: 0, cost: null },
  ]);
});

test('facts of messages: the run and the rating', () => {
  const page = {
    data: [
      { run_id: 'r', content: { id: 'a' }, feedback: { rating: -1 } },
      { run_id: 'r', content: { id: 'b' }, feedback: { rating: 5 } },
      { run_id: null, content: { id: 'c' } },
      { run_id: 'of-the-parent', inherited: true, content: { id: 'd' } },
    ],
  };
  expect([...readFacts(page)]).toEqual([
    ['a', { runId: 'r', rating: -1 }],
    ['b', { runId: 'r', rating: null }],
  ]);
});

test('facts are read once for all who ask, and once more for a message that is not there yet', async () => {
  let reads = 0;
  const facts = new TurnFacts(
    {
      get: async () => {
        reads += 1;
        return { data: [{ run_id: 'r', content: { id: reads === 1 ? 'old' : 'new' } }] };
      },
    } as never,
    't',
  );
  expect(await Promise.all([facts.of('old'), facts.of('old')])).toHaveLength(2);
  expect(reads).toBe(1);
  expect((await facts.of('new'))?.runId).toBe('r');
  expect(reads).toBe(2);
});

test('earlier messages are those that are not shown already', () => {
  const page = {
    data: [
      { content: { type: 'human', id: 'h', content: 'old' } },
      { content: { type: 'ai', id: 'a', content: 'shown' } },
      { content: { type: 'strange' } },
      5,
    ],
  };
  expect(earlierOf(page, new Set(['a'])).map(({ id }) => id)).toEqual(['h']);
});

test('what is told for suggestions is talk; a chat that waits for its user tells nothing', () => {
  const human = { kind: 'human', id: 'h', text: 'Hi', files: [], hidden: false, answers: null } as const;
  const ai = {
    kind: 'ai',
    id: 'a',
    text: 'Hello',
    reasoning: '',
    calls: [],
    failed: false,
    hidden: false,
    streaming: false,
  } as const;
  expect(toldOf([human, { ...human, hidden: true }, ai])).toEqual([
    { role: 'user', content: 'Hi' },
    { role: 'assistant', content: 'Hello' },
  ]);
  expect(toldOf([ai, human])).toEqual([]);
});
