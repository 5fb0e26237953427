import type {
  MemoryAudit,
  MemoryChange,
  MemoryDocument,
  MemoryFact,
  MemorySectionName,
  MemoryStatement,
} from '@reindeer/protocol';
import type { Classified, Extraction, ProposedFact, ProposedSection } from './answer.ts';
import { evicted } from './capacity.ts';
import { factsSeen, sectionsSeen, withoutFacts } from './forget.ts';
import { categoryOf, contentKeyOf, DAY_MS, MAX_FACT, type MemorySettings } from './settings.ts';

export interface LearnInput {
  readonly document: MemoryDocument;
  readonly extraction: Extraction;
  readonly settings: MemorySettings;
  /** Facts that the question asked to review. */
  readonly reviewed: ReadonlySet<string>;
  /** Names of facts in the question → ids. */
  readonly names: ReadonlyMap<string, string>;
  readonly threadId: string;
  /** When facts were last told to a model, as far as this process knows. */
  readonly accessed: ReadonlyMap<string, number>;
  readonly now: number;
  newId(): string;
}

const MAX_STATEMENTS = 12;
const MAX_STATEMENT = 500;

/** Only what describes the user, and lasts, is written (MEM-4b): no instructions, nothing that holds for one task or conversation. */
const passesGate = ({ scope, durability, authority }: Classified): boolean =>
  [scope, durability, authority].map((word) => word.trim().toLowerCase()).join() === 'user,durable,descriptive';

type Draft = MemoryFact & { readonly contentKey: string };

/** Turns what a model proposes into a change of the memory (MEM-4); null = nothing is to be changed. */
export function learn(input: LearnInput): MemoryChange | null {
  const undone = new Set<string>();
  // A fact goes for another one only when that one is kept (a pair is whole or not at all).
  let result = work(input, undone);
  for (let turn = 0; turn < 20; turn += 1) {
    const lost = result.pairs.filter(({ by }) => !result.facts.has(by));
    if (lost.length === 0) break;
    for (const { old } of lost) undone.add(old);
    result = work(input, undone);
  }
  return changeOf(input, result);
}

interface Work {
  readonly facts: Map<string, Draft>;
  /** Forgotten on purpose: what was said of them goes too. */
  readonly forgotten: Map<string, MemoryFact>;
  readonly joined: Map<string, string>;
  readonly audit: MemoryAudit[];
  /** By position in the answer; null = was not taken. */
  readonly added: (string | null)[];
  readonly pairs: { readonly old: string; readonly by: string }[];
}

function work(input: LearnInput, undone: ReadonlySet<string>): Work {
  const { document, extraction, settings, names, now } = input;
  const facts = new Map<string, Draft>(document.facts.map(({ revision, ...fact }) => [fact.id, fact]));
  const result: Work = { facts, forgotten: new Map(), joined: new Map(), audit: [], added: [], pairs: [] };
  const keys = new Map([...facts.values()].map((fact) => [fact.contentKey, fact.id]));
  const drop = (id: string, act: MemoryAudit['act']): void => {
    const fact = facts.get(id);
    if (fact === undefined) return;
    facts.delete(id);
    keys.delete(fact.contentKey);
    if (act !== 'evicted' && act !== 'consolidated') result.forgotten.set(id, fact);
    result.audit.push({ at: now, factId: id, act });
  };
  const confirm = (id: string): void => {
    const fact = facts.get(id);
    if (fact !== undefined) facts.set(id, { ...fact, confirmedAt: now, reviewAfter: null });
  };

  // Removals that name what takes their place wait until that is known.
  const removals = extraction.removals.flatMap((removal) => {
    const id = names.get(removal.id);
    const wanted = removal.scope.trim().toLowerCase() === 'user' && removal.reason.trim() !== '';
    return id === undefined || !wanted || undone.has(id) ? [] : [{ id, replacement: removal.replacement }];
  });
  for (const { id, replacement } of removals) if (replacement === null) drop(id, 'removed');
  const replaced = new Map(
    removals.flatMap(({ id, replacement }) => (replacement === null ? [] : [[replacement, id]])),
  );

  for (const [index, proposed] of extraction.facts.entries()) {
    const made = proposed === null ? null : accepted(proposed, settings);
    const old = replaced.get(index);
    if (made === null) {
      result.added.push(null);
      continue;
    }
    const same = keys.get(made.contentKey);
    if (same !== undefined && same !== old) {
      // Said before: once more is a confirmation.
      confirm(same);
      result.added.push(same);
      if (old !== undefined) {
        drop(old, 'removed');
        result.pairs.push({ old, by: same });
      }
      continue;
    }
    if (same !== undefined) {
      confirm(same);
      result.added.push(same);
      continue;
    }
    const id = input.newId();
    const before = old === undefined ? undefined : facts.get(old);
    if (old !== undefined) {
      drop(old, 'removed');
      result.pairs.push({ old, by: id });
    }
    facts.set(id, {
      ...fresh(input, id, made),
      // What was believed before is worth knowing with a correction.
      sourceError: made.sourceError ?? (made.category === 'correction' ? (before?.content ?? null) : null),
    });
    keys.set(made.contentKey, id);
    result.added.push(id);
  }
  for (const name of extraction.reinforced) confirm(names.get(name) ?? '');
  review(input, result, drop);
  consolidate(input, result, keys, drop);
  for (const id of evicted([...facts.values()], settings, now)) drop(id, 'evicted');
  return result;
}

const fresh = ({ now, threadId }: LearnInput, id: string, made: Accepted): Draft => ({
  id,
  content: made.content,
  category: made.category,
  confidence: made.confidence,
  createdAt: now,
  confirmedAt: now,
  accessedAt: null,
  source: threadId,
  sourceError: made.sourceError,
  reviewAfter: null,
  consolidatedFrom: [],
  contentKey: made.contentKey,
});

interface Accepted {
  readonly content: string;
  readonly category: string;
  readonly confidence: number;
  readonly sourceError: string | null;
  readonly contentKey: string;
}

function accepted(proposed: ProposedFact, settings: MemorySettings): Accepted | null {
  const content = proposed.content.trim();
  const { confidence } = proposed;
  if (content === '' || content.length > MAX_FACT || !passesGate(proposed)) return null;
  if (!Number.isFinite(confidence) || confidence > 1 || confidence < settings.confidenceThreshold) return null;
  const sourceError = proposed.sourceError?.trim().slice(0, MAX_FACT) || null;
  return {
    content,
    category: categoryOf(proposed.category),
    confidence,
    sourceError,
    contentKey: contentKeyOf(content),
  };
}

type Drop = (id: string, act: MemoryAudit['act']) => void;

/** Facts that nobody has confirmed for long: kept for one more term, for longer, or not (MEM-4c). */
function review({ extraction, settings, names, reviewed, now }: LearnInput, { facts }: Work, drop: Drop): void {
  const { staleness } = settings;
  let removals = staleness.maxRemovals;
  for (const { id: name, action, days } of extraction.reviews) {
    const id = names.get(name) ?? '';
    const fact = facts.get(id);
    if (fact === undefined || !reviewed.has(id)) continue;
    if (action === 'remove') {
      if (removals > 0) drop(id, 'stale');
      removals -= 1;
      continue;
    }
    const lifetime = staleness.ageDays * staleness.maxLifetimeMultiplier * DAY_MS;
    if (now - fact.confirmedAt >= lifetime) continue;
    const wanted = action === 'extend' && days !== null && Number.isFinite(days) ? days : staleness.ageDays;
    const term = Math.min(Math.max(wanted, 1), staleness.maxExtensionDays);
    facts.set(id, { ...fact, reviewAfter: now + term * DAY_MS });
  }
}

/** Facts that are due for a review, the oldest first; none when too few are. */
export function reviewable(document: MemoryDocument, settings: MemorySettings, now: number): readonly MemoryFact[] {
  const { enabled, ageDays, minCandidates, protectedCategories } = settings.staleness;
  if (!enabled) return [];
  const due = document.facts.filter(
    (fact) =>
      !protectedCategories.includes(fact.category) &&
      now - fact.confirmedAt > ageDays * DAY_MS &&
      (fact.reviewAfter === null || fact.reviewAfter <= now),
  );
  return due.length < minCandidates ? [] : due.sort((a, b) => a.confirmedAt - b.confirmedAt).slice(0, MAX_REVIEWED);
}
const MAX_REVIEWED = 30;

function consolidate(input: LearnInput, result: Work, keys: Map<string, string>, drop: Drop): void {
  const { extraction, settings, names } = input;
  const { enabled, minFacts, maxGroups, maxSources } = settings.consolidation;
  if (!enabled) return;
  for (const group of extraction.consolidations.slice(0, maxGroups)) {
    const made = accepted(group, settings);
    const ids = [...new Set(group.from.map((name) => names.get(name) ?? ''))];
    const sources = ids.flatMap((id) => result.facts.get(id) ?? []);
    if (made === null || ids.length < 2 || ids.length > maxSources || sources.length !== ids.length) continue;
    const ofCategory = [...result.facts.values()].filter((fact) => fact.category === made.category).length;
    if (ofCategory < minFacts || sources.some((fact) => fact.category !== made.category)) continue;
    const same = keys.get(made.contentKey);
    if (same !== undefined && !ids.includes(same)) continue;
    for (const source of ids) drop(source, 'consolidated');
    const id = input.newId();
    result.facts.set(id, {
      ...fresh(input, id, made),
      source: 'consolidation',
      consolidatedFrom: [...new Set([...ids, ...sources.flatMap((fact) => fact.consolidatedFrom)])],
    });
    keys.set(made.contentKey, id);
    for (const source of ids) result.joined.set(source, id);
  }
}

function changeOf(input: LearnInput, result: Work): MemoryChange | null {
  const { document, settings, accessed } = input;
  const before = new Map(document.facts.map((fact) => [fact.id, fact]));
  const put: Draft[] = [];
  for (const fact of result.facts.values()) {
    const old = before.get(fact.id);
    // Only where it decides something: each change of a fact is a new revision of it.
    const told = settings.eviction === 'hybrid-v1' ? accessed.get(fact.id) : undefined;
    const next = told === undefined || told <= (fact.accessedAt ?? 0) ? fact : { ...fact, accessedAt: told };
    if (old === undefined || !sameFact(old, next)) put.push(next);
  }
  const remove = [...before.keys()].filter((id) => !result.facts.has(id));
  const written = writtenSections(input, result);
  const sections = {
    ...withoutFacts(document.sections, [...result.forgotten.values()], result.joined),
    ...written,
  };
  if (put.length === 0 && remove.length === 0 && Object.keys(sections).length === 0) return null;
  const touched = [...remove, ...put.map((fact) => fact.id)];
  return {
    seen: {
      // A summary may say anything that the model was shown: it stands only while all of that does.
      facts: factsSeen(document, Object.keys(written).length > 0 ? [...before.keys()] : touched),
      sections: sectionsSeen(document, Object.keys(sections)),
    },
    put,
    remove,
    sections,
    audit: result.audit.filter((entry) => before.has(entry.factId)),
    maxFacts: settings.maxFacts,
  };
}

const sameFact = (a: MemoryFact, b: MemoryFact): boolean =>
  a.confirmedAt === b.confirmedAt && a.reviewAfter === b.reviewAfter && a.accessedAt === b.accessedAt;

function writtenSections(
  input: LearnInput,
  result: Work,
): Partial<Record<MemorySectionName, readonly MemoryStatement[]>> {
  const { document, extraction } = input;
  const written: Partial<Record<MemorySectionName, readonly MemoryStatement[]>> = {};
  for (const [name, proposed] of extraction.sections) {
    if (!passesGate(proposed)) continue;
    const statements = statementsOf(input, result, name, proposed);
    if (statements.length === 0) continue;
    const section = { statements, updatedAt: 0, revision: 0 };
    const clean = withoutFacts({ [name]: section }, [...result.forgotten.values()], result.joined)[name] ?? statements;
    const before = document.sections[name]?.statements ?? [];
    if (JSON.stringify(clean) !== JSON.stringify(before)) written[name] = clean;
  }
  return written;
}

/**
 * Each statement with the facts that it was made from. When the model does not say, or names what there is not, it may have been made from any
 * fact that it saw: then all of them count, so that forgetting any one takes the statement along.
 */
function statementsOf(
  { document, names }: LearnInput,
  { added, facts, forgotten }: Work,
  name: MemorySectionName,
  { statements }: ProposedSection,
): MemoryStatement[] {
  const stored = added.flatMap((id) => (id !== null && facts.has(id) ? [id] : []));
  const earlier = document.sections[name]?.statements.flatMap((statement) => statement.sources) ?? [];
  const everything = [...new Set([...document.facts.map((fact) => fact.id), ...stored, ...earlier])].filter(
    (id) => !forgotten.has(id),
  );
  return statements.slice(0, MAX_STATEMENTS).flatMap(({ text, from }): MemoryStatement[] => {
    const plain = text.replace(/\s+/g, ' ').trim().slice(0, MAX_STATEMENT);
    if (plain === '') return [];
    const sources: (string | undefined)[] = [];
    for (const ref of from ?? []) {
      const position = /^N(\d{1,3})$/.exec(ref)?.[1];
      const id = position === undefined ? names.get(ref) : (added[Number(position) - 1] ?? null);
      // It says what was not let in.
      if (id === null) return [];
      sources.push(id);
    }
    const known = sources.filter((id) => id !== undefined);
    const said = known.length > 0 && known.length === sources.length;
    return [{ text: plain, sources: said ? [...new Set(known)] : everything }];
  });
}
