const isHigh = (unit: number): boolean => unit >= 0xd800 && unit <= 0xdbff;

/** Where a text may be cut so that at most `limit` UTF-16 units come before: never inside of a character. */
const boundary = (text: string, limit: number): number =>
  limit > 1 && isHigh(text.charCodeAt(limit - 1)) ? limit - 1 : limit;

/** The beginning of a text, at most `limit` UTF-16 units. */
export const beginning = (text: string, limit: number): string =>
  text.length <= limit ? text : text.slice(0, boundary(text, limit));

/**
 * A text in pieces of at most `limit` UTF-16 units. It is cut at the last blank line of a piece, else at the last line, else at the last space, if that
 * leaves half a piece at least; and never inside of a surrogate pair.
 */
export function split(text: string, limit: number): string[] {
  const pieces: string[] = [];
  let rest = text.trim();
  while (rest.length > limit) {
    const end = boundary(rest, limit);
    const piece = rest.slice(0, end);
    const cut = ['\n\n', '\n', ' '].map((mark) => piece.lastIndexOf(mark)).find((at) => at >= limit / 2) ?? end;
    pieces.push(rest.slice(0, cut).trimEnd());
    rest = rest.slice(cut).trimStart();
  }
  if (rest !== '') pieces.push(rest);
  return pieces;
}
