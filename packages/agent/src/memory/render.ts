import {
  HISTORY_SECTIONS,
  type MemoryDocument,
  type MemoryFact,
  type MemorySectionName,
  USER_SECTIONS,
} from '@reindeer/protocol';
import type { MemorySettings } from './settings.ts';
import { tokensIn } from './words.ts';

const TITLES: Readonly<Record<MemorySectionName, string>> = {
  workContext: 'Work',
  personalContext: 'Personal',
  topOfMind: 'Top of mind',
  recentMonths: 'Recent months',
  earlierContext: 'Earlier',
  longTermBackground: 'Long-term background',
};
/** Of what the guaranteed facts leave, summaries may take this share. */
const SUMMARY_SHARE = 0.6;

export interface Rendered {
  /** null = nothing is remembered. */
  readonly text: string | null;
  /** Facts that the text tells. */
  readonly told: readonly string[];
}

/**
 * What a model is told of the memory, within a budget of tokens (MEM-6). Facts of guaranteed categories come first and have a budget of their own;
 * then summaries, whole statement by whole statement; then the other facts by confidence. Each list ends at the first entry that does not
 * fit. One line per entry, so that no entry can look like two.
 */
export function rendered(
  document: MemoryDocument,
  settings: Pick<MemorySettings, 'maxInjectionTokens' | 'guaranteedCategories' | 'guaranteedTokens'>,
): Rendered {
  const { maxInjectionTokens, guaranteedCategories, guaranteedTokens } = settings;
  const facts = document.facts.filter((fact) => typeof fact.content === 'string' && fact.content.trim() !== '');
  const ranked = [...facts].sort(
    (a, b) => confidenceOf(b) - confidenceOf(a) || b.confirmedAt - a.confirmedAt || (a.id < b.id ? -1 : 1),
  );
  const isGuaranteed = (fact: MemoryFact): boolean => guaranteedCategories.includes(fact.category);
  const told: MemoryFact[] = [];
  const headings = tokensIn('User Context:\nHistory:\nFacts:\n');
  let left = Math.max(0, maxInjectionTokens - headings);

  const first = taken(ranked.filter(isGuaranteed), Math.min(guaranteedTokens, left));
  told.push(...first.entries);
  left -= first.cost;

  let summaryRoom = Math.floor(left * SUMMARY_SHARE);
  const blockOf = (names: readonly MemorySectionName[]): string[] => {
    const lines: string[] = [];
    for (const name of names) {
      const kept: string[] = [];
      for (const { text } of document.sections[name]?.statements ?? []) {
        const cost = tokensIn(oneLine(text)) + (kept.length === 0 ? tokensIn(`- ${TITLES[name]}: `) : 1);
        if (cost > summaryRoom) {
          // Strictly in order: a later, shorter one does not slip in.
          summaryRoom = 0;
          break;
        }
        summaryRoom -= cost;
        left -= cost;
        kept.push(oneLine(text));
      }
      if (kept.length > 0) lines.push(`- ${TITLES[name]}: ${kept.join(' ')}`);
    }
    return lines;
  };
  const user = blockOf(USER_SECTIONS);
  const history = blockOf(HISTORY_SECTIONS);

  told.push(
    ...taken(
      ranked.filter((fact) => !isGuaranteed(fact)),
      left,
    ).entries,
  );
  const blocks = [
    ...(user.length === 0 ? [] : [`User Context:\n${user.join('\n')}`]),
    ...(history.length === 0 ? [] : [`History:\n${history.join('\n')}`]),
    ...(told.length === 0 ? [] : [`Facts:\n${told.map(lineOf).join('\n')}`]),
  ];
  return { text: blocks.length === 0 ? null : blocks.join('\n'), told: told.map((fact) => fact.id) };
}

function taken(facts: readonly MemoryFact[], budget: number): { entries: readonly MemoryFact[]; cost: number } {
  const entries: MemoryFact[] = [];
  let cost = 0;
  for (const fact of facts) {
    const next = tokensIn(lineOf(fact)) + 1;
    if (cost + next > budget) break;
    cost += next;
    entries.push(fact);
  }
  return { entries, cost };
}

/** A confidence that is no number counts as none. */
const confidenceOf = ({ confidence }: MemoryFact): number =>
  Number.isFinite(confidence) ? Math.min(1, Math.max(0, confidence)) : 0;
const oneLine = (text: string): string => text.replace(/\s+/g, ' ').trim();
const lineOf = (fact: MemoryFact): string =>
  `- [${oneLine(fact.category)} | ${confidenceOf(fact).toFixed(2)}] ${oneLine(fact.content)}${fact.sourceError === null ? '' : ` (avoid: ${oneLine(fact.sourceError)})`}`;
