import { type AIMessage, type BaseMessage, HumanMessage, SystemMessage, ToolMessage } from '@langchain/core/messages';
import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { defineMiddleware } from '../loop/middleware.ts';
import { FakeModel, type Turn } from '../test-support/fake-model.ts';
import { runLoop } from '../test-support/run-loop.ts';
import { writeTodosTool } from '../tools/write-todos.ts';
import { coalescingMiddleware, DATE_REMINDER } from './coalescing.ts';
import { todosMiddleware } from './todos.ts';

const plan = (...statuses: string[]) => ({
  name: 'write_todos',
  args: { todos: statuses.map((status, index) => ({ content: `item ${index + 1}`, status })) },
});

async function run(turns: readonly Turn[], more: { plan?: boolean; input?: BaseMessage[] } = {}) {
  const model = new FakeModel(turns);
  const outcome = await runLoop({
    model,
    tools: [writeTodosTool()],
    middleware: [todosMiddleware()],
    input: more.input ?? [new HumanMessage('go')],
    context: { is_plan_mode: more.plan ?? true },
  });
  const notes = (name: string) =>
    model.requests.map((request) => request.filter((message) => message.name === name).map((message) => message.text));
  return { ...outcome, model, notes };
}

describe('plan mode', () => {
  test('a new list takes the place of the one before, and an empty one clears it', verifies('MW-19a'), async () => {
    const { values, messages } = await run([
      { calls: [plan('in_progress', 'pending', 'pending')] },
      { calls: [plan('completed', 'completed')] },
      { text: 'done' },
    ]);
    expect(values.todos).toEqual([
      { content: 'item 1', status: 'completed' },
      { content: 'item 2', status: 'completed' },
    ]);
    expect(messages.filter(ToolMessage.isInstance).map((message) => message.text)).toEqual([
      'The plan has 3 items, 3 open.',
      'The plan has 2 items, 0 open.',
    ]);
    expect((await run([{ calls: [plan('pending')] }, { calls: [plan()] }, { text: 'x' }])).values.todos).toEqual([]);
    const [wrong] = (await run([{ calls: [plan('someday')] }, { text: 'x' }])).messages.filter(ToolMessage.isInstance);
    expect(wrong?.text).toMatch(/^Error/);
  });

  test(
    'an answer with open items is followed by two reminders at most, which no state keeps',
    verifies('MW-19b'),
    async () => {
      const { model, messages, notes } = await run([
        { calls: [plan('completed', 'in_progress', 'pending')] },
        { text: 'Done!' },
      ]);
      expect(model.requests).toHaveLength(4);
      const told = notes('todo_completion_reminder');
      expect(told.map((texts) => texts.length)).toEqual([0, 0, 1, 1]);
      expect(told[2]?.[0]).toMatch(/2 open items[\s\S]*item 2[\s\S]*item 3/);
      expect(told[2]?.[0]).not.toContain('item 1');
      expect(messages.map((message) => message.type)).toEqual(['human', 'ai', 'tool', 'ai', 'ai', 'ai']);
    },
  );

  test(
    'nothing is said when all is done, outside of plan mode, or when a call is meant in any form',
    verifies('MW-19b'),
    async () => {
      expect((await run([{ calls: [plan('completed')] }, { text: 'Done!' }])).model.requests).toHaveLength(2);
      expect(
        (await run([{ calls: [plan('pending')] }, { text: 'Done!' }], { plan: false })).model.requests,
      ).toHaveLength(2);
      const meant = async (change: (message: AIMessage) => void) => {
        const model = new FakeModel([{ calls: [plan('pending')] }, { text: 'x' }]);
        const announce = defineMiddleware({
          name: 'announce',
          afterModel(state) {
            const last = state.messages.at(-1) as AIMessage;
            if ((last.tool_calls ?? []).length === 0) change(last);
            return undefined;
          },
        });
        await runLoop({
          model,
          tools: [writeTodosTool()],
          middleware: [todosMiddleware(), announce],
          input: [new HumanMessage('go')],
          context: { is_plan_mode: true },
        });
        return model.requests.length;
      };
      expect(await meant((message) => Object.assign(message.response_metadata, { finish_reason: 'tool_calls' }))).toBe(
        2,
      );
      expect(await meant((message) => Object.assign(message.additional_kwargs, { function_call: { name: 'x' } }))).toBe(
        2,
      );
      expect(await meant((message) => Object.assign(message.additional_kwargs, { tool_calls: [{ id: 'x' }] }))).toBe(2);
      expect(await meant(() => undefined)).toBe(4);
    },
  );

  test('a plan whose message is gone is shown again', verifies('MW-19a'), async () => {
    const { notes } = await run([{ text: 'ok' }], {
      input: {
        messages: [new HumanMessage('go on')],
        todos: [{ content: 'left <b>', status: 'in_progress' }],
      } as never,
    });
    expect(notes('todo_reminder')[0]?.[0]).toBe('Your plan so far:\n- [in_progress] left &lt;b&gt;');
    const seen = await run([{ calls: [plan('completed')] }, { text: 'x' }]);
    expect(seen.notes('todo_reminder').flat()).toEqual([]);
  });
});

describe('one system message', () => {
  const note = (text: string, kwargs = {}) => new SystemMessage({ content: text, additional_kwargs: kwargs });
  const send = async (more: readonly BaseMessage[], systemPrompt = 'base') => {
    const model = new FakeModel([{ text: 'ok' }]);
    const add = defineMiddleware({
      name: 'add',
      wrapModelCall: (request, handler) => handler({ ...request, messages: [...more, ...request.messages] }),
    });
    await runLoop({ model, systemPrompt, middleware: [add, coalescingMiddleware()], input: [new HumanMessage('go')] });
    return model.requests[0] ?? [];
  };

  test('all of them are joined in front, and of the dates only the newest stays', verifies('MW-26'), async () => {
    const request = await send([
      note('day one', { [DATE_REMINDER]: '1' }),
      note('rule', { a: 1 }),
      new HumanMessage('between'),
      note('day two', { [DATE_REMINDER]: '2' }),
    ]);
    expect(request.map((message) => message.type)).toEqual(['system', 'human', 'human']);
    expect(request[0]?.text).toBe('base\n\nrule\n\nday two');
    expect(request[0]?.additional_kwargs).toMatchObject({ a: 1, [DATE_REMINDER]: '2' });
  });

  test('without any there is nothing to do', verifies('MW-26'), async () => {
    expect((await send([])).map((message) => message.text)).toEqual(['base', 'go']);
    expect((await send([], '')).map((message) => message.text)).toEqual(['go']);
    expect((await send([note('only')], '')).map((message) => message.text)).toEqual(['only', 'go']);
  });
});
