import type { Fact, JsonObject } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { attributionOf, delegatedUsage, type Plan, planAfter } from './attribution.ts';

const usage = { input_tokens: 3, output_tokens: 1, total_tokens: 4 };
const ai = (part: JsonObject): JsonObject => ({ type: 'ai', id: 'm', content: '', usage_metadata: usage, ...part });
const called = (name: string, args: JsonObject, id = 'c'): JsonObject => ({ name, args, id, type: 'tool_call' });
const result = (runId: string, id: string, tokens: number, seq = 1): Fact => ({
  threadId: 't',
  seq,
  runId,
  at: 0,
  body: {
    kind: 'message',
    ns: '',
    message: {
      type: 'tool',
      id: `r${seq}`,
      content: '',
      tool_call_id: id,
      additional_kwargs: { subagent_token_usage: { total_tokens: tokens } },
    },
  },
});

test('what a message of the model was for', verifies('MW-20'), () => {
  const of = (message: JsonObject) => attributionOf(message, 'run', new Map());
  expect(of(ai({ content: 'done' }))).toEqual({ version: 1, kind: 'final_answer', steps: [], usage });
  expect(of(ai({}))?.kind).toBe('thinking');
  expect(of({ type: 'tool', content: '' })).toBeNull();
  expect(
    of(
      ai({
        tool_calls: [
          called('write_todos', {
            todos: [
              { content: 'a', status: 'completed' },
              { content: 'b', status: 'in_progress' },
              { content: 'c', status: 'pending' },
            ],
          }),
        ],
      }),
    ),
  ).toMatchObject({
    kind: 'todo_update',
    steps: [
      { kind: 'todo_complete', label: 'a' },
      { kind: 'todo_start', label: 'b' },
      { kind: 'todo_add', label: 'c' },
    ],
  });
  expect(of(ai({ tool_calls: [called('web_search', { query: 'q' }), called('bash', { command: 'secret' })] }))).toEqual(
    {
      version: 1,
      kind: 'tool_batch',
      steps: [
        { kind: 'search', label: 'q' },
        { kind: 'tool', label: 'bash' },
      ],
      usage,
    },
  );
});

test('sub-agents stand once beside the message that started them, each in its run', verifies('MW-20'), () => {
  const facts = [result('run', 'c', 40), result('run', 'c', 40, 2), result('other', 'c', 999, 3)];
  const message = ai({
    tool_calls: [called('task', { description: 'look' }), called('task', { description: 'again' })],
  });
  expect(attributionOf(message, 'run', delegatedUsage(facts))).toMatchObject({
    kind: 'subagent_dispatch',
    subagent_usage: [{ tool_call_id: 'c', usage: { total_tokens: 40 } }],
  });
  // Without ids nothing can be matched, and nothing is.
  const nameless = ai({ tool_calls: [{ ...called('task', {}), id: null }] });
  expect(attributionOf(nameless, 'run', delegatedUsage([result('run', '', 5)]))).not.toHaveProperty('subagent_usage');
});

test('of a plan that replaces another, what it changed', verifies('MW-20'), () => {
  const writing = (...todos: readonly (readonly [string, string])[]): JsonObject =>
    ai({
      tool_calls: [called('write_todos', { todos: todos.map(([content, status]) => ({ content, status })) })],
    });
  const first = writing(['a', 'in_progress'], ['b', 'pending'], ['c', 'pending']);
  const second = writing(['a', 'completed'], ['b', 'in_progress'], ['d', 'pending']);
  const plan = planAfter(first, new Map());
  const steps = (message: JsonObject, before: Plan) =>
    ((attributionOf(message, 'run', new Map(), before)?.steps ?? []) as { kind: string; label: string }[]).map(
      ({ kind, label }) => `${kind} ${label}`,
    );
  expect(steps(first, new Map())).toEqual(['todo_start a', 'todo_add b', 'todo_add c']);
  expect(steps(second, plan)).toEqual(['todo_complete a', 'todo_start b', 'todo_add d', 'todo_remove c']);
  expect(steps(second, planAfter(second, plan))).toEqual([]);
  expect(planAfter(ai({ content: 'x' }), plan)).toBe(plan);
});
