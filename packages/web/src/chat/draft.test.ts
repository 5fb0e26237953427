import { expect, test } from 'vitest';
import { draftOf } from './draft.ts';

function storage() {
  const kept = new Map<string, string>();
  return {
    kept,
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => void kept.set(key, value),
    removeItem: (key: string) => void kept.delete(key),
  };
}

test('a draft belongs to its chat; that of a new chat waits for the next new one with the same agent', () => {
  const place = storage();
  draftOf(place, { threadId: 'one', exists: true, agent: null }).keep('to one');
  draftOf(place, { threadId: 'x', exists: false, agent: null }).keep('to nobody');
  draftOf(place, { threadId: 'y', exists: false, agent: 'writer' }).keep('to the writer');
  expect(draftOf(place, { threadId: 'one', exists: true, agent: null }).text).toBe('to one');
  expect(draftOf(place, { threadId: 'two', exists: true, agent: null }).text).toBe('');
  expect(draftOf(place, { threadId: 'z', exists: false, agent: null }).text).toBe('to nobody');
  expect(draftOf(place, { threadId: 'z', exists: false, agent: 'writer' }).text).toBe('to the writer');
});

test('what is sent leaves nothing, also when the chat came to be in between', () => {
  const place = storage();
  const chat = { threadId: 'fresh', exists: false, agent: null };
  const draft = draftOf(place, chat);
  draft.keep('half');
  chat.exists = true;
  draft.keep('half a');
  expect([...place.kept]).toEqual([['reindeer.draft.fresh', 'half a']]);
  draft.keep('');
  expect(place.kept.size).toBe(0);
});
