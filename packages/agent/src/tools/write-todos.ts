import { ToolMessage } from '@langchain/core/messages';
import type { StructuredToolInterface } from '@langchain/core/tools';
import { Command } from '@langchain/langgraph';
import { z } from 'zod';
import { defineTool } from './define.ts';
import { SUCCESS, TOOL_META } from './tool-meta.ts';

export const TODOS_TOOL = 'write_todos';
const TODO_STATUSES = ['pending', 'in_progress', 'completed'] as const;
const MAX_TODOS = 100;

export interface Todo {
  readonly content: string;
  readonly status: (typeof TODO_STATUSES)[number];
}

/** Replaces the plan that the user sees (TOOL-16). An empty list clears it. */
export function writeTodosTool(): StructuredToolInterface {
  return defineTool({
    name: TODOS_TOOL,
    description:
      'Writes your plan for work of three or more steps, where the user can see it. Give the whole list each time; it replaces the one before. Exactly one item is in_progress while you work; mark an item completed as soon as it is done, and add or drop items as you learn more.',
    schema: z.object({
      todos: z
        .array(
          z.object({
            content: z.string().min(1).max(1_000).describe('What is to be done.'),
            status: z.enum(TODO_STATUSES),
          }),
        )
        .max(MAX_TODOS)
        .describe('All items, in order.'),
    }),
    repeatable: true,
    async run({ todos }, { callId }) {
      const open = todos.filter((todo) => todo.status !== 'completed').length;
      const message = new ToolMessage({
        content: todos.length === 0 ? 'The plan is empty now.' : `The plan has ${todos.length} items, ${open} open.`,
        tool_call_id: callId,
        name: TODOS_TOOL,
        additional_kwargs: { [TOOL_META]: SUCCESS },
      });
      return new Command({ update: { todos, messages: [message] } });
    },
  });
}

/** The list in a state, as far as it is one. */
export const todosOf = (state: Readonly<Record<string, unknown>>): readonly Todo[] =>
  Array.isArray(state.todos)
    ? (state.todos as unknown[]).filter(
        (todo): todo is Todo =>
          typeof (todo as Todo | null)?.content === 'string' && TODO_STATUSES.includes((todo as Todo).status),
      )
    : [];
