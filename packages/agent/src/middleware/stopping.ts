import { AIMessage } from '@langchain/core/messages';
import { withoutCalls } from '../subagents/calls.ts';
import { STOPPED_BY } from '../subagents/outcome.ts';

/** Why a run ends early; the first one that speaks up stays (STOP). */
export const STOP_REASONS = [
  'loop_capped',
  'token_capped',
  'turn_capped',
  'subagent_limit_capped',
  'model_length_capped',
  'safety_capped',
] as const;
export type StopReason = (typeof STOP_REASONS)[number];

/**
 * The message without any of its calls, in every view of them, with a visible explanation at its end. The turn ends with it. Text that the
 * model wrote stays, and so do its id and its thinking.
 */
export function stoppedMessage(message: AIMessage, note: string, reason: StopReason): AIMessage {
  const calls = [...(message.tool_calls ?? []), ...(message.invalid_tool_calls ?? [])];
  const rest = withoutCalls(withIds(message), new Set(calls.map((call, index) => call.id ?? placeholder(index))));
  return withNote(rest, note, { [STOPPED_BY]: reason });
}

/** The message with a paragraph more. */
export function withNote(message: AIMessage, note: string, kwargs: Record<string, unknown> = {}): AIMessage {
  const { content } = message;
  const { function_call: _, ...given } = message.additional_kwargs;
  const {
    finish_reason: finish,
    stop_reason: stop,
    ...metadata
  } = message.response_metadata as Record<string, unknown>;
  const ended = (value: unknown) => (value === 'tool_calls' || value === 'tool_use' ? 'stop' : value);
  return new AIMessage({
    content:
      typeof content === 'string'
        ? [content.trimEnd(), note].filter((part) => part !== '').join('\n\n')
        : note === ''
          ? content
          : [...content, { type: 'text', text: note }],
    ...(message.id === undefined ? {} : { id: message.id }),
    ...(message.name === undefined ? {} : { name: message.name }),
    additional_kwargs: { ...given, ...kwargs },
    response_metadata: {
      ...metadata,
      ...(finish === undefined ? {} : { finish_reason: ended(finish) }),
      ...(stop === undefined ? {} : { stop_reason: ended(stop) }),
    },
    tool_calls: message.tool_calls ?? [],
    invalid_tool_calls: message.invalid_tool_calls ?? [],
    ...(message.usage_metadata === undefined ? {} : { usage_metadata: message.usage_metadata }),
  });
}

const placeholder = (index: number): string => `call-without-id-${index}`;

/** Every call gets an id, so that the ones without can be taken out too. */
function withIds(message: AIMessage): AIMessage {
  const calls = [...(message.tool_calls ?? []), ...(message.invalid_tool_calls ?? [])];
  if (calls.every((call) => call.id !== undefined)) return message;
  const named = calls.map((call, index) => ({ ...call, id: call.id ?? placeholder(index) }));
  const count = (message.tool_calls ?? []).length;
  return new AIMessage({
    content: message.content,
    ...(message.id === undefined ? {} : { id: message.id }),
    additional_kwargs: message.additional_kwargs,
    response_metadata: message.response_metadata,
    tool_calls: named.slice(0, count) as never,
    invalid_tool_calls: named.slice(count) as never,
    ...(message.usage_metadata === undefined ? {} : { usage_metadata: message.usage_metadata }),
  });
}

/** Has a limit, a filter or a failure ended the turn with this message? */
export const isStopped = (message: AIMessage): boolean => message.additional_kwargs[STOPPED_BY] !== undefined;
