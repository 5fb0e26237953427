import { ReindeerError } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import { afterEach, describe, expect, test } from 'vitest';
import type { Conversation } from '../conversation.ts';
import { type Fixture, makeState, startFixture } from '../testing/http-fixture.ts';

let fixture: Fixture;
afterEach(() => fixture.close());

async function start(conversation: Partial<Conversation> = {}) {
  fixture = await startFixture({
    conversation: {
      compacts: true,
      suggestions: { enabled: true, most: 2 },
      compact: async () => {
        throw new Error('not asked for here');
      },
      suggest: async () => [],
      ...conversation,
    },
  });
  fixture.threads.add('t');
}

const send = async (method: string, path: string, body?: unknown) => {
  const response = await fetch(`${fixture.url}/api${path}`, {
    method,
    ...(body === undefined ? {} : { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
  });
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
};

describe('goals', () => {
  test('are set, read and taken away; a thread is made if needed', verifies('GOAL-1'), async () => {
    await start();
    expect(await send('GET', '/threads/t/goal')).toEqual({ status: 200, body: { goal: null } });
    const set = await send('PUT', '/threads/new/goal', { objective: '  be done ', max_continuations: 3 });
    expect(set).toMatchObject({
      status: 200,
      body: { goal: { objective: 'be done', status: 'active', max_continuations: 3, continuation_count: 0 } },
    });
    expect(fixture.threads.rows.has('new')).toBe(true);
    expect(fixture.threads.updates).toEqual([{ goal: set.body.goal }]);
    fixture.threads.states.set('t', [makeState('t', 'c1', { goal: set.body.goal as never })]);
    expect((await send('GET', '/threads/t/goal')).body.goal).toMatchObject({ objective: 'be done' });
    expect(await send('DELETE', '/threads/t/goal')).toEqual({ status: 200, body: { goal: null } });
    expect(fixture.threads.updates.at(-1)).toEqual({ goal: { cleared: true, of: null } });
    // Nothing to take away: nothing is written.
    fixture.threads.states.set('t', [makeState('t', 'c2')]);
    await send('DELETE', '/threads/t/goal');
    expect(fixture.threads.updates).toHaveLength(2);
  });

  test(
    'a run that works on the thread keeps its goal: setting and clearing are refused',
    verifies('RG-02'),
    async () => {
      await start();
      fixture.threads.updateOutcome = 'busy';
      for (const [method, body] of [
        ['PUT', { objective: 'x' }],
        ['DELETE', undefined],
      ] as const)
        expect(await send(method, '/threads/t/goal', body)).toMatchObject({ status: 409, body: { code: 'conflict' } });
      expect(fixture.threads.updates).toEqual([]);
    },
  );

  test('bounds and missing threads are named', verifies('GOAL-1'), async () => {
    await start();
    for (const body of [
      {},
      { objective: ' ' },
      { objective: 'x'.repeat(4_001) },
      { objective: 'x', max_continuations: 9 },
      { objective: 'x', more: 1 },
    ])
      expect((await send('PUT', '/threads/t/goal', body)).status).toBe(422);
    expect((await send('GET', '/threads/none/goal')).status).toBe(404);
    expect((await send('DELETE', '/threads/none/goal')).status).toBe(404);
  });
});

describe('compaction', () => {
  const report = {
    compacted: true,
    reason: null,
    removed_message_count: 4,
    preserved_message_count: 2,
    summary_updated: true,
    total_tokens: 90,
  };

  test('answers counts and the new checkpoint; nothing to do is said with its reason', verifies('CTX-2'), async () => {
    const asked: unknown[] = [];
    let done = true;
    await start({
      compact: async ({ keep, force, modelName }) => {
        asked.push({ keep, force, modelName });
        return done
          ? { report, update: { summary_text: 's' } }
          : { report: { ...report, compacted: false, reason: 'nothing_to_compact' }, update: null };
      },
    });
    expect(await send('POST', '/threads/t/compact', { keep: { type: 'messages', value: 4 } })).toEqual({
      status: 200,
      body: { thread_id: 't', ...report, checkpoint_id: 'new' },
    });
    expect(fixture.threads.updates).toEqual([{ summary_text: 's' }]);
    done = false;
    expect((await send('POST', '/threads/t/compact', { force: false, keep: 7 })).body).toMatchObject({
      compacted: false,
      reason: 'nothing_to_compact',
      checkpoint_id: null,
    });
    expect(asked).toEqual([
      { keep: 4, force: true, modelName: null },
      { keep: 7, force: false, modelName: null },
    ]);
  });

  test(
    'switched off or in flight is a conflict, and a failed summary is no silent success',
    verifies('CTX-2'),
    async () => {
      await start({
        compact: async () => {
          throw new ReindeerError('model_failed', 'empty');
        },
      });
      expect(await send('POST', '/threads/t/compact', {})).toMatchObject({
        status: 502,
        body: { code: 'model_failed' },
      });
      expect(fixture.threads.updates).toEqual([]);
      fixture.threads.updateOutcome = 'busy';
      expect((await send('POST', '/threads/t/compact', {})).status).toBe(409);
      expect((await send('POST', '/threads/none/compact', {})).status).toBe(404);
      expect((await send('POST', '/threads/t/compact', { model_name: 'nobody' })).status).toBe(422);
      await fixture.close();
      await start({ compacts: false });
      expect(await send('POST', '/threads/t/compact', {})).toMatchObject({
        status: 409,
        body: { detail: expect.stringContaining('switched off') },
      });
    },
  );
});

describe('suggestions', () => {
  test('their settings and the questions; no more than asked for', verifies('CTX-4'), async () => {
    const asked: unknown[] = [];
    await start({
      suggest: async ({ messages, count }) => {
        asked.push({ messages, count });
        return ['and then?'];
      },
    });
    expect((await send('GET', '/suggestions/config')).body).toEqual({ enabled: true, max_suggestions: 2 });
    const messages = [{ role: 'user', content: 'hi' }];
    expect(await send('POST', '/threads/t/suggestions', { messages, n: 2 })).toEqual({
      status: 200,
      body: { suggestions: ['and then?'] },
    });
    expect(asked).toEqual([{ messages, count: 2 }]);
    expect((await send('POST', '/threads/t/suggestions', { messages, n: 6 })).status).toBe(422);
    expect((await send('POST', '/threads/none/suggestions', { messages })).status).toBe(404);
  });

  test('a server without them says so', async () => {
    fixture = await startFixture();
    fixture.threads.add('t');
    expect((await send('GET', '/suggestions/config')).body).toMatchObject({ enabled: false });
    expect((await send('POST', '/threads/t/suggestions', { messages: [] })).body).toEqual({ suggestions: [] });
    expect((await send('POST', '/threads/t/compact', {})).status).toBe(501);
  });
});
