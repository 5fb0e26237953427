/** Words of any language: Chinese and Japanese have no spaces, so the segmenter of the platform finds them. It keeps no state. */
const SEGMENTER = new Intl.Segmenter(undefined, { granularity: 'word' });
const MAX_TEXT = 8_000;

/** Words of a text as they are compared: without case, accents and punctuation. */
export function wordsOf(text: string): string[] {
  const plain = text
    .slice(0, MAX_TEXT)
    .normalize('NFKD')
    .replace(/\p{M}/gu, '')
    .normalize('NFC')
    .toLocaleLowerCase('en');
  const words: string[] = [];
  for (const { segment, isWordLike } of SEGMENTER.segment(plain)) if (isWordLike === true) words.push(segment);
  return words;
}

/** Words that say little by themselves: they do not show that two texts are about the same. */
const COMMON = new Set(
  'a an and are as at be been by for from has have he her his i in is it its me my of on or our she that the their they this to user was we were who will with you your 的 了 是 在 和 有 他 她 我 你 也 就 都 用户 一个'.split(
    ' ',
  ),
);
const tellingWords = (text: string): Set<string> => new Set(wordsOf(text).filter((word) => !COMMON.has(word)));

/** The share of a fact's telling words that a text says too; 0 when it has none. */
export function saidBy(fact: string, text: string): number {
  const wanted = tellingWords(fact);
  if (wanted.size === 0) return 0;
  const there = new Set(wordsOf(text));
  let count = 0;
  for (const word of wanted) if (there.has(word)) count += 1;
  return count / wanted.size;
}

/** About as many tokens as models count: four letters of an alphabet each, every other sign one. Never fewer than one. */
export function tokensIn(text: string): number {
  let narrow = 0;
  let wide = 0;
  for (const sign of text) {
    if ((sign.codePointAt(0) ?? 0) < 0x250) narrow += 1;
    else wide += 1;
  }
  return Math.max(1, Math.ceil(narrow / 4) + wide);
}
