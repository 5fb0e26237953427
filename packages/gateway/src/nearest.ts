/** Edit distance with transpositions (optimal string alignment), bounded by the lengths of the two words. */
function distance(a: string, b: string): number {
  let before: number[] = [];
  let previous = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i += 1) {
    const current = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const same = a[i - 1] === b[j - 1];
      let best = Math.min((previous[j] ?? 0) + 1, (current[j - 1] ?? 0) + 1, (previous[j - 1] ?? 0) + (same ? 0 : 1));
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        best = Math.min(best, (before[j - 2] ?? 0) + 1);
      current.push(best);
    }
    before = previous;
    previous = current;
  }
  return previous[b.length] ?? 0;
}

const fold = (text: string) => text.toLowerCase().replace(/[-_.\s]/g, '');

/**
 * The known name that somebody who typed `name` most likely meant, or null when nothing is near. Case, `-` and `_` do not count.
 *
 * @param name what was typed; only its first 64 characters are looked at
 * @param known the valid names
 */
export function nearest(name: string, known: Iterable<string>): string | null {
  const wanted = fold(name.slice(0, 64));
  let best: string | null = null;
  let bestDistance = Number.POSITIVE_INFINITY;
  for (const candidate of known) {
    const found = distance(wanted, fold(candidate));
    if (found < bestDistance) {
      best = candidate;
      bestDistance = found;
    }
  }
  return bestDistance <= Math.max(1, Math.floor(wanted.length / 3)) ? best : null;
}

/** " Did you mean "x"?" or an empty string. */
export function didYouMean(name: string, known: Iterable<string>): string {
  const found = nearest(name, known);
  return found === null ? '' : ` Did you mean "${found}"?`;
}
