import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import type { JsonObject } from '@reindeer/protocol';
import { type Script, type ScriptedProvider, startScriptedProvider, type Turn } from '@reindeer/scripted';
import { processesThatShow, verifies, waitUntil } from '@reindeer/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { projectFolder, type RunningServer, say, scriptedConfig, startServer } from '../support/server.ts';

const STORED = `stored-${crypto.randomUUID()}`;
const GIVEN = `given-${crypto.randomUUID()}`;
const SHARED = `shared-${crypto.randomUUID()}`;
const ALL = [STORED, GIVEN, SHARED];
const SKILL = `---
name: vault
description: Opens the vault. Use it when somebody wants it open.
required-secrets: [VAULT_STORED, VAULT_GIVEN, {name: VAULT_SHARED, optional: true}]
---
Run scripts/open.sh.
`;
/** Does everything that it should not: prints the values, leaves them in files, and runs on for a while. */
const OPEN = `#!/bin/sh
echo "the vault says $VAULT_STORED $VAULT_GIVEN and $VAULT_SHARED"
env | grep VAULT_ | tee left.txt > /mnt/user-data/outputs/left.txt
seq 1 5000
env
touch started
until [ -e go ]; do sleep 0.02; done
echo "it was open"
`;

const turns: Turn[] = [
  { toolCalls: [{ name: 'bash', args: { description: 'open', command: '/mnt/skills/public/vault/scripts/open.sh' } }] },
  { toolCalls: [{ name: 'read_file', args: { description: 'look', path: 'left.txt' } }] },
  { toolCalls: [{ name: 'grep', args: { description: 'look', pattern: 'VAULT', path: '/mnt/user-data/outputs' } }] },
  { text: 'It is open.' },
];
const script: Script = (request): Turn =>
  turns[request.messages.filter((message) => message.role === 'tool').length] ?? { text: 'It is open.' };

let provider: ScriptedProvider;
let project: Awaited<ReturnType<typeof projectFolder>>;
let server: RunningServer;
beforeAll(async () => {
  provider = await startScriptedProvider({ script });
  project = await projectFolder(scriptedConfig(provider.openAiUrl, 'log_level: debug\ntitle: {enabled: false}\n'));
  const skill = join(project.folder, 'skills/public/vault/scripts');
  await mkdir(skill, { recursive: true });
  await writeFile(join(skill, '../SKILL.md'), SKILL);
  await writeFile(join(skill, 'open.sh'), OPEN, { mode: 0o755 });
  server = await startServer(project.folder);
});
afterAll(async () => {
  await provider.close();
  await project.remove();
});

/** Files below a folder that hold a text, by their paths. */
async function filesWith(folder: string, text: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const found: string[] = [];
  for (const entry of entries) {
    const file = join(entry.parentPath, entry.name);
    if (entry.isFile() && (await readFile(file)).includes(text)) found.push(relative(folder, file));
  }
  return found.sort();
}

test(
  'a secret that a skill uses reaches its commands and nothing else: no answer, stream, log, prompt, process list, database or file',
  verifies('SK-8', 'SAFE-4'),
  async () => {
    /** Every byte that the server answered. */
    let heard = '';
    const api = async (path: string, method = 'GET', body?: unknown): Promise<Response> => {
      const answer = await fetch(`${server.url}/api${path}`, {
        method,
        headers: {
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
          ...(server.token === null ? {} : { authorization: `Bearer ${server.token}` }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      heard += await answer.clone().text();
      return answer;
    };
    const put = (secrets: JsonObject, scope: string) => api('/skills/vault/secrets', 'PUT', { secrets, scope });
    expect((await put({ VAULT_STORED: STORED }, 'user')).status).toBe(200);
    expect((await put({ VAULT_SHARED: SHARED }, 'shared')).status).toBe(200);
    // What is shown can be written back.
    expect((await put({ VAULT_STORED: '***' }, 'user')).status).toBe(200);
    expect((await put({ VAULT_STORED: `${STORED}\0` }, 'user')).status).toBe(422);
    expect((await put({ NOT_DECLARED: STORED }, 'user')).status).toBe(422);
    expect((await put({ VAULT_SHARED: '$HOME' }, 'shared')).status).toBe(422);
    const shown = (await (await api('/skills/vault/secrets')).json()) as { secrets: JsonObject[] };
    expect(shown.secrets).toEqual([
      { name: 'VAULT_STORED', optional: false, source: 'user', value: '***' },
      { name: 'VAULT_GIVEN', optional: false, source: null, value: null },
      { name: 'VAULT_SHARED', optional: true, source: 'shared', value: '***' },
    ]);

    const thread = await server.client.threads.create();
    const id = thread.thread_id;
    const workspace = join(project.folder, '.reindeer/users/default/threads', id, 'user-data/workspace');
    const answering = api(`/threads/${id}/runs/stream`, 'POST', {
      assistant_id: 'lead_agent',
      input: say('/vault please'),
      context: { secrets: { VAULT_GIVEN: GIVEN, UNASKED: GIVEN } },
      stream_mode: ['values', 'messages-tuple', 'updates', 'debug', 'tasks', 'checkpoints', 'custom'],
    });
    const isRunning = async () => (await readdir(workspace).catch((): string[] => [])).includes('started');
    await waitUntil(isRunning, 20_000, () => 'the script never ran');
    for (const value of ALL) expect(await processesThatShow(value)).toEqual([]);
    await writeFile(join(workspace, 'go'), '');
    const streamed = await (await answering).text();
    // The values were there, and a mark is in their place.
    expect(streamed).toContain('the vault says [secret] [secret] and [secret]');
    expect(streamed).toContain('"type":"skill:secrets","names":["VAULT_GIVEN","VAULT_SHARED","VAULT_STORED"]');
    expect(streamed).toContain('It is open.');

    const [run] = await server.client.runs.list(id);
    for (const path of [
      `/threads/${id}`,
      `/threads/${id}/state`,
      `/threads/${id}/history`,
      `/threads/${id}/messages`,
      `/threads/${id}/uploads/list`,
      `/threads/${id}/runs`,
      `/threads/${id}/runs/${run?.run_id}`,
      `/threads/${id}/runs/${run?.run_id}/events`,
      `/threads/${id}/runs/${run?.run_id}/workspace-changes`,
      `/threads/${id}/runs/${run?.run_id}/join`,
      '/skills',
      '/skills/vault',
      '/mcp/config',
    ])
      await api(path);
    expect(heard).toContain('left.txt');
    const { stdout, stderr } = server.process;
    expect(await server.process.end()).toEqual({ code: 0, signal: null });
    expect(stdout + stderr + server.process.stderr).toContain('The secrets of skills that commands get have changed');
    for (const value of ALL) {
      expect(heard).not.toContain(value);
      expect(server.process.stdout + server.process.stderr).not.toContain(value);
      expect(JSON.stringify(provider.requests())).not.toContain(value);
    }

    // The whole project, the database in it. The command wrote two files of the user's itself; the search finds those, so it can find.
    const left = [`outputs/left.txt`, 'workspace/left.txt'].map((file) =>
      join('.reindeer/users/default/threads', id, 'user-data', file),
    );
    expect(await filesWith(project.folder, GIVEN)).toEqual(left);
    expect(await filesWith(project.folder, STORED)).toEqual([
      '.reindeer/users/default/skills/_skill_secrets.json',
      ...left,
    ]);
    expect(await filesWith(project.folder, SHARED)).toEqual([...left, 'extensions_config.json']);
    // It reads the database as well: what the command said besides is in there.
    expect((await filesWith(project.folder, 'the vault says')).filter((file) => file.includes('/data/'))).not.toEqual(
      [],
    );
  },
);
