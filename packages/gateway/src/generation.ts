import {
  type AskForItem,
  type AskModel,
  Authorization,
  askForItems,
  askOnce,
  createLeadAgent,
  createModelRegistry,
  DEFAULT_CORE_TOOLS,
  DEFAULT_LEAD_AGENT_SETTINGS,
  DEFAULT_TITLE_SETTINGS,
  type Documents,
  type LeadAgent,
  type LeadAgentOptions,
  type Memory,
  type MemoryCapture,
  type MemorySource,
  type ModelEntry,
  type ModelInfo,
  type ModelRegistry,
  type SafeguardSettings,
  type Subagents,
  type SummarizationSettings,
  type TitleSettings,
  webTools,
  withoutStrangers,
} from '@reindeer/agent';
import type { BatchService, SandboxLeases, SandboxProvider, Surroundings } from '@reindeer/protocol';
import { DEMO_MODEL, demoScript, ScriptedChatModel } from '@reindeer/scripted';
import { DEMO_USE } from './config/models.ts';
import { defined, milliseconds } from './config/readers.ts';
import type { ModelEntry as ConfiguredModel } from './config/schema.ts';
import type { Settings } from './config/settings.ts';
import type { Variables } from './config/substitute.ts';
import { type Conversation, createConversation } from './conversation.ts';
import type { ModelView } from './http/parts.ts';
import { ownModels } from './own-models.ts';
import { ownPolicies, ownTools } from './own-parts.ts';
import { outputLimits } from './sandbox-settings.ts';

/** What lives as long as the process, whatever the configuration says: it has work, sessions, queues or files of its own. */
export interface LastingParts extends Pick<LeadAgentOptions, 'skills' | 'skillSecrets' | 'mcp' | 'profiles'> {
  readonly surroundings: Surroundings;
  readonly sandboxes: SandboxProvider;
  readonly leases: SandboxLeases;
  readonly documents: Documents;
  /** What agents are told of the user, and where conversations are noted; null = nothing is. */
  readonly memory: (MemorySource & MemoryCapture) | null;
  /** Ours, which agents may have tools for; null = there is another one, or none. */
  readonly builtInMemory: Memory | null;
  /** The sub-agents of the process under the configuration of now. */
  readonly subagents: Subagents;
  readonly batches: () => BatchService | null;
  /** Values that no tool result may show. Grows only: a key that was taken out of the file is still one. */
  readonly secrets: readonly string[];
}

/**
 * What one configuration makes of the agents. A run has the one of its start to its end; when the configuration changes, another is made beside it,
 * and this one goes with the last run that has it (CFG-4a).
 */
export interface Generation {
  readonly settings: Settings;
  readonly variables: Variables;
  readonly views: readonly ModelView[];
  readonly names: readonly string[];
  readonly secrets: readonly string[];
  readonly subagents: Subagents;
  readonly agent: LeadAgent;
  readonly authorization: Authorization;
  readonly conversation: Conversation;
  /** The model that judges skills, and the one that learns; null = there is only the demo model, which can neither. */
  readonly judge: AskModel | null;
  readonly learn: AskModel | null;
  /** The models that judge results of batch items. */
  readonly askForItem: AskForItem;
}

/** Makes all of it, or throws `configuration` and leaves nothing behind. */
export async function createGeneration(
  settings: Settings,
  variables: Variables,
  parts: LastingParts,
): Promise<Generation> {
  const { surroundings, sandboxes, leases, documents, skills, mcp, profiles } = parts;
  const { clock, logger } = surroundings;
  const memory = settings.memory.settings.enabled ? parts.memory : null;
  const models = createModelRegistry({
    entries: settings.models.map(entryOf),
    environment: variables,
    logger,
    factories: {
      ...(await ownModels(settings)),
      [DEMO_USE]: () => new ScriptedChatModel({ script: demoScript, modelName: DEMO_MODEL.name, clock }),
    },
  });
  const views = models.list().map(viewOf);
  for (const warning of settings.warnings) logger.warn(warning);
  const subagents = parts.subagents.under(settings.subagents);
  const { guardrail, authorization, detectors } = await ownPolicies(settings);
  const base = settings.agent.safeguards;
  const safeguards: SafeguardSettings = {
    ...base,
    ...(guardrail === null ? {} : { guardrails: { ...base.guardrails, provider: guardrail } }),
    ...(authorization === null ? {} : { authorization: { ...base.authorization, provider: authorization } }),
    safetyFinish: { ...base.safetyFinish, own: detectors },
    summarization: {
      ...settings.agent.safeguards.summarization,
      model: await quickModel(models, settings.agent.summaryModel),
    },
  };
  if (settings.memory.mode === 'tool' && (parts.builtInMemory === null || !remembersByTools(settings)))
    logger.warn(
      'memory.mode is tool, but nothing is remembered (memory.enabled or manager_class): there are no memory tools',
    );
  const { sandbox } = settings;
  const agent = createLeadAgent({
    models,
    tools: [
      ...(await ownTools(settings, { secrets: parts.secrets, logger })),
      ...webTools({ settings: settings.tools.web, documents, environment: variables, logger }),
    ],
    ...(mcp === undefined ? {} : { mcp }),
    toolSearch: { enabled: settings.toolSearch },
    ...(skills === undefined ? {} : { skills }),
    ...(parts.skillSecrets === undefined ? {} : { skillSecrets: parts.skillSecrets }),
    subagents,
    ...(memory === null ? {} : { memory, capture: memory }),
    ...(parts.builtInMemory !== null && remembersByTools(settings) ? { memoryTools: parts.builtInMemory } : {}),
    ...(profiles === undefined ? {} : { profiles }),
    toolGroups: settings.tools.groups,
    ...(settings.batches.enabled ? { batches: parts.batches } : {}),
    sandboxes,
    leases,
    surroundings,
    settings: {
      approvals: settings.approvals,
      approvalExpiryMs: settings.agent.approvalExpiryMs,
      llmCall: settings.agent.llmCall,
      safeguards,
      tools: {
        ...DEFAULT_CORE_TOOLS,
        offered: settings.tools.sandbox,
        ...defined('bashTimeoutMs', milliseconds(sandbox.bash_command_timeout, null)),
        ...outputLimits(settings),
        secrets: parts.secrets,
      },
      title: await titleOf(settings, models),
    },
  });
  return {
    settings,
    variables,
    views,
    names: views.map((view) => view.name),
    secrets: secretsOf(settings, variables),
    subagents,
    agent,
    authorization: new Authorization(safeguards.authorization, logger),
    conversation: createConversation({
      models,
      // On request as in a run: what goes is noted before (CTX-2).
      summarization: { ...safeguards.summarization, ...leaving(memory) },
      suggestions: settings.agent.suggestions,
      surroundings,
    }),
    askForItem: askForItems(models, new Authorization(safeguards.authorization, logger)),
    judge: await judgeOf(models, settings.skills.judge, 'skill-scan'),
    // Where the agent remembers by itself, nothing is learned from conversations (MEM-9).
    learn:
      settings.memory.settings.enabled && settings.memory.mode === 'middleware'
        ? await judgeOf(models, settings.memory.model, 'memory')
        : null,
  };
}

/** Asks a model that judges or learns; null when there is only the demo model, which cannot. */
async function judgeOf(models: ModelRegistry, name: string | null, purpose: string): Promise<AskModel | null> {
  const { model, entry } = await models.choose({ name, thinking: false });
  if (entry.use === DEMO_USE) return null;
  return (question, signal) => askOnce({ model, question, purpose, signal });
}

const remembersByTools = ({ memory }: Settings): boolean => memory.mode === 'tool' && memory.settings.enabled;

/** Notes what a compaction on request takes out of a conversation. */
function leaving(memory: MemoryCapture | null): Pick<SummarizationSettings, 'beforeCompaction'> {
  if (memory === null) return {};
  const { agentName } = DEFAULT_LEAD_AGENT_SETTINGS;
  return {
    beforeCompaction: (input) =>
      memory.capture({ agentName, ...input, messages: withoutStrangers(input.messages), leaving: true }),
  };
}

/** A named model without thinking, for short questions beside the work; null = none is named. */
async function quickModel(models: ModelRegistry, name: string | null | undefined) {
  if (name == null) return null;
  return (await models.choose({ name, thinking: false })).model;
}

/** Keys of web providers that the environment may hold. */
const KEY_VARIABLES: readonly string[] = [
  'TAVILY_API_KEY',
  'FIRECRAWL_API_KEY',
  'EXA_API_KEY',
  'SERPER_API_KEY',
  'BRAVE_SEARCH_API_KEY',
  'JINA_API_KEY',
  'INFOQUEST_API_KEY',
];

/** Keys of models that the environment may hold. */
const MODEL_KEYS: readonly string[] = [
  'OPENAI_API_KEY',
  'ANTHROPIC_API_KEY',
  'CLAUDE_CODE_OAUTH_TOKEN',
  'GEMINI_API_KEY',
  'GOOGLE_API_KEY',
  'DEEPSEEK_API_KEY',
  'MISTRAL_API_KEY',
];

/** Values that no tool result may show. */
function secretsOf(settings: Settings, variables: Variables): string[] {
  const keys = [
    ...settings.models.map((model) => model.api_key),
    ...settings.tools.web.map(({ options }) => options.api_key),
    settings.server.token,
    settings.server.internalToken,
    ...KEY_VARIABLES.map((name) => variables[name]),
    ...MODEL_KEYS.map((name) => variables[name]),
  ];
  return [...new Set(keys.filter((key): key is string => typeof key === 'string' && key.length >= 8))];
}

function entryOf(model: ConfiguredModel): ModelEntry {
  // A key without a value in the file means that it is not set.
  const given = Object.fromEntries(Object.entries(model).filter(([, value]) => value != null));
  const use = model.use ?? 'openai';
  return {
    ...given,
    name: model.name,
    use,
    model: model.model ?? model.name,
    ...(use === DEMO_USE ? { demo: true } : {}),
  };
}

const viewOf = (info: ModelInfo): ModelView => ({
  name: info.name,
  model: info.model,
  display_name: info.display_name,
  description: info.description ?? '',
  supports_thinking: info.supports_thinking,
  supports_reasoning_effort: info.supports_reasoning_effort,
  supports_vision: info.supports_vision,
  demo: info.demo,
});

async function titleOf({ title }: Settings, models: ModelRegistry): Promise<TitleSettings> {
  const name = title.model_name ?? null;
  return {
    ...DEFAULT_TITLE_SETTINGS,
    ...(title.enabled === undefined ? {} : { enabled: title.enabled }),
    ...(title.max_words === undefined ? {} : { maxWords: title.max_words }),
    ...(title.max_chars === undefined ? {} : { maxCharacters: title.max_chars }),
    ...(title.prompt_template == null ? {} : { promptTemplate: title.prompt_template }),
    model: name === null ? null : (await models.choose({ name, thinking: false })).model,
  };
}
