import { isDictionary, listOf, textOr } from '../chat/wire.ts';

/** One sentence about the user. */
export interface Fact {
  readonly id: string;
  readonly content: string;
  readonly category: string;
  /** 0 to 1. */
  readonly confidence: number;
  readonly createdAt: number | null;
  readonly revision: number;
}

export interface Statement {
  readonly text: string;
  /** The facts that it was made from; empty = not known. */
  readonly sources: readonly string[];
}

const SECTIONS = [
  'workContext',
  'personalContext',
  'topOfMind',
  'recentMonths',
  'earlierContext',
  'longTermBackground',
] as const;
export type SectionName = (typeof SECTIONS)[number];

export interface MemoryDocument {
  readonly facts: readonly Fact[];
  readonly sections: readonly { readonly name: SectionName; readonly statements: readonly Statement[] }[];
}

export interface MemoryStatus {
  readonly enabled: boolean;
  readonly injected: boolean;
  readonly learns: boolean;
  readonly model: string | null;
  /** Why nothing is learned. */
  readonly reason: string | null;
  /** Conversations that wait to be learned from. */
  readonly pending: number;
}

/** Categories that the memory itself uses; a fact may have any other. */
export const CATEGORIES = ['preference', 'knowledge', 'context', 'behavior', 'goal', 'correction'] as const;

export function readMemory(value: unknown): MemoryDocument {
  const document = isDictionary(value) ? value : {};
  const groups = [document.user, document.history].filter(isDictionary);
  return {
    facts: readFacts(document.facts),
    sections: SECTIONS.flatMap((name) => {
      const section = groups.map((group) => group[name]).find(isDictionary);
      const statements = listOf(section?.statements)
        .filter(isDictionary)
        .map((statement) => ({
          text: textOr(statement.text, ''),
          sources: listOf(statement.sources).filter((source) => typeof source === 'string'),
        }))
        .filter((statement) => statement.text !== '');
      return statements.length === 0 ? [] : [{ name, statements }];
    }),
  };
}

export function readFacts(value: unknown): readonly Fact[] {
  return listOf(value)
    .filter(isDictionary)
    .map((fact) => {
      const at = Date.parse(textOr(fact.createdAt, ''));
      return {
        id: textOr(fact.id, ''),
        content: textOr(fact.content, ''),
        category: textOr(fact.category, ''),
        confidence: typeof fact.confidence === 'number' ? fact.confidence : 0,
        createdAt: Number.isNaN(at) ? null : at,
        revision: typeof fact.revision === 'number' ? fact.revision : 0,
      };
    })
    .filter((fact) => fact.id !== '');
}

export function readStatus(value: unknown): MemoryStatus {
  const status = isDictionary(value) ? value : {};
  const learning = isDictionary(status.learning) ? status.learning : {};
  return {
    enabled: status.enabled === true,
    injected: status.injection_enabled === true,
    learns: learning.enabled === true,
    model: textOr(learning.model, null),
    reason: textOr(learning.reason, null),
    pending: typeof status.pending === 'number' ? status.pending : 0,
  };
}

/** What is said in summaries and goes with a fact: statements that were made from it. */
export function followsFrom(document: MemoryDocument, factId: string): readonly Statement[] {
  return document.sections.flatMap(({ statements }) =>
    statements.filter((statement) => statement.sources.includes(factId)),
  );
}

/** Facts as they are listed: of one category or all, the newest first. */
export function listed(facts: readonly Fact[], category: string): readonly Fact[] {
  return facts
    .filter((fact) => category === '' || fact.category === category)
    .toSorted((left, right) => (right.createdAt ?? 0) - (left.createdAt ?? 0));
}

export const categoriesOf = (facts: readonly Fact[]): readonly string[] =>
  [...new Set(facts.map((fact) => fact.category).filter((category) => category !== ''))].toSorted();
