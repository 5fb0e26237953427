/** Shortest value that is worth masking; shorter ones would blot out ordinary words. */
const MIN_SECRET = 8;
/** Of so many values the encoded forms are known too; each form costs time in each result. */
const MAX_ENCODED = 100;
const MARK = '[secret]';

/** Of a secret that a cut went through, so many characters are left to be told from a word. */
const MIN_HALF = 4;

/** Where a text was cut off from a longer one. */
export interface Cut {
  readonly start?: boolean;
  readonly end?: boolean;
}
/** Takes secrets out of a text, also what a cut has left of one. */
export type Hide = (text: string, cut?: Cut) => string;

/**
 * Replaces every secret of at least 8 characters, the longest first: one that holds another is gone as a whole (SL-23).
 *
 * @param cut ends of the text at which a secret may have been cut through: its half goes too
 */
export function masked(text: string, secrets: readonly string[], cut: Cut = {}): string {
  if (text.length < MIN_HALF) return text;
  let result = text;
  const longestFirst = secrets.filter(({ length }) => length >= MIN_SECRET).sort((a, b) => b.length - a.length);
  for (const secret of longestFirst) result = result.replaceAll(secret, MARK);
  if (cut.end === true) {
    const half = Math.max(0, ...longestFirst.map((secret) => overlap(result, secret)));
    if (half > 0) result = `${result.slice(0, -half)}${MARK}`;
  }
  if (cut.start === true) {
    const half = Math.max(0, ...longestFirst.map((secret) => overlap(secret, result)));
    if (half > 0) result = `${MARK}${result.slice(half)}`;
  }
  return result;
}

/** Characters at the end of `left` with which `right` begins, if they are many enough and not all of either. */
function overlap(left: string, right: string): number {
  for (let length = Math.min(left.length, right.length) - 1; length >= MIN_HALF; length--)
    if (left.endsWith(right.slice(0, length))) return length;
  return 0;
}

/**
 * Every form in which a command may print a value: as it is, as JSON writes it, each of its lines, since files are read by lines, and as programs encode
 * it on the way: base64 wherever the value begins in what is encoded (a header of basic authorization), hexadecimal, in a web address. Whoever wants to
 * can still take a value apart; what happens by itself is hidden. Shorter forms than `masked` hides are left out.
 */
export function hiddenForms(values: readonly string[]): readonly string[] {
  const forms = values.flatMap((value, at) => [
    value,
    JSON.stringify(value).slice(1, -1),
    ...value.split(/\r?\n/).map((line) => line.trim()),
    ...(at < MAX_ENCODED && value.length >= MIN_SECRET ? encoded(value) : []),
  ]);
  return [...new Set(forms)].filter(({ length }) => length >= MIN_SECRET);
}

function encoded(value: string): readonly string[] {
  const bytes = Buffer.from(value);
  const hex = bytes.toString('hex');
  const web = encodeURIComponent(value.toWellFormed());
  const base64 = [0, 1, 2].flatMap((before) => {
    const text = Buffer.concat([Buffer.alloc(before), bytes]).toString('base64');
    // The characters that hold nothing but bits of the value, whatever stands before and behind it.
    const whole = text.slice(Math.ceil((before * 8) / 6), Math.floor(((before + bytes.length) * 8) / 6));
    return [whole, whole.replaceAll('+', '-').replaceAll('/', '_')];
  });
  return [...base64, hex, hex.toUpperCase(), web, web.replaceAll('%20', '+')];
}

/**
 * Cuts the middle out of a long text; head and tail say the most about a command. The result, with the marker, has at most `limit` characters.
 *
 * @param hide takes secrets out, before anything is cut that could be half of one; only of what may be shown
 */
export function withoutMiddle(text: string, limit: number, hide: Hide = (shown) => shown): string {
  if (text.length <= limit) return hide(text);
  const marker = (count: number): string => `\n[… ${count} characters left out …]\n`;
  const room = limit - marker(text.length).length;
  const window = Math.min(limit, Math.ceil(text.length / 2));
  const first = hide(text.slice(0, window), { end: true });
  const last = hide(text.slice(Math.max(window, text.length - window)), { start: true });
  const start = first.slice(0, Math.ceil(room * 0.5));
  const end = last.slice(Math.max(0, last.length - (room - Math.ceil(room * 0.5))));
  const between = Math.max(0, text.length - 2 * window);
  const left = between + (first.length - start.length) + (last.length - end.length);
  return `${start}${marker(left)}${end}`;
}

/** Keeps whole lines from the start while they fit in `limit` characters together with what `note` says of the rest. */
export function headLines(lines: readonly string[], limit: number, note: (left: number) => string): string {
  let size = 0;
  let count = 0;
  for (const line of lines) {
    size += line.length + 1;
    if (size > limit) break;
    count++;
  }
  if (count === lines.length) return lines.join('\n');
  while (count > 0 && sizeOf(lines, count) + note(lines.length - count).length > limit) count--;
  return [...lines.slice(0, count), note(lines.length - count)].join('\n');
}

const sizeOf = (lines: readonly string[], count: number): number =>
  lines.slice(0, count).reduce((sum, line) => sum + line.length + 1, 0);
