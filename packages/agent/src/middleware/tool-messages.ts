import { type BaseMessage, type MessageContent, ToolMessage } from '@langchain/core/messages';
import { Command, isCommand } from '@langchain/langgraph';
import { isTool } from '../loop/messages.ts';

/** The tool messages in a result, whether it is one or a command that also changes the state. */
export function toolMessagesOf(result: ToolMessage | Command): ToolMessage[] {
  if (!isCommand(result)) return [result];
  const messages = (result as { update?: { messages?: unknown } }).update?.messages;
  return Array.isArray(messages) ? (messages as BaseMessage[]).filter(isTool) : [];
}

/** The result with each of its tool messages replaced by what `change` answers; the same object when nothing changed. */
export async function withToolMessages(
  result: ToolMessage | Command,
  change: (message: ToolMessage) => ToolMessage | Promise<ToolMessage>,
): Promise<ToolMessage | Command> {
  if (!isCommand(result)) return change(result);
  const { update } = result as { update?: { messages?: unknown } };
  if (!Array.isArray(update?.messages)) return result;
  let changed = false;
  const messages: BaseMessage[] = [];
  for (const message of update.messages as BaseMessage[]) {
    const next = isTool(message) ? await change(message) : message;
    changed ||= next !== message;
    messages.push(next);
  }
  return changed ? new Command({ ...(result as object), update: { ...update, messages } } as never) : result;
}

/** A copy with another content. */
export function withContent(message: ToolMessage, content: MessageContent, kwargs: object = {}): ToolMessage {
  return new ToolMessage({
    content: content as never,
    tool_call_id: message.tool_call_id,
    ...(message.id === undefined ? {} : { id: message.id }),
    ...(message.name === undefined ? {} : { name: message.name }),
    ...(message.status === undefined ? {} : { status: message.status }),
    ...(message.artifact === undefined ? {} : { artifact: message.artifact }),
    additional_kwargs: { ...message.additional_kwargs, ...kwargs },
    response_metadata: message.response_metadata,
  });
}
