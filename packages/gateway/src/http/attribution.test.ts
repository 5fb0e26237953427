import type { Fact, JsonObject } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { attributionOf, delegatedUsage } from './attribution.ts';

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
