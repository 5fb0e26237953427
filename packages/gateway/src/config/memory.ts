import { DEFAULT_MEMORY, type MemorySettings } from '@reindeer/agent';
import { isOwnModule } from './class-path.ts';
import { milliseconds, type OwnModule, unknownName } from './readers.ts';
import type { ConfigFile } from './schema.ts';

export interface MemoryConfiguration {
  readonly settings: MemorySettings;
  /** Name of the model that learns; null = the first one. */
  readonly model: string | null;
  readonly manager: 'deermem' | 'noop' | 'own';
  /** Of a memory of the operator's own: its module and what it gets; null = one of ours. */
  readonly module: OwnModule | null;
  /** Who remembers: a model that reads conversations afterwards, or the agent itself, by tools. */
  readonly mode: 'middleware' | 'tool';
  /** Milliseconds that what is being learned gets at a stop. */
  readonly flushMs: number;
}

type Section = NonNullable<ConfigFile['memory']>;
type Backend = NonNullable<Section['backend_config']>;

/** Keys that have a value. */
type Given = { readonly [K in keyof Backend]?: NonNullable<Backend[K]> };

const MANAGERS = ['deermem', 'noop'] as const;

/**
 * The settings of the memory (MEM-1). Older files have the keys of `backend_config` beside it: they count where `backend_config` says nothing.
 * @throws ReindeerError `configuration` for a manager that is not here: a fallback would quietly remember nothing, or elsewhere
 */
export function memoryOf(section: Section = {}): MemoryConfiguration {
  const asked = section.manager_class ?? 'deermem';
  const own = isOwnModule(asked);
  const word = asked.split(/[.:]/).at(-1)?.toLowerCase() ?? '';
  const manager = own
    ? ('own' as const)
    : MANAGERS.find((name) => word === name || word === `${name}manager` || word === `${name}memorymanager`);
  if (manager === undefined)
    throw unknownName(['memory', 'manager_class'], 'memory', asked, MANAGERS, `one of: ${MANAGERS.join(', ')}`);
  const given = Object.fromEntries(
    Object.entries({ ...section, ...dropped(section.backend_config ?? {}) }).filter(([, value]) => value != null),
  ) as Given;
  const { staleness, consolidation } = DEFAULT_MEMORY;
  return {
    manager,
    module: own ? { use: asked, config: section.backend_config ?? {} } : null,
    mode: section.mode ?? 'middleware',
    model: given.model ?? given.model_name ?? null,
    flushMs: milliseconds(section.shutdown_flush_timeout_seconds, 30_000),
    settings: {
      enabled: manager !== 'noop' && (section.enabled ?? DEFAULT_MEMORY.enabled),
      injection: section.injection_enabled ?? DEFAULT_MEMORY.injection,
      debounceMs: milliseconds(given.debounce_seconds, DEFAULT_MEMORY.debounceMs),
      maxPending: given.queue_max_depth ?? DEFAULT_MEMORY.maxPending,
      maxFacts: given.max_facts ?? DEFAULT_MEMORY.maxFacts,
      confidenceThreshold: given.fact_confidence_threshold ?? DEFAULT_MEMORY.confidenceThreshold,
      eviction: given.fact_eviction_policy ?? DEFAULT_MEMORY.eviction,
      maxInjectionTokens: given.max_injection_tokens ?? DEFAULT_MEMORY.maxInjectionTokens,
      guaranteedCategories: given.guaranteed_categories ?? DEFAULT_MEMORY.guaranteedCategories,
      guaranteedTokens: given.guaranteed_token_budget ?? DEFAULT_MEMORY.guaranteedTokens,
      staleness: {
        enabled: given.staleness_review_enabled ?? staleness.enabled,
        ageDays: given.staleness_age_days ?? staleness.ageDays,
        minCandidates: given.staleness_min_candidates ?? staleness.minCandidates,
        maxRemovals: given.staleness_max_removals_per_cycle ?? staleness.maxRemovals,
        protectedCategories: given.staleness_protected_categories ?? staleness.protectedCategories,
        maxLifetimeMultiplier: given.staleness_max_lifetime_multiplier ?? staleness.maxLifetimeMultiplier,
        maxExtensionDays: given.staleness_max_extension_days ?? staleness.maxExtensionDays,
      },
      consolidation: {
        enabled: given.consolidation_enabled ?? consolidation.enabled,
        minFacts: given.consolidation_min_facts ?? consolidation.minFacts,
        maxGroups: given.consolidation_max_groups_per_cycle ?? consolidation.maxGroups,
        maxSources: given.consolidation_max_sources ?? consolidation.maxSources,
      },
      maxWatermarks: given.watermark_max_keys ?? DEFAULT_MEMORY.maxWatermarks,
    },
  };
}

/** Without keys that have no value. */
const dropped = (backend: Backend): Record<string, unknown> =>
  Object.fromEntries(Object.entries(backend).filter(([, value]) => value != null));
