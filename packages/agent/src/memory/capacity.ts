import type { MemoryFact } from '@reindeer/protocol';
import { DAY_MS, type MemorySettings } from './settings.ts';

const WEIGHT = { confidence: 0.65, confirmed: 0.25, accessed: 0.1 } as const;
const HALF_LIFE_DAYS = { confirmed: 90, accessed: 30 } as const;
/** Corrections that keep their place whatever else there is: a share of all facts, and at most so many. */
const RESERVED = { share: 0.1, most: 10 } as const;

const fresh = (at: number | null, halfLifeDays: number, now: number): number =>
  at === null ? 0 : 0.5 ** (Math.max(0, now - at) / (halfLifeDays * DAY_MS));

/** What a fact is worth: 0 to 1. A confidence that is no number counts as none. */
export function worthOf(fact: MemoryFact, policy: MemorySettings['eviction'], now: number): number {
  const confidence = Number.isFinite(fact.confidence) ? Math.min(1, Math.max(0, fact.confidence)) : 0;
  if (policy === 'confidence') return confidence;
  return (
    WEIGHT.confidence * confidence +
    WEIGHT.confirmed * fresh(fact.confirmedAt, HALF_LIFE_DAYS.confirmed, now) +
    WEIGHT.accessed * fresh(fact.accessedAt, HALF_LIFE_DAYS.accessed, now)
  );
}

/** Ids of the facts that have no place, the least valuable (MEM-4c). Of equal ones the longest unconfirmed goes. */
export function evicted(
  facts: readonly MemoryFact[],
  settings: Pick<MemorySettings, 'maxFacts' | 'eviction'>,
  now: number,
): string[] {
  const { maxFacts, eviction } = settings;
  const over = facts.length - maxFacts;
  if (over <= 0) return [];
  const value = new Map(facts.map((fact) => [fact.id, worthOf(fact, eviction, now)]));
  const ranked = [...facts].sort(
    (a, b) =>
      (value.get(a.id) ?? 0) - (value.get(b.id) ?? 0) || a.confirmedAt - b.confirmedAt || (a.id < b.id ? -1 : 1),
  );
  const places = eviction === 'hybrid-v1' ? Math.min(RESERVED.most, Math.ceil(maxFacts * RESERVED.share)) : 0;
  const reserved = new Set(
    places === 0
      ? []
      : ranked
          .filter((fact) => fact.category === 'correction')
          .slice(-places)
          .map((fact) => fact.id),
  );
  return ranked
    .filter((fact) => !reserved.has(fact.id))
    .slice(0, over)
    .map((fact) => fact.id);
}
