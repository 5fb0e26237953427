import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { MemorySaver } from '@langchain/langgraph';
import type { SandboxProvider, Surroundings } from '@reindeer/protocol';
import { createSandboxProvider } from '@reindeer/sandbox';
import { realClock, verifies } from '@reindeer/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createModelRegistry } from '../models/registry.ts';
import { recordedAttempt, testSurroundings } from '../test-support/fake-attempt.ts';
import { FakeModel, type Turn } from '../test-support/fake-model.ts';
import { drain } from '../test-support/run-loop.ts';
import { createLeadAgent } from './lead-agent.ts';

/** The agent on the sandbox that this machine really has. */
let home: string;
let sandboxes: SandboxProvider;

const surroundings: Surroundings = {
  ...testSurroundings('real'),
  clock: realClock,
};

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'reindeer-agent-'));
  sandboxes = await createSandboxProvider({ home, surroundings, environment: process.env });
});
afterAll(async () => {
  await sandboxes?.shutdown();
  await rm(home, { recursive: true, force: true });
});

function start(turns: readonly Turn[]) {
  const model = new FakeModel(turns);
  const models = createModelRegistry({
    entries: [{ name: 'fake', use: 'fake', model: 'fake' }],
    environment: {},
    logger: surroundings.logger,
    factories: { fake: () => model },
  });
  const agent = createLeadAgent({ models, sandboxes, surroundings });
  const saver = new MemorySaver();
  return {
    model,
    async run(text: string, attempt = recordedAttempt()) {
      return drain(await agent.forAttempt(attempt, saver), { messages: [new HumanMessage(text)] }, attempt);
    },
  };
}

const call = (name: string, args: Record<string, unknown>) => ({ name, args: { description: 'test', ...args } });

/** Processes whose command line holds the marker. */
async function alive(marker: string): Promise<string[]> {
  const found: string[] = [];
  for (const id of await readdir('/proc')) {
    if (!/^\d+$/.test(id)) continue;
    const line = await readFile(`/proc/${id}/cmdline`, 'utf8').catch(() => '');
    if (line.includes(marker)) found.push(id);
  }
  return found;
}

test('commands and file tools see the same files', verifies('TOOL-2'), async (context) => {
  if (!sandboxes.report().canExecute)
    return context.skip(`no commands here: ${sandboxes.report().reason ?? 'unknown'}`);
  const { run } = start([
    { calls: [call('write_file', { path: '/mnt/user-data/workspace/a.txt', content: 'one\ntwo\n' })] },
    { calls: [call('bash', { command: 'pwd; wc -l < a.txt; cp a.txt ../outputs/b.txt; exit 3' })] },
    {
      calls: [
        call('read_file', { path: '/mnt/user-data/outputs/b.txt', start_line: 2 }),
        call('present_files', { filepaths: ['outputs/b.txt'] }),
      ],
    },
    { calls: [call('read_file', { path: '/etc/passwd' }), call('bash', { command: 'cat $(printf /etc/%s shadow)' })] },
    { text: 'done' },
  ]);
  const { messages, values } = await run('go');
  const texts = messages.filter(ToolMessage.isInstance).map((message) => message.text);
  expect(texts.slice(0, 3)).toEqual(['OK', '/mnt/user-data/workspace\n2\n[exit code 3]', 'two']);
  expect(texts[4]).toMatch(/^Error: \/etc\/passwd is outside/);
  expect(texts[5]).toMatch(/No such file|Permission denied/);
  expect(texts.join('\n')).not.toContain(home);
  expect(values.artifacts).toEqual(['/mnt/user-data/outputs/b.txt']);
});

test('a cancelled command is gone when the run counts as stopped, and the next request is valid', async (context) => {
  if (!sandboxes.report().canExecute)
    return context.skip(`no commands here: ${sandboxes.report().reason ?? 'unknown'}`);
  const marker = `sleep 61.${process.pid}`;
  const { run, model } = start([{ calls: [call('bash', { command: `${marker} & ${marker}` })] }, { text: 'next' }]);
  const attempt = recordedAttempt();
  const running = run('go', attempt);
  while ((await alive(marker)).length === 0) await wait(20);
  attempt.abort();
  await expect(running).rejects.toThrow();
  await attempt.effects.stopped(30_000);
  expect(attempt.effects.live()).toEqual([]);
  expect(await alive(marker)).toEqual([]);
  const { messages } = await run('hello', recordedAttempt({ attempt: 2 }));
  expect(messages.at(-1)?.text).toBe('next');
  expect(model.requests[1]?.map((message) => message.type)).toEqual(['system', 'human', 'ai', 'tool', 'human']);
});
