import { AIMessage, HumanMessage } from '@langchain/core/messages';
import { MemorySaver } from '@langchain/langgraph';
import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { delegatingAttempt, delegation, results, task } from '../test-support/delegation.ts';
import { isChild } from '../test-support/reply-model.ts';
import { withoutCalls } from './calls.ts';
import { clamped, DEFAULT_SUBAGENTS, runLimits } from './settings.ts';

const ls = { name: 'ls', args: { description: 'x', path: '/mnt/user-data/workspace' } };
const requests = (world: ReturnType<typeof delegation>) => world.model.requests.filter((request) => !isChild(request));

test('the limits of a run are clamped', verifies('SA-21', 'MW-27'), () => {
  const concurrent = (value: unknown) => runLimits({ max_concurrent_subagents: value }, DEFAULT_SUBAGENTS).concurrent;
  expect([-1, 0, 1, 3.9, 4, 99, undefined, 'many', Number.NaN].map(concurrent)).toEqual([1, 1, 1, 3, 4, 4, 3, 3, 3]);
  const total = (value: unknown) => runLimits({ max_total_subagents: value }, DEFAULT_SUBAGENTS).total;
  expect([0, 1, 50, 1_000, null].map(total)).toEqual([1, 1, 50, 50, 6]);
  expect(clamped(7.5, 1, 10, 2)).toBe(7);
});

test('surplus calls leave every view of the message; others stay', verifies('SA-20'), () => {
  const call = (id: string, name = 'task') => ({ id, name, args: {}, type: 'tool_call' as const });
  const message = new AIMessage({
    id: 'm',
    content: [
      { type: 'text', text: 'hi' },
      { type: 'tool_use', id: 'a', name: 'task', input: {} },
      { type: 'tool_use', id: 'b', name: 'task', input: {} },
      { type: 'tool_use', id: 'c', name: 'ls', input: {} },
    ],
    additional_kwargs: {
      tool_calls: ['a', 'b', 'c'].map((id) => ({
        id,
        type: 'function' as const,
        function: { name: 'task', arguments: '{}' },
      })),
      other: 1,
    },
    response_metadata: { output: ['a', 'b', 'c'].map((id) => ({ type: 'function_call', call_id: id })), model: 'x' },
    tool_calls: [call('a'), call('b'), call('c', 'ls')],
  });
  const reduced = withoutCalls(message, new Set(['b']));
  expect(reduced.tool_calls?.map(({ id }) => id)).toEqual(['a', 'c']);
  expect(reduced.additional_kwargs.tool_calls?.map(({ id }) => id)).toEqual(['a', 'c']);
  expect((reduced.content as { id?: string }[]).map(({ id }) => id)).toEqual([undefined, 'a', 'c']);
  expect((reduced.response_metadata.output as { call_id: string }[]).map((item) => item.call_id)).toEqual(['a', 'c']);
  expect([reduced.id, reduced.additional_kwargs.other, reduced.response_metadata.model]).toEqual(['m', 1, 'x']);
  expect(message.tool_calls).toHaveLength(3);
});

test(
  'one message starts three at most; the model is told how many were left out',
  verifies('SA-20', 'MW-27'),
  async () => {
    const world = delegation({
      lead: [{ calls: [task('a'), ls, task('b'), task('c'), task('d'), task('e')] }, { text: 'Done.' }],
      child: () => ({ text: 'ok' }),
    });
    const outcome = await world.run();
    expect(results(outcome).map((message) => message.name)).toEqual(['task', 'ls', 'task', 'task']);
    const ai = outcome.messages.find((message): message is AIMessage => message.type === 'ai');
    expect(ai?.tool_calls?.map(({ name }) => name)).toEqual(['task', 'ls', 'task', 'task']);
    expect(requests(world)[1]?.at(-1)?.text).toMatch(/^2 of your task calls were left out: .* 3 left/);
    expect(outcome.attempt.stopReasons).toEqual([]);
  },
);

test(
  'the total counts this run’s delegations alone; at the end the model is told',
  verifies('SA-22', 'SA-23', 'MW-27'),
  async () => {
    const world = delegation({
      lead: [{ calls: [task('a'), task('b')] }, { calls: [task('c'), ls] }, { text: 'Done.' }],
      child: () => ({ text: 'ok' }),
    });
    const saver = new MemorySaver();
    const context = { max_total_subagents: 2 };
    const first = await world.run({ saver, context });
    expect(results(first).map((message) => message.name)).toEqual(['task', 'task', 'ls']);
    expect(requests(world)[1]?.at(-1)?.text).toMatch(/used all of its 2 sub-agents/);
    expect(requests(world)[2]?.at(-1)?.text).toMatch(/used all of its 2 sub-agents/);
    // Another run of the thread begins with its own total.
    const before = world.model.requests.filter(isChild).length;
    const attempt = delegatingAttempt(context, { runId: 'run-2' });
    await world.run({ saver, attempt, input: 'more' });
    expect(world.model.requests.filter(isChild).length - before).toBe(2);
  },
);

test(
  'nothing left to do at the total: the turn ends with a note and its reason',
  verifies('SA-23', 'MW-27'),
  async () => {
    const world = delegation({
      lead: [{ calls: [task('a')] }, { text: 'More:', calls: [task('b')] }],
      child: () => ({ text: 'ok' }),
    });
    const outcome = await world.run({ context: { max_total_subagents: 1 } });
    expect(outcome.messages.at(-1)?.text).toMatch(/^More:\n\n\[This run has used all of its 1 sub-agents/);
    expect(outcome.attempt.stopReasons).toEqual(['subagent_limit_capped']);
    expect(outcome.messages.filter((message) => HumanMessage.isInstance(message))).toHaveLength(1);
  },
);

test('without a run id every delegation counts, and the log says so', verifies('MW-27', 'SA-22'), async () => {
  const world = delegation({ lead: [{ calls: [task('a')] }, { text: 'Done.' }], child: () => ({ text: 'ok' }) });
  const saver = new MemorySaver();
  const context = { max_total_subagents: 1 };
  await world.run({ saver, context });
  const outcome = await world.run({ saver, input: 'more', attempt: delegatingAttempt(context, { runId: '' }) });
  expect(results(outcome)).toHaveLength(1);
  expect(world.surroundings.logger.lines.some(({ message }) => message.includes('without an id'))).toBe(true);
});
