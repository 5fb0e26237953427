import { SystemMessage } from '@langchain/core/messages';
import type { StructuredToolInterface } from '@langchain/core/tools';
import {
  type AttemptContext,
  type BatchService,
  type Graph,
  type GraphFactory,
  offersCommands,
  ReindeerError,
  type SandboxLeases,
  type SandboxProvider,
  type Surroundings,
} from '@reindeer/protocol';
import { SharedLeases } from '@reindeer/sandbox';
import { batchTools } from '../batches/batch-tools.ts';
import { createItemAgent } from '../batches/item-graph.ts';
import type { MemoryCapture, MemorySource } from '../context/memory-port.ts';
import type { SummarizationSettings } from '../context/summarization.ts';
import { goalMiddleware } from '../goals/goal-middleware.ts';
import type { HistoryLimits } from '../history/canonicalise.ts';
import { agentGraph } from '../loop/attempt-graph.ts';
import { type CompiledGraph, compileGraph, createLoop, type Loop } from '../loop/loop.ts';
import type { Middleware } from '../loop/middleware.ts';
import { runOptions } from '../loop/run-options.ts';
import { AttemptScope, SCOPE } from '../loop/scope.ts';
import { threadChannels } from '../loop/thread-channels.ts';
import { type DeferredTools, deferTools, type ToolSearchSettings } from '../mcp/deferred.ts';
import type { McpCatalog } from '../mcp/servers.ts';
import type { Memory } from '../memory/service.ts';
import { MEMORY_CHANGES, MEMORY_TOOLS_PROMPT, memoryTools } from '../memory/tools.ts';
import { approvalMiddleware } from '../middleware/approval.ts';
import { clarificationMiddleware } from '../middleware/clarification.ts';
import { deliveryMiddleware } from '../middleware/delivery.ts';
import { DEFAULT_LLM_CALL, type LlmCallSettings } from '../middleware/llm-errors.ts';
import { memoryCaptureMiddleware } from '../middleware/memory-capture.ts';
import { checkOrder } from '../middleware/order.ts';
import { threadDataMiddleware } from '../middleware/thread-data.ts';
import { DEFAULT_TITLE_SETTINGS, type TitleSettings, titleMiddleware } from '../middleware/title.ts';
import { isPlanMode, TODOS_PROMPT, todosMiddleware } from '../middleware/todos.ts';
import { tokenBudgetMiddleware } from '../middleware/token-budget.ts';
import { uploadsMiddleware } from '../middleware/uploads.ts';
import { viewedImagesMiddleware } from '../middleware/viewed-images.ts';
import type { ModelEntry } from '../models/entry.ts';
import type { ModelChoice, ModelRegistry } from '../models/registry.ts';
import { type ActiveAgent, agentToolsMiddleware, DEFAULT_TOOL_GROUPS, skillsFor } from '../profiles/active.ts';
import { agentNameOf } from '../profiles/profile.ts';
import type { AgentProfiles } from '../profiles/store.ts';
import { setupAgentTool, updateAgentTool } from '../profiles/tools.ts';
import { Authorization } from '../safety/authorization.ts';
import { isUntrustedChannel, withoutStrangers } from '../safety/channels.ts';
import { SkillAccess, type SkillAccessParts } from '../skills/access.ts';
import { skillActivationMiddleware } from '../skills/activation.ts';
import type { Skill } from '../skills/library.ts';
import { skillPolicyMiddleware } from '../skills/policy.ts';
import { skillsSection } from '../skills/prompt.ts';
import { subagentLimits } from '../subagents/limits.ts';
import { runLimits } from '../subagents/settings.ts';
import type { DelegationParts, PermitsOf, Subagents } from '../subagents/subagents.ts';
import { CLARIFICATION_TOOL } from '../tools/ask-clarification.ts';
import { type CoreToolSettings, coreTools, DEFAULT_CORE_TOOLS } from '../tools/core-tools.ts';
import { VIEW_IMAGE } from '../tools/view-image.ts';
import { TODOS_TOOL, writeTodosTool } from '../tools/write-todos.ts';
import { delegationSection, systemPrompt } from './prompt.ts';
import { DEFAULT_SAFEGUARDS, type SafeguardSettings, type Safeguards, safeguards } from './safeguards.ts';

const LEAD_AGENT = 'lead_agent';

export interface LeadAgentSettings {
  readonly agentName: string;
  readonly tools: CoreToolSettings;
  readonly llmCall: LlmCallSettings;
  readonly title: TitleSettings;
  readonly history: HistoryLimits;
  /** Tools that a person must approve before each call; `*` = all. Runs may ask for more with `interrupt_on`. */
  readonly approvals: readonly string[];
  /** Milliseconds in which an approval may be given; null = for ever. */
  readonly approvalExpiryMs: number | null;
  readonly safeguards: SafeguardSettings;
}

export const DEFAULT_LEAD_AGENT_SETTINGS: LeadAgentSettings = {
  agentName: 'Reindeer',
  tools: DEFAULT_CORE_TOOLS,
  llmCall: DEFAULT_LLM_CALL,
  title: DEFAULT_TITLE_SETTINGS,
  history: { maxCharacters: 1_000_000 },
  approvals: [],
  approvalExpiryMs: null,
  safeguards: DEFAULT_SAFEGUARDS,
};

export interface LeadAgentOptions {
  readonly models: ModelRegistry;
  /** Added to the built-in tools; a built-in tool of the same name wins. */
  readonly tools?: readonly StructuredToolInterface[];
  /** Own or LangChain middleware, placed inside the error handling and before titles and clarification. */
  readonly middleware?: readonly Middleware[];
  /** Runs with `subagent_enabled` may delegate to these; absent = none can. */
  readonly subagents?: Subagents;
  /** Batches for runs that may delegate, asked at each call; absent = there are none. */
  readonly batches?: () => BatchService | null;
  readonly sandboxes: SandboxProvider;
  /** Shared with whoever else holds sandboxes of the same provider; default: leases of its own. */
  readonly leases?: SandboxLeases;
  /** The user's skills, brought up to date for a run; absent = there are none. */
  readonly skills?: {
    prepare(userId: string): Promise<readonly Skill[]>;
    /** As they are now, for a look at each call. */
    list(userId: string): Promise<readonly Skill[]>;
  };
  /** Values for what skills declare; absent = none has any. */
  readonly skillSecrets?: SkillAccessParts['secrets'];
  /** Tools that may change while the server runs, asked for at the start of each attempt. */
  readonly mcp?: { catalog(signal?: AbortSignal): Promise<McpCatalog> };
  /** Hide the schemas of those tools until the model searches for them. Default off. */
  readonly toolSearch?: ToolSearchSettings;
  /** What is remembered of the user; absent = nothing. */
  readonly memory?: MemorySource;
  /** Notes conversations, so that something may be learned from them; absent = nothing is. Never those of sub-agents. */
  readonly capture?: MemoryCapture;
  /** The agent remembers by tools of its own; nothing is learned from conversations then (MEM-9). Never those of sub-agents. */
  readonly memoryTools?: Memory;
  /** Custom agents; absent = there is only the default one. */
  readonly profiles?: AgentProfiles;
  /** Group of each tool that is in one, for agents that are kept to groups; absent = the groups that tools have by themselves. */
  readonly toolGroups?: ReadonlyMap<string, string>;
  readonly surroundings: Surroundings;
  readonly settings?: Partial<LeadAgentSettings>;
}

/** The graphs for one set of tools. */
interface Built {
  readonly plain: { readonly loop: Loop; readonly compiled: CompiledGraph };
  readonly delegating: Built['plain'];
  readonly parts: DelegationParts;
}

const NO_TOOLS: McpCatalog = { version: '', tools: [] };
const NO_SKILLS: readonly Skill[] = [];
const NO_SECRETS: SkillAccessParts['secrets'] = {
  environment: async () => ({}),
  values: async () => [],
  remember: () => {},
};
const MAX_BUILDS = 4;
const MAX_PROMPTS = 512;

export interface LeadAgent extends GraphFactory {
  /** The graph of batch items, with the same tools and safe-guards; null where nothing can be delegated. */
  readonly items: GraphFactory | null;
}

/**
 * The lead agent (AG-1). Everything that does not depend on a run is made here, once: tools, middleware, prompt and the compiled
 * graph. Throws `configuration` when the middleware list breaks an order rule.
 */
export function createLeadAgent(options: LeadAgentOptions): LeadAgent {
  const { models, sandboxes, surroundings } = options;
  const settings = settingsOf(options);
  const leases = options.leases ?? new SharedLeases(sandboxes, surroundings.logger);
  const report = sandboxes.report();
  const abilities = {
    canExecute: offersCommands(report),
    pathStyle: pathStyleOf(sandboxes),
  };
  const guards = guardsOf(options);
  const chain = (more: readonly Middleware[]): Middleware[] => leadChain(options, more, guards);
  const fixedTools = [...coreTools(settings.tools, abilities), ...(options.tools ?? [])];
  // Last of all (AG-2). Only agents that may call them are offered them.
  const agentTools = { profiles: options.profiles, models: () => models.list().map((model) => model.name) };
  const late = [
    ...(options.memoryTools === undefined ? [] : memoryTools(options.memoryTools)),
    ...(hasProfiles(agentTools) ? [setupAgentTool(agentTools), updateAgentTool(agentTools)] : []),
  ];
  const sections = new WeakMap<readonly Skill[], string>();
  const sectionOf = (skills: readonly Skill[]): string => {
    const known = sections.get(skills) ?? skillsSection(skills);
    sections.set(skills, known);
    return known;
  };
  const permitsOf = modelPermits(options);
  const build = (catalog: McpCatalog): Built => {
    const tools = [...fixedTools, ...catalog.tools];
    const ofServers = new Set(catalog.tools);
    /** For those of an agent's tools that come from MCP servers. */
    const defer = (offered: readonly StructuredToolInterface[]): DeferredTools | null => {
      const hidden = offered.filter((tool) => ofServers.has(tool));
      if (options.toolSearch?.enabled !== true || hidden.length === 0) return null;
      return deferTools({ version: catalog.version, tools: hidden });
    };
    const deferred = defer(catalog.tools);
    const variant = (
      extra: { readonly tools: readonly StructuredToolInterface[]; readonly middleware: readonly Middleware[] },
      delegation: (run: Readonly<Record<string, unknown>>) => string | undefined,
    ): { readonly loop: Loop; readonly compiled: CompiledGraph } => {
      const middleware = chain([...(deferred === null ? [] : [deferred.middleware]), ...extra.middleware]);
      checkOrder(middleware);
      const prompts = new Map<string, SystemMessage>();
      const promptOf = (
        interactive: boolean,
        planning: boolean,
        section: string | undefined,
        skills: string,
        agent: ActiveAgent | null,
        remembers: boolean,
      ): SystemMessage => {
        const { name = null, soul = '', selfUpdate = false, bootstrap = false } = agent ?? {};
        const key = JSON.stringify([
          interactive,
          planning,
          section ?? '',
          skills,
          name,
          soul,
          selfUpdate,
          bootstrap,
          remembers,
        ]);
        const known = prompts.get(key);
        if (known !== undefined) return known;
        const made = new SystemMessage(
          systemPrompt({
            agentName: bootstrap ? settings.agentName : (name ?? settings.agentName),
            interactive,
            ...abilities,
            soul,
            selfUpdate,
            ...(bootstrap && name !== null ? { making: name } : {}),
            ...(planning ? { planning: TODOS_PROMPT } : {}),
            ...(skills === '' ? {} : { skills }),
            ...(remembers && !bootstrap ? { memoryTools: MEMORY_TOOLS_PROMPT } : {}),
            ...(deferred === null ? {} : { deferredTools: deferred.section }),
            ...(section === undefined ? {} : { delegation: section }),
          }),
        );
        // They differ by a run's limits and by the user's skills.
        const [oldest] = prompts.keys();
        if (prompts.size >= MAX_PROMPTS && oldest !== undefined) prompts.delete(oldest);
        prompts.set(key, made);
        return made;
      };
      // One list per mode, made once: what a model is bound to is remembered by the list.
      const lists = new Map<string, readonly unknown[]>();
      const offeredIn = (
        offered: readonly unknown[],
        mode: {
          readonly interactive: boolean;
          readonly planning: boolean;
          readonly vision: boolean;
          readonly strangers: boolean;
        },
      ): readonly unknown[] => {
        const key = JSON.stringify(mode);
        const hidden = new Set([
          ...(mode.interactive ? [] : [CLARIFICATION_TOOL]),
          ...(mode.planning ? [] : [TODOS_TOOL]),
          ...(mode.vision ? [] : [VIEW_IMAGE]),
          ...(mode.strangers ? MEMORY_CHANGES : []),
        ]);
        const known = lists.get(key) ?? offered.filter((tool) => !hidden.has((tool as { name?: string }).name ?? ''));
        lists.set(key, known);
        return known;
      };
      const loop = createLoop({
        channels: threadChannels(surroundings.random),
        middleware,
        // Of two of one name the first counts: what an MCP server calls its tools must not take the place of the harness's own.
        tools: [
          ...fixedTools,
          ...(deferred === null ? [] : [deferred.tool]),
          writeTodosTool(),
          ...extra.tools,
          ...late,
          ...catalog.tools,
        ],
        random: surroundings.random,
        historyLimits: settings.history,
        request(scope, runtime, offered) {
          if (scope.model === null) throw new ReindeerError('internal', 'The run has no model.');
          const run = runOptions(runtime);
          const interactive = run.non_interactive !== true;
          const planning = isPlanMode(run);
          const strangers = isUntrustedChannel(run.channel_name);
          const systemMessage = promptOf(
            interactive,
            planning,
            delegation(run),
            sectionOf(scope.skills ?? NO_SKILLS),
            scope.agent,
            options.memoryTools !== undefined && !strangers,
          );
          return {
            model: scope.model,
            systemMessage,
            tools: offeredIn(offered, { interactive, planning, vision: scope.vision, strangers }),
          };
        },
      });
      return { loop, compiled: compileGraph(loop, LEAD_AGENT) };
    };
    const plain = variant({ tools: [], middleware: [] }, () => undefined);
    const { subagents } = options;
    const parts: DelegationParts = {
      models,
      // Pictures go to the model of the lead agent only.
      tools: tools.filter((tool) => tool.name !== VIEW_IMAGE),
      middleware: options.middleware ?? [],
      defer,
      ...(options.profiles === undefined ? {} : { agentTools: agentToolsMiddleware(toolGroupsOf(options)) }),
      approvals: settings.approvals,
      llmCall: settings.llmCall,
      safeguards: settings.safeguards,
      history: settings.history,
      ...abilities,
      permitsOf,
      surroundings,
    };
    // The same graph with tools and one middleware more: a thread may change between the two. Made here as well, so that a mistake in the
    // settings of sub-agents stops the start.
    const delegating = subagents === undefined ? plain : withSubagents(subagents);
    return { plain, delegating, parts };

    function withSubagents(delegates: Subagents): typeof plain {
      const types = delegates.types(abilities.canExecute);
      const { batches } = options;
      const limits = subagentLimits(delegates.settings, surroundings.logger);
      const more = batches === undefined ? [] : batchTools({ service: batches, types, surroundings });
      return variant({ tools: [delegates.taskTool(parts), ...more], middleware: [limits] }, (run) =>
        delegationSection({
          types: [...types.values()],
          batches: batches !== undefined,
          ...runLimits(run, delegates.settings),
        }),
      );
    }
  };
  const base = build(NO_TOOLS);
  /** By the version of the tools; the newest few, since attempts that began with an older one go on with it. */
  const builds = new Map<string, Built>();
  const buildFor = (catalog: McpCatalog): Built => {
    if (catalog.tools.length === 0) return base;
    const known = builds.get(catalog.version) ?? build(catalog);
    builds.delete(catalog.version);
    builds.set(catalog.version, known);
    const [oldest] = builds.keys();
    if (builds.size > MAX_BUILDS && oldest !== undefined) builds.delete(oldest);
    return known;
  };
  const agentSkills = async (userId: string, agent: ActiveAgent | null): Promise<readonly Skill[] | null> => {
    try {
      return skillsFor(agent, (await options.skills?.prepare(userId)) ?? NO_SKILLS);
    } catch (error) {
      surroundings.logger.error('The skills cannot be read; the run goes on without them', {
        error: error instanceof Error ? error.message : String(error),
      });
      return null;
    }
  };
  const accessFor = (attempt: AttemptContext, agent: ActiveAgent | null): SkillAccess | null =>
    options.skills === undefined
      ? null
      : new SkillAccess({
          library: options.skills,
          secrets: options.skillSecrets ?? NO_SECRETS,
          userId: attempt.run.userId,
          agent,
          given: attempt.secrets ?? {},
          logger: surroundings.logger,
        });
  const { subagents } = options;
  const items =
    subagents === undefined
      ? null
      : createItemAgent({
          subagents,
          parts: base.parts,
          partsNow: async (signal) => buildFor((await options.mcp?.catalog(signal)) ?? NO_TOOLS).parts,
          leases,
          windowOf,
          agentOf: (userId, run) => activeAgent(options.profiles, userId, run),
          skillsOf: agentSkills,
          accessFor,
          permitsOf,
        });
  return {
    items,
    assistantId: LEAD_AGENT,
    name: settings.agentName,
    description: 'Plans, uses tools in a sandbox, and hands over finished work.',
    async forAttempt(attempt, saver): Promise<Graph> {
      const run = optionsOf(attempt);
      const agent = await activeAgent(options.profiles, attempt.run.userId, run);
      const [chosen, catalog, skills] = await Promise.all([
        models.choose({ ...choiceOf(run, agent), ...permitsOf(attempt.run) }),
        options.mcp?.catalog(attempt.signal) ?? NO_TOOLS,
        agentSkills(attempt.run.userId, agent),
      ]);
      const built = buildFor(catalog);
      const delegates = run.subagent_enabled === true && agent?.bootstrap !== true && options.subagents !== undefined;
      return agentGraph({
        ...(delegates ? built.delegating : built.plain),
        saver,
        surroundings,
        scope: new AttemptScope(
          attempt,
          leases,
          chosen.model,
          undefined,
          windowOf(chosen.entry),
          skills,
          chosen.entry.supports_vision === true,
          agent,
          accessFor(attempt, agent),
        ),
        metadata: {
          agent_name: agent?.name ?? LEAD_AGENT,
          model_name: chosen.entry.name,
          thinking_enabled: chosen.thinking,
          ...(isPlanMode(run) ? { is_plan_mode: true } : {}),
          ...(delegates ? { subagent_enabled: true } : {}),
          ...(chosen.reasoningEffort === null ? {} : { reasoning_effort: chosen.reasoningEffort }),
          ...(agent?.profile?.tool_groups == null ? {} : { tool_groups: agent.profile.tool_groups }),
          ...(agent?.name == null || skills === null
            ? {}
            : { available_skills: skills.filter((skill) => skill.enabled).map((skill) => skill.name) }),
        },
      });
    },
    async forState(saver): Promise<Graph> {
      return agentGraph({ ...base.plain, saver, surroundings, scope: null });
    },
  };
}

/** Which models the user of a run may use. */
const modelPermits = (options: LeadAgentOptions): PermitsOf => {
  const authorization = new Authorization(settingsOf(options).safeguards.authorization, options.surroundings.logger);
  return (run) =>
    authorization.active
      ? { permits: (name) => authorization.permits(authorization.principalOf(run), 'models', name) }
      : {};
};

const settingsOf = (options: LeadAgentOptions): LeadAgentSettings => ({
  ...DEFAULT_LEAD_AGENT_SETTINGS,
  ...options.settings,
});

const pathStyleOf = (sandboxes: SandboxProvider): 'virtual' | 'relative' =>
  // Only the local provider has no folders of its own: there the model works with relative paths (D8).
  sandboxes.report().provider === 'local' ? 'relative' : 'virtual';

function guardsOf(options: LeadAgentOptions): Safeguards {
  const { memory, capture, surroundings, sandboxes } = options;
  const settings = settingsOf(options);
  const { agentName } = settings;
  const { summarization } = settings.safeguards;
  // Here and not in the settings: sub-agents have those too, and nothing is learned from what an agent tells them.
  const beforeCompaction: SummarizationSettings['beforeCompaction'] =
    capture === undefined
      ? summarization.beforeCompaction
      : async (input) => {
          await summarization.beforeCompaction?.(input);
          await capture.capture({ agentName, ...input, messages: withoutStrangers(input.messages), leaving: true });
        };
  return safeguards({
    settings: {
      ...settings.safeguards,
      summarization: { ...summarization, ...(beforeCompaction === undefined ? {} : { beforeCompaction }) },
    },
    llmCall: settings.llmCall,
    agentName: settings.agentName,
    pathStyle: pathStyleOf(sandboxes),
    surroundings,
    ...(memory === undefined ? {} : { memory }),
  });
}

/**
 * The lead agent's middleware, outermost first (MW-38).
 *
 * @param more what a variant of the agent adds
 * @param guards shared by all variants, so that what they know of providers is known once
 */
export function leadChain(
  options: LeadAgentOptions,
  more: readonly Middleware[] = [],
  guards: Safeguards = guardsOf(options),
): Middleware[] {
  const { models, sandboxes, surroundings } = options;
  const settings = settingsOf(options);
  /** The run's model without thinking, for short questions beside the work. */
  const helperModel = async (scope: AttemptScope) =>
    (
      await models.choose({
        name: choiceOf(optionsOf(scope.attempt), scope.agent).name,
        thinking: false,
        ...modelPermits(options)(scope.attempt.run),
      })
    ).model;
  return [
    ...guards.first,
    threadDataMiddleware(),
    uploadsMiddleware(sandboxes),
    viewedImagesMiddleware(),
    ...(options.profiles === undefined ? [] : [agentToolsMiddleware(toolGroupsOf(options))]),
    skillActivationMiddleware(surroundings.logger),
    skillPolicyMiddleware(),
    ...guards.context,
    approvalMiddleware({ tools: settings.approvals, expireAfterMs: settings.approvalExpiryMs }, surroundings.clock),
    ...guards.calls,
    ...more,
    ...(options.middleware ?? []),
    deliveryMiddleware(),
    todosMiddleware(),
    ...(options.capture === undefined
      ? []
      : [memoryCaptureMiddleware(options.capture, settings.agentName, surroundings)]),
    titleMiddleware(settings.title, surroundings),
    goalMiddleware({ surroundings, evaluator: helperModel }),
    tokenBudgetMiddleware(settings.safeguards.tokenBudget),
    ...guards.answers,
    clarificationMiddleware(),
  ];
}

/** Tokens that a configured model takes; null = not said. */
export const windowOf = (entry: ModelEntry): number | null =>
  typeof entry.context_window === 'number' && entry.context_window > 0 ? entry.context_window : null;

const optionsOf = (attempt: AttemptContext): Readonly<Record<string, unknown>> =>
  runOptions({ configurable: { [SCOPE]: new AttemptScope(attempt, null) }, context: {} });

/**
 * Which agent a run is with: `agent_name`, and `is_bootstrap` for a conversation that makes it. Null: there is only the default agent.
 *
 * @throws ReindeerError `validation_failed` for a name that is none, before any file is touched; `not_found`
 */
async function activeAgent(
  profiles: AgentProfiles | undefined,
  userId: string,
  run: Readonly<Record<string, unknown>>,
): Promise<ActiveAgent | null> {
  const given = run.agent_name;
  const name = given === undefined || given === null || given === '' ? null : agentNameOf(given);
  const bootstrap = run.is_bootstrap === true;
  if (profiles === undefined) {
    if (name === null) return null;
    throw new ReindeerError('not_found', `There is no agent "${name}".`);
  }
  // Nobody's soul while an agent is made: the guide is no agent of the user's.
  if (bootstrap) return { name, profile: null, soul: '', bootstrap, selfUpdate: false };
  if (name === null) return { name, profile: null, soul: await profiles.defaultSoul(), bootstrap, selfUpdate: false };
  const profile = await profiles.get(userId, name);
  if (profile === null)
    throw new ReindeerError('not_found', `There is no agent "${name}". Make it first, or leave agent_name out.`);
  return { name, profile, soul: profile.soul, bootstrap, selfUpdate: !isUntrustedChannel(run.channel_name) };
}

const toolGroupsOf = (options: LeadAgentOptions): ReadonlyMap<string, string> =>
  new Map([...DEFAULT_TOOL_GROUPS, ...(options.toolGroups ?? [])]);

const hasProfiles = <T extends { readonly profiles: AgentProfiles | undefined }>(
  parts: T,
): parts is T & { readonly profiles: AgentProfiles } => parts.profiles !== undefined;

/**
 * Model options of a run: `model_name` (or `model`), `thinking_enabled`, `reasoning_effort`; context wins over configurable, and a key that is
 * there, even as false or null, over the agent's profile (AG-1).
 */
function choiceOf(
  run: Readonly<Record<string, unknown>>,
  agent: ActiveAgent | null,
): ModelChoice & { readonly name: string | null } {
  const name = run.model_name ?? run.model;
  const profile = agent?.profile ?? null;
  const thinking = 'thinking_enabled' in run ? run.thinking_enabled : profile?.thinking_enabled;
  const effort = 'reasoning_effort' in run ? run.reasoning_effort : profile?.reasoning_effort;
  return {
    name: typeof name === 'string' && name !== '' ? name : (profile?.model ?? null),
    ...(typeof thinking === 'boolean' ? { thinking } : {}),
    reasoningEffort: typeof effort === 'string' && effort !== '' ? effort : null,
    settings: profile?.model_settings ?? null,
  };
}
