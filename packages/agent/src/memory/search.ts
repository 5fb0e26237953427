import type { StoredMemoryFact } from '@reindeer/protocol';
import { wordsOf } from './words.ts';

export interface FoundFact {
  readonly fact: StoredMemoryFact;
  /** Higher = fits better; only for the order. */
  readonly score: number;
}

/** Facts between which the event loop gets its turn. */
const STRETCH = 25;
const MAX_KNOWN = 2_000;
const K1 = 1.2;
const B = 0.75;

/**
 * Full-text search over the facts of one memory, in whichever language they are. Words of facts are remembered by content, so that a search costs
 * what the query costs; at most `MAX_KNOWN` facts are remembered, the longest unused go first. Nothing is built ahead.
 */
export class FactSearch {
  readonly #known = new Map<string, readonly string[]>();

  /** Facts that hold a word of the query, the best first (BM25). A Latin word also finds those that begin with it. */
  async search(facts: readonly StoredMemoryFact[], query: string, limit: number): Promise<readonly FoundFact[]> {
    const wanted = [...new Set(wordsOf(query.slice(0, 1_000)))].slice(0, 32);
    if (wanted.length === 0 || facts.length === 0) return [];
    const documents: { fact: StoredMemoryFact; words: readonly string[]; counts: number[] }[] = [];
    for (const [index, fact] of facts.entries()) {
      if (index % STRETCH === STRETCH - 1) await new Promise<void>((resolve) => setImmediate(resolve));
      const words = this.#wordsOf(fact);
      documents.push({ fact, words, counts: wanted.map((word) => words.filter((other) => fits(word, other)).length) });
    }
    const average = documents.reduce((sum, { words }) => sum + words.length, 0) / documents.length || 1;
    const rarity = wanted.map((_, term) => {
      const holders = documents.filter(({ counts }) => (counts[term] ?? 0) > 0).length;
      return Math.log(1 + (documents.length - holders + 0.5) / (holders + 0.5));
    });
    return documents
      .map(({ fact, words, counts }) => {
        const norm = K1 * (1 - B + (B * words.length) / average);
        const score = counts.reduce(
          (sum, count, term) => sum + ((rarity[term] ?? 0) * count * (K1 + 1)) / (count + norm),
          0,
        );
        return { fact, score };
      })
      .filter(({ score }) => score > 0)
      .sort((a, b) => b.score - a.score || b.fact.confidence - a.fact.confidence)
      .slice(0, limit);
  }

  #wordsOf(fact: StoredMemoryFact): readonly string[] {
    const words = this.#known.get(fact.contentKey) ?? wordsOf(fact.content);
    this.#known.delete(fact.contentKey);
    this.#known.set(fact.contentKey, words);
    const [oldest] = this.#known.keys();
    if (this.#known.size > MAX_KNOWN && oldest !== undefined) this.#known.delete(oldest);
    return words;
  }
}

/** The segmenter may cut a longer Chinese word than the query has: parts of words count there. */
function fits(wanted: string, word: string): boolean {
  if (wanted === word) return true;
  if (/[^ -~\u00a0-\u024f]/.test(wanted)) return word.includes(wanted);
  return wanted.length >= 3 && word.startsWith(wanted);
}
