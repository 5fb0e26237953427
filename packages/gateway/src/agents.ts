import { AsyncLocalStorageProviderSingleton } from '@langchain/core/singletons';
import { createItemExecutor, Documents, hiddenForms, masked, Subagents, skillsSection } from '@reindeer/agent';
import {
  type BatchService,
  type GraphFactory,
  type MemoryStore,
  offersCommands,
  ReindeerError,
  type SandboxLeases,
  type SandboxProvider,
  type Surroundings,
} from '@reindeer/protocol';
import type { Agents } from './compose.ts';
import type { LiveSettings } from './config/reload.ts';
import type { Settings } from './config/settings.ts';
import type { Variables } from './config/substitute.ts';
import { createCustomAgents } from './custom-agents.ts';
import { createExtensions } from './extensions.ts';
import { createGeneration, type Generation } from './generation.ts';
import { createMemory } from './memory.ts';
import { ownMemory } from './own-parts.ts';
import type { Resources } from './resources.ts';

/**
 * LangChain makes its tracing client when it first passes a configuration on, and that client looks for a profile on disk, blocking.
 * Here it does so before anything is served. It is made whether tracing is on or not.
 */
export function warmUp(): void {
  AsyncLocalStorageProviderSingleton.runWithConfig({}, () => {});
}

/** Characters of a document's Markdown that are kept. */
const MAX_CONVERTED = 8_000_000;

/**
 * The lead agent and the models that it may use, from the settings. What has a life of its own (sub-agents at work, MCP sessions, the memory, documents)
 * is made once; everything else is made anew for each configuration, as a `Generation`.
 */
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
  const { sandboxes, leases, surroundings, resources, live } = parts;
  warmUp();
  const { logger } = surroundings;
  let now: Pick<Generation, 'settings' | 'variables'> & Partial<Generation> = parts;
  const { documentWorker } = resources;
  const documents = new Documents({ logger, ...(documentWorker === undefined ? {} : { workerUrl: documentWorker }) });
  const {
    skills,
    secrets: skillSecrets,
    mcp,
    modules,
  } = await createExtensions({
    now: () => now,
    surroundings,
    resources,
    documents,
    sandboxes,
    judge: () => now.judge ?? null,
  });
  const subagents = new Subagents({
    settings: parts.settings.subagents,
    surroundings,
    loadSkills: async ({ names, userId }) => {
      const all = await skills.prepare(userId);
      return skillsSection(names === null ? all : all.filter((skill) => names.includes(skill.name)));
    },
  });
  const remembered = createMemory({
    store: parts.memoryStore,
    configuration: () => now.settings.memory,
    ask: () => now.learn ?? null,
    modelName: () => now.settings.memory.model ?? now.names?.[0] ?? null,
    surroundings,
    own: await ownMemory(parts.settings, surroundings),
  });
  const { memory } = remembered;
  const custom = createCustomAgents({
    settings: () => now.settings,
    surroundings,
    models: () => now.names ?? [],
    memory,
  });
  let batches: BatchService | null = null;
  const secrets: string[] = [];
  const lasting = {
    surroundings,
    sandboxes,
    leases,
    documents,
    skills,
    skillSecrets,
    mcp,
    profiles: custom.profiles,
    memory: remembered.source,
    builtInMemory: memory,
    subagents,
    batches: () => batches,
    secrets,
  };
  const keep = (generation: Generation): Generation => {
    now = generation;
    secrets.push(...generation.secrets.filter((secret) => !secrets.includes(secret)));
    return generation;
  };
  let current = keep(await createGeneration(parts.settings, parts.variables, lasting));
  live?.onChange(async (settings, variables) => {
    const next = await createGeneration(settings, variables, lasting);
    return () => {
      current = keep(next);
      subagents.capacity.configureWhenIdle(settings.subagents.capacity);
    };
  });
  const refresh = async (): Promise<void> => await live?.refresh();
  /** A graph as the configuration has it at the start of each attempt; the attempt keeps it. */
  const following = (of: (generation: Generation) => GraphFactory | null): GraphFactory | null => {
    const first = of(current);
    if (first === null) return null;
    const { assistantId, name, description, internal } = first;
    const factory = (): GraphFactory => {
      const found = of(current);
      if (found === null) throw new ReindeerError('internal', `The agent ${assistantId} is gone.`);
      return found;
    };
    return {
      assistantId,
      name,
      description,
      ...(internal === undefined ? {} : { internal }),
      forAttempt: async (attempt, saver) => {
        await refresh();
        return await factory().forAttempt(attempt, saver);
      },
      forState: async (saver) => await factory().forState(saver),
    };
  };
  const graphs = [following(({ agent }) => agent), following(({ agent }) => agent.items)];
  const canExecute = (): boolean => offersCommands(sandboxes.report());
  // Last, so that nothing runs on when a setting above is refused.
  mcp.start();
  return {
    graphs: new Map(graphs.flatMap((graph) => (graph === null ? [] : [[graph.assistantId, graph]]))),
    batches: {
      get types() {
        return [...current.subagents.types(sandboxes.report().canExecute).keys()];
      },
      executor: (services) => ({
        prepare: async (work) =>
          await createItemExecutor({
            ...services,
            subagents: current.subagents,
            canExecute: canExecute(),
            surroundings,
            ask: current.askForItem,
          }).prepare(work),
      }),
      bind: (service) => {
        batches = service;
      },
    },
    get models() {
      return current.views;
    },
    ...(live === undefined ? {} : { refresh }),
    authorization: () => current.authorization,
    hide: async ({ userId }) => {
      try {
        const hidden = hiddenForms([...secrets, ...(await skillSecrets.values(userId))]);
        return (text) => masked(text, hidden);
      } catch (error) {
        logger.error('Differences are not shown, because the secrets of skills cannot be read', {
          error: String(error),
        });
        return () => '[not shown: the secrets of skills cannot be read]\n';
      }
    },
    convert: (name, body) => documents.read({ kind: 'convert', name, body, maxCharacters: MAX_CONVERTED }),
    skillNames: async (userId) => (await skills.prepare(userId)).map(({ name }) => name),
    ...(memory === null
      ? {}
      : {
          remembered: async (userId) => {
            const { facts } = await memory.document({ userId, agentName: null });
            return facts.toReversed().map(({ content }) => content);
          },
        }),
    sessions: { closeAll: () => mcp.close() },
    modules: [...modules, ...remembered.modules, ...custom.modules],
    custom: custom.http,
    memory: remembered.learner,
    onThreadDeleting: (thread) => mcp.closeThread(thread),
    conversation: {
      get compacts() {
        return current.conversation.compacts;
      },
      get suggestions() {
        return current.conversation.suggestions;
      },
      compact: (input) => current.conversation.compact(input),
      suggest: (input) => current.conversation.suggest(input),
    },
    drain: async (timeoutMs) => {
      const left = await subagents.drain(timeoutMs);
      await documents.close();
      return left;
    },
  };
}
