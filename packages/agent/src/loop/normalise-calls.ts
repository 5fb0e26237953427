import type { AIMessage } from '@langchain/core/messages';
import type { Random } from '@reindeer/protocol';
import { readArguments } from './messages.ts';

/** The name that a call without one gets. */
export const UNKNOWN_TOOL = 'unknown_tool';

/**
 * Makes the tool calls of a fresh model message usable: every call has a name and an id that is unique in the message,
 * and a call with unreadable arguments stands among the calls too (with `{}`), so that it is answered like any other.
 * Changes the message, which nobody has stored yet.
 */
export function normaliseCalls(message: AIMessage, random: Random): AIMessage {
  const calls = [...(message.tool_calls ?? [])];
  const invalid: NonNullable<AIMessage['invalid_tool_calls']> = [];
  for (const call of message.invalid_tool_calls ?? []) {
    // A client that does not stream may count a call as unreadable only because it has no id.
    const args = typeof call.args === 'string' && call.args !== '' ? readArguments(call.args) : null;
    if (args === null) invalid.push(call);
    else
      calls.push({ type: 'tool_call', name: call.name ?? '', args, ...(call.id === undefined ? {} : { id: call.id }) });
  }
  if (calls.length === 0 && invalid.length === 0) return message;
  const seen = new Set<string>();
  const idOf = (id: string | undefined | null): string => {
    // Without the dashes: OpenAI takes ids up to 40 characters.
    const unique =
      typeof id === 'string' && id !== '' && !seen.has(id) ? id : `call_${random.uuid().replaceAll('-', '')}`;
    seen.add(unique);
    return unique;
  };
  const usable = calls.map((call) => ({
    name: call.name === undefined || call.name === '' ? UNKNOWN_TOOL : call.name,
    args: isRecord(call.args) ? call.args : {},
    id: idOf(call.id),
    type: 'tool_call' as const,
  }));
  const unreadable = invalid.map((call) => {
    const name = call.name === undefined || call.name === '' ? UNKNOWN_TOOL : call.name;
    return { ...call, name, id: idOf(call.id) };
  });
  const all = [...usable, ...unreadable.map(({ name, id }) => ({ name, args: {}, id, type: 'tool_call' as const }))];
  message.tool_calls = all;
  message.invalid_tool_calls = unreadable;
  // The provider's raw view of the same calls would contradict this one.
  const { tool_calls: _, function_call: __, ...rest } = message.additional_kwargs;
  message.additional_kwargs = rest;
  alignContent(message, calls, all);
  message.lc_kwargs = {
    ...message.lc_kwargs,
    tool_calls: all,
    invalid_tool_calls: unreadable,
    additional_kwargs: rest,
    content: message.content,
  };
  return message;
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Anthropic keeps each call as a content block too. When ids had to change, the blocks go: the calls say the same. */
function alignContent(
  message: AIMessage,
  before: readonly { id?: string | undefined }[],
  after: readonly { id: string }[],
): void {
  if (typeof message.content === 'string') return;
  const same = before.length === after.length && before.every((call, index) => call.id === after[index]?.id);
  if (same) return;
  message.content = message.content.filter((block) => block.type !== 'tool_use' && block.type !== 'input_json_delta');
}
