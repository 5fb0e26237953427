import { AIMessage } from '@langchain/core/messages';
import { copyAiMessage } from '../loop/messages.ts';

type Block = { readonly type?: unknown; readonly id?: unknown; readonly call_id?: unknown };

/**
 * A copy of a model's message without some of its calls, in every view that a provider keeps of them (SA-20): the normalised list, the raw
 * OpenAI list, Anthropic's content blocks, and the items of OpenAI's responses.
 */
export function withoutCalls(message: AIMessage, ids: ReadonlySet<string>): AIMessage {
  const copy = copyAiMessage(message);
  const isDropped = (id: unknown): boolean => typeof id === 'string' && ids.has(id);
  const keeps = (block: unknown): boolean => !isDropped((block as Block | null)?.id);
  const { tool_calls: raw, ...kwargs } = copy.additional_kwargs;
  const rawLeft = Array.isArray(raw) ? raw.filter(keeps) : [];
  const { output } = copy.response_metadata as { output?: unknown };
  return new AIMessage({
    content: Array.isArray(copy.content)
      ? copy.content.filter((block) => !(isCall(block) && isDropped((block as Block).id)))
      : copy.content,
    ...(copy.id === undefined ? {} : { id: copy.id }),
    ...(copy.name === undefined ? {} : { name: copy.name }),
    additional_kwargs: { ...kwargs, ...(rawLeft.length === 0 ? {} : { tool_calls: rawLeft }) },
    response_metadata: {
      ...copy.response_metadata,
      ...(Array.isArray(output) ? { output: output.filter((item: Block) => !isDropped(item.call_id)) } : {}),
    },
    tool_calls: (copy.tool_calls ?? []).filter(keeps),
    invalid_tool_calls: (copy.invalid_tool_calls ?? []).filter(keeps),
    ...(copy.usage_metadata === undefined ? {} : { usage_metadata: copy.usage_metadata }),
  });
}

const isCall = (block: unknown): boolean => {
  const { type } = block as Block;
  return type === 'tool_use' || type === 'tool_call';
};
