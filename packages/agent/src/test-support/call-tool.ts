import { type BaseMessage, ToolMessage } from '@langchain/core/messages';
import type { StructuredToolInterface } from '@langchain/core/tools';
import { type Command, isCommand } from '@langchain/langgraph';
import { NO_LOG } from '@reindeer/protocol';
import { SharedLeases } from '@reindeer/sandbox';
import { AttemptScope, SCOPE } from '../loop/scope.ts';
import { recordedAttempt } from './fake-attempt.ts';
import type { MemorySandboxes } from './memory-sandbox.ts';

/** Calls a tool as the loop would, without the loop. */
export function toolCaller(
  tools: readonly StructuredToolInterface[],
  sandboxes: MemorySandboxes,
  state: Readonly<Record<string, unknown>> = {},
) {
  const attempt = recordedAttempt();
  const scope = new AttemptScope(attempt, new SharedLeases(sandboxes, NO_LOG));
  const call = async (name: string, args: Record<string, unknown>): Promise<ToolMessage | Command> => {
    const tool = tools.find((candidate) => candidate.name === name);
    if (tool === undefined) throw new Error(`no tool ${name}`);
    const toolCall = { name, args: { description: 'test', ...args }, id: 'call-1', type: 'tool_call' };
    const config = { configurable: { [SCOPE]: scope }, toolCallId: 'call-1', signal: attempt.signal, state };
    return (await tool.invoke(toolCall as never, config as never)) as ToolMessage | Command;
  };
  return {
    attempt,
    call,
    /** The text of the result; an error message starts with `Error:`. */
    async text(name: string, args: Record<string, unknown>): Promise<string> {
      const result = await call(name, args);
      if (!isCommand(result)) return result.text;
      const { messages } = (result as unknown as { update: { messages: BaseMessage[] } }).update;
      return messages.find(ToolMessage.isInstance)?.text ?? '';
    },
  };
}
