import type { AIMessage, BaseMessage } from '@langchain/core/messages';
import { hiddenNote, isAi, isHuman } from '../loop/messages.ts';
import { defineMiddleware, type Middleware } from '../loop/middleware.ts';
import { runOptions } from '../loop/run-options.ts';
import { escapedText } from '../safety/tags.ts';
import { TODOS_TOOL, type Todo, todosOf } from '../tools/write-todos.ts';
import { finishReason } from './finish-reason.ts';
import { ERROR_FALLBACK } from './llm-errors.ts';
import { isStopped } from './stopping.ts';

export const TODOS = 'todos';
const MAX_NUDGES = 2;

/** Rules for the plan, in the system prompt of runs in plan mode. */
export const TODOS_PROMPT = `<todo_list_system>
For work of three or more steps keep a plan with write_todos: write it before you start, keep exactly one item in_progress, and mark each item completed right when it is done. Do not use it for small things. Before you give your final answer every item must be completed or dropped from the list.
</todo_list_system>`;

/** Is the run in plan mode? */
export const isPlanMode = (run: Readonly<Record<string, unknown>>): boolean => run.is_plan_mode === true;

/**
 * Plan mode (MW-19): the model sees its plan again when the message that wrote it is no longer in the history, and it does not stop with open
 * items: a clean final answer is followed by at most two reminders per turn. Reminders stand in the request only. How often it was reminded
 * is read from the history: a final answer that is not the last thing of its turn was one.
 */
export function todosMiddleware(): Middleware {
  return defineMiddleware({
    name: TODOS,
    wrapModelCall(request, handler) {
      if (!isPlanMode(runOptions(request.runtime))) return handler(request);
      const todos = todosOf(request.state);
      if (todos.length === 0) return handler(request);
      const { messages } = request.state;
      const notes = [
        ...(writes(messages) ? [] : [hiddenNote(`Your plan so far:\n${shown(todos)}`, 'todo_reminder')]),
        ...(isFinal(messages.at(-1)) && openOf(todos).length > 0
          ? [hiddenNote(completion(todos), 'todo_completion_reminder')]
          : []),
      ];
      return handler(notes.length === 0 ? request : { ...request, messages: [...request.messages, ...notes] });
    },
    afterModel: {
      canJumpTo: ['model'],
      hook(state, runtime) {
        if (!isPlanMode(runOptions(runtime)) || openOf(todosOf(state)).length === 0) return undefined;
        const last = state.messages.at(-1);
        if (!isFinal(last) || isStopped(last) || last.additional_kwargs[ERROR_FALLBACK] === true) return undefined;
        const since = state.messages.findLastIndex(isHuman);
        const answers = state.messages.slice(since + 1).filter(isFinal).length;
        return answers > MAX_NUDGES ? undefined : { jumpTo: 'model' };
      },
    },
  });
}

const openOf = (todos: readonly Todo[]): readonly Todo[] => todos.filter((todo) => todo.status !== 'completed');
const shown = (todos: readonly Todo[]): string =>
  todos.map((todo) => `- [${todo.status}] ${escapedText(todo.content)}`).join('\n');

const completion = (todos: readonly Todo[]): string =>
  `Your plan still has ${openOf(todos).length} open items:\n${shown(openOf(todos))}\nGo on with them, or update the plan with ${TODOS_TOOL} if they are done or not needed any more, and then give your final answer.`;

/** Is the plan's newest message still in the history? */
const writes = (messages: readonly BaseMessage[]): boolean =>
  messages.some((message) => isAi(message) && (message.tool_calls ?? []).some((call) => call.name === TODOS_TOOL));

/** An answer without a sign of a call in any form: structured, unreadable, raw, or announced by the finish reason. */
export function isFinal(message: BaseMessage | undefined): message is AIMessage {
  if (!isAi(message)) return false;
  const calls = (message.tool_calls ?? []).length + (message.invalid_tool_calls ?? []).length;
  const { tool_calls: raw, function_call: legacy } = message.additional_kwargs;
  if (calls > 0 || (Array.isArray(raw) && raw.length > 0) || (legacy !== undefined && legacy !== null)) return false;
  return !['tool_calls', 'tool_use', 'function_call'].includes(finishReason(message));
}
