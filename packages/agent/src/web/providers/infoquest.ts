import { entryOf, ReindeerError } from '@reindeer/protocol';
import type { Documents } from '../../documents/documents.ts';
import { type ApiKey, callApi, callJson, listOf, textOf } from '../api.ts';
import type { FetchProvider, ImageProvider, SearchProvider } from '../types.ts';

/** InfoQuest of BytePlus (WEB-5i): one address to search, another to read. As its vendor's published examples call it. */
export interface InfoQuestOptions {
  readonly key: ApiKey;
  readonly documents: Documents;
  /** Milliseconds that we wait for an answer. */
  readonly timeoutMs: number;
  /** Replaces both addresses, in tests and behind proxies. */
  readonly baseUrl?: string;
  /** Days back from today; 0 or less = any time. */
  readonly days: number;
}

const SEARCH = 'https://search.infoquest.bytepluses.com';
const READER = 'https://reader.infoquest.bytepluses.com';
const MAX_CHARACTERS = 1_000_000;

interface Found {
  readonly organic: Record<string, unknown>[];
  readonly news: Record<string, unknown>[];
  readonly images: Record<string, unknown>[];
}

const headersOf = (key: ApiKey): Record<string, string> => ({ authorization: `Bearer ${key.required()}` });
const objectOf = (value: unknown): Record<string, unknown> =>
  typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
/** What is switched off is not sent. */
const positive = (values: Readonly<Record<string, number>>): Record<string, number> =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => value > 0));

async function ask(
  options: InfoQuestOptions,
  body: Readonly<Record<string, unknown>>,
  signal: AbortSignal | undefined,
): Promise<readonly Found[]> {
  const answer = await callJson('InfoQuest', {
    url: options.baseUrl ?? SEARCH,
    headers: headersOf(options.key),
    json: { format: 'JSON', ...body, ...positive({ time_range: options.days }) },
    signal,
    timeoutMs: options.timeoutMs,
  });
  const { results } = objectOf(answer.search_result);
  if (!Array.isArray(results)) throw new ReindeerError('tool_failed', 'InfoQuest sent an answer that makes no sense.');
  return listOf(results).map((part) => {
    const found = objectOf(objectOf(part.content).results);
    return {
      organic: listOf(found.organic),
      news: listOf(objectOf(found.top_stories).items),
      images: listOf(found.images_results),
    };
  });
}

/** The first of those that lead to the same place. */
function unique<T>(items: readonly T[], place: (item: T) => string): T[] {
  const seen = new Set<string>();
  return items.filter((item) => {
    const url = place(item);
    if (url === '' || seen.has(url)) return false;
    seen.add(url);
    return true;
  });
}

export function infoQuestSearch(options: InfoQuestOptions): SearchProvider {
  return {
    name: 'InfoQuest',
    async search(query, { maxResults, signal }) {
      const found = await ask(options, { search_type: 'Web', query }, signal);
      const hits = found.flatMap(({ organic, news }) => [
        ...organic.map((hit) => ({ title: textOf(hit.title), url: textOf(hit.url), snippet: textOf(hit.desc) })),
        ...news.map((hit) => ({
          title: textOf(hit.title),
          url: textOf(hit.url),
          snippet: [textOf(hit.source), textOf(hit.time_frame)].filter((part) => part !== '').join(', '),
        })),
      ]);
      return unique(hits, (hit) => hit.url).slice(0, maxResults);
    },
  };
}

export interface InfoQuestImages extends InfoQuestOptions {
  /** `l` large, `m` medium, `i` icons; '' = any. What the model asks for wins. */
  readonly size: string;
}

const SIZES: Readonly<Record<string, string>> = { Small: 'i', Medium: 'm', Large: 'l', Wallpaper: 'l' };

export function infoQuestImages(options: InfoQuestImages): ImageProvider {
  return {
    name: 'InfoQuest',
    async search(query, { maxResults, size, signal }) {
      const wanted = (size === undefined ? undefined : entryOf(SIZES, size)) ?? options.size;
      const found = await ask(
        options,
        { search_type: 'Images', query, ...(wanted === '' ? {} : { image_size: wanted }) },
        signal,
      );
      const images = found.flatMap(({ images: list }) =>
        list.map((image) => ({
          title: textOf(image.title),
          image_url: textOf(image.original),
          thumbnail_url: textOf(image.thumbnail),
          source_url: textOf(image.link),
        })),
      );
      return unique(images, (image) => image.image_url).slice(0, maxResults);
    },
  };
}

export interface InfoQuestFetch extends InfoQuestOptions {
  /** Seconds that it waits for a page to settle, for the page as a whole, and for the way to it; 0 or less = it decides itself. */
  readonly fetchTime: number;
  readonly pageTimeout: number;
  readonly navigationTimeout: number;
}

export function infoQuestFetch(options: InfoQuestFetch): FetchProvider {
  return {
    name: 'InfoQuest',
    async fetch(url, { signal }) {
      const text = await callApi('InfoQuest', {
        url: options.baseUrl ?? READER,
        headers: headersOf(options.key),
        json: {
          url,
          format: 'HTML',
          ...positive({
            fetch_time: options.fetchTime,
            timeout: options.pageTimeout,
            navi_timeout: options.navigationTimeout,
          }),
        },
        signal,
        timeoutMs: options.timeoutMs,
      });
      const html = htmlOf(text);
      if (html.trim() === '') throw new ReindeerError('tool_failed', 'No content found on the page.');
      const { title, markdown } = await options.documents.read(
        { kind: 'page', body: Buffer.from(html), charset: 'utf-8', url, maxCharacters: MAX_CHARACTERS },
        signal,
      );
      if (markdown === '') throw new ReindeerError('tool_failed', 'No content found on the page.');
      return { title, markdown };
    },
  };
}

/** The page stands in a field; some answers are the page itself. */
function htmlOf(text: string): string {
  try {
    return textOf(objectOf(JSON.parse(text)).reader_result);
  } catch {
    return text;
  }
}
