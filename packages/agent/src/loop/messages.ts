import {
  AIMessage,
  AIMessageChunk,
  type BaseMessage,
  coerceMessageLikeToMessage,
  HumanMessage,
  isBaseMessage,
  RemoveMessage,
  SystemMessage,
  ToolMessage,
} from '@langchain/core/messages';
import { type Random, ReindeerError } from '@reindeer/protocol';

/** The id of the removal marker that empties the list: only what follows the last such marker stays (ST-1). */
export const REMOVE_ALL = '__remove_all__';

/** Turns one message-like value into a message; null when it is none. Never throws, so that a reducer may use it. */
export function toMessage(value: unknown): BaseMessage | null {
  try {
    const message = isBaseMessage(value) ? value : coerceMessageLikeToMessage(value as never);
    return AIMessageChunk.isInstance(message) ? finishedMessage(message) : message;
  } catch {
    return null;
  }
}

/** A streamed message as it rests in state: chunks are never stored. */
export function finishedMessage(chunk: AIMessageChunk, id: string | undefined = chunk.id): AIMessage {
  return new AIMessage({
    content: chunk.content,
    ...(id === undefined ? {} : { id }),
    ...(chunk.name === undefined ? {} : { name: chunk.name }),
    additional_kwargs: chunk.additional_kwargs,
    response_metadata: chunk.response_metadata,
    ...callsOf(chunk),
    ...(chunk.usage_metadata === undefined ? {} : { usage_metadata: chunk.usage_metadata }),
  });
}

/**
 * The calls of a finished stream, read strictly. LangChain reads unfinished JSON too: right while a call is streaming, but at its
 * end it would run a call whose arguments were cut off, such as half a file. And it counts a call without an id as unreadable.
 */
function callsOf(chunk: AIMessageChunk): Pick<AIMessage, 'tool_calls' | 'invalid_tool_calls'> {
  const pieces = chunk.tool_call_chunks ?? [];
  if (pieces.length === 0)
    return { tool_calls: chunk.tool_calls ?? [], invalid_tool_calls: chunk.invalid_tool_calls ?? [] };
  const calls: NonNullable<AIMessage['tool_calls']> = [];
  const invalid: NonNullable<AIMessage['invalid_tool_calls']> = [];
  for (const { name = '', args = '', id } of pieces) {
    const known = id === undefined ? {} : { id };
    const read = readArguments(args);
    if (read === null) invalid.push({ type: 'invalid_tool_call', name, args, ...known, error: 'cut off or malformed' });
    else calls.push({ type: 'tool_call', name, args: read, ...known });
  }
  return { tool_calls: calls, invalid_tool_calls: invalid };
}

/** Arguments as an object; empty text means none; null when it is no JSON object. */
export function readArguments(text: string): Record<string, unknown> | null {
  if (text.trim() === '') return {};
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : null;
  } catch {
    return null;
  }
}

/** Sets an id on a message that has none; the id must exist before the message is stored, or a replay would make a second one. */
export function withId(message: BaseMessage, random: Random): BaseMessage {
  if (message.id === undefined || message.id === null || message.id === '') setId(message, random.uuid());
  return message;
}

export function setId(message: BaseMessage, id: string): void {
  message.id = id;
  if (message.lc_kwargs !== undefined) message.lc_kwargs.id = id;
}

/** A copy that a hook may change in place without changing what the checkpoint holds. */
export function copyAiMessage(message: AIMessage): AIMessage {
  return new AIMessage({
    content: message.content,
    ...(message.id === undefined ? {} : { id: message.id }),
    ...(message.name === undefined ? {} : { name: message.name }),
    additional_kwargs: { ...message.additional_kwargs },
    response_metadata: { ...message.response_metadata },
    tool_calls: (message.tool_calls ?? []).map((call) => ({ ...call })),
    invalid_tool_calls: (message.invalid_tool_calls ?? []).map((call) => ({ ...call })),
    ...(message.usage_metadata === undefined ? {} : { usage_metadata: message.usage_metadata }),
  });
}

/** The value that a node or a client writes to a message channel, as a list of messages. Throws `validation_failed` for anything else. */
export function messageList(value: unknown, source: string): BaseMessage[] {
  if (value === null || value === undefined)
    throw new ReindeerError('validation_failed', `${source} wrote no messages (null); give a message or a list.`);
  return (Array.isArray(value) ? value : [value]).map((item, index) => {
    const message = toMessage(item);
    if (message === null)
      throw new ReindeerError('validation_failed', `${source}: messages[${index}] is not a message.`, {
        detail: { field: `messages[${index}]` },
      });
    return message;
  });
}

/**
 * Folds writes into a message list: a message replaces the one with its id or is appended, a removal takes one out, the
 * remove-all marker empties the list. Total (never throws): a removal of an unknown id changes nothing here; nodes and
 * the state endpoint refuse it before it is written. Sequential, so `fold(fold(l, a), b)` = `fold(l, [...a, ...b])`.
 */
export function foldMessages(left: readonly BaseMessage[], writes: readonly BaseMessage[]): BaseMessage[] {
  const result: (BaseMessage | null)[] = [...left];
  let index: Map<string, number> | null = null;
  let removed = false;
  const find = (id: string): number => {
    // One write is the common case: a scan from the end beats building a map. From two on the map is built once.
    if (index === null && writes.length === 1) return result.findLastIndex((message) => message?.id === id);
    if (index === null) {
      index = new Map();
      for (const [position, message] of result.entries())
        if (message?.id !== undefined) index.set(message.id, position);
    }
    return index.get(id) ?? -1;
  };
  for (const message of writes) {
    const id = message.id;
    if (RemoveMessage.isInstance(message)) {
      if (id === REMOVE_ALL) {
        result.length = 0;
        index = new Map();
        continue;
      }
      const position = id === undefined ? -1 : find(id);
      if (position >= 0) {
        result[position] = null;
        removed = true;
        if (id !== undefined) (index as Map<string, number> | null)?.delete(id);
      }
      continue;
    }
    const position = id === undefined ? -1 : find(id);
    if (position >= 0) result[position] = message;
    else {
      if (id !== undefined) (index as Map<string, number> | null)?.set(id, result.length);
      result.push(message);
    }
  }
  return removed ? result.filter((message) => message !== null) : (result as BaseMessage[]);
}

/** The text of a message, whatever the shape of its content. */
export function textOf(message: BaseMessage): string {
  if (typeof message.content === 'string') return message.content;
  if (!Array.isArray(message.content)) return '';
  let text = '';
  for (const block of message.content as readonly unknown[]) {
    if (typeof block === 'string') text += block;
    else if (typeof block === 'object' && block !== null && 'text' in block && typeof block.text === 'string')
      text += block.text;
  }
  return text;
}

export const isAi = (message: BaseMessage | undefined): message is AIMessage =>
  message !== undefined && message.type === 'ai';
export const isTool = (message: BaseMessage | undefined): message is ToolMessage =>
  message !== undefined && message.type === 'tool';
export const isHuman = (message: BaseMessage | undefined): message is HumanMessage =>
  message !== undefined && message.type === 'human';

/** What a reply to a question of the agent carries (MW-37). */
export interface HumanInputResponse {
  readonly version: 1;
  readonly kind: 'human_input_response';
  readonly source: string;
  readonly request_id: string;
  readonly response_kind: 'text' | 'option';
  readonly value: string;
  readonly option_id?: string;
}

/** The reply that a message is; null when it is none or not a valid one: all its texts must say something. */
export function humanInputResponse(message: BaseMessage): HumanInputResponse | null {
  const reply = message.additional_kwargs.human_input_response as Partial<HumanInputResponse> | null | undefined;
  if (typeof reply !== 'object' || reply === null) return null;
  if (reply.version !== 1 || reply.kind !== 'human_input_response') return null;
  if (reply.response_kind !== 'text' && reply.response_kind !== 'option') return null;
  const texts = [reply.source, reply.request_id, reply.value];
  if (reply.option_id !== undefined) texts.push(reply.option_id);
  const says = texts.every((text) => typeof text === 'string' && text.trim() !== '');
  return says ? (reply as HumanInputResponse) : null;
}

/** A message that a person wrote: human role and not injected by the harness. A hidden reply to a question is one too (MW-37). */
export function isGenuineUser(message: BaseMessage): boolean {
  if (!isHuman(message)) return false;
  return message.additional_kwargs.hide_from_ui !== true || humanInputResponse(message) !== null;
}

/** In `additional_kwargs` of a message that a compaction leaves where it is. */
export const PINNED = 'reindeer_pinned';

/** What the harness puts before a task: no page shows it, it is nobody's word, and it stays for as long as the conversation does. */
export const preface = (content: string): HumanMessage =>
  new HumanMessage({ content, additional_kwargs: { hide_from_ui: true, [PINNED]: true } });

/** A message for the next request only: the model reads it, no page shows it, no state keeps it. */
export const hiddenNote = (content: string, name?: string): HumanMessage =>
  new HumanMessage({ content, ...(name === undefined ? {} : { name }), additional_kwargs: { hide_from_ui: true } });

export { AIMessage, AIMessageChunk, HumanMessage, RemoveMessage, SystemMessage, ToolMessage };
