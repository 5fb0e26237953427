import {
  type AskModel,
  DEFAULT_LEAD_AGENT_SETTINGS,
  Learner,
  Memory,
  type MemoryCapture,
  type MemorySource,
} from '@reindeer/agent';
import { type MemoryStore, ReindeerError, type Surroundings } from '@reindeer/protocol';
import type { MemoryConfiguration } from './config/memory.ts';
import { memoryRoutes } from './http/memory.ts';
import type { Api } from './http/route.ts';
import type { FlushingMemory } from './life/memory-step.ts';

export interface MemoryService {
  /** null = the manager is `noop`, or one of the operator's own: here nothing is remembered. */
  readonly memory: Memory | null;
  /** What agents are told, and where conversations are noted; null = nothing is. */
  readonly source: (MemorySource & MemoryCapture) | null;
  /** null = nothing learns. */
  readonly learner: FlushingMemory | null;
  readonly modules: readonly ((api: Api) => void)[];
}

/**
 * @param configuration as it is now; which manager it is does not change
 * @param ask the model that learns now; null = there is only the demo model, which cannot
 * @param modelName its name, for the operator
 */
export function createMemory(parts: {
  readonly store: MemoryStore;
  readonly configuration: () => MemoryConfiguration;
  readonly ask: () => AskModel | null;
  readonly modelName: () => string | null;
  readonly surroundings: Surroundings;
  /** A memory of the operator's own. */
  readonly own?: (MemorySource & MemoryCapture) | null;
}): MemoryService {
  const { store, configuration, ask, modelName, surroundings } = parts;
  const memory =
    configuration().manager !== 'deermem'
      ? null
      : new Memory({
          store,
          get settings() {
            return configuration().settings;
          },
          get learns() {
            return ask() !== null;
          },
          defaultAgent: DEFAULT_LEAD_AGENT_SETTINGS.agentName,
          surroundings,
        });
  const learns = (): boolean => configuration().settings.enabled && ask() !== null;
  // There while nothing is learned as well: that may change.
  const learner =
    memory === null
      ? null
      : new Learner({
          store,
          memory,
          active: learns,
          ask: async (question, signal) => {
            const model = ask();
            if (model === null) throw new ReindeerError('model_failed', 'No model is configured that could learn.');
            return await model(question, signal);
          },
          surroundings,
        });
  return {
    memory,
    source: memory ?? parts.own ?? null,
    learner,
    modules: [
      (api) =>
        memoryRoutes(api, {
          memory,
          get learner() {
            return learns() ? learner : null;
          },
          get configuration() {
            return configuration();
          },
          get modelName() {
            return ask() === null ? null : modelName();
          },
        }),
    ],
  };
}
