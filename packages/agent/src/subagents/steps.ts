import type { BaseMessage } from '@langchain/core/messages';
import type { Json, JsonObject } from '@reindeer/protocol';
import { isAi, isTool, textOf } from '../loop/messages.ts';
import type { SubagentUsage } from './metadata.ts';
import { usageOf } from './outcome.ts';

const LONGEST_TEXT = 8_192;
const LONGEST_ARGUMENTS = 2_048;

/** One message of a sub-agent as its card shows it: short, and flagged where something was cut (SA-15). */
export type Step = JsonObject & { readonly type: string; readonly id: string };

/**
 * Collects the steps of one sub-agent: every message of the model and of tools once, in order, whatever later happens to the history;
 * never those of people, and nothing when a message comes again (SA-14).
 */
export class StepCapture {
  readonly #seen = new Set<string>();
  #usage: SubagentUsage = usageOf([]);

  /** Steps of the messages that a node wrote or a checkpoint holds. */
  take(messages: readonly BaseMessage[]): Step[] {
    const steps: Step[] = [];
    for (const message of messages) {
      const id = message.id ?? '';
      if (!(isAi(message) || isTool(message)) || id === '' || this.#seen.has(id)) continue;
      this.#seen.add(id);
      this.#usage = sumOf(this.#usage, usageOf([message]));
      steps.push(stepOf(message, id));
    }
    return steps;
  }

  get count(): number {
    return this.#seen.size;
  }

  /** Of all model calls among them: what a compaction takes out of the history was used all the same. */
  get usage(): SubagentUsage {
    return this.#usage;
  }
}

/** The messages in a frame of LangGraph's `updates` mode: `{node: update}`, the update an object or several. */
export function messagesOfUpdates(data: unknown): BaseMessage[] {
  if (typeof data !== 'object' || data === null) return [];
  return Object.values(data).flatMap((value: unknown) =>
    (Array.isArray(value) ? value : [value]).flatMap((update: unknown) => {
      const messages = (update as { messages?: unknown } | null)?.messages;
      return Array.isArray(messages) ? (messages as BaseMessage[]) : [];
    }),
  );
}

const sumOf = (a: SubagentUsage, b: SubagentUsage): SubagentUsage => ({
  input_tokens: a.input_tokens + b.input_tokens,
  output_tokens: a.output_tokens + b.output_tokens,
  total_tokens: a.total_tokens + b.total_tokens,
});

function stepOf(message: BaseMessage, id: string): Step {
  const text = textOf(message);
  const cut = text.length > LONGEST_TEXT;
  const base = {
    id,
    type: message.type,
    content: cut ? text.slice(0, LONGEST_TEXT) : text,
    ...(cut ? { truncated: true } : {}),
  };
  if (isTool(message))
    return {
      ...base,
      name: message.name ?? '',
      tool_call_id: message.tool_call_id,
      status: message.status ?? 'success',
    };
  const calls = isAi(message) ? (message.tool_calls ?? []) : [];
  if (calls.length === 0) return base;
  return {
    ...base,
    tool_calls: calls.map((call) => ({ name: call.name, id: call.id ?? null, ...argumentsOf(call.args) })),
  };
}

/** Small arguments stay an object; long ones become cut text. */
function argumentsOf(args: unknown): { readonly args: Json; readonly truncated?: true } {
  const text = JSON.stringify(args) ?? '{}';
  if (text.length <= LONGEST_ARGUMENTS) return { args: JSON.parse(text) as Json };
  return { args: text.slice(0, LONGEST_ARGUMENTS), truncated: true };
}
