import { ToolMessage } from '@langchain/core/messages';
import { Command, END } from '@langchain/langgraph';
import { defineMiddleware, type Middleware } from '../loop/middleware.ts';
import { runOptions } from '../loop/run-options.ts';
import { CLARIFICATION_TOOL } from '../tools/ask-clarification.ts';
import { humanInput, rendered } from './clarification-form.ts';

export const CLARIFICATION = 'clarification';

const PROCEED =
  'The user cannot be asked in this run. Go on with your best judgement, choose the most sensible option, and say in the answer what you assumed.';

/**
 * Ends the turn when the model asks the user (MW-35). The call never runs: its result is the question, as text for any
 * channel and as a structured request for the page. Other calls of the same message still run. Always last in the list.
 */
export function clarificationMiddleware(): Middleware {
  return defineMiddleware({
    name: CLARIFICATION,
    async wrapToolCall(request, handler) {
      const { toolCall } = request;
      if (toolCall.name !== CLARIFICATION_TOOL) return handler(request);
      const callId = toolCall.id ?? '';
      if (runOptions(request.runtime).disable_clarification === true)
        return new ToolMessage({ content: PROCEED, tool_call_id: callId, name: CLARIFICATION_TOOL });
      const id = `clarification:${callId}`;
      const input = humanInput(id, toolCall.args);
      const message = new ToolMessage({
        id,
        content: rendered(input),
        tool_call_id: callId,
        name: CLARIFICATION_TOOL,
        artifact: { human_input: input },
      });
      return new Command({ update: { messages: [message] }, goto: END });
    },
  });
}
