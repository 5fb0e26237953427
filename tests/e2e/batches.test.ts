import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Script, startScriptedProvider } from '@reindeer/scripted';
import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { batchAcrossStop } from '../chaos/batch-stop.ts';
import { isOver, rowScript, untilBatch } from '../support/batches.ts';
import { projectFolder, ReindeerProcess, say, scriptedConfig, startServer } from '../support/server.ts';

/** Batches as their users have them: real processes, the scripted provider, files on disk. */

test('a table of 200 rows from the command line, with a provider that refuses and hangs', async () => {
  let hung = 0;
  const script: Script = (request) => {
    const turn = rowScript(request);
    const row = Number(/Row (\d+)/.exec(request.messages.at(-1)?.text ?? '')?.[1]);
    if (row % 10 === 3 && request.attempt === 1) return { fault: { kind: 'status', status: 429, retryAfter: 0 } };
    if (row === 77 && hung === 0) {
      hung += 1;
      return { text: 'never ready', fault: { kind: 'hang', afterPieces: 1 } };
    }
    return turn;
  };
  const provider = await startScriptedProvider({ script });
  const project = await projectFolder(
    scriptedConfig(provider.openAiUrl, 'subagents:\n  agents:\n    general-purpose:\n      timeout_seconds: 5\n'),
  );
  try {
    const rows = Array.from({ length: 200 }, (_, n) => `${n},"row, ${n}"`);
    await writeFile(join(project.folder, 'rows.csv'), `id,name\n${rows.join('\n')}\n`);
    const child = new ReindeerProcess(
      ['batch', 'start', 'rows.csv', '--prompt', 'Row {{id}} ({{name}})', '--concurrency', '16', '--json'],
      { folder: project.folder },
    );
    const { code } = await child.finished;
    expect([code, child.stderr]).toEqual([0, expect.stringContaining('Results:')]);
    const progress = child.stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(progress.at(-1)).toMatchObject({ status: 'completed', counts: { succeeded: 200 }, seconds_left: 0 });
    const table = await readFile(join(project.folder, 'rows.csv.results.csv'), 'utf8');
    const lines = table.trim().split('\r\n');
    expect(lines).toEqual(['key,status,result,error', ...rows.map((_, n) => `${n},succeeded,done ${n},`)]);
    expect(hung).toBe(1);
    const refused = provider.requests().filter((request) => request.status === 429);
    expect(refused.length).toBeGreaterThanOrEqual(20);
  } finally {
    await provider.close();
    await project.remove();
  }
});

test(
  'SIGTERM half-way: what is done stays, the rest runs after the restart, nothing twice',
  verifies('BT-20'),
  async () => {
    const result = await batchAcrossStop({ items: 120, concurrency: 16, stopAt: 40, say: () => {} });
    expect(result.problems).toEqual([]);
    expect(result.end.counts).toMatchObject({ succeeded: 120, leased: 0, running: 0 });
    // Half-way it was.
    expect(result.before).toBeGreaterThanOrEqual(40);
    expect(result.before).toBeLessThan(120);
  },
);

test(
  'an agent starts a batch, hears of its end in a run of its own, and the results are files',
  verifies('BT-01', 'BT-16'),
  async () => {
    const notices: string[] = [];
    const prompts: string[] = [];
    const script: Script = (request) => {
      const text = request.messages.findLast((message) => message.role === 'user')?.text ?? '';
      if (text.includes('Automatic notice')) {
        notices.push(text);
        return { text: 'Your batch is done.' };
      }
      if (/City (\w+)/.test(text)) {
        prompts.push(text);
        // The first answer does not fit the schema; the one turn that is given for it does.
        return { text: 'It is large.' };
      }
      if (text.includes('does not fit the schema')) return { text: '{"size": 7}' };
      if (request.messages.at(-1)?.role === 'tool') return { text: 'Started.' };
      return {
        toolCalls: [
          {
            name: 'batch_task',
            args: {
              title: 'Cities',
              prompt: 'City {{name}}',
              file: 'uploads/cities.csv',
              key_column: 'name',
              result_schema: { type: 'object', required: ['size'], properties: { size: { type: 'integer' } } },
            },
          },
        ],
      };
    };
    const provider = await startScriptedProvider({ script });
    const project = await projectFolder(scriptedConfig(provider.openAiUrl));
    const server = await startServer(project.folder);
    try {
      const { thread_id: threadId } = await server.client.threads.create();
      const form = new FormData();
      form.append('files', new Blob(['name\nOslo\nLima\n']), 'cities.csv');
      await fetch(`${server.url}/api/threads/${threadId}/uploads`, { method: 'POST', body: form });
      await server.client.runs.wait(threadId, 'lead_agent', {
        input: say('Describe the cities.'),
        context: { subagent_enabled: true },
      });
      const [listed] = (await (await fetch(`${server.url}/api/threads/${threadId}/subagent-batches`)).json()) as {
        batch_id: string;
      }[];
      if (listed === undefined) throw new Error('There is no batch.');
      const end = await untilBatch(() => server, listed.batch_id, isOver);
      expect(end).toMatchObject({ status: 'completed', total_items: 2, counts: { succeeded: 2 } });
      for (;;) {
        const runs = await server.client.runs.list(threadId);
        if (runs.length === 2 && runs.every((run) => run.status === 'success')) break;
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
      expect(notices).toHaveLength(1);
      expect(notices[0]).toContain('2 succeeded, 0 failed');
      expect(prompts.sort().map((prompt) => /Item "(\w+)"/.exec(prompt)?.[1])).toEqual(['Lima', 'Oslo']);
      const outputs = join(project.folder, '.reindeer/users/default/threads', threadId, 'user-data/outputs/batches');
      expect(await readdir(outputs)).toEqual([listed.batch_id]);
      const table = await readFile(join(outputs, listed.batch_id, 'results.csv'), 'utf8');
      expect(table).toBe(
        'key,status,size,result,error\r\nOslo,succeeded,7,"{""size"":7}",\r\nLima,succeeded,7,"{""size"":7}",\r\n',
      );
      // The threads of the items belong to the batch: their user sees one thread.
      expect(await server.client.threads.search()).toHaveLength(1);
      // Nor can a client run what works on items, in whose name and on whose files it says itself.
      await expect(server.client.runs.create(threadId, 'batch_item', { input: say('x') })).rejects.toThrow(
        /no assistant/,
      );
      expect((await server.client.assistants.search()).map((assistant) => assistant.assistant_id)).toEqual([
        'lead_agent',
      ]);
    } finally {
      await server.process.end();
      await provider.close();
      await project.remove();
    }
  },
);
