import { ReindeerError } from '@reindeer/protocol';
import { type ApiKey, callApi, callJson, listOf, textOf } from '../api.ts';
import type { FetchProvider, ImageProvider, SearchProvider } from '../types.ts';

/** What the providers with a key share. */
export interface KeyedOptions {
  readonly key: ApiKey;
  readonly timeoutMs: number;
  /** Replaced for self-hosted instances and in tests. */
  readonly baseUrl?: string;
}

const at = (options: KeyedOptions, fallback: string, path: string): string =>
  `${(options.baseUrl ?? fallback).replace(/\/+$/, '')}${path}`;
const bearer = (key: ApiKey): Record<string, string> => ({ authorization: `Bearer ${key.required()}` });

/** A provider may cut queries it finds too long, or refuse them. */
const cut = (query: string, max: number): string => query.slice(0, max);

/** Tavily (WEB-5c). */
export function tavilySearch(options: KeyedOptions): SearchProvider {
  return {
    name: 'Tavily',
    async search(query, { maxResults, signal }) {
      const found = await callJson('Tavily', {
        url: at(options, 'https://api.tavily.com', '/search'),
        headers: bearer(options.key),
        json: { query: cut(query, 400), max_results: maxResults },
        signal,
        timeoutMs: options.timeoutMs,
      });
      return listOf(found.results).map((hit) => ({
        title: textOf(hit.title),
        url: textOf(hit.url),
        snippet: textOf(hit.content),
      }));
    },
  };
}

export function tavilyFetch(options: KeyedOptions): FetchProvider {
  return {
    name: 'Tavily',
    async fetch(url, { signal }) {
      const found = await callJson('Tavily', {
        url: at(options, 'https://api.tavily.com', '/extract'),
        headers: bearer(options.key),
        json: { urls: [url], format: 'markdown' },
        signal,
        timeoutMs: options.timeoutMs,
      });
      const [page] = listOf(found.results);
      const [failure] = listOf(found.failed_results);
      if (page === undefined)
        throw new ReindeerError(
          'tool_failed',
          `Tavily could not read the page: ${textOf(failure?.error).slice(0, 200) || 'no content found'}.`,
        );
      return { title: textOf(page.title), markdown: textOf(page.raw_content) };
    },
  };
}

/** Firecrawl (WEB-5d). */
export function firecrawlSearch(options: KeyedOptions): SearchProvider {
  return {
    name: 'Firecrawl',
    async search(query, { maxResults, signal }) {
      const found = await callJson('Firecrawl', {
        url: at(options, 'https://api.firecrawl.dev', '/v1/search'),
        headers: bearer(options.key),
        json: { query: cut(query, 500), limit: maxResults },
        signal,
        timeoutMs: options.timeoutMs,
      });
      return listOf(found.data).map((hit) => ({
        title: textOf(hit.title),
        url: textOf(hit.url),
        snippet: textOf(hit.description),
      }));
    },
  };
}

export function firecrawlFetch(options: KeyedOptions): FetchProvider {
  return {
    name: 'Firecrawl',
    async fetch(url, { signal }) {
      const found = await callJson('Firecrawl', {
        url: at(options, 'https://api.firecrawl.dev', '/v1/scrape'),
        headers: bearer(options.key),
        json: { url, formats: ['markdown'] },
        signal,
        timeoutMs: options.timeoutMs,
      });
      const data = (found.data ?? {}) as { markdown?: unknown; metadata?: { title?: unknown } };
      const markdown = textOf(data.markdown);
      if (markdown === '') throw new ReindeerError('tool_failed', 'No content found on the page.');
      return { title: textOf(data.metadata?.title), markdown };
    },
  };
}

export interface ExaOptions extends KeyedOptions {
  readonly searchType: string;
  readonly contentsMaxCharacters: number;
}

/** Exa (WEB-5e). */
export function exaSearch(options: ExaOptions): SearchProvider {
  return {
    name: 'Exa',
    async search(query, { maxResults, signal }) {
      const found = await callJson('Exa', {
        url: at(options, 'https://api.exa.ai', '/search'),
        headers: { 'x-api-key': options.key.required() },
        json: {
          query,
          type: options.searchType,
          numResults: maxResults,
          contents: { text: { maxCharacters: options.contentsMaxCharacters } },
        },
        signal,
        timeoutMs: options.timeoutMs,
      });
      return listOf(found.results).map((hit) => ({
        title: textOf(hit.title),
        url: textOf(hit.url),
        snippet: textOf(hit.text) || listText(hit.highlights),
      }));
    },
  };
}

export function exaFetch(options: ExaOptions): FetchProvider {
  return {
    name: 'Exa',
    async fetch(url, { signal }) {
      const found = await callJson('Exa', {
        url: at(options, 'https://api.exa.ai', '/contents'),
        headers: { 'x-api-key': options.key.required() },
        json: { urls: [url], text: true },
        signal,
        timeoutMs: options.timeoutMs,
      });
      const [page] = listOf(found.results);
      const markdown = textOf(page?.text);
      if (markdown === '') throw new ReindeerError('tool_failed', 'No content found on the page.');
      return { title: textOf(page?.title), markdown };
    },
  };
}

const listText = (value: unknown): string =>
  Array.isArray(value) ? value.filter((part) => typeof part === 'string').join(' … ') : '';

export interface SearxngOptions {
  readonly baseUrl: string;
  readonly language: string;
  readonly timeoutMs: number;
}

/** SearXNG of the operator's own (WEB-5f); its instance must allow the format `json`. */
export function searxngSearch(options: SearxngOptions): SearchProvider {
  return {
    name: 'SearXNG',
    async search(query, { maxResults, signal }) {
      const found = await callJson('SearXNG', {
        url: `${options.baseUrl.replace(/\/+$/, '')}/search`,
        query: { q: query, format: 'json', language: options.language },
        signal,
        timeoutMs: options.timeoutMs,
      });
      return listOf(found.results)
        .slice(0, maxResults)
        .map((hit) => ({ title: textOf(hit.title), url: textOf(hit.url), snippet: textOf(hit.content) }));
    },
  };
}

/** Serper, which asks Google (WEB-5g). */
export function serperSearch(options: KeyedOptions): SearchProvider {
  return {
    name: 'Serper',
    async search(query, { maxResults, signal }) {
      const found = await callJson('Serper', {
        url: at(options, 'https://google.serper.dev', '/search'),
        headers: { 'x-api-key': options.key.required() },
        json: { q: cut(query, 500), num: Math.min(maxResults, 10) },
        signal,
        timeoutMs: options.timeoutMs,
      });
      return listOf(found.organic)
        .slice(0, maxResults)
        .map((hit) => ({ title: textOf(hit.title), url: textOf(hit.link), snippet: textOf(hit.snippet) }));
    },
  };
}

export function serperImages(options: KeyedOptions): ImageProvider {
  return {
    name: 'Serper',
    async search(query, { maxResults, signal }) {
      const found = await callJson('Serper', {
        url: at(options, 'https://google.serper.dev', '/images'),
        headers: { 'x-api-key': options.key.required() },
        json: { q: cut(query, 500), num: Math.min(maxResults, 10) },
        signal,
        timeoutMs: options.timeoutMs,
      });
      return listOf(found.images).map((image) => ({
        title: textOf(image.title),
        image_url: textOf(image.imageUrl),
        thumbnail_url: textOf(image.thumbnailUrl),
        source_url: textOf(image.link),
      }));
    },
  };
}

/** Brave (WEB-5h). */
export function braveSearch(options: KeyedOptions): SearchProvider {
  return {
    name: 'Brave',
    async search(query, { maxResults, signal }) {
      const found = await callJson('Brave', {
        url: at(options, 'https://api.search.brave.com', '/res/v1/web/search'),
        headers: { 'x-subscription-token': options.key.required() },
        query: { q: cut(query, 400), count: Math.min(maxResults, 20) },
        signal,
        timeoutMs: options.timeoutMs,
      });
      return listOf((found.web as { results?: unknown } | undefined)?.results)
        .slice(0, maxResults)
        .map((hit) => ({
          title: textOf(hit.title),
          url: textOf(hit.url),
          // Matches come marked up.
          snippet: textOf(hit.description).replace(/<\/?strong>/g, ''),
        }));
    },
  };
}

export function braveImages(options: KeyedOptions): ImageProvider {
  return {
    name: 'Brave',
    async search(query, { maxResults, signal }) {
      const found = await callJson('Brave', {
        url: at(options, 'https://api.search.brave.com', '/res/v1/images/search'),
        headers: { 'x-subscription-token': options.key.required() },
        query: { q: cut(query, 400), count: Math.min(maxResults, 200) },
        signal,
        timeoutMs: options.timeoutMs,
      });
      return listOf(found.results).map((image) => ({
        title: textOf(image.title),
        image_url: textOf((image.properties as { url?: unknown } | undefined)?.url),
        thumbnail_url: textOf((image.thumbnail as { src?: unknown } | undefined)?.src),
        source_url: textOf(image.url),
      }));
    },
  };
}

/** Jina's reader (WEB-5b): works without a key, only less often. */
export function jinaFetch(options: KeyedOptions): FetchProvider {
  return {
    name: 'Jina',
    async fetch(url, { signal }) {
      const key = options.key.optional();
      const text = await callApi('Jina', {
        url: at(options, 'https://r.jina.ai', `/${url}`),
        headers: {
          accept: 'application/json',
          'x-return-format': 'markdown',
          ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
        },
        signal,
        timeoutMs: options.timeoutMs,
      });
      return jinaPage(text);
    },
  };
}

function jinaPage(text: string): { title: string; markdown: string } {
  let data: { title?: unknown; content?: unknown };
  try {
    data = (JSON.parse(text) as { data?: typeof data }).data ?? {};
  } catch {
    // Older instances answer the Markdown alone.
    return { title: '', markdown: text.trim() };
  }
  const markdown = textOf(data.content);
  if (markdown === '') throw new ReindeerError('tool_failed', 'No content found on the page.');
  return { title: textOf(data.title), markdown };
}
