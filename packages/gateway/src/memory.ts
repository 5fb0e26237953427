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
import { type MemoryBackend, memoryRoutes } from './http/memory.ts';
import type { Api } from './http/route.ts';
import type { FlushingMemory } from './life/memory-step.ts';

export interface MemoryService {
  /** null = the manager is `noop`, or one of the operator's own: here nothing is remembered by us. */
  readonly memory: Memory | null;
  /** What agents are told, and where conversations are noted; null = nothing is. */
  readonly source: (MemorySource & MemoryCapture) | null;
  /** null = nothing learns, and nothing has to end. */
  readonly learner: FlushingMemory | null;
  readonly modules: readonly ((api: Api) => void)[];
}

/** A memory of the operator's own. Beside being told and asked, it may do what the routes offer, and end in its own way. */
export type OwnMemory = MemorySource &
  MemoryCapture &
  MemoryBackend & {
    /** At a stop: ends what is under way, within milliseconds. */
    flush?(timeoutMs: number): Promise<unknown>;
    close?(): Promise<void>;
  };

/** The stop of such a memory; null = there is nothing to stop. */
function stopOf(own: OwnMemory | null): FlushingMemory | null {
  if (own === null || (typeof own.flush !== 'function' && typeof own.close !== 'function')) return null;
  return {
    start: () => {},
    flush: async (timeoutMs) => {
      await own.flush?.(timeoutMs);
      return { complete: true, waiting: null };
    },
    close: async () => await own.close?.(),
  };
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
  readonly own?: OwnMemory | null;
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
  const own = parts.own ?? null;
  return {
    memory,
    source: memory ?? own,
    learner: learner ?? stopOf(own),
    modules: [
      (api) =>
        memoryRoutes(api, {
          memory: memory ?? own,
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
