import { createHash } from 'node:crypto';
import { MEMORY_CATEGORIES } from '@reindeer/protocol';

export interface StalenessSettings {
  readonly enabled: boolean;
  /** A fact that nobody confirmed for so long is reviewed. */
  readonly ageDays: number;
  /** Facts that must be due before a review is made. */
  readonly minCandidates: number;
  readonly maxRemovals: number;
  readonly protectedCategories: readonly string[];
  /** After so many times the age a fact cannot be kept by review any more, only by the user. */
  readonly maxLifetimeMultiplier: number;
  readonly maxExtensionDays: number;
}

export interface ConsolidationSettings {
  readonly enabled: boolean;
  /** Facts of one category from which on similar ones are joined. */
  readonly minFacts: number;
  readonly maxGroups: number;
  readonly maxSources: number;
}

export interface MemorySettings {
  readonly enabled: boolean;
  /** Are models told what is remembered? */
  readonly injection: boolean;
  /** How long a conversation must be quiet before something is learned from it. */
  readonly debounceMs: number;
  /** Conversations that may wait, over all users. */
  readonly maxPending: number;
  /** Facts per user and agent. */
  readonly maxFacts: number;
  readonly confidenceThreshold: number;
  readonly eviction: 'confidence' | 'hybrid-v1';
  readonly maxInjectionTokens: number;
  readonly guaranteedCategories: readonly string[];
  readonly guaranteedTokens: number;
  readonly staleness: StalenessSettings;
  readonly consolidation: ConsolidationSettings;
  readonly maxWatermarks: number;
}

export const DEFAULT_MEMORY: MemorySettings = {
  enabled: true,
  injection: true,
  debounceMs: 30_000,
  maxPending: 1_000,
  maxFacts: 100,
  confidenceThreshold: 0.7,
  eviction: 'confidence',
  maxInjectionTokens: 2_000,
  guaranteedCategories: ['correction'],
  guaranteedTokens: 500,
  staleness: {
    enabled: true,
    ageDays: 90,
    minCandidates: 3,
    maxRemovals: 10,
    protectedCategories: ['correction'],
    maxLifetimeMultiplier: 20,
    maxExtensionDays: 3_650,
  },
  consolidation: { enabled: false, minFacts: 8, maxGroups: 3, maxSources: 8 },
  maxWatermarks: 4_096,
};

export const DAY_MS = 86_400_000;
/** Characters of one fact. */
export const MAX_FACT = 2_000;

export const categoryOf = (value: string): string => {
  const name = value.trim().toLowerCase();
  return (MEMORY_CATEGORIES as readonly string[]).includes(name) ? name : 'other';
};

/** The same for contents that say the same, whatever their case and spaces; short, because databases index it. */
export const contentKeyOf = (content: string): string =>
  createHash('sha256').update(content.trim().replace(/\s+/g, ' ').toLocaleLowerCase('en')).digest('base64url');
