import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { NO_LOG } from '@reindeer/protocol';
import { systemSurroundings } from '@reindeer/runtime';
import { type ScriptedProvider, startScriptedProvider } from '@reindeer/scripted';
import { verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createAgents } from './agents.ts';
import { type Composed, compose } from './compose.ts';
import { loadConfig } from './config/load.ts';
import { liveSettings } from './config/reload.ts';
import { resolveSettings } from './config/settings.ts';
import { Lifecycle } from './life/lifecycle.ts';
import { resourcesOf } from './resources.ts';

let folder: string;
let provider: ScriptedProvider;
let lifecycle: Lifecycle;
let composed: Composed;

/** The configuration with these sections beside the model. */
const write = (more: string) =>
  writeFile(
    join(folder, 'config.yaml'),
    `models:\n  - {name: m, use: openai, model: m, api_key: k, base_url: '${provider.openAiUrl}'}\ntitle: {enabled: false}\n${more}`,
  );

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'reindeer-reload-real-'));
  provider = await startScriptedProvider({
    script: ({ messages }) =>
      messages.at(-1)?.role === 'tool'
        ? { text: 'done' }
        : // Long enough for the file to change meanwhile; the test waits for the request, not for the time.
          {
            toolCalls: [{ name: 'ls', args: { description: 'look', path: '/mnt/user-data/workspace' } }],
            delayMs: 100,
          },
  });
  await write('');
  const surroundings = systemSurroundings({ logger: NO_LOG });
  lifecycle = new Lifecycle({ clock: surroundings.clock, logger: NO_LOG });
  const load = () => loadConfig({ cwd: folder, environment: {} });
  const loaded = await load();
  const resolve = (next: typeof loaded) => resolveSettings(next, { port: 0 });
  composed = await compose({
    settings: resolve(loaded),
    surroundings,
    lifecycle,
    resources: resourcesOf(new URL('./main.ts', import.meta.url).href),
    version: '0.0.0',
    variables: { PATH: process.env.PATH },
    live: liveSettings({ loaded, load, resolve, logger: NO_LOG }),
    agents: createAgents,
    serve: true,
  });
});
afterEach(async () => {
  await lifecycle.stop();
  await provider.close();
  await rm(folder, { recursive: true, force: true });
});

async function api(method: string, path: string, body?: object) {
  const answer = await fetch(`http://127.0.0.1:${composed.server?.port}${path}`, {
    method,
    ...(body === undefined ? {} : { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
  });
  return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
}

const run = () =>
  api('POST', '/api/runs/wait', {
    assistant_id: 'lead_agent',
    input: { messages: [{ role: 'user', content: 'look' }] },
  });

const offered = (): string[][] =>
  provider
    .requests()
    .map(({ body }) => ((body?.tools ?? []) as { function: { name: string } }[]).map((tool) => tool.function.name));

test(
  'a change counts for the next run; the one at work ends with the tools and approvals that it began with',
  verifies('CFG-4a', 'CFG-4b', 'GW-27'),
  async () => {
    const first = run();
    await provider.waitFor(() => true);
    await write('tools: [{name: ls}]\napprovals: {tools: [ls]}\nmax_recursion_limit: 50\nserver: {port: 4000}\n');
    expect(await api('POST', '/api/config/reload')).toMatchObject({
      status: 200,
      body: {
        revision: 1,
        changed: ['max_recursion_limit', 'tools', 'approvals.tools'],
        restart: [{ key: 'server.port', reason: expect.stringContaining('The port is open') }],
      },
    });
    await first;
    const [before = [], between, ...more] = offered();
    expect(before).toContain('write_file');
    expect(between).toEqual(before);
    expect(more).toEqual([]);

    const second = await run();
    expect(JSON.stringify(second.body)).toContain('actionRequests');
    const after = offered()[2] ?? [];
    expect(after).toContain('ls');
    expect(after).not.toContain('write_file');
    expect((await api('GET', '/health')).body.configuration).toEqual({
      status: 'ok',
      revision: 1,
      restart: ['server.port'],
    });
  },
);

test(
  'a file that cannot be used is refused with line and key, and told at the health',
  verifies('CFG-4a'),
  async () => {
    await write('uploads:\n  max_files: many\n');
    expect(await api('POST', '/api/config/reload')).toMatchObject({
      status: 422,
      body: { detail: expect.stringMatching(/line 5: uploads\.max_files must be a number.*\n.*still counts/) },
    });
    expect((await api('GET', '/health')).body.configuration).toMatchObject({ status: 'faulty', revision: 0 });
    await write('uploads:\n  max_files: 2\nagents_api: {enabled: true}\ntoken_usage: {enabled: false}\n');
    expect((await api('GET', '/api/config')).body).toMatchObject({ fault: null, revision: 1 });
    expect((await api('GET', '/api/features')).body).toMatchObject({ agents_api: { enabled: true } });
    expect((await api('GET', '/api/models')).body).toMatchObject({ token_usage: { enabled: false } });
    const thread = (await api('POST', '/api/threads', {})).body.thread_id as string;
    expect((await api('GET', `/api/threads/${thread}/uploads/limits`)).body).toMatchObject({ max_files: 2 });
  },
);

test(
  'an agent that remembers by tools has them, and nothing else learns; back to before by the file',
  verifies('MEM-9'),
  async () => {
    await write('memory: {mode: tool}\n');
    expect((await api('POST', '/api/config/reload')).status).toBe(200);
    await run();
    expect(offered().at(-1)).toEqual(expect.arrayContaining(['memory_search', 'memory_add', 'memory_delete']));
    expect((await api('GET', '/api/memory/status')).body).toMatchObject({
      mode: 'tool',
      pending: 0,
      learning: { enabled: false, reason: expect.stringContaining('memory.mode: tool') },
    });
    await write('');
    await api('POST', '/api/config/reload');
    await run();
    expect(offered().at(-1)).not.toContain('memory_search');
    expect((await api('GET', '/api/memory/status')).body).toMatchObject({ mode: 'middleware', pending: 1 });
  },
);
