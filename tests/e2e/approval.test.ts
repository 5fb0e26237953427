import { Client } from '@langchain/langgraph-sdk';
import { createLeadAgent, createModelRegistry } from '@reindeer/agent';
import { type Agents, compose, Lifecycle, loadConfig, resolveSettings, resourcesOf } from '@reindeer/gateway';
import { NO_LOG } from '@reindeer/protocol';
import { systemSurroundings } from '@reindeer/runtime';
import { type Script, startScriptedProvider } from '@reindeer/scripted';
import { humanInTheLoopMiddleware } from 'langchain';
import { expect, test } from 'vitest';
import { projectFolder, say, scriptedConfig, startServer } from '../support/server.ts';

/** The first time it asks to write X; asked again about the same conversation it would want Y. */
function fickleScript(): Script {
  let first = true;
  return (request) => {
    if (request.messages.at(-1)?.role === 'tool') return { text: 'Finished.' };
    const name = first ? 'X' : 'Y';
    first = false;
    return {
      text: `I want ${name}.`,
      toolCalls: [
        { name: 'write_file', args: { description: 'x', path: `/mnt/user-data/outputs/${name}`, content: name } },
      ],
    };
  };
}

interface Interrupted {
  readonly __interrupt__?: readonly {
    readonly value: { readonly actionRequests: readonly { readonly args: { readonly path: string } }[] };
  }[];
  readonly messages: readonly { readonly type: string; readonly content: string }[];
}

test('approving call X through the API runs X, although the model would now say Y', async () => {
  const provider = await startScriptedProvider({ script: fickleScript() });
  const project = await projectFolder(scriptedConfig(provider.openAiUrl));
  const surroundings = systemSurroundings();
  const lifecycle = new Lifecycle({ clock: surroundings.clock, logger: NO_LOG });
  try {
    const settings = resolveSettings(await loadConfig({ cwd: project.folder, environment: {} }), { port: 0 });
    const { server } = await compose({
      settings,
      surroundings,
      lifecycle,
      resources: resourcesOf(new URL('../../packages/gateway/src/main.ts', import.meta.url).href),
      version: '0.0.0',
      variables: { PATH: process.env.PATH },
      serve: true,
      agents: ({ sandboxes }): Agents => {
        const models = createModelRegistry({
          entries: [
            { name: 'scripted', use: 'openai', model: 'scripted', api_key: 'none', base_url: provider.openAiUrl },
          ],
          environment: {},
          logger: NO_LOG,
        });
        const middleware = [humanInTheLoopMiddleware({ interruptOn: { write_file: true } } as never)];
        const agent = createLeadAgent({ models, sandboxes, surroundings, middleware });
        return {
          graphs: new Map([[agent.assistantId, agent]]),
          models: models.list().map((info) => ({ ...info, description: '' })),
        };
      },
    });
    const url = `http://127.0.0.1:${server?.port}/api`;
    const client = new Client({ apiUrl: url, apiKey: null, callerOptions: { maxRetries: 0 } });
    const { thread_id: id } = await client.threads.create();

    const events: string[] = [];
    for await (const part of client.runs.stream(id, 'lead_agent', {
      input: say('write'),
      streamMode: ['updates', 'values'],
    }))
      if (JSON.stringify(part.data).includes('__interrupt__')) events.push(part.event);
    expect(events).toContain('updates');
    const thread = await client.threads.get(id);
    expect(thread.status).toBe('interrupted');
    const [asked] = Object.values(thread.interrupts).flat() as {
      value: { actionRequests: { args: { path: string } }[] };
    }[];
    expect(asked?.value.actionRequests[0]?.args.path).toBe('/mnt/user-data/outputs/X');
    const state = await client.threads.getState(id);
    expect(state.tasks.flatMap((task) => task.interrupts)).toHaveLength(1);
    expect(provider.requests()).toHaveLength(1);
    expect((await fetch(`${url}/threads/${id}/artifacts/mnt/user-data/outputs/X`)).status).toBe(404);

    const done = (await client.runs.wait(id, 'lead_agent', {
      command: { resume: { decisions: [{ type: 'approve' }] } },
    })) as unknown as Interrupted;
    expect(done.__interrupt__).toBeUndefined();
    expect(done.messages.map((message) => message.type)).toEqual(['human', 'ai', 'tool', 'ai']);
    expect(done.messages.at(-1)?.content).toBe('Finished.');
    expect(await (await fetch(`${url}/threads/${id}/artifacts/mnt/user-data/outputs/X`)).text()).toBe('X');
    expect((await fetch(`${url}/threads/${id}/artifacts/mnt/user-data/outputs/Y`)).status).toBe(404);
    expect((await client.threads.get(id)).status).toBe('idle');
    expect(provider.requests().map((request) => request.status)).toEqual([200, 200]);
  } finally {
    await lifecycle.stop();
    await provider.close();
    await project.remove();
  }
});

test.each([
  ['the configuration demands it', 'approvals:\n  tools: [write_file]\n', {}],
  ['the run asks for it', '', { interrupt_on: ['write_file'] }],
])('a server process waits for approval when %s', async (_when, section, context) => {
  const provider = await startScriptedProvider({ script: fickleScript() });
  const project = await projectFolder(`${scriptedConfig(provider.openAiUrl)}${section}`);
  const server = await startServer(project.folder);
  try {
    const { client, url } = server;
    const { thread_id: id } = await client.threads.create();
    await client.runs.wait(id, 'lead_agent', { input: say('write'), context });
    expect((await client.threads.get(id)).status).toBe('interrupted');
    const file = `${url}/api/threads/${id}/artifacts/mnt/user-data/outputs/X`;
    expect((await fetch(file)).status).toBe(404);
    const resume = { decisions: [{ type: 'reject', message: 'Not today' }] };
    const done = (await client.runs.wait(id, 'lead_agent', { command: { resume } })) as unknown as Interrupted;
    expect(done.messages.find((message) => message.type === 'tool')?.content).toContain('Not today');
    expect((await fetch(file)).status).toBe(404);
  } finally {
    await server.process.end();
    await provider.close();
    await project.remove();
  }
});
