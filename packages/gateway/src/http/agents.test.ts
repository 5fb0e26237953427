import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { AgentProfiles } from '@reindeer/agent';
import { systemSurroundings } from '@reindeer/runtime';
import { verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Fixture, startFixture } from '../testing/http-fixture.ts';
import { agentRoutes } from './agents.ts';

let root: string;
let fixture: Fixture;
let deleted: string[];
async function open(enabled: boolean): Promise<void> {
  const profiles = new AgentProfiles({
    folder: (userId) => join(root, 'users', userId),
    legacyFolder: join(root, 'legacy'),
    defaultSoul: join(root, 'SOUL.md'),
    userProfile: (userId) => join(root, `${userId}.md`),
    ...systemSurroundings(),
  });
  fixture = await startFixture({
    agents: {
      api: enabled,
      list: (userId) => profiles.list(userId),
      exists: async (userId, name) => (await profiles.get(userId, name)) !== null,
    },
    modules: [
      (api) =>
        agentRoutes(api, {
          profiles,
          enabled,
          models: ['demo'],
          onDeleted: async (userId, name) => {
            deleted.push(`${userId}/${name}`);
          },
        }),
    ],
  });
  fixture.threads.add('thread-1');
}
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'reindeer-agent-routes-'));
  deleted = [];
});
afterEach(async () => {
  await fixture.close();
  await rm(root, { recursive: true, force: true });
});

async function ask(method: string, path: string, body?: unknown) {
  const response = await fetch(`${fixture.url}/api${path}`, {
    method,
    ...(body === undefined ? {} : { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
  });
  const text = await response.text();
  return {
    status: response.status,
    text,
    json: text.startsWith('{') ? (JSON.parse(text) as Record<string, unknown>) : {},
  };
}

describe('the routes of custom agents', () => {
  test('make, read, change, list, remove', verifies('CA-2'), async () => {
    await open(true);
    const made = await ask('POST', '/agents', { name: 'Writer', soul: 'You write.', skills: ['a'], model: 'demo' });
    expect(made.status).toBe(201);
    expect(made.json).toEqual({
      name: 'writer',
      description: '',
      model: 'demo',
      tool_groups: null,
      skills: ['a'],
      model_settings: null,
      thinking_enabled: null,
      reasoning_effort: null,
      soul: 'You write.',
    });
    expect((await ask('GET', '/agents/WRITER')).json).toEqual(made.json);
    // What is left out stays; null takes away; blocks of the server stay as they are.
    const file = join(root, 'users/default/writer/config.yaml');
    await writeFile(file, `${await readFile(file, 'utf8')}github:\n  repo: a/b\n`);
    const changed = await ask('PUT', '/agents/writer', { skills: null, thinking_enabled: false });
    expect(changed.json).toMatchObject({ skills: null, model: 'demo', thinking_enabled: false, soul: 'You write.' });
    expect(await readFile(file, 'utf8')).toContain('github:\n  repo: a/b\n');
    await ask('POST', '/agents', { name: 'artist' });
    const { agents } = (await ask('GET', '/agents')).json as { agents: { name: string; soul: string }[] };
    expect(agents.map(({ name, soul }) => [name, soul])).toEqual([
      ['artist', ''],
      ['writer', 'You write.'],
    ]);
    expect((await ask('DELETE', '/agents/Writer')).status).toBe(204);
    expect(deleted).toEqual(['default/writer']);
    expect((await ask('GET', '/agents/writer')).status).toBe(404);
    expect((await ask('DELETE', '/agents/writer')).status).toBe(404);
    expect((await ask('PUT', '/agents/writer', {})).status).toBe(404);
    expect(((await ask('GET', '/features')).json.agents_api as { enabled: boolean }).enabled).toBe(true);
  });

  test('what is wrong is refused by name', verifies('CA-2', 'CA-1'), async () => {
    await open(true);
    await mkdir(join(root, 'legacy/old'), { recursive: true });
    await writeFile(join(root, 'legacy/old/config.yaml'), 'name: old\n');
    await ask('POST', '/agents', { name: 'one' });
    for (const name of ['ONE', 'old']) expect((await ask('POST', '/agents', { name })).status).toBe(409);
    for (const name of ['../x', 'a b', 'default', '_default', 'ä'])
      expect((await ask('POST', '/agents', { name })).status).toBe(422);
    const model = await ask('POST', '/agents', { name: 'two', model: 'dem' });
    expect([model.status, model.text]).toEqual([422, expect.stringContaining('Did you mean \\"demo\\"')]);
    for (const body of [
      { model_settings: { temperature: 3 } },
      { model_settings: { max_tokens: 200_001 } },
      { reasoning_effort: 'extreme' },
      { skills: 'a' },
      { soul: 'x'.repeat(40_000) },
      { sole: 'x' },
    ])
      expect([body, (await ask('PUT', '/agents/one', body)).status]).toEqual([body, 422]);
    expect((await ask('PUT', '/agents/old', {})).text).toContain('Copy its folder');
    expect((await ask('GET', '/agents/check?name=One')).json).toEqual({ available: false, name: 'one' });
    expect((await ask('GET', '/agents/check?name=Two')).json).toEqual({ available: true, name: 'two' });
    expect((await ask('GET', '/agents/check?name=..')).status).toBe(422);
  });

  test('switched off, every route is refused and nothing is written', verifies('CA-2'), async () => {
    await open(false);
    for (const [method, path, body] of [
      ['GET', '/agents'],
      ['GET', '/agents/check?name=a'],
      ['GET', '/agents/a'],
      ['POST', '/agents', { name: 'a' }],
      ['PUT', '/agents/a', {}],
      ['DELETE', '/agents/a'],
      ['GET', '/user-profile'],
      ['PUT', '/user-profile', { content: 'x' }],
    ] as const) {
      const answer = await ask(method, path, body);
      expect([method, path, answer.status]).toEqual([method, path, 403]);
      expect(answer.text).toContain('agents_api.enabled');
    }
    await expect(readFile(join(root, 'default.md'))).rejects.toThrow();
  });

  test('what a user says of themselves', verifies('CA-2b'), async () => {
    await open(true);
    expect((await ask('GET', '/user-profile')).json).toEqual({ content: null });
    expect((await ask('PUT', '/user-profile', { content: 'I paint.' })).json).toEqual({ content: 'I paint.' });
    expect((await ask('GET', '/user-profile')).json).toEqual({ content: 'I paint.' });
    expect((await ask('PUT', '/user-profile', { content: null })).json).toEqual({ content: null });
  });
});

describe('runs with an agent', () => {
  const run = (body: object) => ask('POST', '/threads/thread-1/runs', body);

  test(
    'an agent that is not there is refused before the run exists, and a name that is none too',
    verifies('AG-1'),
    async () => {
      await open(false);
      expect((await run({ context: { agent_name: '../x' } })).status).toBe(422);
      expect((await run({ context: { agent_name: 'nobody' } })).text).toContain('nobody');
      expect((await run({ context: { agent_name: 'nobody' } })).status).toBe(404);
      expect((await run({ assistant_id: 'nobody' })).status).toBe(404);
      expect(fixture.runs.created).toEqual([]);
      // One that is to be made need not be there.
      expect((await run({ context: { agent_name: 'nobody', is_bootstrap: true } })).status).toBe(200);
    },
  );

  test(
    'the name of an agent in place of the assistant’s is that agent; null says that its profile does not count',
    verifies('AG-1'),
    async () => {
      await open(true);
      await ask('POST', '/agents', { name: 'my-agent' });
      const found = await fetch(`${fixture.url}/api/assistants/search`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: '{}',
      });
      const list = (await found.json()) as Record<string, unknown>[];
      expect(list.map(({ assistant_id, graph_id }) => [assistant_id, graph_id])).toEqual([
        ['lead_agent', 'lead_agent'],
        ['my-agent', 'lead_agent'],
      ]);
      expect((await ask('GET', '/assistants/my-agent')).json).toMatchObject({ metadata: { created_by: 'user' } });
      expect((await ask('GET', '/assistants/nobody')).status).toBe(404);
      expect((await run({ assistant_id: 'My_Agent', context: { thinking_enabled: null, mode: null } })).status).toBe(
        200,
      );
      const [created] = fixture.runs.created;
      expect(created).toMatchObject({ assistantId: 'lead_agent' });
      expect(created?.request.context).toEqual({ agent_name: 'my-agent', thinking_enabled: null });
    },
  );
});
