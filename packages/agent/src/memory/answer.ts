import { MEMORY_SECTIONS, type MemorySectionName } from '@reindeer/protocol';
import { z } from 'zod';
import { withoutThinking } from '../models/ask-once.ts';

/** How the model classifies what it proposes; only one combination is written (MEM-4b). */
export interface Classified {
  readonly scope: string;
  readonly durability: string;
  readonly authority: string;
}
export interface ProposedFact extends Classified {
  readonly content: string;
  readonly category: string;
  readonly confidence: number;
  readonly sourceError: string | null;
}
export interface ProposedStatement {
  readonly text: string;
  /** Names of facts, as the question gave them, or `N1` for the first new fact; null = not said. */
  readonly from: readonly string[] | null;
}
export interface ProposedSection extends Classified {
  readonly statements: readonly ProposedStatement[];
}
export interface ProposedRemoval {
  readonly id: string;
  readonly scope: string;
  readonly reason: string;
  /** Position of the new fact that takes its place; null = none does. */
  readonly replacement: number | null;
}
export interface ProposedReview {
  readonly id: string;
  readonly action: 'keep' | 'extend' | 'remove';
  readonly days: number | null;
}
export interface ProposedConsolidation extends ProposedFact {
  readonly from: readonly string[];
}

/** What a model proposes to remember; nothing of it is trusted yet. */
export interface Extraction {
  readonly sections: ReadonlyMap<MemorySectionName, ProposedSection>;
  /** By position; null = not usable. */
  readonly facts: readonly (ProposedFact | null)[];
  readonly removals: readonly ProposedRemoval[];
  readonly reinforced: readonly string[];
  readonly reviews: readonly ProposedReview[];
  readonly consolidations: readonly ProposedConsolidation[];
}

const MAX_ANSWER = 200_000;
const MAX_TRIES = 50;
const MAX_ITEMS = 100;

const word = z.string().catch('');
const gate = { scope: word, durability: word, authority: word };
const factShape = z.object({
  ...gate,
  content: z.string(),
  category: word,
  confidence: z.number().catch(Number.NaN),
  sourceError: z.string().nullish().catch(null),
});
const statementShape = z.union([
  z.string().transform((text): ProposedStatement => ({ text, from: null })),
  z.object({ text: z.string(), from: z.array(z.string()).nullish().catch(null) }),
]);
const sectionShape = z.object({
  ...gate,
  shouldUpdate: z.boolean().catch(false),
  summary: z.string().nullish().catch(null),
  statements: z.array(z.unknown()).nullish().catch(null),
});
const removalShape = z.object({
  id: z.string(),
  scope: word,
  reason: word,
  replacement: z.number().int().min(1).nullish(),
});
const reviewShape = z.object({
  id: z.string(),
  action: z.enum(['keep', 'extend', 'remove']),
  days: z.number().nullish().catch(null),
});
const consolidationShape = factShape.extend({ from: z.array(z.string()) });

/** Names that tell an answer from any other JSON in the text. */
const KEYS = ['sections', 'newFacts', 'factsToRemove', 'reinforced', 'stale', 'consolidations', 'user', 'history'];

/**
 * Reads a model's answer (MEM-4a): the JSON object may stand among prose, in a code block, or behind other JSON. Items that are not right are
 * left out one by one; null = there is no answer in the text, and nothing may be saved.
 */
export function parseAnswer(text: string): Extraction | null {
  const object = findAnswer(withoutThinking(text.slice(0, MAX_ANSWER)));
  if (object === null) return null;
  const sections = new Map<MemorySectionName, ProposedSection>();
  for (const name of MEMORY_SECTIONS) {
    const found = [object.sections, object.user, object.history].map((part) => record(part)?.[name]).find(record);
    const parsed = sectionShape.safeParse(found);
    if (!parsed.success || !parsed.data.shouldUpdate) continue;
    const { scope, durability, authority, summary, statements } = parsed.data;
    const list = statements ?? (summary == null ? [] : [summary]);
    const said = items(list, statementShape).map(({ text: said, from }) => ({ text: said, from: from ?? null }));
    sections.set(name, { scope, durability, authority, statements: said });
  }
  return {
    sections,
    facts: list(object.newFacts)
      .slice(0, MAX_ITEMS)
      .map((item) => {
        const parsed = factShape.safeParse(item);
        return parsed.success ? { ...parsed.data, sourceError: parsed.data.sourceError ?? null } : null;
      }),
    removals: items(object.factsToRemove, removalShape).map((item) => ({
      ...item,
      replacement: item.replacement == null ? null : item.replacement - 1,
    })),
    reinforced: items(object.reinforced, z.string()),
    reviews: items(object.stale, reviewShape).map((item) => ({ ...item, days: item.days ?? null })),
    consolidations: items(object.consolidations, consolidationShape).map((item) => ({
      ...item,
      sourceError: item.sourceError ?? null,
    })),
  };
}

const record = (value: unknown): Record<string, unknown> | undefined =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : undefined;
const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

function items<S extends z.ZodType>(value: unknown, schema: S): z.output<S>[] {
  return list(value)
    .slice(0, MAX_ITEMS)
    .flatMap((item) => {
      const parsed = schema.safeParse(item);
      return parsed.success ? [parsed.data] : [];
    });
}

/** The first object in the text that is an answer. Each brace is looked at once as a beginning, and only so many of them. */
function findAnswer(text: string): Record<string, unknown> | null {
  let start = text.indexOf('{');
  for (let tries = 0; start >= 0 && tries < MAX_TRIES; tries += 1) {
    const end = endOfObject(text, start);
    if (end !== null) {
      const object = parseObject(text.slice(start, end));
      // `{}` is an answer too: there is nothing.
      if (object !== null && isAnswer(object)) return object;
      // Foreign JSON is passed over whole.
      start = text.indexOf('{', object === null ? start + 1 : end);
    } else start = text.indexOf('{', start + 1);
  }
  return null;
}

const isAnswer = (object: Record<string, unknown>): boolean =>
  Object.keys(object).length === 0 || KEYS.some((key) => Object.hasOwn(object, key));

function endOfObject(text: string, start: number): number | null {
  let depth = 0;
  let quoted = false;
  for (let position = start; position < text.length; position += 1) {
    const sign = text[position];
    if (quoted) {
      if (sign === '\\') position += 1;
      else if (sign === '"') quoted = false;
    } else if (sign === '"') quoted = true;
    else if (sign === '{') depth += 1;
    else if (sign === '}') {
      depth -= 1;
      if (depth === 0) return position + 1;
    }
  }
  return null;
}

function parseObject(text: string): Record<string, unknown> | null {
  try {
    return record(JSON.parse(text)) ?? null;
  } catch {
    return null;
  }
}
