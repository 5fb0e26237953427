import { randomUUID } from 'node:crypto';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type Script, type ScriptRequest, startScriptedProvider, type Turn } from '@reindeer/scripted';
import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { projectFolder, say, scriptedConfig, startServer } from '../support/server.ts';

/**
 * A day's work in small: three hundred steps in two turns, with results of 1.2 MB, plan mode, parallel tools, a sub-agent, compactions, and a
 * kill in the middle. Everything is real but the model, which is a script behind the real provider client.
 */

const PHASES = [
  { text: 'phase one: go to step 150', from: 0, to: 150 },
  { text: 'phase two: go to step 300', from: 150, to: 300 },
] as const;
const KILL_AT = 75;
/** Prepares the steps, and prints 1.2 MB whose end is the step before the phase. */
const prepare = (from: number): string =>
  `for i in $(seq 1 320); do printf 'step %d: %0480d\\n' $i 0; done > steps.txt; head -c 1200000 /dev/zero | tr '\\0' x | fold -w 99; echo; echo "step ${from}: begin"`;

const call = (name: string, args: object) => ({ name, args: { description: 'x', ...args } as never });
const readStep = (step: number) => call('read_file', { path: 'steps.txt', start_line: step, end_line: step });
const todos = (done: boolean) =>
  call('write_todos', {
    todos: ['prepare', 'walk', 'report'].map((content, index) => ({
      content,
      status: done ? 'completed' : index === 0 ? 'in_progress' : 'pending',
    })),
  });
const reached = (text: string): number =>
  Math.max(-1, ...[...text.matchAll(/step (\d+)\b/g)].map((match) => Number(match[1])));

const script: Script = (request): Turn => {
  const first = request.messages[0]?.text ?? '';
  if (request.tools.length === 0 && first.startsWith('Write down what must not be forgotten'))
    return { text: `Notes: the walk has come to step ${reached(first.split('<conversation>')[1] ?? '')}.` };
  if (first.includes('sub-agent "'))
    return request.messages.some((message) => message.role === 'tool')
      ? { text: 'The sub-agent counted 42.' }
      : { toolCalls: [call('bash', { command: 'echo 42' })] };
  return lead(request);
};

function lead(request: ScriptRequest): Turn {
  const newest = request.messages.findLastIndex((message) => message.written === true);
  const phase = PHASES.find(({ text }) => text === request.messages[newest]?.text);
  if (phase === undefined) return { text: `No phase in: ${request.messages[newest]?.text}` };
  const since = request.messages.slice(newest + 1);
  const results = since.filter((message) => message.role === 'tool');
  const step = Math.max(
    phase.from - 1,
    reached(
      results
        .slice(-3)
        .map((message) => message.text)
        .join('\n'),
    ),
  );
  const last = since.findLast((message) => message.role === 'assistant')?.toolCalls[0];
  const note = request.messages.at(-1);
  if (note?.role === 'user' && note.text.includes('open items')) return { toolCalls: [todos(true)] };
  if (last === undefined && step < phase.from) return { text: 'I plan first.', toolCalls: [todos(false)] };
  if (last?.name === 'write_todos' && step < phase.to)
    return { toolCalls: [call('bash', { command: prepare(phase.from) })] };
  if (last?.name === 'bash') return { toolCalls: [1, 2, 3].map((more) => readStep(phase.from + more)) };
  if (step === phase.from + 3 && last?.name !== 'task')
    return { toolCalls: [call('task', { prompt: 'count', subagent_type: 'general-purpose' })] };
  if (last?.name === 'task') return { toolCalls: [readStep(phase.from + 4)] };
  return step >= phase.to ? { text: `Done at step ${step}.` } : { toolCalls: [readStep(step + 1)] };
}

const CONFIG = `sandbox:
  bash_output_max_chars: 3000000
summarization:
  trigger:
    - type: tokens
      value: 17000
  keep:
    type: messages
    value: 10
`;

async function sizeOf(folder: string): Promise<number> {
  let size = 0;
  for (const name of await readdir(folder))
    if (name.includes('.db') || name.includes('sqlite')) size += (await stat(join(folder, name))).size;
  return size;
}

interface Fact {
  readonly seq: number;
  readonly run_id: string | null;
  readonly content: { readonly kind: string; readonly data?: { readonly type?: string }; readonly message?: unknown };
}

test(
  'three hundred steps through two compactions and a kill: every request is valid and holds the newest words of the user',
  verifies('CTX-1', 'MW-2', 'MW-19b'),
  async () => {
    const provider = await startScriptedProvider({ script });
    const project = await projectFolder(scriptedConfig(provider.openAiUrl, CONFIG));
    let server = await startServer(project.folder);
    try {
      const threadId = randomUUID();
      const start = (text: string) =>
        server.client.runs.create(threadId, 'lead_agent', {
          input: say(text),
          context: { is_plan_mode: true, subagent_enabled: true },
          config: { recursion_limit: 1_000 },
          ifNotExists: 'create',
        });
      const first = await start(PHASES[0].text);
      await provider.waitFor(({ body }) => JSON.stringify(body).includes(`step ${KILL_AT}: `));
      await server.process.end('SIGKILL');
      server = await startServer(project.folder);
      await server.client.runs.join(threadId, first.run_id);
      const second = await start(PHASES[1].text);
      await server.client.runs.join(threadId, second.run_id);

      const state = await server.client.threads.getState<Record<string, never>>(threadId);
      const {
        messages,
        todos: plan,
        delegations,
      } = state.values as unknown as {
        messages: { type: string; content: string }[];
        todos: { status: string }[];
        delegations: { status: string }[];
      };
      expect(messages.at(-1)?.content).toBe('Done at step 300.');
      expect(plan.map((todo) => todo.status)).toEqual(['completed', 'completed', 'completed']);
      expect(delegations.map((entry) => entry.status)).toEqual(['completed', 'completed']);
      for (const run of await server.client.runs.list(threadId)) expect(run.status).toBe('success');

      const requests = provider.requests();
      expect(requests.map(({ refused }) => refused).filter((reason) => reason !== null)).toEqual([]);
      let seen = 0;
      const sizes: [number[], number[]] = [[], []];
      let phase: string = PHASES[0].text;
      for (const { body } of requests) {
        const text = JSON.stringify(body);
        // Summaries and sub-agents have their own words.
        if (text.includes('Write down what must not be forgotten') || text.includes('sub-agent \\"')) continue;
        if (text.includes(PHASES[1].text)) phase = PHASES[1].text;
        expect(text).toContain(phase);
        sizes[phase === PHASES[0].text ? 0 : 1].push(text.length);
        seen++;
      }
      expect(seen).toBeGreaterThan(300);

      const facts: Fact[] = [];
      for (let after = 0; ; ) {
        const answer = await fetch(`${server.url}/api/threads/${threadId}/facts?limit=2000&after_seq=${after}`);
        const { data } = (await answer.json()) as { data: Fact[] };
        if (data.length === 0) break;
        facts.push(...data);
        after = data.at(-1)?.seq ?? after;
      }
      const compactions = facts.filter(({ content }) => content.data?.type === 'context:compacted');
      expect(compactions).toHaveLength(2);
      const payload = facts
        .filter(({ content }) => content.kind === 'message')
        .reduce((sum, fact) => sum + JSON.stringify(fact.content).length, 0);
      // The large results lie in files that the agent can read, not in the database.
      const outputs = join(project.folder, '.reindeer');
      const kept = (await readdir(outputs, { recursive: true })).filter((name) =>
        /\.tool-results\/bash-[0-9a-f]{12}\.log$/.test(name),
      );
      expect(kept.length).toBe(2);
      for (const name of kept) expect((await stat(join(outputs, name))).size).toBeGreaterThan(1_200_000);

      await server.process.end();
      const database = await sizeOf(join(project.folder, '.reindeer', 'data'));
      expect(database / payload).toBeLessThan(6);

      // What a step costs does not grow with the session: neither what is sent nor what is stored. (Its CPU is measured, not tested.)
      expect(Math.max(...sizes[1])).toBeLessThan(1.5 * Math.max(...sizes[0]));
      const stored = (run: string) => facts.filter(({ run_id: id }) => id === run).length;
      expect(stored(second.run_id)).toBeLessThan(1.3 * stored(first.run_id));
    } finally {
      await server.process.end();
      await provider.close();
      await project.remove();
    }
  },
);
