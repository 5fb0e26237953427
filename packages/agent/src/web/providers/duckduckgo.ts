import { ReindeerError } from '@reindeer/protocol';
import type { Documents } from '../../documents/documents.ts';
import { isPublicUrl } from '../address.ts';
import { callApi, listOf, textOf } from '../api.ts';
import type { ImageProvider, ImageResult, SearchProvider, SearchResult } from '../types.ts';

export interface DuckDuckGoOptions {
  readonly documents: Documents;
  /** Language and country, e.g. `de-de`; `wt-wt` = any. */
  readonly region: string;
  readonly safeSearch: 'off' | 'moderate' | 'strict';
  readonly timeoutMs: number;
  /** Replaced in tests. */
  readonly searchUrl?: string;
  readonly imageUrl?: string;
}

const SAFE: Readonly<Record<DuckDuckGoOptions['safeSearch'], string>> = { off: '-2', moderate: '-1', strict: '1' };
const AGENT = 'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Reindeer/0.1';

/** Search without a key, on the page for browsers without scripts (WEB-5a). */
export function duckDuckGoSearch(options: DuckDuckGoOptions): SearchProvider {
  const url = options.searchUrl ?? 'https://html.duckduckgo.com/html/';
  return {
    name: 'DuckDuckGo',
    async search(query, { maxResults, signal }) {
      const html = await callApi('DuckDuckGo', {
        url,
        form: { q: query, kl: options.region, kp: SAFE[options.safeSearch] },
        headers: { accept: 'text/html', 'user-agent': AGENT },
        signal,
        timeoutMs: options.timeoutMs,
      });
      if (/anomaly-modal|cf-challenge/i.test(html))
        throw new ReindeerError(
          'tool_failed',
          'DuckDuckGo takes this machine for a robot for now. Try again later, or configure another search provider.',
        );
      const entries = await options.documents.read(
        {
          kind: 'entries',
          html,
          entry: '.result:not(.result--ad)',
          link: 'a.result__a',
          text: '.result__snippet',
          max: maxResults * 2,
        },
        signal,
      );
      const results: SearchResult[] = [];
      for (const { title, href, text } of entries) {
        const target = targetOf(href, url);
        if (target !== null && results.length < maxResults && !results.some((other) => other.url === target))
          results.push({ title, url: target, snippet: text });
      }
      return results;
    },
  };
}

/** Pictures without a key (WEB-3): the page first gives out a token, with which its data can be asked for. */
export function duckDuckGoImages(options: DuckDuckGoOptions): ImageProvider {
  const url = options.imageUrl ?? 'https://duckduckgo.com/';
  const headers = { 'user-agent': AGENT, referer: url };
  return {
    name: 'DuckDuckGo',
    async search(query, { maxResults, size, type, layout, signal }) {
      const common = { headers, signal, timeoutMs: options.timeoutMs };
      const page = await callApi('DuckDuckGo', { ...common, url, query: { q: query, iax: 'images', ia: 'images' } });
      const token = /vqd=["']?([\d-]+)/.exec(page)?.[1];
      if (token === undefined)
        throw new ReindeerError(
          'tool_failed',
          'DuckDuckGo does not answer searches for pictures for now. Try again later.',
        );
      const filters = [size && `size:${size}`, type && `type:${type}`, layout && `layout:${layout}`].map(
        (filter) => filter ?? '',
      );
      const text = await callApi('DuckDuckGo', {
        ...common,
        url: new URL('i.js', url).href,
        query: {
          o: 'json',
          q: query,
          l: options.region,
          vqd: token,
          p: SAFE[options.safeSearch],
          f: `,${filters.join(',')},`,
        },
      });
      return imagesOf(text).slice(0, maxResults);
    },
  };
}

function imagesOf(text: string): ImageResult[] {
  let found: unknown;
  try {
    found = (JSON.parse(text) as { results?: unknown }).results;
  } catch {
    throw new ReindeerError('tool_failed', 'DuckDuckGo sent an answer that makes no sense.');
  }
  return listOf(found).map((image) => ({
    title: textOf(image.title),
    image_url: textOf(image.image),
    thumbnail_url: textOf(image.thumbnail),
    source_url: textOf(image.url),
  }));
}

/** Links lead over a page of the provider's own, with the target in `uddg`. */
function targetOf(href: string, base: string): string | null {
  const url = URL.parse(href, base);
  const target = url?.searchParams.get('uddg') ?? url?.href ?? '';
  return isPublicUrl(target) ? target : null;
}
