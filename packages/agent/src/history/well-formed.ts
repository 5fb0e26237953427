import { AIMessage, type BaseMessage, HumanMessage, SystemMessage, ToolMessage } from '@langchain/core/messages';
import { isAi, isHuman, isTool } from '../loop/messages.ts';

/** Nothing that a model or a client sent is nested deeper. */
const DEPTH = 32;

/**
 * The messages with text that can be sent: half of a surrogate pair, as every cut of a text may leave behind it, makes a body that providers
 * refuse as no JSON, for as long as the message is in the history. It becomes the replacement character. What is fine is answered as
 * the same objects.
 */
export function wellFormed(messages: readonly BaseMessage[]): readonly BaseMessage[] {
  const at = messages.findIndex((message) => wholeMessage(message) !== message);
  return at < 0 ? messages : messages.map(wholeMessage);
}

const known = new WeakMap<BaseMessage, BaseMessage>();

function wholeMessage(message: BaseMessage): BaseMessage {
  const before = known.get(message);
  if (before !== undefined) return before;
  const made = isWhole(sentOf(message)) ? message : repaired(message);
  known.set(message, made);
  return made;
}

/** What of a message reaches a provider. */
const sentOf = (message: BaseMessage): unknown => [
  message.content,
  message.name,
  message.additional_kwargs,
  ...(isAi(message) ? [message.tool_calls, message.invalid_tool_calls] : []),
  ...(isTool(message) ? [message.tool_call_id] : []),
];

function repaired(message: BaseMessage): BaseMessage {
  const fields = {
    content: whole(message.content) as never,
    ...(message.id === undefined ? {} : { id: message.id }),
    ...(message.name === undefined ? {} : { name: message.name.toWellFormed() }),
    additional_kwargs: whole(message.additional_kwargs) as Record<string, unknown>,
    response_metadata: message.response_metadata,
  };
  if (isTool(message))
    return new ToolMessage({
      ...fields,
      tool_call_id: message.tool_call_id.toWellFormed(),
      ...(message.status === undefined ? {} : { status: message.status }),
      ...(message.artifact === undefined ? {} : { artifact: message.artifact }),
    });
  if (isAi(message)) {
    const { tool_calls: calls, invalid_tool_calls: invalid, usage_metadata: usage } = message;
    return new AIMessage({
      ...fields,
      tool_calls: whole(calls ?? []) as NonNullable<AIMessage['tool_calls']>,
      invalid_tool_calls: whole(invalid ?? []) as NonNullable<AIMessage['invalid_tool_calls']>,
      ...(usage === undefined ? {} : { usage_metadata: usage }),
    });
  }
  if (isHuman(message)) return new HumanMessage(fields);
  return message.type === 'system' ? new SystemMessage(fields) : message;
}

/** Cheap where nothing is wrong: texts of one byte per character are known to be whole. */
function isWhole(value: unknown, depth = DEPTH): boolean {
  if (typeof value === 'string') return value.isWellFormed();
  if (typeof value !== 'object' || value === null || depth === 0) return true;
  if (Array.isArray(value)) return value.every((item) => isWhole(item, depth - 1));
  return Object.entries(value).every(([key, inner]) => key.isWellFormed() && isWhole(inner, depth - 1));
}

/** The value with only whole texts in it. */
export function whole(value: unknown, depth = DEPTH): unknown {
  if (typeof value === 'string') return value.toWellFormed();
  if (typeof value !== 'object' || value === null || depth === 0) return value;
  if (Array.isArray(value)) return value.map((item) => whole(item, depth - 1));
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key.toWellFormed(), whole(inner, depth - 1)]));
}
