import type { StructuredToolInterface } from '@langchain/core/tools';
import { type Logger, ReindeerError } from '@reindeer/protocol';
import type { Documents } from '../documents/documents.ts';
import { ApiKey } from './api.ts';
import { createGuardedFetch, type GuardedFetch } from './guarded-fetch.ts';
import { type DuckDuckGoOptions, duckDuckGoImages, duckDuckGoSearch } from './providers/duckduckgo.ts';
import { type InfoQuestOptions, infoQuestFetch, infoQuestImages, infoQuestSearch } from './providers/infoquest.ts';
import {
  braveImages,
  braveSearch,
  exaFetch,
  exaSearch,
  firecrawlFetch,
  firecrawlSearch,
  jinaFetch,
  type KeyedOptions,
  searxngSearch,
  serperImages,
  serperSearch,
  tavilyFetch,
  tavilySearch,
} from './providers/keyed.ts';
import { ownReader } from './providers/reader.ts';
import { IMAGE_SEARCH, imageSearchTool, WEB_FETCH, WEB_SEARCH, webFetchTool, webSearchTool } from './tools.ts';
import type { FetchProvider, ImageProvider, SearchProvider } from './types.ts';

export type WebToolName = typeof WEB_SEARCH | typeof WEB_FETCH | typeof IMAGE_SEARCH;
export const WEB_TOOLS: readonly WebToolName[] = [WEB_SEARCH, WEB_FETCH, IMAGE_SEARCH];

/** One entry of `tools` in the configuration, for a web tool. */
export interface WebToolSettings {
  readonly tool: WebToolName;
  /** A name of `WEB_PROVIDERS`. */
  readonly provider: string;
  /** The entry's further keys, as they stand in the file. */
  readonly options: Readonly<Record<string, unknown>>;
}

/** Without any configuration: a search that needs no key, and pages opened from here. */
export const DEFAULT_WEB_TOOLS: readonly WebToolSettings[] = [
  { tool: WEB_SEARCH, provider: 'duckduckgo', options: {} },
  { tool: WEB_FETCH, provider: 'reader', options: {} },
  { tool: IMAGE_SEARCH, provider: 'duckduckgo', options: {} },
];

export interface WebToolsOptions {
  readonly settings: readonly WebToolSettings[];
  readonly documents: Documents;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly logger: Logger;
}

/** A limit or a filter that is not used. */
const OFF = -1;

interface Making {
  readonly number: (key: string, fallback: number, low: number, high: number) => number;
  readonly text: (key: string, fallback: string) => string;
  readonly flag: (key: string, fallback: boolean) => boolean;
  readonly keyed: (provider: string, variable: string, timeoutSeconds?: number, shortest?: number) => KeyedOptions;
  readonly documents: Documents;
}

interface Provider {
  readonly search?: (making: Making) => SearchProvider;
  readonly fetch?: (making: Making) => FetchProvider;
  readonly images?: (making: Making) => ImageProvider;
}

const duckDuckGo = ({ documents, text, number }: Making): DuckDuckGoOptions => ({
  documents,
  region: text('region', 'wt-wt'),
  safeSearch: oneOf('safesearch', text('safesearch', 'moderate'), ['off', 'moderate', 'strict'] as const),
  timeoutMs: number('timeout', 30, 1, 600) * 1000,
  ...(text('base_url', '') === '' ? {} : { searchUrl: text('base_url', ''), imageUrl: text('base_url', '') }),
});
const exa = ({ keyed, text, number }: Making) => ({
  ...keyed('Exa', 'EXA_API_KEY'),
  searchType: text('search_type', 'auto'),
  contentsMaxCharacters: number('contents_max_characters', 1000, 1, 100_000),
});

/** @param range the key with the days to look back; null = there is none */
const infoQuest = ({ keyed, number, documents }: Making, range: string | null): InfoQuestOptions => ({
  ...keyed('InfoQuest', 'INFOQUEST_API_KEY', 30, OFF),
  documents,
  timeoutMs: 30_000,
  days: range === null ? OFF : number(range, OFF, OFF, 365),
});

const PROVIDERS: Readonly<Record<string, Provider>> = {
  duckduckgo: {
    search: (making) => duckDuckGoSearch(duckDuckGo(making)),
    images: (making) => duckDuckGoImages(duckDuckGo(making)),
  },
  reader: {
    fetch: ({ documents, number, flag }) =>
      ownReader({
        documents,
        get: guardedBy(flag('allow_private_addresses', false)),
        allowPrivate: flag('allow_private_addresses', false),
        timeoutMs: number('timeout', 20, 1, 600) * 1000,
      }),
  },
  jina: { fetch: ({ keyed }) => jinaFetch(keyed('Jina', 'JINA_API_KEY', 10)) },
  tavily: {
    search: ({ keyed }) => tavilySearch(keyed('Tavily', 'TAVILY_API_KEY')),
    fetch: ({ keyed }) => tavilyFetch(keyed('Tavily', 'TAVILY_API_KEY')),
  },
  firecrawl: {
    search: ({ keyed }) => firecrawlSearch(keyed('Firecrawl', 'FIRECRAWL_API_KEY')),
    fetch: ({ keyed }) => firecrawlFetch(keyed('Firecrawl', 'FIRECRAWL_API_KEY')),
  },
  exa: { search: (making) => exaSearch(exa(making)), fetch: (making) => exaFetch(exa(making)) },
  searxng: {
    search: ({ text, number }) =>
      searxngSearch({
        baseUrl: text('base_url', 'http://localhost:8088'),
        language: text('language', 'auto'),
        timeoutMs: number('timeout', 30, 1, 600) * 1000,
      }),
  },
  serper: {
    search: ({ keyed }) => serperSearch(keyed('Serper', 'SERPER_API_KEY')),
    images: ({ keyed }) => serperImages(keyed('Serper', 'SERPER_API_KEY')),
  },
  infoquest: {
    search: (making) => infoQuestSearch(infoQuest(making, 'search_time_range')),
    fetch: (making) => {
      const pageTimeout = making.number('timeout', 10, OFF, 600);
      const navigationTimeout = making.number('navigation_timeout', 30, OFF, 600);
      const fetchTime = making.number('fetch_time', 10, OFF, 600);
      // It answers after its own limits, which may follow each other.
      const all = [pageTimeout, navigationTimeout, fetchTime].reduce((sum, value) => sum + Math.max(value, 0), 0);
      const timeoutMs = Math.max(60, all + 10) * 1000;
      return infoQuestFetch({ ...infoQuest(making, null), timeoutMs, fetchTime, pageTimeout, navigationTimeout });
    },
    images: (making) => {
      const size = oneOf('image_size', making.text('image_size', ''), ['', 'l', 'm', 'i'] as const);
      return infoQuestImages({ ...infoQuest(making, 'image_search_time_range'), size });
    },
  },
  brave: {
    search: ({ keyed }) => braveSearch(keyed('Brave', 'BRAVE_SEARCH_API_KEY')),
    images: ({ keyed }) => braveImages(keyed('Brave', 'BRAVE_SEARCH_API_KEY')),
  },
};

/** Which provider can serve which tool: names for `use` in the configuration. */
export const WEB_PROVIDERS: Readonly<Record<WebToolName, readonly string[]>> = {
  [WEB_SEARCH]: namesOf('search'),
  [WEB_FETCH]: namesOf('fetch'),
  [IMAGE_SEARCH]: namesOf('images'),
};

function namesOf(kind: keyof Provider): string[] {
  return Object.keys(PROVIDERS).filter((name) => PROVIDERS[name]?.[kind] !== undefined);
}

const guardedBy = (allowPrivate: boolean): GuardedFetch => createGuardedFetch({ allowPrivate });

/**
 * The web tools of the configuration; of several entries for one tool the first counts.
 *
 * @throws ReindeerError `configuration` for a provider that cannot serve the tool, or a value that makes no sense
 */
export function webTools({ settings, documents, environment, logger }: WebToolsOptions): StructuredToolInterface[] {
  const made = new Map<WebToolName, StructuredToolInterface>();
  for (const entry of settings) {
    if (made.has(entry.tool)) {
      logger.warn('A web tool is configured twice; the first entry counts.', { tool: entry.tool });
      continue;
    }
    const provider = PROVIDERS[entry.provider];
    const making: Making = { documents, ...readers(entry), keyed: keyedOf(entry, environment, logger) };
    const most = making.number('max_results', 5, 1, 50);
    const tool = toolOf(entry.tool, provider, making, most);
    if (tool === null)
      throw new ReindeerError(
        'configuration',
        `tools: "${entry.provider}" cannot serve ${entry.tool}. Providers that can: ${WEB_PROVIDERS[entry.tool].join(', ')}.`,
      );
    made.set(entry.tool, tool);
  }
  return [...made.values()];
}

function toolOf(
  name: WebToolName,
  provider: Provider | undefined,
  making: Making,
  most: number,
): StructuredToolInterface | null {
  switch (name) {
    case WEB_SEARCH:
      return provider?.search === undefined ? null : webSearchTool(provider.search(making), most);
    case WEB_FETCH:
      return provider?.fetch === undefined ? null : webFetchTool(provider.fetch(making));
    case IMAGE_SEARCH:
      return provider?.images === undefined ? null : imageSearchTool(provider.images(making), most);
  }
}

function keyedOf(
  { options }: WebToolSettings,
  environment: WebToolsOptions['environment'],
  logger: Logger,
): Making['keyed'] {
  return (provider, variable, timeoutSeconds = 30, shortest = 1) => {
    const key = typeof options.api_key === 'string' && options.api_key !== '' ? options.api_key : environment[variable];
    const { text, number } = readers({ options });
    const baseUrl = text('base_url', '');
    return {
      key: new ApiKey(provider, variable, key, logger),
      timeoutMs: number('timeout', timeoutSeconds, shortest, 600) * 1000,
      ...(baseUrl === '' ? {} : { baseUrl }),
    };
  };
}

/** Reads the further keys of an entry. Files carried over write numbers and switches as text too. */
function readers({ options }: Pick<WebToolSettings, 'options'>): Pick<Making, 'number' | 'text' | 'flag'> {
  const wrong = (key: string, what: string): never => {
    throw new ReindeerError('configuration', `tools: ${key} must be ${what}.`);
  };
  return {
    number(key, fallback, low, high) {
      const value = options[key];
      if (value === undefined || value === null || value === '') return fallback;
      const read = typeof value === 'string' ? Number(value) : value;
      if (typeof read !== 'number' || !(read >= low && read <= high))
        return wrong(key, `a number from ${low} to ${high}`);
      return read;
    },
    text(key, fallback) {
      const value = options[key];
      if (value === undefined || value === null) return fallback;
      return typeof value === 'string' ? value : wrong(key, 'text');
    },
    flag(key, fallback) {
      const value = options[key];
      if (value === undefined || value === null) return fallback;
      if (typeof value === 'boolean') return value;
      if (typeof value === 'string' && /^(true|yes|on|1)$/i.test(value)) return true;
      if (typeof value === 'string' && /^(false|no|off|0)$/i.test(value)) return false;
      return wrong(key, 'true or false');
    },
  };
}

function oneOf<const T extends readonly string[]>(key: string, value: string, allowed: T): T[number] {
  const found = allowed.find((one) => one === value);
  if (found === undefined)
    throw new ReindeerError('configuration', `tools: ${key} must be one of ${allowed.join(', ')}.`);
  return found;
}
