/** Shortest value that is worth masking; shorter ones would blot out ordinary words. */
const MIN_SECRET = 8;

/** Replaces every secret of at least 8 characters, the longest first: one that holds another is gone as a whole (SL-23). */
export function masked(text: string, secrets: readonly string[]): string {
  let result = text;
  const longestFirst = secrets.filter(({ length }) => length >= MIN_SECRET).sort((a, b) => b.length - a.length);
  for (const secret of longestFirst) result = result.replaceAll(secret, '[secret]');
  return result;
}

/**
 * Every form in which a command may print a value: as it is, as JSON writes it, and each of its lines, since files are read by lines. Shorter ones than
 * `masked` hides are left out.
 */
export function hiddenForms(values: readonly string[]): readonly string[] {
  const forms = values.flatMap((value) => [
    value,
    JSON.stringify(value).slice(1, -1),
    ...value.split(/\r?\n/).map((line) => line.trim()),
  ]);
  return [...new Set(forms)].filter(({ length }) => length >= MIN_SECRET);
}

/**
 * Cuts the middle out of a long text; head and tail say the most about a command. The result, with the marker, has at
 * most `limit` characters.
 */
export function withoutMiddle(text: string, limit: number): string {
  if (text.length <= limit) return text;
  const marker = (count: number): string => `\n[… ${count} characters left out …]\n`;
  const room = limit - marker(text.length).length;
  const head = Math.ceil(room * 0.5);
  const tail = room - head;
  const start = text.slice(0, head);
  const end = text.slice(text.length - tail);
  return `${start}${marker(text.length - head - tail)}${end}`;
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
