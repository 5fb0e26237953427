import { SystemMessage } from '@langchain/core/messages';
import type { StructuredToolInterface } from '@langchain/core/tools';
import {
  type AttemptContext,
  type Graph,
  type GraphFactory,
  ReindeerError,
  type SandboxProvider,
  type Surroundings,
} from '@reindeer/protocol';
import type { HistoryLimits } from '../history/canonicalise.ts';
import { agentGraph } from '../loop/attempt-graph.ts';
import { compileGraph, createLoop } from '../loop/loop.ts';
import type { Middleware } from '../loop/middleware.ts';
import { runOptions } from '../loop/run-options.ts';
import { AttemptScope, SCOPE } from '../loop/scope.ts';
import { threadChannels } from '../loop/thread-channels.ts';
import { approvalMiddleware } from '../middleware/approval.ts';
import { clarificationMiddleware } from '../middleware/clarification.ts';
import { DEFAULT_LLM_CALL, type LlmCallSettings, llmErrorsMiddleware } from '../middleware/llm-errors.ts';
import { checkOrder } from '../middleware/order.ts';
import { sandboxMiddleware } from '../middleware/sandbox.ts';
import { terminalResponseMiddleware } from '../middleware/terminal-response.ts';
import { threadDataMiddleware } from '../middleware/thread-data.ts';
import { DEFAULT_TITLE_SETTINGS, type TitleSettings, titleMiddleware } from '../middleware/title.ts';
import { toolErrorsMiddleware } from '../middleware/tool-errors.ts';
import { uploadsMiddleware } from '../middleware/uploads.ts';
import type { ModelRegistry } from '../models/registry.ts';
import { CLARIFICATION_TOOL } from '../tools/ask-clarification.ts';
import { type CoreToolSettings, coreTools, DEFAULT_CORE_TOOLS } from '../tools/core-tools.ts';
import { systemPrompt } from './prompt.ts';

export const LEAD_AGENT = 'lead_agent';

export interface LeadAgentSettings {
  readonly agentName: string;
  readonly tools: CoreToolSettings;
  readonly llmCall: LlmCallSettings;
  readonly title: TitleSettings;
  readonly history: HistoryLimits;
  /** Tools that a person must approve before each call; `*` = all. Runs may ask for more with `interrupt_on`. */
  readonly approvals: readonly string[];
}

export const DEFAULT_LEAD_AGENT_SETTINGS: LeadAgentSettings = {
  agentName: 'Reindeer',
  tools: DEFAULT_CORE_TOOLS,
  llmCall: DEFAULT_LLM_CALL,
  title: DEFAULT_TITLE_SETTINGS,
  history: { maxCharacters: 1_000_000 },
  approvals: [],
};

export interface LeadAgentOptions {
  readonly models: ModelRegistry;
  /** Added to the built-in tools; a built-in tool of the same name wins. */
  readonly tools?: readonly StructuredToolInterface[];
  /** Own or LangChain middleware, placed inside the error handling and before titles and clarification. */
  readonly middleware?: readonly Middleware[];
  readonly sandboxes: SandboxProvider;
  readonly surroundings: Surroundings;
  readonly settings?: Partial<LeadAgentSettings>;
}

/**
 * The lead agent (AG-1). Everything that does not depend on a run is made here, once: tools, middleware, prompt and the compiled
 * graph. Throws `configuration` when the middleware list breaks an order rule.
 */
export function createLeadAgent(options: LeadAgentOptions): GraphFactory {
  const { models, sandboxes, surroundings } = options;
  const settings: LeadAgentSettings = { ...DEFAULT_LEAD_AGENT_SETTINGS, ...options.settings };
  const report = sandboxes.report();
  const abilities = {
    canExecute: report.canExecute,
    // Only the local provider has no folders of its own: there the model works with relative paths (D8).
    pathStyle: report.provider === 'local' ? ('relative' as const) : ('virtual' as const),
  };
  const middleware: Middleware[] = [
    threadDataMiddleware(),
    uploadsMiddleware(sandboxes),
    sandboxMiddleware(),
    approvalMiddleware(settings.approvals),
    llmErrorsMiddleware(settings.llmCall, surroundings),
    toolErrorsMiddleware(),
    ...(options.middleware ?? []),
    titleMiddleware(settings.title, surroundings),
    terminalResponseMiddleware(),
    clarificationMiddleware(),
  ];
  checkOrder(middleware);
  const prompt = (interactive: boolean): SystemMessage =>
    new SystemMessage(systemPrompt({ agentName: settings.agentName, interactive, ...abilities }));
  const prompts = { asking: prompt(true), silent: prompt(false) };
  let silentTools: readonly unknown[] | null = null;
  const loop = createLoop({
    channels: threadChannels(surroundings.random),
    middleware,
    tools: [...coreTools(settings.tools, abilities), ...(options.tools ?? [])],
    random: surroundings.random,
    historyLimits: settings.history,
    request(scope, runtime, tools) {
      if (scope.model === null) throw new ReindeerError('internal', 'The run has no model.');
      if (runOptions(runtime).non_interactive !== true)
        return { model: scope.model, systemMessage: prompts.asking, tools };
      silentTools ??= tools.filter((tool) => (tool as { name?: unknown }).name !== CLARIFICATION_TOOL);
      return { model: scope.model, systemMessage: prompts.silent, tools: silentTools };
    },
  });
  const compiled = compileGraph(loop, LEAD_AGENT);
  return {
    assistantId: LEAD_AGENT,
    name: settings.agentName,
    description: 'Plans, uses tools in a sandbox, and hands over finished work.',
    async forAttempt(attempt, saver): Promise<Graph> {
      const chosen = await models.choose(choiceOf(attempt));
      return agentGraph({
        loop,
        compiled,
        saver,
        surroundings,
        scope: new AttemptScope(attempt, sandboxes, chosen.model),
        metadata: {
          agent_name: LEAD_AGENT,
          model_name: chosen.entry.name,
          thinking_enabled: chosen.thinking,
          ...(chosen.reasoningEffort === null ? {} : { reasoning_effort: chosen.reasoningEffort }),
        },
      });
    },
    async forState(saver): Promise<Graph> {
      return agentGraph({ loop, compiled, saver, surroundings, scope: null });
    },
  };
}

/** Model options of a run: `model_name` (or `model`), `thinking_enabled`, `reasoning_effort`; context wins over configurable. */
function choiceOf(attempt: AttemptContext): {
  name: string | null;
  thinking?: boolean;
  reasoningEffort: string | null;
} {
  const run = runOptions({ configurable: { [SCOPE]: new AttemptScope(attempt, null) }, context: {} });
  const name = run.model_name ?? run.model;
  const effort = run.reasoning_effort;
  return {
    name: typeof name === 'string' && name !== '' ? name : null,
    ...(typeof run.thinking_enabled === 'boolean' ? { thinking: run.thinking_enabled } : {}),
    reasoningEffort: typeof effort === 'string' && effort !== '' ? effort : null,
  };
}
