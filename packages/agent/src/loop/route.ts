import type { AIMessage, BaseMessage } from '@langchain/core/messages';
import { END, Send } from '@langchain/langgraph';
import { ReindeerError } from '@reindeer/protocol';
import { JUMP } from './channels.ts';
import { isAi, isTool } from './messages.ts';

export const NODES = { prepare: 'prepare', model: 'model', review: 'review', tools: 'tools' } as const;

/** A decision that the messages alone do not show. It lives in the jump channel until the next node of the loop takes it. */
export type Jump =
  | { readonly to: 'end' }
  /** Run the calls that are still unanswered; without any, end. */
  | { readonly to: 'tools' }
  /** Call the model again, without the before-model hooks, as LangChain's loop does. */
  | { readonly to: 'model' }
  /**
   * Run the hooks of `stage` from the one named `at` on in a step of their own, after the model's message is checkpointed. By
   * name, since the answer may come after an upgrade that changed the list. `tools`: whose calls the person is asked about; the
   * answer comes in another run, with other options or after the configuration changed, and must still count for them.
   */
  | {
      readonly to: 'review';
      readonly stage: 'afterModel' | 'afterAgent';
      readonly at: string;
      readonly tools?: readonly string[];
      /** Wall-clock milliseconds until which the question may be answered. */
      readonly until?: number;
    };

export const jumpOf = (state: Readonly<Record<string, unknown>>): Jump | null =>
  (state[JUMP] as Jump | undefined) ?? null;

/** What a tool task carries: ids only. The call itself is looked up in the state, so that nothing is stored twice. */
export interface ToolTask {
  readonly messageId: string;
  readonly index: number;
}

export type Destination =
  | { readonly to: 'end' | 'model' | 'review' }
  | { readonly to: 'tools'; readonly tasks: readonly ToolTask[] };

/** The newest message of the model with its position; null when there is none. */
export function lastAi(messages: readonly BaseMessage[]): { message: AIMessage; position: number } | null {
  for (let position = messages.length - 1; position >= 0; position--) {
    const message = messages[position];
    if (isAi(message)) return { message, position };
  }
  return null;
}

/** The calls of the newest model message that no later tool message answers. */
export function pendingCalls(messages: readonly BaseMessage[]): readonly ToolTask[] {
  const last = lastAi(messages);
  const calls = last?.message.tool_calls ?? [];
  if (last === null || calls.length === 0) return [];
  const answered = new Set<string>();
  for (let position = last.position + 1; position < messages.length; position++) {
    const message = messages[position];
    if (isTool(message)) answered.add(message.tool_call_id);
  }
  const messageId = last.message.id ?? '';
  return calls.flatMap((call, index) => (call.id !== undefined && answered.has(call.id) ? [] : [{ messageId, index }]));
}

/** Where a turn goes after a model's message: a pure function of the state. */
export function route(state: Readonly<Record<string, unknown>>): Destination {
  const jump = jumpOf(state);
  if (jump !== null && jump.to !== 'tools') return { to: jump.to };
  const messages = (state.messages as BaseMessage[] | undefined) ?? [];
  const tasks = pendingCalls(messages);
  if (tasks.length > 0) return { to: 'tools', tasks };
  if (jump !== null) return { to: 'end' };
  const last = lastAi(messages);
  // Every call was answered without a tool (refused, limited, invalid): the model has not seen those answers yet.
  if ((last?.message.tool_calls ?? []).length > 0) return { to: 'model' };
  return { to: 'end' };
}

/** The way out of `prepare`: to the model, unless a hook said otherwise. */
export function entryEdge(state: Readonly<Record<string, unknown>>): string | Send[] {
  return jumpOf(state) === null ? NODES.model : edge(state);
}

/** The same as LangGraph's edge wants it. */
export function edge(state: Readonly<Record<string, unknown>>): string | Send[] {
  const destination = route(state);
  if (destination.to === 'tools') return destination.tasks.map((task) => new Send(NODES.tools, task));
  return destination.to === 'end' ? END : NODES[destination.to];
}

/** Deterministic, so that a repeated task cannot bring the same result twice. */
export function toolMessageId(messageId: string, index: number): string {
  if (messageId === '') throw new ReindeerError('internal', 'A message with tool calls has no id.');
  return `${messageId}-tool-${index}`;
}
