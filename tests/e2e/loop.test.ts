import { randomUUID } from 'node:crypto';
import { Client } from '@langchain/langgraph-sdk';
import { compose, createAgents, Lifecycle, loadConfig, resolveSettings, resourcesOf, warmUp } from '@reindeer/gateway';
import { NO_LOG } from '@reindeer/protocol';
import { systemSurroundings } from '@reindeer/runtime';
import { type Script, startScriptedProvider } from '@reindeer/scripted';
import { verifies, withEventLoopGate } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { projectFolder, say, scriptedConfig } from '../support/server.ts';

const script: Script = (request) => {
  const newest = request.messages.findLastIndex((message) => message.role === 'user');
  const done = request.messages.slice(newest + 1).filter((message) => message.role === 'tool').length;
  const path = '/mnt/user-data/outputs/a.md';
  switch (done) {
    case 0:
      return {
        toolCalls: [
          { name: 'bash', args: { description: 'x', command: 'echo hello' } },
          { name: 'write_file', args: { description: 'x', path, content: 'one two' } },
        ],
      };
    case 2:
      // A file that exists is read before it is changed.
      return { toolCalls: [{ name: 'read_file', args: { description: 'x', path } }] };
    case 3:
      return {
        toolCalls: [
          { name: 'str_replace', args: { description: 'x', path, old_str: 'two', new_str: 'three' } },
          { name: 'grep', args: { description: 'x', pattern: 't.*e', path: '/mnt/user-data' } },
          { name: 'present_files', args: { filepaths: [path] } },
        ],
      };
    default:
      return { text: 'Done.' };
  }
};

test('serving a whole run makes no blocking call', verifies('BL-01', 'BL-07'), async () => {
  const provider = await startScriptedProvider({ script });
  const project = await projectFolder(scriptedConfig(provider.openAiUrl));
  const surroundings = systemSurroundings();
  const lifecycle = new Lifecycle({ clock: surroundings.clock, logger: NO_LOG });
  try {
    const loaded = await loadConfig({ cwd: project.folder, environment: {} });
    warmUp();
    // In memory: taking a folder's lock and the warm-up are the blocking calls of a start.
    const settings = { ...resolveSettings(loaded, { port: 0 }), databaseFolder: ':memory:' };
    await withEventLoopGate(async () => {
      const { server } = await compose({
        settings,
        surroundings,
        lifecycle,
        resources: resourcesOf(new URL('../../packages/gateway/src/main.ts', import.meta.url).href),
        version: '0.0.0',
        variables: { PATH: process.env.PATH },
        agents: createAgents,
        serve: true,
      });
      const url = `http://127.0.0.1:${server?.port}`;
      const client = new Client({ apiUrl: `${url}/api`, apiKey: null, callerOptions: { maxRetries: 0 } });
      const threadId = randomUUID();
      const form = new FormData();
      form.append('files', new File(['uploaded'], 'up.txt'));
      expect((await fetch(`${url}/api/threads/${threadId}/uploads`, { method: 'POST', body: form })).status).toBe(200);
      const events: string[] = [];
      for await (const part of client.runs.stream(threadId, 'lead_agent', {
        input: say('go'),
        ifNotExists: 'create',
        streamMode: ['values', 'messages-tuple', 'updates', 'custom'],
      }))
        events.push(part.event);
      expect(events.at(-1)).toBe('end');
      const state = await client.threads.getState<{ messages: { type: string; status?: string }[] }>(threadId);
      const tools = state.values.messages.filter((message) => message.type === 'tool');
      expect([tools.length, tools.filter((message) => message.status === 'error')]).toEqual([6, []]);
      expect(await (await fetch(`${url}/api/threads/${threadId}/artifacts/mnt/user-data/outputs/a.md`)).text()).toBe(
        'one three',
      );
      await client.threads.getHistory(threadId);
      for (const view of ['api/sandboxes', 'metrics']) expect((await fetch(`${url}/${view}`)).status).toBe(200);
      await client.threads.delete(threadId);
      expect(await lifecycle.stop()).toEqual({ unfinished: [], failed: [] });
    });
  } finally {
    await lifecycle.stop();
    await provider.close();
    await project.remove();
  }
});
