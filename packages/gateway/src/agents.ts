import { AsyncLocalStorageProviderSingleton } from '@langchain/core/singletons';
import {
  type AskModel,
  askOnce,
  createItemExecutor,
  createLeadAgent,
  createModelRegistry,
  DEFAULT_CORE_TOOLS,
  DEFAULT_LEAD_AGENT_SETTINGS,
  Documents,
  type Memory,
  type ModelEntry,
  type ModelInfo,
  type ModelRegistry,
  type SafeguardSettings,
  Subagents,
  type SummarizationSettings,
  skillsSection,
  webTools,
} from '@reindeer/agent';
import {
  type BatchService,
  type MemoryStore,
  offersCommands,
  type SandboxLeases,
  type SandboxProvider,
  type Surroundings,
} from '@reindeer/protocol';
import { DEMO_MODEL, demoScript, ScriptedChatModel } from '@reindeer/scripted';
import type { Agents } from './compose.ts';
import { DEMO_USE } from './config/models.ts';
import type { LiveSettings } from './config/reload.ts';
import type { ModelEntry as ConfiguredModel } from './config/schema.ts';
import type { Settings } from './config/settings.ts';
import type { Variables } from './config/substitute.ts';
import { createConversation } from './conversation.ts';
import { createCustomAgents } from './custom-agents.ts';
import { createExtensions } from './extensions.ts';
import type { ModelView } from './http/parts.ts';
import { liveModels } from './live-models.ts';
import { createMemory } from './memory.ts';
import { ownModels } from './own-models.ts';
import type { Resources } from './resources.ts';
import { outputLimits } from './sandbox-settings.ts';

/**
 * LangChain makes its tracing client when it first passes a configuration on, and that client looks for a profile on disk, blocking.
 * Here it does so before anything is served. It is made whether tracing is on or not.
 */
export function warmUp(): void {
  AsyncLocalStorageProviderSingleton.runWithConfig({}, () => {});
}

/** The lead agent and the models that it may use, from the settings. */
export async function createAgents(parts: {
  settings: Settings;
  sandboxes: SandboxProvider;
  leases: SandboxLeases;
  surroundings: Surroundings;
  variables: Variables;
  resources: Resources;
  memoryStore: MemoryStore;
  /** Absent = nothing changes while the process runs. */
  live?: LiveSettings;
}): Promise<Agents> {
  const { settings, sandboxes, leases, surroundings, variables, resources } = parts;
  warmUp();
  const { clock, logger } = surroundings;
  const { models, views, names, title, secrets } = await liveModels({
    settings,
    variables,
    live: parts.live ?? null,
    make: async (from, environment) =>
      createModelRegistry({
        entries: from.models.map(entryOf),
        environment,
        logger,
        factories: {
          ...(await ownModels(from)),
          [DEMO_USE]: () => new ScriptedChatModel({ script: demoScript, modelName: DEMO_MODEL.name, clock }),
        },
      }),
    view: (registry) => registry.list().map(viewOf),
    secrets: secretsOf,
  });
  const { sandbox } = settings;
  const { documentWorker } = resources;
  const documents = new Documents({ logger, ...(documentWorker === undefined ? {} : { workerUrl: documentWorker }) });
  for (const warning of settings.tools.warnings) logger.warn(warning);
  const { skills, mcp, modules } = await createExtensions({
    settings,
    surroundings,
    variables,
    resources,
    documents,
    sandboxes,
    judge: await judgeOf(models, settings.skills.judge, 'skill-scan'),
  });
  const subagents = new Subagents({
    settings: settings.subagents,
    surroundings,
    loadSkills: async ({ names, userId }) => {
      const all = await skills.prepare(userId);
      return skillsSection(names === null ? all : all.filter((skill) => names.includes(skill.name)));
    },
  });
  const safeguards: SafeguardSettings = {
    ...settings.agent.safeguards,
    summarization: {
      ...settings.agent.safeguards.summarization,
      model: await quickModel(models, settings.agent.summaryModel),
    },
  };
  const ask = settings.memory.settings.enabled ? await judgeOf(models, settings.memory.model, 'memory') : null;
  const remembered = createMemory({
    store: parts.memoryStore,
    configuration: settings.memory,
    ask,
    modelName: settings.memory.model ?? models.list()[0]?.name ?? null,
    surroundings,
  });
  const { memory } = remembered;
  const custom = createCustomAgents({
    settings,
    surroundings,
    models: names,
    memory,
  });
  let batches: BatchService | null = null;
  const agent = createLeadAgent({
    models,
    tools: webTools({ settings: settings.tools.web, documents, environment: variables, logger }),
    mcp,
    toolSearch: { enabled: settings.toolSearch },
    skills,
    subagents,
    ...(memory === null ? {} : { memory, capture: memory }),
    profiles: custom.profiles,
    toolGroups: settings.tools.groups,
    ...(settings.batches.enabled ? { batches: () => batches } : {}),
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
        ...(sandbox.bash_command_timeout === undefined ? {} : { bashTimeoutMs: sandbox.bash_command_timeout * 1000 }),
        ...outputLimits(settings),
        secrets,
      },
      title,
    },
  });
  // Last, so that nothing runs on when a setting above is refused.
  mcp.start();
  return {
    graphs: new Map([agent, agent.items].flatMap((graph) => (graph === null ? [] : [[graph.assistantId, graph]]))),
    batches: {
      types: [...subagents.types(sandboxes.report().canExecute).keys()],
      executor: (services) =>
        createItemExecutor({ ...services, subagents, canExecute: offersCommands(sandboxes.report()), surroundings }),
      bind: (service) => {
        batches = service;
      },
    },
    models: views,
    ...(parts.live === undefined ? {} : { refresh: () => parts.live?.refresh() ?? Promise.resolve() }),
    convert: (name, body) => documents.read({ kind: 'convert', name, body, maxCharacters: MAX_CONVERTED }),
    sessions: { closeAll: () => mcp.close() },
    modules: [...modules, ...remembered.modules, ...custom.modules],
    custom: custom.http,
    memory: remembered.learner,
    onThreadDeleting: (thread) => mcp.closeThread(thread),
    conversation: createConversation({
      models,
      // On request as in a run: what goes is noted before (CTX-2).
      summarization: { ...safeguards.summarization, ...leaving(memory) },
      suggestions: settings.agent.suggestions,
      surroundings,
    }),
    drain: async (timeoutMs) => {
      const left = await subagents.drain(timeoutMs);
      await documents.close();
      return left;
    },
  };
}

/** Asks a model that judges or learns; null when there is only the demo model, which cannot. */
async function judgeOf(models: ModelRegistry, name: string | null, purpose: string): Promise<AskModel | null> {
  const { model, entry } = await models.choose({ name, thinking: false });
  if (entry.use === DEMO_USE) return null;
  return (question, signal) => askOnce({ model, question, purpose, signal });
}

/** Notes what a compaction on request takes out of a conversation. */
function leaving(memory: Memory | null): Pick<SummarizationSettings, 'beforeCompaction'> {
  if (memory === null) return {};
  const { agentName } = DEFAULT_LEAD_AGENT_SETTINGS;
  return { beforeCompaction: (input) => memory.capture({ agentName, ...input, leaving: true }) };
}

/** A named model without thinking, for short questions beside the work; null = none is named. */
async function quickModel(models: ModelRegistry, name: string | null | undefined) {
  if (name == null) return null;
  return (await models.choose({ name, thinking: false })).model;
}

/** Characters of a document's Markdown that are kept. */
const MAX_CONVERTED = 8_000_000;

/** Keys of web providers that the environment may hold. */
const KEY_VARIABLES: readonly string[] = [
  'TAVILY_API_KEY',
  'FIRECRAWL_API_KEY',
  'EXA_API_KEY',
  'SERPER_API_KEY',
  'BRAVE_SEARCH_API_KEY',
  'JINA_API_KEY',
];

/** Keys of models that the environment may hold. */
const MODEL_KEYS: readonly string[] = [
  'OPENAI_API_KEY',
  'ANTHROPIC_API_KEY',
  'GEMINI_API_KEY',
  'GOOGLE_API_KEY',
  'DEEPSEEK_API_KEY',
];

/** Values that no tool result may show. */
function secretsOf(settings: Settings, variables: Variables): string[] {
  const keys = [
    ...settings.models.map((model) => model.api_key),
    ...settings.tools.web.map(({ options }) => options.api_key),
    settings.server.token,
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
