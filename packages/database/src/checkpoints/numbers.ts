/**
 * Messages inside stored texts. Outside the store a message stands as `{"$m":"<hash>"}`; inside as `{"$m":7}`, and messages in a
 * row as one `{"$m":[from,to,from,to,…]}`: a history that only grows is one range, however long it is (D4). The work is done
 * on the text: inside a JSON string the quotes would be escaped, so that no text of a user can look like a reference.
 */
const OUTSIDE = /\{"\$m":"([A-Za-z0-9_-]{22})"\}/g;
const OUTSIDE_ROW = /\{"\$m":"[A-Za-z0-9_-]{22}"\}(?:,\{"\$m":"[A-Za-z0-9_-]{22}"\})*/g;
const INSIDE = /\{"\$m":(\d+|\[[\d,]+\])\}/g;
const ONLY_MESSAGES = /^\[(?:\{"\$m":(\d+|\[[\d,]+\])\})?\]$/;

const ONLY_MESSAGES_OUTSIDE = /^\[(?:\{"\$m":"[A-Za-z0-9_-]{22}"\}(?:,|(?=\])))*\]$/;

const OPENING = '{"$m":"';

/** Length of `{"$m":"…"}` with its comma. */
const STEP = '{"$m":"",}'.length + 22;

/** The content addresses that a text mentions. */
export function hashesIn(text: string): string[] {
  if (!text.includes(OPENING)) return [];
  return Array.from(text.matchAll(OUTSIDE), (match) => match[1] as string);
}

/** Is this JSON a list of nothing but messages? */
export function isMessageList(json: string): boolean {
  return ONLY_MESSAGES_OUTSIDE.test(json);
}

/** Puts numbers in the place of content addresses. `numberOf` knows all that the text mentions. */
export function toInside(text: string, numberOf: (hash: string) => number): string {
  if (!text.includes(OPENING)) return text;
  return text.replace(OUTSIDE_ROW, (row) => {
    const ranges: number[] = [];
    for (let at = 0; at < row.length; at += STEP) addToRanges(ranges, numberOf(row.slice(at + 7, at + 29)));
    return mention(ranges);
  });
}

/** Puts content addresses in the place of numbers. */
export function toOutside(text: string, hashOf: (number: number) => string): string {
  return text.replace(INSIDE, (_mention, numbers: string) => {
    const parts: string[] = [];
    for (const number of expand(parse(numbers))) parts.push(`{"$m":"${hashOf(number)}"}`);
    return parts.join(',');
  });
}

/** The ranges that a stored text mentions, as `[from, to]` pairs. */
export function rangesIn(text: string): [number, number][] {
  const found: [number, number][] = [];
  for (const match of text.matchAll(INSIDE)) {
    const ranges = parse(match[1] as string);
    for (let at = 0; at < ranges.length; at += 2) found.push([ranges[at] as number, ranges[at + 1] as number]);
  }
  return found;
}

/**
 * The stored list `base`, cut after `keep` messages, followed by the stored list `tail`. Null when either holds anything but messages or
 * `base` is shorter: then the list must be sent whole. Costs O(ranges), not O(messages).
 */
export function appendList(base: string, keep: number, tail: string): string | null {
  const head = ONLY_MESSAGES.exec(base);
  const rest = ONLY_MESSAGES.exec(tail);
  if (head === null || rest === null) return null;
  const kept: number[] = [];
  let missing = keep;
  const ranges = parse(head[1]);
  for (let at = 0; at < ranges.length && missing > 0; at += 2) {
    const from = ranges[at] as number;
    const to = Math.min(ranges[at + 1] as number, from + missing - 1);
    kept.push(from, to);
    missing -= to - from + 1;
  }
  if (missing > 0) return null;
  const added = parse(rest[1]);
  for (let at = 0; at < added.length; at += 2) addRange(kept, added[at] as number, added[at + 1] as number);
  return kept.length === 0 ? '[]' : `[${mention(kept)}]`;
}

function parse(numbers: string | undefined): number[] {
  if (numbers === undefined) return [];
  if (numbers.startsWith('[')) return JSON.parse(numbers) as number[];
  return [Number(numbers), Number(numbers)];
}

function* expand(ranges: readonly number[]): Generator<number> {
  for (let at = 0; at < ranges.length; at += 2) {
    for (let number = ranges[at] as number; number <= (ranges[at + 1] as number); number += 1) yield number;
  }
}

function addToRanges(ranges: number[], number: number): void {
  addRange(ranges, number, number);
}

function addRange(ranges: number[], from: number, to: number): void {
  if (ranges.length > 0 && ranges[ranges.length - 1] === from - 1) ranges[ranges.length - 1] = to;
  else ranges.push(from, to);
}

function mention(ranges: readonly number[]): string {
  const single = ranges.length === 2 && ranges[0] === ranges[1];
  return single ? `{"$m":${ranges[0]}}` : `{"$m":[${ranges.join(',')}]}`;
}
