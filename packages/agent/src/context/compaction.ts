import type { AIMessage, BaseMessage, UsageMetadata } from '@langchain/core/messages';
import { sizeOf } from '../history/fit.ts';
import { isAi, isGenuineUser, isHuman, isTool, PINNED, textOf } from '../loop/messages.ts';

/** The channel that keeps what the last compaction did. */
export const COMPACTION = 'compaction';

/**
 * The durable mark of a compaction: written with it, in one checkpoint. It says what is gone, for whom it was done and up to where the
 * history is summarised, so that a restart neither compacts again nor replays what did not fit.
 */
export interface CompactionMark {
  /** How many there have been in this thread. */
  readonly count: number;
  /** Id of the user's message in whose turn it happened. */
  readonly turn: string;
  /** Id of the newest message at that time. */
  readonly through: string;
  readonly at: string;
  /** `truncated`: no summary could be made, and the messages went without one. */
  readonly how: 'summary' | 'truncated';
  /** Over all compactions: messages, model calls and their tokens that the history does not show any more. */
  readonly removedMessages: number;
  readonly removedTurns: number;
  readonly removedTokens: number;
  /** Estimate of the history's tokens right after it, and its messages. */
  readonly tokensAfter: number;
  readonly messagesAfter: number;
}

export const markOfCompaction = (state: Readonly<Record<string, unknown>>): CompactionMark | null => {
  const mark = state[COMPACTION] as CompactionMark | null | undefined;
  return typeof mark === 'object' && mark !== null && typeof mark.count === 'number' ? mark : null;
};

export interface CompactionTrigger {
  readonly type: 'tokens' | 'messages' | 'fraction';
  /** Tokens, messages, or a share (0 … 1) of the model's context window. */
  readonly value: number;
}

export interface CompactionKeep {
  readonly type: 'tokens' | 'messages' | 'fraction';
  readonly value: number;
}

const tokens = new WeakMap<BaseMessage, number>();
const OVERHEAD = 8;

/** Tokens of a message, estimated: four Latin characters, or one and a half others, for each. Remembered per message. */
export function tokensOf(message: BaseMessage): number {
  const known = tokens.get(message);
  if (known !== undefined) return known;
  const text = textOf(message);
  const wide = countWide(text);
  // What is not text (arguments, pictures) is counted by its characters.
  const rest = Math.max(0, sizeOf(message) - text.length);
  const estimate = Math.ceil((text.length - wide + rest) / 4 + wide / 1.5) + OVERHEAD;
  tokens.set(message, estimate);
  return estimate;
}

function countWide(text: string): number {
  let count = 0;
  for (let index = 0; index < text.length; index++) if (text.charCodeAt(index) > 0x2e7f) count++;
  return count;
}

/**
 * Size of the next request in tokens: what the provider reported for the newest answer, plus an estimate of what came after it. Without a
 * report, or when a compaction came after it, everything is estimated.
 */
export function contextTokens(messages: readonly BaseMessage[], mark: CompactionMark | null): number {
  let later = 0;
  for (let position = messages.length - 1; position >= 0; position--) {
    const message = messages[position] as BaseMessage;
    // Reports from here on are about a history that is no more.
    if (mark !== null && message.id === mark.through) break;
    const usage = isAi(message) ? (message.usage_metadata as UsageMetadata | undefined) : undefined;
    const reported = (usage?.input_tokens ?? 0) + (usage?.output_tokens ?? 0);
    if (reported > 0 && usage !== undefined && usage.input_tokens > 0) return reported + later;
    later += tokensOf(message);
  }
  return messages.reduce((sum, message) => sum + tokensOf(message), 0);
}

export interface Cut {
  /** In order; they go. */
  readonly removed: readonly BaseMessage[];
  /** In order; they stay. */
  readonly kept: readonly BaseMessage[];
}

/**
 * Where a history is cut. Kept are the newest messages within `keep`, but at least the newest group, and always the
 * newest message of the user with the reply that it belongs to. A model's message and its results stay or go together. null = nothing
 * could go.
 */
export function cutOf(
  messages: readonly BaseMessage[],
  keep: { readonly messages: number; readonly tokens: number },
): Cut | null {
  const groups = groupsOf(messages);
  let count = 0;
  let size = 0;
  let first = groups.length;
  while (first > 0) {
    const group = groups[first - 1] as readonly BaseMessage[];
    const more = group.reduce((sum, message) => sum + tokensOf(message), 0);
    if (first < groups.length && (count + group.length > keep.messages || size + more > keep.tokens)) break;
    count += group.length;
    size += more;
    first--;
  }
  const newest = messages.findLast(isGenuineUser) ?? messages.findLast(isHuman);
  const removed: BaseMessage[] = [];
  const kept: BaseMessage[] = [];
  for (const [position, group] of groups.entries()) {
    const stays = position >= first || group.some((message) => message === newest || isPinned(message));
    (stays ? kept : removed).push(...group);
  }
  return removed.length === 0 || removed.some((message) => message.id === undefined) ? null : { removed, kept };
}

const isPinned = (message: BaseMessage): boolean =>
  message.type === 'system' || message.additional_kwargs[PINNED] === true;

/** A message with calls and everything up to the last of its results is one group; every other message is its own. */
function groupsOf(messages: readonly BaseMessage[]): readonly (readonly BaseMessage[])[] {
  const groups: BaseMessage[][] = [];
  let open: Set<string> | null = null;
  for (const message of messages) {
    const last = groups.at(-1);
    if (open !== null && last !== undefined && (isTool(message) || open.size > 0) && !isAi(message)) {
      last.push(message);
      if (isTool(message)) open.delete(message.tool_call_id);
      continue;
    }
    groups.push([message]);
    const calls = isAi(message) ? (message.tool_calls ?? []) : [];
    open = calls.length > 0 ? new Set(calls.map((call) => call.id ?? '')) : null;
  }
  return groups;
}

/** The text of the newest message of the user. */
export function currentRequest(messages: readonly BaseMessage[]): string {
  const newest = messages.findLast(isGenuineUser) ?? messages.findLast(isHuman);
  return newest === undefined ? '' : textOf(newest);
}

/** What the history loses, for counters that are read from it. */
export function lossOf(removed: readonly BaseMessage[]): { readonly turns: number; readonly tokens: number } {
  const answers = removed.filter((message): message is AIMessage => isAi(message));
  const used = answers.reduce((sum, message) => {
    const usage = message.usage_metadata as UsageMetadata | undefined;
    return sum + (usage?.input_tokens ?? 0) + (usage?.output_tokens ?? 0);
  }, 0);
  return { turns: answers.length, tokens: used };
}
