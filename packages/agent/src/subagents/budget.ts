import { AIMessage, HumanMessage } from '@langchain/core/messages';
import { markOfCompaction } from '../context/compaction.ts';
import { isAi, textOf } from '../loop/messages.ts';
import { defineMiddleware, type Middleware, type State } from '../loop/middleware.ts';
import { scopeOf } from '../loop/scope.ts';
import { withoutCalls } from './calls.ts';
import { STOPPED_BY, turnsOf, usageOf } from './outcome.ts';
import type { SubagentType } from './settings.ts';

const SUBAGENT_BUDGET = 'subagent-budget';

/**
 * Keeps a sub-agent within its turns and tokens. Both are counted from its own history, so that one that continues after a restart has
 * what is left and not everything again. Near the end the model is told to finish, in the request only.
 */
export function subagentBudget(type: Pick<SubagentType, 'maxTurns' | 'tokenBudget'>): Middleware {
  const { maxTurns, tokenBudget } = type;
  return defineMiddleware({
    name: SUBAGENT_BUDGET,
    beforeModel: {
      canJumpTo: ['end'],
      hook(state, runtime) {
        if (turnsIn(state) < maxTurns) return undefined;
        scopeOf(runtime).attempt.stopReason('turn_capped');
        return { jumpTo: 'end' };
      },
    },
    async wrapModelCall(request, handler) {
      const note = noteFor(turnsIn(request.state), tokensIn(request.state), maxTurns, tokenBudget);
      if (note === null) return handler(request);
      const reminder = new HumanMessage({ content: note, additional_kwargs: { hide_from_ui: true } });
      return handler({ ...request, messages: [...request.messages, reminder] });
    },
    afterModel(state, runtime) {
      const last = state.messages.at(-1);
      if (tokenBudget === null || !isAi(last) || (last.tool_calls ?? []).length === 0) return undefined;
      if (tokensIn(state) < tokenBudget.maxTokens) return undefined;
      scopeOf(runtime).attempt.stopReason('token_capped');
      return { messages: [stopped(last)] };
    },
  });
}

/** What a compaction took out of the history counts all the same. */
const turnsIn = (state: State): number => turnsOf(state.messages) + (markOfCompaction(state)?.removedTurns ?? 0);
const tokensIn = (state: State): number =>
  usageOf(state.messages).total_tokens + (markOfCompaction(state)?.removedTokens ?? 0);

function noteFor(turns: number, used: number, maxTurns: number, budget: SubagentType['tokenBudget']): string | null {
  if (turns === maxTurns - 1 && maxTurns > 1)
    return 'This is your last turn: calls of tools will not run any more. Give your result now, and say what is still open.';
  if (budget === null) return null;
  if (used < budget.maxTokens * budget.warnAt) return null;
  const share = Math.min(100, Math.round((100 * used) / budget.maxTokens));
  return `${share} % of your token budget is used. Finish now with what you have.`;
}

/** The message without its calls: the work ends here, with what it says. */
function stopped(message: AIMessage): AIMessage {
  const all = new Set((message.tool_calls ?? []).map((call) => call.id ?? ''));
  const rest = withoutCalls(message, all);
  const changes = { additional_kwargs: { ...rest.additional_kwargs, [STOPPED_BY]: 'token_capped' } };
  return new AIMessage({
    ...fieldsOf(rest),
    ...changes,
    ...(textOf(rest).trim() === '' ? { content: '' } : {}),
  });
}

const fieldsOf = (message: AIMessage) => ({
  content: message.content,
  ...(message.id === undefined ? {} : { id: message.id }),
  ...(message.name === undefined ? {} : { name: message.name }),
  response_metadata: message.response_metadata,
  tool_calls: message.tool_calls ?? [],
  ...(message.usage_metadata === undefined ? {} : { usage_metadata: message.usage_metadata }),
});
