import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from '@langchain/langgraph-sdk';
import { NO_LOG } from '@reindeer/protocol';
import { systemSurroundings } from '@reindeer/runtime';
import { verifies } from '@reindeer/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createAgents } from './agents.ts';
import { compose } from './compose.ts';
import { loadConfig } from './config/load.ts';
import { resolveSettings } from './config/settings.ts';
import { Lifecycle } from './life/lifecycle.ts';
import { resourcesOf } from './resources.ts';

/** A whole server on SQLite: scheduled tasks over HTTP, with the demo model. */
let folder: string;
let lifecycle: Lifecycle;
let url: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'reindeer-schedules-'));
  await writeFile(join(folder, 'config.yaml'), 'scheduler: { min_once_delay_seconds: 0, max_concurrent_runs: 2 }\n');
  const surroundings = systemSurroundings({ logger: NO_LOG });
  lifecycle = new Lifecycle({ clock: surroundings.clock, logger: NO_LOG });
  const loaded = await loadConfig({ cwd: folder, environment: { PATH: process.env.PATH, REINDEER_HOME: folder } });
  const composed = await compose({
    settings: resolveSettings(loaded, { port: 0 }),
    surroundings,
    lifecycle,
    resources: resourcesOf(new URL('./main.ts', import.meta.url).href),
    version: '0.0.0',
    variables: loaded.variables,
    agents: createAgents,
    serve: true,
  });
  url = `http://127.0.0.1:${composed.server?.port}/api`;
}, 30_000);
afterAll(async () => {
  await lifecycle?.stop();
  await rm(folder, { recursive: true, force: true });
});

// biome-ignore lint/suspicious/noExplicitAny: what the server says is looked at, not typed
type Answer = { readonly status: number; readonly body: any };
async function ask(method: string, path: string, body?: unknown): Promise<Answer> {
  const response = await fetch(`${url}${path}`, {
    method,
    headers: { 'content-type': 'application/json' },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  return { status: response.status, body: text === '' ? null : JSON.parse(text) };
}
const task = (part: object = {}) => ({
  title: 'Report',
  prompt: 'Say hello.',
  schedule_type: 'cron',
  schedule_spec: { cron: '0 9 * * 1-5' },
  timezone: 'Europe/Berlin',
  ...part,
});
async function until(path: string, done: (body: Answer['body']) => boolean): Promise<Answer['body']> {
  for (const end = Date.now() + 20_000; Date.now() < end; ) {
    const { body } = await ask('GET', path);
    if (done(body)) return body;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`${path} did not come to that.`);
}

test('a task of its time runs by itself, once, and is over', verifies('API-13', 'SCH-1', 'SCH-2'), async () => {
  const at = new Date(Date.now() + 300).toISOString();
  const made = await ask('POST', '/scheduled-tasks', task({ schedule_type: 'once', schedule_spec: { run_at: at } }));
  expect(made).toMatchObject({ status: 201, body: { status: 'enabled', next_run_at: at, run_count: 0 } });
  const { id } = made.body;
  const ended = await until(`/scheduled-tasks/${id}`, (body) => body.status === 'completed');
  expect(ended).toMatchObject({ run_count: 1, next_run_at: null, last_error: null });
  const runs = await ask('GET', `/scheduled-tasks/${id}/runs`);
  expect(runs.body).toMatchObject([
    { status: 'success', trigger: 'scheduled', run_id: ended.last_run_id, scheduled_for: at },
  ]);
  const run = await ask('GET', `/threads/${ended.last_thread_id}/runs/${ended.last_run_id}`);
  expect(run.body).toMatchObject({ status: 'success', metadata: { source: 'schedule', schedule_id: id } });
  const ofThread = await ask('GET', `/threads/${ended.last_thread_id}/scheduled-tasks`);
  expect(ofThread.body.map((one: { id: string }) => one.id)).toEqual([id]);
});

test('a task is listed, changed, paused, triggered and deleted', verifies('API-13', 'SCH-1'), async () => {
  const { body: made } = await ask('POST', '/scheduled-tasks', task());
  const path = `/scheduled-tasks/${made.id}`;
  expect(made).toMatchObject({
    timezone: 'Europe/Berlin',
    context_mode: 'fresh_thread_per_run',
    overlap_policy: 'skip',
  });
  expect(new Date(made.next_run_at).getTime()).toBeGreaterThan(Date.now());
  expect((await ask('GET', '/scheduled-tasks')).body.map((one: { id: string }) => one.id)).toContain(made.id);
  expect((await ask('POST', `${path}/pause`)).body).toMatchObject({ status: 'paused', next_run_at: null });
  const edited = await ask('PATCH', path, { schedule_spec: { cron: '30 7 * * *' }, title: 'Earlier', timezone: 'UTC' });
  expect(edited.body).toMatchObject({ status: 'paused', title: 'Earlier', schedule_spec: { cron: '30 7 * * *' } });
  const resumed = await ask('POST', `${path}/resume`);
  expect(resumed.body.next_run_at).toMatch(/T07:30:00\.000Z$/);
  const triggered = await ask('POST', `${path}/trigger`);
  expect(triggered).toMatchObject({ status: 200, body: { run_id: expect.any(String), thread_id: expect.any(String) } });
  await until(path, (body) => !body.active);
  expect((await ask('GET', `${path}/runs`)).body).toMatchObject([{ status: 'success', trigger: 'manual' }]);
  expect((await ask('DELETE', path)).status).toBe(204);
  expect((await ask('GET', path)).status).toBe(404);
  expect((await ask('DELETE', path)).status).toBe(404);
  // What it made stays.
  expect((await ask('GET', `/threads/${triggered.body.thread_id}`)).status).toBe(200);
});

test('bad input is refused with the field, and nothing is stored', verifies('SCH-1'), async () => {
  const before = (await ask('GET', '/scheduled-tasks')).body.length;
  const cases: readonly (readonly [object, RegExp])[] = [
    [{ schedule_spec: { cron: '* * *' } }, /five fields/],
    [{ schedule_spec: { cron: '0 0 31 2 *' } }, /never comes/],
    [{ schedule_spec: { run_at: '2030-01-01T00:00' } }, /schedule_type cron needs/],
    [{ schedule_type: 'once', schedule_spec: { run_at: '2020-01-01T00:00' } }, /too soon or past/],
    [{ schedule_type: 'once', schedule_spec: { run_at: 'soon' } }, /no date and time/],
    [{ timezone: 'Moon' }, /IANA/],
    [{ context_mode: 'reuse_thread' }, /name the thread/],
    [{ context_mode: 'reuse_thread', thread_id: 'none' }, /no thread none/],
    [{ assistant_id: 'leed_agent' }, /lead_agent/],
    [{ context: { modle_name: 'x' } }, /modle_name/],
    [{ context: { non_interactive: false } }, /./],
    [{ titel: 'x' }, /titel/],
    [{ prompt: '' }, /prompt/],
  ];
  for (const [part, message] of cases) {
    const { status, body } = await ask('POST', '/scheduled-tasks', task(part));
    if (status === 201) {
      // What only the server may say is dropped without a word, as with runs.
      expect(part).toEqual({ context: { non_interactive: false } });
      expect(body.context).toEqual({});
      await ask('DELETE', `/scheduled-tasks/${body.id}`);
      continue;
    }
    expect([400, 422], JSON.stringify(part)).toContain(status);
    expect(JSON.stringify(body), JSON.stringify(part)).toMatch(message);
  }
  expect((await ask('GET', '/scheduled-tasks')).body).toHaveLength(before);
});

const input = { messages: [{ role: 'user', content: 'Say hello.\nTwice.' }] };

test('client.crons of the SDK makes, finds, changes, pauses and deletes them', async () => {
  const { crons, threads } = new Client({ apiUrl: url });
  const made = await crons.create('lead_agent', { schedule: '0 9 * * *', timezone: 'Europe/Berlin', input });
  const thread = await threads.create();
  const metadata = { title: 'On its thread' };
  const bound = await crons.createForThread(thread.thread_id, 'lead_agent', { schedule: '5 4 * * *', input, metadata });
  expect(made).toMatchObject({ schedule: '0 9 * * *', timezone: 'Europe/Berlin', thread_id: null, enabled: true });
  expect(made).toMatchObject({ metadata: { title: 'Say hello.' }, payload: { input }, on_run_completed: 'keep' });
  expect(bound).toMatchObject({ thread_id: thread.thread_id, timezone: 'UTC', metadata });
  // They are the same tasks.
  const [id, boundId] = [made, bound].map((cron) => (cron as unknown as { cron_id: string }).cron_id);
  expect((await ask('GET', `/scheduled-tasks/${boundId}`)).body).toMatchObject({
    context_mode: 'reuse_thread',
    thread_id: thread.thread_id,
  });
  const once = await ask(
    'POST',
    '/scheduled-tasks',
    task({ schedule_type: 'once', schedule_spec: { run_at: '2099-01-01T00:00' } }),
  );

  const idsOf = async (query: Parameters<typeof crons.search>[0]) =>
    (await crons.search(query)).map((cron) => cron.cron_id);
  expect(await idsOf({ threadId: thread.thread_id })).toEqual([boundId]);
  expect(await idsOf({ metadata: { title: 'Say hello.' } })).toEqual([id]);
  expect(await idsOf({ metadata: { other: 'x' } })).toEqual([]);
  expect(await idsOf({ limit: 1, offset: 1, sortBy: 'created_at', sortOrder: 'asc' })).toHaveLength(1);
  expect(await idsOf({})).not.toContain(once.body.id);
  expect(await crons.count({ threadId: thread.thread_id })).toBe(1);
  expect(await crons.search({ threadId: thread.thread_id, select: ['cron_id'] })).toEqual([{ cron_id: boundId }]);

  const changed = await crons.update(id ?? '', { schedule: '30 7 * * *', timezone: 'UTC', enabled: false });
  expect(changed).toMatchObject({ schedule: '30 7 * * *', enabled: false, next_run_date: null, payload: { input } });
  expect(await idsOf({ enabled: false })).toEqual([id]);
  const again = await crons.update(id ?? '', { enabled: true });
  expect(again.next_run_date).toMatch(/T07:30:00\.000Z$/);
  await crons.delete(id ?? '');
  await crons.delete(boundId ?? '');
  await expect(crons.delete(id ?? '')).rejects.toThrow(/404.*no cron/s);
  await expect(crons.delete(once.body.id)).rejects.toThrow(/404/);
  expect((await ask('DELETE', `/scheduled-tasks/${once.body.id}`)).status).toBe(204);
});

test('a cron that would not be what was asked for is refused, and nothing is stored', async () => {
  const { crons } = new Client({ apiUrl: url });
  const before = await crons.count();
  const cases: readonly (readonly [object, RegExp])[] = [
    [{ schedule: '* * *' }, /five fields/],
    [{ timezone: 'Moon' }, /IANA/],
    [{ webhook: 'http://example.com' }, /webhook/],
    [{ endTime: '2099-01-01' }, /end_time/],
    [{ onRunCompleted: 'delete' }, /Threads are always kept/],
    [{ multitaskStrategy: 'interrupt' }, /enqueue/],
    [{ interruptBefore: ['model'] }, /interrupt_before/],
    [{ metadata: { team: 'x' } }, /metadata.*team/],
    [{ metadata: { title: 7 } }, /title/],
    [{ config: { recursion_limit: 3 } }, /recursion_limit/],
    [{ context: { modle_name: 'x' } }, /modle_name/],
    [{ input: null }, /one message/],
    [{ input: { messages: [...input.messages, ...input.messages] } }, /one message/],
    [{ input: { ...input, todos: [] } }, /one message/],
    [{ input: { messages: [{ role: 'assistant', content: 'x' }] } }, /one message/],
  ];
  for (const [part, message] of cases)
    await expect(
      crons.create('lead_agent', { schedule: '0 9 * * *', input, ...part }),
      JSON.stringify(part),
    ).rejects.toThrow(message);
  await expect(crons.create('leed_agent', { schedule: '0 9 * * *', input })).rejects.toThrow(/lead_agent/);
  await expect(crons.createForThread('none', 'lead_agent', { schedule: '0 9 * * *', input })).rejects.toThrow(/404/);
  expect(await crons.count()).toBe(before);

  const paused = await crons.create('lead_agent', { schedule: '* * * * *', input, enabled: false });
  expect(paused).toMatchObject({ enabled: false, next_run_date: null });
  await crons.delete((paused as unknown as { cron_id: string }).cron_id);
});
