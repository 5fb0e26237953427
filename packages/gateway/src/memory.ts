import { type AskModel, DEFAULT_LEAD_AGENT_SETTINGS, Learner, Memory } from '@reindeer/agent';
import type { MemoryStore, Surroundings } from '@reindeer/protocol';
import type { MemoryConfiguration } from './config/memory.ts';
import { memoryRoutes } from './http/memory.ts';
import type { Api } from './http/route.ts';
import type { FlushingMemory } from './life/memory-step.ts';

export interface MemoryService {
  /** null = the manager is `noop`: nothing is remembered. */
  readonly memory: Memory | null;
  /** null = nothing learns. */
  readonly learner: FlushingMemory | null;
  readonly modules: readonly ((api: Api) => void)[];
}

/** @param ask the model that learns; null = there is only the demo model, which cannot */
export function createMemory(parts: {
  readonly store: MemoryStore;
  readonly configuration: MemoryConfiguration;
  readonly ask: AskModel | null;
  readonly modelName: string | null;
  readonly surroundings: Surroundings;
}): MemoryService {
  const { store, configuration, ask, modelName, surroundings } = parts;
  const { settings, manager } = configuration;
  const memory =
    manager === 'noop'
      ? null
      : new Memory({
          store,
          settings,
          learns: ask !== null,
          defaultAgent: DEFAULT_LEAD_AGENT_SETTINGS.agentName,
          surroundings,
        });
  const learner =
    memory === null || ask === null || !settings.enabled ? null : new Learner({ store, memory, ask, surroundings });
  return {
    memory,
    learner,
    modules: [
      (api) => memoryRoutes(api, { memory, learner, configuration, modelName: ask === null ? null : modelName }),
    ],
  };
}
