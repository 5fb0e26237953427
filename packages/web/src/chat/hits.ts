import { isDictionary, textOr } from './wire.ts';

/** One thing that a search on the web found. */
export interface Hit {
  readonly title: string;
  readonly address: string;
  readonly snippet: string;
}

const SEARCHES: readonly string[] = ['web_search', 'image_search'];
const SHOWN = 50;

/** What a search found; null = the result is none of a search, or says why there is nothing. */
export function readHits(tool: string, text: string): readonly Hit[] | null {
  if (!SEARCHES.includes(tool)) return null;
  const found = parse(text);
  if (!isDictionary(found) || !Array.isArray(found.results)) return null;
  const hits = found.results
    .slice(0, SHOWN)
    .filter(isDictionary)
    .flatMap((hit) => {
      // Of a picture the page that shows it: there stands whose it is.
      const address = [hit.url, hit.source_url, hit.image_url, hit.thumbnail_url].find(
        (value) => typeof value === 'string' && value !== '',
      );
      if (typeof address !== 'string') return [];
      return [{ title: textOr(hit.title, '') || address, address, snippet: textOr(hit.snippet, '') }];
    });
  return hits.length === 0 ? null : hits;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
