import { type AIMessage, type BaseMessage, HumanMessage } from '@langchain/core/messages';
import type { Logger } from '@reindeer/protocol';
import { isAi } from '../loop/messages.ts';
import { defineMiddleware, type HookUpdate, type Middleware } from '../loop/middleware.ts';
import { runOptions } from '../loop/run-options.ts';
import { scopeOf } from '../loop/scope.ts';
import { withoutCalls } from './calls.ts';
import { runLimits, type SubagentSettings, TASK_TOOL } from './settings.ts';

const SUBAGENT_LIMITS = 'subagent-limits';
/** How many `task` calls of a message were left out. */
const CALLS_DROPPED = 'subagent_calls_dropped';
const LIMIT_REASON = 'subagent_limit_capped';

/**
 * Bounds what one message and one run may delegate (MW-27): surplus `task` calls are taken out of the message, the others stay, and the
 * model is told in its next request. When the run's total is used up and nothing else is left to do, the turn ends with a visible note.
 * The total is counted from the ledger in the state, so that it holds over restarts; earlier runs of the thread do not count.
 */
export function subagentLimits(settings: SubagentSettings, logger: Logger): Middleware {
  return defineMiddleware({
    name: SUBAGENT_LIMITS,
    afterModel(state, runtime): HookUpdate {
      const last = state.messages.at(-1);
      if (!isAi(last)) return undefined;
      const unreadable = new Set((last.invalid_tool_calls ?? []).map((call) => call.id));
      const tasks = (last.tool_calls ?? []).filter((call) => call.name === TASK_TOOL && !unreadable.has(call.id));
      if (tasks.length === 0) return undefined;
      const { attempt } = scopeOf(runtime);
      const { concurrent, total } = runLimits(runOptions(runtime), settings);
      const left = Math.max(0, total - delegated(state.delegations, attempt.run.runId, logger));
      const surplus = tasks.slice(Math.min(concurrent, left));
      if (surplus.length === 0) return undefined;
      const reduced = withoutCalls(last, new Set(surplus.map((call) => call.id ?? '')));
      set(reduced, { ...reduced.additional_kwargs, [CALLS_DROPPED]: surplus.length });
      if (left === 0 && (reduced.tool_calls ?? []).length === 0) {
        attempt.stopReason(LIMIT_REASON);
        addText(reduced, `[This run has used all of its ${total} sub-agents. Send another message to go on.]`);
      }
      return { messages: [reduced] };
    },
    async wrapModelCall(request, handler) {
      const { attempt } = scopeOf(request.runtime);
      const limits = runLimits(runOptions(request.runtime), settings);
      const used = delegated(request.state.delegations, attempt.run.runId, logger);
      const note = noteFor(request.messages, used, limits);
      if (note === null) return handler(request);
      const reminder = new HumanMessage({ content: note, additional_kwargs: { hide_from_ui: true } });
      return handler({ ...request, messages: [...request.messages, reminder] });
    },
  });
}

/** Delegations of this run. Without a run id all count: the stricter reading (MW-27). */
function delegated(ledger: unknown, runId: string, logger: Logger): number {
  if (!Array.isArray(ledger)) return 0;
  if (runId === '') {
    logger.warn('A run without an id delegates; all earlier delegations count', { delegations: ledger.length });
    return ledger.length;
  }
  return ledger.filter((entry: { run_id?: unknown } | null) => entry?.run_id === runId).length;
}

function noteFor(
  messages: readonly BaseMessage[],
  used: number,
  { concurrent, total }: { readonly concurrent: number; readonly total: number },
): string | null {
  if (used >= total)
    return `This run has used all of its ${total} sub-agents. Do not call ${TASK_TOOL} any more: do what is left yourself.`;
  const dropped = messages.findLast((message) => isAi(message))?.additional_kwargs[CALLS_DROPPED];
  if (typeof dropped !== 'number') return null;
  return `${dropped} of your ${TASK_TOOL} calls were left out: one message may make ${concurrent} at most, and this run has ${total - used} left. Call ${TASK_TOOL} again for what is still needed.`;
}

function addText(message: AIMessage, note: string): void {
  const { content } = message;
  const changed =
    typeof content === 'string'
      ? [content, note].filter((part) => part !== '').join('\n\n')
      : [...content, { type: 'text' as const, text: note }];
  message.content = changed;
  message.lc_kwargs.content = changed;
}

function set(message: AIMessage, kwargs: Record<string, unknown>): void {
  message.additional_kwargs = kwargs;
  message.lc_kwargs.additional_kwargs = kwargs;
}
