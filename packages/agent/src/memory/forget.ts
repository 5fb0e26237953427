import type { MemoryChange, MemoryDocument, MemoryFact, MemorySectionName, MemoryStatement } from '@reindeer/protocol';
import { saidBy } from './words.ts';

/** A statement that says so much of a fact goes with it, whatever it gives as its sources. */
const SAYS_IT = 0.6;

/**
 * The summaries without what they say of forgotten facts: statements made from one go, and statements that say the same in words. Facts that were
 * joined into others hand their statements on.
 *
 * @returns only sections that change
 */
export function withoutFacts(
  sections: MemoryDocument['sections'],
  forgotten: readonly Pick<MemoryFact, 'id' | 'content'>[],
  joined: ReadonlyMap<string, string> = new Map(),
): Partial<Record<MemorySectionName, readonly MemoryStatement[]>> {
  const ids = new Set(forgotten.map((fact) => fact.id));
  const changed: Partial<Record<MemorySectionName, readonly MemoryStatement[]>> = {};
  for (const [name, section] of Object.entries(sections)) {
    const kept = section.statements
      .filter(
        ({ text, sources }) =>
          !sources.some((id) => ids.has(id)) && !forgotten.some((fact) => saidBy(fact.content, text) >= SAYS_IT),
      )
      .map((statement) => {
        if (!statement.sources.some((id) => joined.has(id))) return statement;
        return { ...statement, sources: [...new Set(statement.sources.map((id) => joined.get(id) ?? id))] };
      });
    const same =
      kept.length === section.statements.length && kept.every((item, index) => item === section.statements[index]);
    if (!same) changed[name as MemorySectionName] = kept;
  }
  return changed;
}

/** The revisions on which changes of these sections build. */
export const sectionsSeen = (document: MemoryDocument, names: readonly string[]): MemoryChange['seen']['sections'] =>
  Object.fromEntries(names.map((name) => [name, document.sections[name as MemorySectionName]?.revision ?? 0]));

export const factsSeen = (document: MemoryDocument, ids: Iterable<string>): MemoryChange['seen']['facts'] => {
  const revisions = new Map(document.facts.map((fact) => [fact.id, fact.revision]));
  return Object.fromEntries(
    [...new Set(ids)].flatMap((id) => {
      const revision = revisions.get(id);
      return revision === undefined ? [] : [[id, revision]];
    }),
  );
};
