import { AIMessage, type BaseMessage, HumanMessage, RemoveMessage } from '@langchain/core/messages';
import { isAi, isGenuineUser, isTool, textOf } from '../loop/messages.ts';
import { defineMiddleware, type Middleware, type State } from '../loop/middleware.ts';
import { type AttemptScope, scopeOf } from '../loop/scope.ts';
import { ERROR_FALLBACK } from './llm-errors.ts';

export const TERMINAL_RESPONSE = 'terminal-response';

const PROMPT =
  'Your last answer was empty: the user saw nothing. Answer the user now in plain text, from what the tools have shown.';
const FAILED =
  'The model gave no visible answer after its work, also when it was asked again. The files and results of this run are kept; ask again, or choose another model.';

/**
 * A run that worked with tools may not end in silence (MW-32), such as with reasoning alone. The empty message is taken back and the model
 * is asked once more, with a note that only this request carries; a second empty answer becomes a visible error.
 */
export function terminalResponseMiddleware(): Middleware {
  // Per attempt: `asked` once the model was asked again, `pending` until the request with the note is made.
  const runs = new WeakMap<AttemptScope, { pending: boolean }>();
  return defineMiddleware({
    name: TERMINAL_RESPONSE,
    afterModel: {
      canJumpTo: ['model'],
      hook(state, runtime) {
        const message = state.messages.at(-1);
        if (!isAi(message) || !isSilent(message) || !followsTools(state)) return undefined;
        const scope = scopeOf(runtime);
        if (!runs.has(scope)) {
          runs.set(scope, { pending: true });
          return { jumpTo: 'model', messages: [new RemoveMessage({ id: message.id ?? '' })] };
        }
        scope.attempt.fail(FAILED);
        return { messages: [visible(message)] };
      },
    },
    async wrapModelCall(request, handler) {
      const run = runs.get(scopeOf(request.runtime));
      if (run?.pending !== true) return handler(request);
      run.pending = false;
      const note = new HumanMessage({ content: PROMPT, additional_kwargs: { hide_from_ui: true } });
      return handler({ ...request, messages: [...request.messages, note] });
    },
  });
}

function isSilent(message: AIMessage): boolean {
  const calls = (message.tool_calls ?? []).length + (message.invalid_tool_calls ?? []).length;
  return calls === 0 && textOf(message).trim() === '';
}

/** Tool results since the newest message of the user, of whom there must be one. */
function followsTools({ messages }: State): boolean {
  const user = messages.findLastIndex((message: BaseMessage) => isGenuineUser(message));
  return user >= 0 && messages.slice(user).some(isTool);
}

function visible(message: AIMessage): AIMessage {
  return new AIMessage({
    content: FAILED,
    ...(message.id === undefined ? {} : { id: message.id }),
    additional_kwargs: {
      [ERROR_FALLBACK]: true,
      error_type: 'EmptyResponse',
      error_reason: 'empty_response',
      error_detail: '',
    },
    response_metadata: message.response_metadata,
  });
}
