import { type BaseMessage, ToolMessage } from '@langchain/core/messages';
import { type Command, isCommand, isGraphBubbleUp } from '@langchain/langgraph';
import { ReindeerError } from '@reindeer/protocol';
import { isTool, textOf } from '../loop/messages.ts';
import { defineMiddleware, type Middleware } from '../loop/middleware.ts';
import { scopeOf } from '../loop/scope.ts';
import { toolErrorText } from '../tools/error-text.ts';
import { masked } from '../tools/text.ts';
import { metaOfError, metaOfText, TOOL_META, type ToolMeta } from '../tools/tool-meta.ts';

export const TOOL_ERRORS = 'tool-errors';
const NO_ID = 'missing_tool_call_id';

/**
 * Turns what a tool throws into a readable result and stamps every result with what became of it (MW-13): a failing tool
 * is information for the model, never a failed run. Interrupts, aborts and a lost fence pass.
 */
export function toolErrorsMiddleware(): Middleware {
  return defineMiddleware({
    name: TOOL_ERRORS,
    async wrapToolCall(request, handler) {
      const { toolCall, runtime } = request;
      try {
        const result = await handler(request);
        for (const message of messagesOf(result)) stamp(message, metaOfText(textOf(message), message.status));
        return result;
      } catch (error) {
        if (isGraphBubbleUp(error) || runtime.signal?.aborted === true || isControl(error)) throw error;
        const hidden = (await scopeOf(runtime).access?.hidden()) ?? [];
        const message = new ToolMessage({
          content: toolErrorText(toolCall.name, error, (text, cut) => masked(text, hidden, cut)),
          tool_call_id: toolCall.id ?? NO_ID,
          name: toolCall.name,
          status: 'error',
        });
        stamp(message, metaOfError(error));
        return message;
      }
    },
  });
}

function messagesOf(result: ToolMessage | Command): ToolMessage[] {
  if (!isCommand(result)) return [result];
  const messages = (result as { update?: { messages?: unknown } }).update?.messages;
  return Array.isArray(messages) ? (messages as BaseMessage[]).filter(isTool) : [];
}

/** A tool of ours has stamped its result itself; any other one is judged by its text. */
function stamp(message: ToolMessage, meta: ToolMeta): void {
  if (message.additional_kwargs[TOOL_META] !== undefined) return;
  message.additional_kwargs = { ...message.additional_kwargs, [TOOL_META]: meta };
  message.lc_kwargs.additional_kwargs = message.additional_kwargs;
  if (meta.status !== 'error' || message.status === 'error') return;
  message.status = 'error';
  message.lc_kwargs.status = 'error';
}

const isControl = (error: unknown): boolean =>
  ReindeerError.is(error) && ['fenced', 'aborted', 'store_unavailable'].includes(error.code);
