import type { FoundMessage } from '@reindeer/protocol';
import { deferred, makeRun } from '@reindeer/testkit';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Fixture, startFixture } from '../testing/http-fixture.ts';

let fixture: Fixture;
beforeEach(async () => {
  fixture = await startFixture();
});
afterEach(() => fixture.close());

const search = async (body: object) => {
  const response = await fetch(`${fixture.url}/api/threads/messages/search`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
};

const hit = (seq: number, runId: string, snippet: string): FoundMessage => ({
  seq,
  runId,
  at: seq,
  messageId: `m${seq}`,
  role: 'ai',
  snippet,
});

test('threads of the user with a message that has the words, with the newest one that counts', async () => {
  for (const threadId of ['one', 'two', 'three']) fixture.threads.add(threadId);
  fixture.threads.add('theirs', 'somebody');
  fixture.runs.rows.set('old', makeRun({ runId: 'old', threadId: 'two', createdAt: 1 }));
  fixture.runs.rows.set(
    'new',
    makeRun({ runId: 'new', threadId: 'two', createdAt: 2, metadata: { regenerate_from_run_id: 'old' } }),
  );
  fixture.threads.found.set('one', { found: [hit(9, 'r', 'The reindeer sees well')], complete: true });
  // What was answered again is no longer to be seen.
  fixture.threads.found.set('two', {
    found: [hit(7, 'old', 'replaced reindeer'), hit(3, 'earlier', 'a reindeer before')],
    complete: true,
  });
  fixture.threads.found.set('theirs', { found: [hit(1, 'r', 'their reindeer')], complete: true });
  const { status, body } = await search({ query: '  Reindeer ' });
  expect(status).toBe(200);
  expect(body).toMatchObject({ threads: 3, complete: true });
  expect(body.data).toMatchObject([
    { thread: { thread_id: 'one' }, match: { seq: 9, run_id: 'r', snippet: 'The reindeer sees well', role: 'ai' } },
    { thread: { thread_id: 'two' }, match: { seq: 3, message_id: 'm3' } },
  ]);
  expect((await search({ query: 'reindeer', limit: 1 })).body).toMatchObject({ threads: 1, complete: false });
  fixture.threads.found.set('three', { found: [], complete: false });
  expect((await search({ query: 'reindeer' })).body).toMatchObject({ threads: 3, complete: false });
});

test('what is too short, too long or too many words is refused', async () => {
  for (const query of ['', ' a ', 'x'.repeat(201), 'a b c d e f g h i'])
    expect([query.slice(0, 20), (await search({ query })).status]).toEqual([query.slice(0, 20), 422]);
  expect((await search({ query: 'ab', limit: 51 })).status).toBe(422);
});

test('a few searches at once, and no more', async () => {
  fixture.threads.add('one');
  const wait = deferred<void>();
  fixture.threads.finding = wait.promise;
  const all = Array.from({ length: 5 }, () => search({ query: 'ab' }));
  expect((await Promise.race(all)).status).toBe(503);
  wait.resolve();
  expect((await Promise.all(all)).map(({ status }) => status).toSorted()).toEqual([200, 200, 200, 200, 503]);
  expect((await search({ query: 'ab' })).status).toBe(200);
});
