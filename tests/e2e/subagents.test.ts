import { randomUUID } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { type Script, startScriptedProvider } from '@reindeer/scripted';
import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { projectFolder, type RunningServer, say, scriptedConfig, startServer } from '../support/server.ts';

/** Whole sub-agents: real processes, the scripted provider, the official client. */

const bash = (command: string) => ({ name: 'bash', args: { description: 'x', command } });
const task = (prompt: string) => ({
  name: 'task',
  args: { description: prompt, prompt, subagent_type: 'general-purpose' },
});

/** The lead agent delegates what the user lists; a sub-agent runs the commands of its prompt one by one and then answers. */
const script: Script = (request) => {
  const newest = request.messages.findLastIndex((message) => message.role === 'user');
  const text = request.messages[newest]?.text ?? '';
  const done = request.messages.slice(newest + 1).filter((message) => message.role === 'tool').length;
  if (request.messages[0]?.text.includes('sub-agent "') === true) {
    const commands = text.split(' && ');
    const command = commands[done];
    return command === undefined
      ? { text: `sub-agent did ${commands.length}` }
      : { text: 'child step', toolCalls: [bash(command)] };
  }
  if (!text.startsWith('delegate: ')) return { text: 'Here I am.' };
  return done === 0
    ? { text: 'Delegating.', toolCalls: text.slice('delegate: '.length).split('; ').map(task) }
    : { text: 'All is done.' };
};

interface Row {
  readonly seq: number;
  readonly content: { readonly kind: string; readonly ns?: string; readonly data?: Record<string, unknown> };
}

async function world() {
  const provider = await startScriptedProvider({ script });
  const project = await projectFolder(scriptedConfig(provider.openAiUrl));
  let server: RunningServer = await startServer(project.folder);
  return {
    provider,
    get server() {
      return server;
    },
    async restart(signal: NodeJS.Signals) {
      await server.process.end(signal);
      server = await startServer(project.folder);
    },
    async facts(threadId: string): Promise<Row[]> {
      const response = await fetch(`${server.url}/api/threads/${threadId}/facts?limit=2000`);
      const body = (await response.json()) as { data: Row[] };
      return body.data;
    },
    /** Waits until the log holds enough events of a type. */
    async until(threadId: string, holds: (events: readonly Record<string, unknown>[]) => boolean) {
      for (;;) {
        const response = await fetch(`${server.url}/api/threads/${threadId}/facts?limit=2000`);
        if (response.ok) {
          const { data } = (await response.json()) as { data: Row[] };
          if (holds(eventsOf(data))) return;
        }
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    },
    async close() {
      await server.process.end();
      await provider.close();
      await project.remove();
    },
  };
}

const eventsOf = (rows: readonly Row[]): Record<string, unknown>[] =>
  rows.flatMap(({ content }) =>
    content.kind === 'custom' && content.ns === '' && content.data !== undefined ? [content.data] : [],
  );
const typesOf = (rows: readonly Row[]): unknown[] => eventsOf(rows).map(({ type }) => type);

/** Processes of this machine whose command line holds the marker. */
async function alive(marker: string): Promise<string[]> {
  const lines = await Promise.all(
    (await readdir('/proc'))
      .filter((id) => /^\d+$/.test(id))
      .map((id) => readFile(`/proc/${id}/cmdline`, 'utf8').catch(() => '')),
  );
  return lines.filter((line) => line.includes(marker));
}

const options = (text: string, more: object = {}) => ({
  input: say(text),
  context: { subagent_enabled: true },
  ifNotExists: 'create' as const,
  ...more,
});

test(
  'what a sub-agent says stays out of the stream and the state of its lead; those who ask get it under its namespace',
  verifies('SA-24', 'TOOL-7a', 'SA-09'),
  async () => {
    const place = await world();
    try {
      const { client, url } = place.server;
      for (const streamSubgraphs of [false, true]) {
        const threadId = randomUUID();
        const parts: { event: string; data: unknown }[] = [];
        const stream = client.runs.stream(
          threadId,
          'lead_agent',
          options('delegate: echo one', {
            streamMode: ['values', 'messages-tuple', 'updates', 'custom'] as const,
            streamSubgraphs,
          }),
        );
        for await (const part of stream) parts.push(part as { event: string; data: unknown });
        const root = JSON.stringify(parts.filter(({ event }) => /^(values|messages|updates)$/.test(event)));
        expect(root).toContain('sub-agent did 1');
        expect(root).not.toContain('child step');
        const inner = parts.filter(({ event }) => event.includes('|'));
        expect(inner.length > 0).toBe(streamSubgraphs);
        if (streamSubgraphs) {
          expect(inner.every(({ event }) => /^(messages|updates|custom)\|tools:/.test(event))).toBe(true);
          expect(JSON.stringify(inner)).toContain('child step');
        }
        const events = parts
          .filter(({ event }) => event === 'custom')
          .map(({ data }) => (data as { type: string }).type);
        expect(events).toEqual(['task_started', 'task_running', 'task_running', 'task_running', 'task_completed']);
        const state = await client.threads.getState<{ messages: { type: string; content: string }[] }>(threadId);
        expect(state.values.messages.map((message) => message.type)).toEqual(['human', 'ai', 'tool', 'ai']);
        expect(
          await client.threads.getHistory(threadId, { limit: 100 }).then((list) => JSON.stringify(list)),
        ).not.toContain('child step');
        expect(await (await fetch(`${url}/api/threads/${threadId}/messages`)).text()).not.toContain('child step');
      }
    } finally {
      await place.close();
    }
  },
);

test(
  'a cancelled run leaves no process of its sub-agents, and each reads cancelled after a restart',
  verifies('SA-07', 'SA-05', 'SA-28'),
  async () => {
    const place = await world();
    const marker = '61.2718';
    try {
      const { client } = place.server;
      const threadId = randomUUID();
      const text = `delegate: ${['a', 'b', 'c'].map((name) => `sleep ${marker} # ${name}`).join('; ')}`;
      await client.threads.create({ threadId });
      const run = await client.runs.create(threadId, 'lead_agent', options(text));
      while ((await alive(marker)).length < 3) await new Promise((resolve) => setTimeout(resolve, 50));
      await client.runs.cancel(threadId, run.run_id, true);
      expect(await alive(marker)).toEqual([]);
      await place.restart('SIGTERM');
      const rows = await place.facts(threadId);
      expect(typesOf(rows).filter((type) => type === 'task_cancelled')).toHaveLength(3);
      const before = place.provider.requests().length;
      const again = await place.server.client.runs.wait(threadId, 'lead_agent', options('hello'));
      expect(JSON.stringify(again)).toContain('Here I am.');
      expect(place.provider.requests().length - before).toBe(1);
      expect(await alive(marker)).toEqual([]);
    } finally {
      await place.close();
    }
  },
);

test(
  'after kill -9 a finished sub-agent is not run again, and an unfinished one goes on where it was',
  verifies('TOOL-7a', 'SA-09'),
  async () => {
    const place = await world();
    try {
      const { client } = place.server;
      const threadId = randomUUID();
      const effects = '/mnt/user-data/workspace/effects.txt';
      const text = `delegate: echo quick >> ${effects}; echo one >> ${effects} && sleep 62.1 && echo three >> ${effects}`;
      await client.threads.create({ threadId });
      const run = await client.runs.create(threadId, 'lead_agent', options(text));
      // The quick one has ended, and the other one sleeps in its second command.
      await place.until(threadId, (events) => events.some(({ type }) => type === 'task_completed'));
      while ((await alive('62.1')).length === 0) await new Promise((resolve) => setTimeout(resolve, 50));
      const before = place.provider.requests().length;
      await place.restart('SIGKILL');
      await place.server.client.runs.join(threadId, run.run_id);
      const state = await place.server.client.threads.getState<{ messages: { type: string; content: string }[] }>(
        threadId,
      );
      expect(state.values.messages.map(({ type, content }) => [type, content]).slice(1)).toEqual([
        ['ai', 'Delegating.'],
        ['tool', 'sub-agent did 1'],
        ['tool', 'sub-agent did 3'],
        ['ai', 'All is done.'],
      ]);
      const file = await fetch(`${place.server.url}/api/threads/${threadId}/artifacts${effects}`);
      expect((await file.text()).split('\n').toSorted()).toEqual(['', 'one', 'quick', 'three']);
      // The unfinished one asked twice more (after the unknown outcome, and for its answer), the lead agent once.
      expect(place.provider.requests().length - before).toBe(3);
      const rows = await place.facts(threadId);
      const types = typesOf(rows);
      expect(types.filter((type) => type === 'task_started')).toHaveLength(2);
      expect(types.filter((type) => type === 'task_completed')).toHaveLength(2);
      const steps = eventsOf(rows).flatMap(({ type, message }) =>
        type === 'task_running' ? [(message as { id: string }).id] : [],
      );
      expect(new Set(steps).size).toBe(steps.length);
      expect(steps).toHaveLength(3 + 7);
    } finally {
      await place.close();
    }
  },
);
