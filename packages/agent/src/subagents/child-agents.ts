import { SystemMessage } from '@langchain/core/messages';
import type { StructuredToolInterface } from '@langchain/core/tools';
import { ReindeerError, type Surroundings } from '@reindeer/protocol';
import type { HistoryLimits } from '../history/canonicalise.ts';
import { subagentPrompt } from '../lead/prompt.ts';
import { type SafeguardSettings, safeguards } from '../lead/safeguards.ts';
import { type CompiledGraph, compileGraph, createLoop, type Loop } from '../loop/loop.ts';
import type { Middleware } from '../loop/middleware.ts';
import { threadChannels } from '../loop/thread-channels.ts';
import { type DeferredTools, TOOL_SEARCH } from '../mcp/deferred.ts';
import type { LlmCallSettings } from '../middleware/llm-errors.ts';
import { checkOrder } from '../middleware/order.ts';
import { skillPolicyMiddleware } from '../skills/policy.ts';
import { approvalGuard } from './approval-guard.ts';
import { subagentBudget } from './budget.ts';
import type { SubagentType } from './settings.ts';
import { mayUse } from './types.ts';

export interface ChildAgentParts {
  /** The tools of the lead agent, of which each type gets its share. */
  readonly tools: readonly StructuredToolInterface[];
  /** The lead agent's own middleware, which counts for delegated work too (MW-36). */
  readonly middleware: readonly Middleware[];
  /** Keeps sub-agents to the tools of the agent that delegates; absent where there is only one agent. */
  readonly agentTools?: Middleware;
  /** Keeps schemas back until they are searched for, among the tools that a type has (TOOL-12); null = none of them is kept back. */
  readonly defer?: (tools: readonly StructuredToolInterface[]) => DeferredTools | null;
  readonly approvals: readonly string[];
  readonly llmCall: LlmCallSettings;
  readonly safeguards: SafeguardSettings;
  readonly history: HistoryLimits;
  readonly canExecute: boolean;
  readonly pathStyle: 'virtual' | 'relative';
  readonly surroundings: Surroundings;
}

export interface ChildAgent {
  readonly loop: Loop;
  readonly compiled: CompiledGraph;
}

/**
 * The agent of a type: the lead agent's loop and its safe-guards with another prompt, fewer tools and a budget; no title, no uploads, no
 * questions to the user (MW-36).
 */
export function childAgent(type: SubagentType, parts: ChildAgentParts): ChildAgent {
  const { surroundings, canExecute, pathStyle } = parts;
  const tools = parts.tools.filter((tool) => mayUse(type, tool.name));
  // One that may not search sees the schemas as they are.
  const deferred = type.disallowedTools.includes(TOOL_SEARCH) ? null : (parts.defer?.(tools) ?? null);
  const systemMessage = new SystemMessage(
    subagentPrompt({
      name: type.name,
      instructions: type.systemPrompt,
      canExecute,
      pathStyle,
      ...(deferred === null ? {} : { deferredTools: deferred.section }),
    }),
  );
  const guards = safeguards({
    settings: parts.safeguards,
    llmCall: parts.llmCall,
    agentName: type.name,
    pathStyle,
    surroundings,
  });
  const middleware: Middleware[] = [
    ...guards.first,
    ...(parts.agentTools === undefined ? [] : [parts.agentTools]),
    skillPolicyMiddleware(),
    ...guards.context,
    ...guards.calls,
    approvalGuard(parts.approvals),
    ...(deferred === null ? [] : [deferred.middleware]),
    ...parts.middleware,
    subagentBudget(type),
    ...guards.answers,
  ];
  checkOrder(middleware);
  const loop = createLoop({
    channels: threadChannels(surroundings.random),
    middleware,
    // First: of two of one name the first counts.
    tools: deferred === null ? tools : [deferred.tool, ...tools],
    random: surroundings.random,
    historyLimits: parts.history,
    request(scope, _runtime, tools) {
      if (scope.model === null) throw new ReindeerError('internal', 'The sub-agent has no model.');
      return { model: scope.model, systemMessage, tools };
    },
  });
  return { loop, compiled: compileGraph(loop, `subagent-${type.name}`) };
}
