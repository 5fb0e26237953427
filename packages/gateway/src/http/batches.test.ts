import { MemoryDatabase, openMemory } from '@reindeer/database';
import { type BatchExecutor, NO_BATCH_USAGE } from '@reindeer/protocol';
import { LocalBatchService, systemSurroundings } from '@reindeer/runtime';
import { verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Fixture, startFixture } from '../testing/http-fixture.ts';
import { batchRoutes } from './batches.ts';

const PATH = '/api/threads/thread-1/subagent-batches';
const items = (count: number) => Array.from({ length: count }, (_, n) => ({ key: `k${n}`, prompt: `p${n}` }));

/** Items end as their prompts say; `wait` holds them until they are stopped. */
const executor: BatchExecutor = {
  prepare: async ({ item, signal }) => ({
    run: async () => {
      if (item.prompt === 'wait')
        await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
      const end = { stopReason: null, modelName: null, usage: NO_BATCH_USAGE };
      return item.prompt === 'fail'
        ? { outcome: 'failed', error: '=bad, "really"', ...end }
        : { outcome: 'succeeded', result: `done ${item.prompt}`, ...end };
    },
    forget: async () => {},
  }),
};

async function world(works: boolean) {
  const surroundings = systemSurroundings();
  const database = new MemoryDatabase(surroundings.random);
  const stores = openMemory({ surroundings, database });
  for (const [threadId, userId] of [
    ['thread-1', 'default'],
    ['foreign', 'somebody'],
  ] as const)
    await stores.threads.create({ threadId, userId, metadata: {}, now: 0 });
  const batches = new LocalBatchService({
    store: stores.batches,
    surroundings,
    settings: { enabled: works, pollMs: 100, leaseMs: 10_000 },
    instanceId: 'one',
    work: { executor, files: null, runs: { create: async () => ({ outcome: 'thread_not_found' }) }, assistantId: 'a' },
  });
  await batches.start();
  const fixture = await startFixture({
    modules: [
      (api) =>
        batchRoutes(api, {
          batches,
          threads: fixtureThreads,
          surroundings,
          heartbeatMs: 15_000,
          stalledMs: 60_000,
          models: ['demo'],
        }),
    ],
  });
  return { batches, stores, fixture };
}

const madeThreads: (string | null)[] = [];
const fixtureThreads = {
  get: async ({ threadId, userId }: { threadId: string; userId: string }) =>
    threadId === 'thread-1' && userId === 'default' ? { threadId } : null,
  create: async ({ threadId }: { threadId: string | null }) => {
    madeThreads.push(threadId);
    return { outcome: 'exists', thread: {} };
  },
} as never;

let batches: LocalBatchService;
let fixture: Fixture;
const open = async (works: boolean) => {
  ({ batches, fixture } = await world(works));
};
beforeEach(() => {
  madeThreads.length = 0;
  return open(true);
});
afterEach(async () => {
  await batches.stop({ drainMs: 0, hardMs: 1_000 });
  await fixture.close();
});
const ask = async (method: string, path: string, body?: unknown) => {
  const response = await fetch(`${fixture.url}${path}`, {
    method,
    headers: { 'content-type': 'application/json' },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  return {
    status: response.status,
    text,
    json: response.headers.get('content-type')?.startsWith('application/json') === true ? JSON.parse(text) : null,
  };
};
const start = async (prompts: readonly string[], more: object = {}) => {
  const body = { title: 'T', items: prompts.map((prompt, n) => ({ key: `k${n}`, prompt })), max_attempts: 1, ...more };
  const answer = await ask('POST', PATH, body);
  expect(answer.status).toBe(201);
  return answer.json.batch_id as string;
};
/** Events of the stream until its end. */
const follow = async (id: string) => {
  const { status, text } = await ask('GET', `${PATH}/${id}/stream`);
  expect(status).toBe(200);
  return text
    .trim()
    .split('\n\n')
    .map((block) => {
      const [, event = '', data = ''] = /event: (\w+)\ndata: (.*)/.exec(block) ?? [];
      return { event, data: JSON.parse(data) as Record<string, unknown> };
    });
};

describe('the routes of batches', () => {
  test('start, follow to the end, items and results', async () => {
    const id = await start(['a', 'fail', 'b'], { max_running: 2 });
    const events = await follow(id);
    expect(events.at(-1)).toMatchObject({
      event: 'end',
      data: { batch_id: id, status: 'completed', counts: { succeeded: 2, failed: 1 }, max_running_items: 2 },
    });
    expect(events.at(-2)?.event).toBe('progress');
    const page = await ask('GET', `${PATH}/${id}/items?offset=1&limit=1`);
    expect(page.json).toMatchObject([{ key: 'k1', status: 'failed', attempt: 1, error: '=bad, "really"' }]);
    const only = await ask('GET', `${PATH}/${id}/items?status=succeeded`);
    expect(only.json.map((item: { key: string }) => item.key)).toEqual(['k0', 'k2']);
    const table = await ask('GET', `${PATH}/${id}/results.csv`);
    // A cell that a spreadsheet would run is text.
    expect(table.text).toBe(
      `key,status,result,error\r\nk0,succeeded,done a,\r\nk1,failed,,"'=bad, ""really"""\r\nk2,succeeded,done b,\r\n`,
    );
    const lines = (await ask('GET', `${PATH}/${id}/results.jsonl`)).text.trim().split('\n');
    expect(lines.map((line) => JSON.parse(line).key)).toEqual(['k0', 'k1', 'k2']);
    expect((await ask('GET', PATH)).json).toMatchObject([{ batch_id: id }]);
    expect((await ask('GET', `/api/subagent-batches/${id}`)).json).toMatchObject({
      batch_id: id,
      thread_id: 'thread-1',
    });
  });

  test('the same submission is the same batch', verifies('BT-01'), async () => {
    const body = { title: 'T', items: items(2), submission_key: 'mine' };
    const first = await ask('POST', PATH, body);
    const again = await ask('POST', PATH, body);
    expect([first.status, again.status]).toEqual([201, 200]);
    expect(again.json.batch_id).toBe(first.json.batch_id);
  });

  test('bad items store nothing, and say which', verifies('BT-02'), async () => {
    const twice = [...items(2), { key: 'k1', prompt: 'again' }];
    for (const [body, text] of [
      [{ title: 'T', items: twice }, /Items 2 and 3 have the same key/],
      [{ title: 'T', items: items(5_001) }, /at most 5000 items/],
      [
        { title: 'T', items: items(1), max_running: 65 },
        /max_running must be a whole number from 1 to 64 .*max_running_items/,
      ],
      [{ title: 'T', items: items(1), max_running: 5, max_live: 2 }, /cannot be larger/],
      [{ title: 'T', items: items(1), model_name: 'demmo' }, /Did you mean .*demo/],
      [{ title: 'T', items: items(1), result_schema: { pattern: 'x' } }, /pattern.* cannot be used/],
      [{ title: 'T', item: [] }, /Unknown field .*item/],
    ] as const) {
      const answer = await ask('POST', PATH, { ...body, if_not_exists: 'create' });
      expect([answer.status, answer.text]).toEqual([422, expect.stringMatching(text)]);
    }
    // Not even the thread.
    expect(madeThreads).toEqual([]);
    expect((await ask('POST', PATH, { title: 'T', items: items(1), if_not_exists: 'create' })).status).toBe(201);
    expect(madeThreads).toEqual(['thread-1']);
    expect((await ask('GET', PATH)).json).toHaveLength(1);
  });

  test('pause, resume, cancel and retry', verifies('BT-12', 'BT-14'), async () => {
    const id = await start(['fail', 'wait', 'a'], { max_running: 1 });
    const first = `${PATH}/${id}/items/${id}.0`;
    for (;;) {
      const { json } = await ask('GET', `${PATH}/${id}`);
      if (json.counts.failed === 1 && json.counts.running === 1) break;
    }
    expect((await ask('POST', `${PATH}/${id}/pause`)).json.status).toBe('paused');
    expect((await ask('POST', `${PATH}/${id}/resume`)).json.status).toBe('queued');
    expect((await ask('POST', `${first}/retry`)).json.counts).toMatchObject({ failed: 0 });
    const conflict = await ask('POST', `${PATH}/${id}/items/${id}.1/retry`);
    expect([conflict.status, conflict.json.detail]).toEqual([
      409,
      expect.stringMatching(/^The item has not failed.*can be tried again\.$/),
    ]);
    const none = await ask('POST', `${PATH}/${id}/items/nobody/retry`);
    expect([none.status, none.text]).toEqual([404, expect.stringContaining('no item of the batch')]);
    const cancelled = await ask('POST', `${PATH}/${id}/cancel`);
    expect(cancelled.json).toMatchObject({ status: 'cancelled', counts: { running: 0, queued: 0, pending: 0 } });
    expect((await ask('POST', `${PATH}/${id}/cancel`)).status).toBe(200);
  });

  test('a foreign or missing batch is not found, whatever is asked', verifies('BT-17'), async () => {
    const id = await start(['a']);
    for (const path of [`/api/threads/other/subagent-batches/${id}`, `${PATH}/none`]) {
      for (const what of ['', '/items', '/results.csv', '/stream'])
        expect((await ask('GET', path + what)).status).toBe(404);
      for (const what of ['/pause', '/resume', '/cancel', `/items/${id}.0/retry`, `/items/${id}.0/cancel`])
        expect((await ask('POST', path + what)).status).toBe(404);
    }
    expect((await ask('GET', '/api/threads/foreign/subagent-batches')).status).toBe(404);
    expect((await ask('POST', '/api/threads/foreign/subagent-batches', { title: 'T', items: items(1) })).status).toBe(
      404,
    );
    expect((await ask('GET', '/api/subagent-batches/none')).status).toBe(404);
  });

  test('without workers batches can be read, and that is all', verifies('BT-27', 'BT-19'), async () => {
    const id = await start(['wait']);
    // The stop hides the submitter at once.
    void batches.stop({ drainMs: 0, hardMs: 1_000 });
    expect((await ask('POST', PATH, { title: 'T', items: items(1) })).status).toBe(503);
    for (const what of ['pause', 'resume', 'cancel', `items/${id}.0/retry`])
      expect((await ask('POST', `${PATH}/${id}/${what}`)).status).toBe(503);
    expect((await ask('GET', `${PATH}/${id}`)).status).toBe(200);
    expect((await ask('GET', `${PATH}/${id}/items`)).json).toHaveLength(1);
    await fixture.close();
    await open(false);
    expect((await ask('POST', PATH, { title: 'T', items: items(1) })).status).toBe(503);
    expect((await ask('GET', PATH)).json).toEqual([]);
  });
});
