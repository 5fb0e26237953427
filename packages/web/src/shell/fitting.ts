const SHOWN = 12;

/** The entries that have every word, those that begin with the text first; without a text the first ones. */
export function fitting<Named extends { readonly name: string }>(
  text: string,
  entries: readonly Named[],
): readonly Named[] {
  const wanted = text.trim().toLowerCase();
  const words = wanted.split(/\s+/);
  const fit = entries.filter(({ name }) => words.every((word) => name.toLowerCase().includes(word)));
  const begins = ({ name }: Named) => name.toLowerCase().startsWith(wanted);
  return [...fit.filter(begins), ...fit.filter((entry) => !begins(entry))].slice(0, SHOWN);
}

/** The entries that are none of those already shown, each once. */
export function besides<Entry>(
  shown: readonly string[],
  entries: readonly Entry[],
  keyOf: (entry: Entry) => string,
): readonly Entry[] {
  const known = new Set(shown);
  return entries.filter((entry) => !known.has(keyOf(entry)) && known.add(keyOf(entry)));
}
