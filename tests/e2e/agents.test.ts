import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { JsonObject } from '@reindeer/protocol';
import {
  type Script,
  type ScriptedProvider,
  type ScriptRequest,
  startScriptedProvider,
  type Turn,
} from '@reindeer/scripted';
import { verifies } from '@reindeer/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { projectFolder, type RunningServer, say, scriptedConfig, startServer } from '../support/server.ts';

const asked: ScriptRequest[] = [];
/** `call:NAME {json}` in the newest message makes the model call that tool once, then say what it answered. */
const script: Script = (request): Turn => {
  asked.push(request);
  const newest = request.messages.findLastIndex((message) => message.role === 'user' && /call:/.test(message.text));
  const [, name = '', args = '{}'] = /call:(\w+) (\{.*\})/s.exec(request.messages[newest]?.text ?? '') ?? [];
  const result = request.messages.slice(newest + 1).find((message) => message.role === 'tool');
  if (name === '') return { text: 'Nothing was asked.' };
  return result === undefined
    ? { toolCalls: [{ name, args: JSON.parse(args) as JsonObject }] }
    : { text: `It said: ${result.text}` };
};

let provider: ScriptedProvider;
let project: Awaited<ReturnType<typeof projectFolder>>;
let server: RunningServer;
beforeAll(async () => {
  provider = await startScriptedProvider({ script });
  project = await projectFolder(
    scriptedConfig(provider.openAiUrl, 'agents_api: {enabled: true}\ntitle: {enabled: false}\n'),
  );
  for (const name of ['greeting', 'parting']) {
    const folder = join(project.folder, 'skills/public', name);
    await mkdir(folder, { recursive: true });
    await writeFile(join(folder, 'SKILL.md'), `---\nname: ${name}\ndescription: For a ${name}.\n---\nDo it.\n`);
  }
  server = await startServer(project.folder);
});
afterAll(async () => {
  const ended = await server.process.end();
  await provider.close();
  await project.remove();
  expect(ended).toEqual({ code: 0, signal: null });
});

const api = async (method: string, path: string, body?: unknown): Promise<{ status: number; body: unknown }> => {
  const answer = await fetch(`${server.url}/api${path}`, {
    method,
    headers: {
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...(server.token === null ? {} : { authorization: `Bearer ${server.token}` }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return { status: answer.status, body: answer.status === 204 ? null : await answer.json() };
};
async function talk(text: string, assistant: string, context: Record<string, unknown> = {}) {
  asked.length = 0;
  const thread = await server.client.threads.create();
  const state = (await server.client.runs.wait(thread.thread_id, assistant, {
    input: say(text),
    context,
  })) as unknown as {
    messages: { content: unknown }[];
    created_agent_name?: string;
  };
  const first = asked.find((request) => request.tools.length > 0);
  return {
    answer: String(state.messages.at(-1)?.content),
    created: state.created_agent_name,
    prompt: first?.messages.find((message) => message.role === 'system')?.text ?? '',
    tools: first?.tools.map((tool) => tool.name) ?? [],
  };
}

test(
  'an agent that is made over HTTP has its soul, its tools and its skills, and no others; it changes itself, and another is made by talking',
  verifies('CA-2', 'AG-2', 'AG-3', 'AG-4', 'SK-4b', 'TOOL-10', 'TOOL-11'),
  async () => {
    const made = await api('POST', '/agents', {
      name: 'greeter',
      soul: 'You greet <everyone>.',
      tool_groups: ['file:read'],
      skills: ['greeting'],
    });
    expect(made.status).toBe(201);
    const first = await talk('call:update_agent {"soul":"You greet nobody."}', 'greeter');
    expect(first.prompt).toContain('<soul>\nYou greet &lt;everyone&gt;.\n</soul>');
    expect(first.prompt).toContain('<name>greeting</name>');
    expect(first.prompt).not.toContain('<name>parting</name>');
    expect(first.tools).toEqual(expect.arrayContaining(['read_file', 'present_files', 'update_agent']));
    for (const name of ['bash', 'write_file', 'web_fetch', 'setup_agent']) expect(first.tools).not.toContain(name);
    expect(first.answer).toContain('Changed: soul.');
    expect(await readFile(join(project.folder, '.reindeer/users/default/agents/greeter/SOUL.md'), 'utf8')).toBe(
      'You greet nobody.',
    );
    const next = await talk('call:bash {"description":"x","command":"id"}', 'lead_agent', { agent_name: 'greeter' });
    expect(next.prompt).toContain('<soul>\nYou greet nobody.\n</soul>');
    expect(next.answer).toContain('bash is not permitted');
    // The default agent is as it was.
    const plain = await talk('Hello', 'lead_agent');
    expect(plain.prompt).not.toContain('<soul>');
    expect(plain.prompt).toContain('<name>parting</name>');
    expect(plain.tools).toContain('bash');
    expect(plain.tools).not.toContain('update_agent');
    const guided = await talk('call:setup_agent {"soul":"You part.","description":"Parts"}', 'lead_agent', {
      agent_name: 'parter',
      is_bootstrap: true,
    });
    expect(guided.created).toBe('parter');
    expect([...guided.tools].sort()).toEqual(['ask_clarification', 'read_file', 'setup_agent']);
    expect((await api('GET', '/agents/parter')).body).toMatchObject({ soul: 'You part.', description: 'Parts' });
    expect((await api('DELETE', '/agents/greeter')).status).toBe(204);
    await expect(talk('Hello', 'greeter')).rejects.toThrow(/no assistant .*greeter/);
  },
);
