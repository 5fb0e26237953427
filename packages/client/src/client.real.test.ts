import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { NO_LOG } from '@reindeer/protocol';
import { type Script, type ScriptedProvider, startScriptedProvider } from '@reindeer/scripted';
import { verifies, zip } from '@reindeer/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ReindeerClient } from './client.ts';
import type { RunEvent } from './events.ts';
import { openClient } from './open.ts';

const REPORT = '/mnt/user-data/outputs/report.md';

const script: Script = (request) => {
  const newest = request.messages.findLastIndex((message) => message.role === 'user');
  const asked = request.messages[newest]?.text ?? '';
  const done = request.messages.slice(newest + 1).filter((message) => message.role === 'tool').length;
  if (request.messages[0]?.text.includes('"decision"') === true)
    return { text: '{"decision": "allow", "reason": "fine"}' };
  if (asked.includes('slow')) return { text: 'word '.repeat(2_000), delayMs: 20, pieceSize: 5 };
  if (!asked.includes('report')) return { text: `Heard: ${asked.slice(-20)}` };
  const file = { description: 'write', path: REPORT, content: '# Report\n' };
  if (done === 0) return { text: 'I write it.', toolCalls: [{ name: 'write_file', args: file }] };
  if (done === 1) return { toolCalls: [{ name: 'present_files', args: { filepaths: [REPORT] } }] };
  return { text: 'Here it is.' };
};

/** Whoever embeds Reindeer keeps these. */
const EVENTS = [
  'SIGTERM',
  'SIGINT',
  'SIGHUP',
  'SIGQUIT',
  'uncaughtException',
  'unhandledRejection',
  'exit',
  'beforeExit',
];
const listeners = () => EVENTS.map((event) => process.listenerCount(event));

let provider: ScriptedProvider;
let folder: string;
let client: ReindeerClient;
const before = listeners();
const open = (more: object = {}) =>
  openClient({
    folder,
    environment: { PATH: process.env.PATH, REINDEER_PROJECT_ROOT: '/nowhere' },
    logger: NO_LOG,
    thinkingEnabled: false,
    ...more,
  });
beforeAll(async () => {
  provider = await startScriptedProvider({ script });
  folder = await mkdtemp(join(tmpdir(), 'reindeer-client-'));
  await writeFile(
    join(folder, 'config.yaml'),
    `server: {host: 0.0.0.0, port: 80, token: somebody-elses-token}\nmodels:\n  - {name: scripted, use: openai, model: scripted, api_key: not-a-real-key, base_url: "${provider.openAiUrl}"}\n`,
  );
  client = await open();
});
afterAll(async () => {
  await client?.close();
  await provider.close();
  await rm(folder, { recursive: true, force: true, maxRetries: 5 });
});

async function collect(events: AsyncIterable<RunEvent>): Promise<RunEvent[]> {
  const all: RunEvent[] = [];
  for await (const event of events) all.push(event);
  return all;
}

describe('Reindeer inside of a program', () => {
  test('streams a run, gives its file, and goes on with the thread', verifies('CLI-1'), async () => {
    const threadId = 'talk';
    const events = await collect(client.stream('report', { threadId }));
    expect(new Set(events.map(({ type }) => type))).toEqual(
      new Set(['metadata', 'values', 'messages-tuple', 'custom', 'end']),
    );
    expect([events[0]?.type, events.at(-1)?.type]).toEqual(['metadata', 'end']);
    const news = events.flatMap(({ type, data }) => (type === 'messages-tuple' ? [data] : []));
    expect(news.flatMap((one) => (one.type === 'ai' && one.content !== '' ? [one.content] : [])).join('|')).toBe(
      'I write it.|Here it is.',
    );
    expect(news.flatMap((one) => (one.type === 'ai' ? (one.tool_calls ?? []) : [])).map(({ name }) => name)).toEqual([
      'write_file',
      'present_files',
    ]);
    const results = news.filter(({ type }) => type === 'tool');
    expect(results).toMatchObject([{ name: 'write_file' }, { name: 'present_files' }]);
    expect(new Set(results.map(({ id }) => id)).size).toBe(2);
    const end = events.at(-1);
    if (end?.type !== 'end') throw new Error('no end');
    const { run_id, usage } = end.data;
    expect(end.data).toMatchObject({ status: 'success', thread_id: threadId });

    const file = await client.getArtifact(threadId, REPORT);
    expect([new TextDecoder().decode(file.bytes), file.mime]).toEqual(['# Report\n', 'text/markdown']);

    const again = await client.chat('more', { threadId, overrides: { planMode: true } });
    expect(again).toMatchObject({ text: 'Heard: more', status: 'success', artifacts: [REPORT], threadId });
    expect(again.runId).not.toBe(run_id);
    expect(again.messages).toHaveLength(8);
    const runs = await client.sdk.runs.list(threadId);
    expect(runs.map((run) => (run as unknown as { kwargs: unknown }).kwargs)).toMatchObject([
      { config: { recursion_limit: 100 }, context: { thinking_enabled: false, is_plan_mode: true } },
      { config: { recursion_limit: 100 }, context: { thinking_enabled: false } },
    ]);
    // What the server counted for the agent itself, in each run.
    const counted = await Promise.all([run_id, again.runId].map((id) => client.sdk.runs.get(threadId, id)));
    expect(counted.map((run) => (run as unknown as { lead_agent_tokens: number }).lead_agent_tokens)).toEqual([
      usage.total_tokens,
      again.usage.total_tokens,
    ]);
  });

  test('whoever stops reading, or aborts, ends the run', verifies('CLI-1'), async () => {
    const threadId = 'left';
    let runId = '';
    for await (const { type, data } of client.stream('slow', { threadId })) {
      if (type === 'metadata') runId = data.run_id;
      if (type === 'messages-tuple') break;
    }
    expect((await client.sdk.runs.get(threadId, runId)).status).toBe('interrupted');
    const stop = new AbortController();
    const told: string[] = [];
    const reading = (async () => {
      for await (const { type } of client.stream('slow', { threadId, signal: stop.signal })) {
        told.push(type);
        if (type === 'messages-tuple') stop.abort();
      }
    })();
    await expect(reading).rejects.toMatchObject({ name: 'ReindeerError', code: 'aborted' });
    expect(told).not.toContain('end');
    expect((await client.sdk.runs.list(threadId)).map(({ status }) => status)).toEqual(['interrupted', 'interrupted']);
  });

  test('hands on what a person is asked, and the answer', async () => {
    const asking = { overrides: { context: { interrupt_on: ['write_file'] } }, threadId: 'asked' };
    const asked = await client.chat('report', asking);
    expect(asked).toMatchObject({ status: 'success', artifacts: [], interrupts: [expect.anything()] });
    const done = await client.chat({ resume: { decisions: [{ type: 'approve' }] } }, asking);
    expect(done).toMatchObject({ status: 'success', text: 'Here it is.', artifacts: [REPORT], interrupts: [] });
  });

  test('refuses with the code and the words of the server', verifies('CLI-1'), async () => {
    const unknown = client.chat('x', { overrides: { modelName: 'scriptd' } });
    await expect(unknown).rejects.toMatchObject({
      code: 'bad_request',
      message: expect.stringContaining('"scripted"'),
    });
    await expect(client.threads.get('nobody')).rejects.toMatchObject({ code: 'not_found', detail: { status: 404 } });
    expect(() => client.threads.delete('..')).toThrow('".." is no id');
    const few = client.chat('report', { overrides: { recursionLimit: 2 } });
    await expect(few).rejects.toMatchObject({ name: 'ReindeerError', code: 'run_failed' });
    await expect(client.request('POST', '/threads', { body: { colour: 1 } })).rejects.toMatchObject({
      code: 'validation_failed',
      message: expect.stringContaining('colour'),
    });
    await expect(open()).rejects.toMatchObject({ code: 'data_folder_locked' });
    await expect(open({ configPath: 'none.yaml' })).rejects.toThrow('Correct configPath');
  });

  test('offers what the HTTP API does beside runs', verifies('CLI-1'), async () => {
    const threadId = 'things';
    const { models, skills, mcp, memory, goals, threads, uploads, schedules, batches } = client;
    expect(await models.list()).toMatchObject([{ name: 'scripted' }]);
    expect(await models.get('scripted')).toMatchObject({ model: 'scripted' });

    const archive = zip([
      { name: 'tea/SKILL.md', content: '---\nname: tea\ndescription: How to make tea.\n---\nBoil.\n' },
    ]);
    const sent = await uploads.upload(threadId, [
      { name: 'tea.skill', data: new Uint8Array(archive) },
      { name: 'a b.txt', data: 'hello' },
    ]);
    expect(sent).toMatchObject({ success: true, files: [{ filename: 'tea.skill' }, { filename: 'a b.txt', size: 5 }] });
    expect(await uploads.list(threadId)).toHaveLength(2);
    expect(await client.getArtifact(threadId, '/mnt/user-data/uploads/a b.txt')).toMatchObject({ mime: 'text/plain' });
    await uploads.delete(threadId, 'a b.txt');
    expect(await uploads.list(threadId)).toHaveLength(1);
    expect(await skills.install(threadId, '/mnt/user-data/uploads/tea.skill')).toMatchObject({ skill_name: 'tea' });
    expect((await skills.list()).map(({ name }) => name)).toContain('tea');
    await skills.update('tea', false);
    expect(await skills.get('tea')).toMatchObject({ enabled: false });

    await mcp.update({ remote: { type: 'http', url: 'https://mcp.example.org/', enabled: false } });
    expect(await mcp.get()).toMatchObject({ mcp_servers: { remote: { enabled: false } } });

    const fact = await memory.createFact({ content: 'Likes tea.' });
    await memory.updateFact(String(fact.id), { content: 'Likes green tea.' });
    const exported = await memory.export();
    await memory.deleteFact(String(fact.id));
    expect(await memory.get()).toMatchObject({ facts: [] });
    await memory.import(exported);
    expect(await memory.reload()).toMatchObject({ facts: [{ content: 'Likes green tea.' }] });
    expect(await memory.status()).toMatchObject({ facts: 1 });
    expect(await memory.clear()).toMatchObject({ facts: [] });

    await goals.set(threadId, 'Tea for all', 0);
    expect(await goals.get(threadId)).toMatchObject({ goal: { objective: 'Tea for all' } });
    expect(await goals.clear(threadId)).toEqual({ goal: null });
    expect(await client.suggestions(threadId, [{ role: 'user', content: 'Tea?' }])).toBeInstanceOf(Array);

    const task = await schedules.create({
      title: 'Tea',
      prompt: 'Make tea.',
      schedule_type: 'cron',
      schedule_spec: { cron: '0 16 * * *' },
    });
    const id = String(task.id);
    expect(await schedules.act(id, 'pause')).toMatchObject({ status: 'paused' });
    expect(await schedules.update(id, { title: 'Cake' })).toMatchObject({ title: 'Cake' });
    expect([await schedules.list(), await schedules.runs(id)]).toMatchObject([[{ id }], []]);
    expect(await schedules.delete(id)).toBeNull();

    const batch = await batches.start(threadId, { title: 'B', items: [{ key: 'one', prompt: 'one' }] });
    const batchId = String(batch.batch_id);
    await batches.act(threadId, batchId, 'cancel');
    expect(await batches.get(threadId, batchId)).toMatchObject({ total_items: 1 });
    expect(await batches.items(threadId, batchId, { limit: 5 })).toMatchObject([{ key: 'one' }]);
    expect((await (await batches.results(threadId, batchId)).text()).trim().split('\n')).toHaveLength(1);
    expect(await batches.list(threadId)).toHaveLength(1);

    expect(await threads.list({ limit: 100 })).toEqual(
      expect.arrayContaining([expect.objectContaining({ thread_id: threadId })]),
    );
    await client.sdk.threads.delete('left');
    await expect(threads.get('left')).rejects.toMatchObject({ code: 'not_found' });
  });

  test('lets nobody else in, leaves the process alone, and closes once for all', verifies('CLI-1'), async () => {
    expect(listeners()).toEqual(before);
    const { apiUrl } = client.sdk.threads as unknown as { apiUrl: string };
    expect(new URL(apiUrl).hostname).toBe('127.0.0.1');
    for (const token of ['somebody-elses-token', null]) {
      const headers = token === null ? {} : { authorization: `Bearer ${token}` };
      expect((await fetch(`${apiUrl}/models`, { headers })).status).toBe(401);
    }
    await Promise.all([client.close(), client.close()]);
    await client.close();
    expect(listeners()).toEqual(before);
    await expect(fetch(`${apiUrl}/models`)).rejects.toThrow();
    await expect(client.models.list()).rejects.toMatchObject({ code: 'shutting_down' });
    await expect(client.chat('x')).rejects.toMatchObject({ code: 'shutting_down' });
    // The folder is free again. Another user finds nothing of the first one's.
    await using other = await open({ userId: 'ann' });
    expect(await other.threads.list()).toEqual([]);
    expect(await other.chat('me too')).toMatchObject({ text: 'Heard: me too', status: 'success' });
  });
});
