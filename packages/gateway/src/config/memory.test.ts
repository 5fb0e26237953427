import { DEFAULT_MEMORY } from '@reindeer/agent';
import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { memoryOf } from './memory.ts';

describe('memory settings', () => {
  test('defaults; keys of backend_config; keys of older files where that says nothing', verifies('MEM-1'), () => {
    expect(memoryOf()).toEqual({
      manager: 'deermem',
      module: null,
      mode: 'middleware',
      model: null,
      flushMs: 30_000,
      settings: DEFAULT_MEMORY,
    });
    const { settings, model, flushMs } = memoryOf({
      enabled: false,
      injection_enabled: false,
      shutdown_flush_timeout_seconds: 5,
      max_facts: 20,
      debounce_seconds: 3,
      model_name: 'old',
      backend_config: {
        max_facts: 50,
        debounce_seconds: null,
        model: 'quick',
        fact_eviction_policy: 'hybrid-v1',
        guaranteed_categories: ['goal'],
        staleness_age_days: 10,
        staleness_protected_categories: [],
        consolidation_enabled: true,
        consolidation_max_sources: 4,
      },
    });
    expect([model, flushMs]).toEqual(['quick', 5_000]);
    expect(settings).toMatchObject({
      enabled: false,
      injection: false,
      maxFacts: 50,
      debounceMs: 3_000,
      eviction: 'hybrid-v1',
      guaranteedCategories: ['goal'],
      staleness: { ageDays: 10, protectedCategories: [], minCandidates: 3 },
      consolidation: { enabled: true, maxSources: 4, minFacts: 8 },
    });
  });

  test('a manager or mode that is not here is refused, never replaced', verifies('MEM-1'), () => {
    for (const name of ['deermem', 'deerflow.memory.deermem:DeerMemManager', 'DeerMem'])
      expect(memoryOf({ manager_class: name }).manager).toBe('deermem');
    expect(memoryOf({ manager_class: 'noop' })).toMatchObject({ manager: 'noop', settings: { enabled: false } });
    for (const name of ['mem0', 'honcho', 'my.module:Other'])
      expect(() => memoryOf({ manager_class: name })).toThrow(/memory\.manager_class: .*Use one of: deermem, noop/);
    expect(() => memoryOf({ manager_class: 'dermem' })).toThrow('Did you mean "deermem"?');
    expect(memoryOf({ mode: 'tool' }).mode).toBe('tool');
  });
});
