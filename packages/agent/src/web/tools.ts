import type { StructuredToolInterface } from '@langchain/core/tools';
import { ReindeerError } from '@reindeer/protocol';
import { z } from 'zod';
import { defineTool, failed } from '../tools/define.ts';
import { isPublicUrl, publicUrl } from './address.ts';
import type { FetchProvider, ImageProvider, SearchProvider } from './types.ts';

/** Longest answer of `web_fetch`, in characters, the notice about what follows included (WEB-2). */
const MAX_PAGE = 4096;
const MAX_SNIPPET = 2_000;
const MAX_TITLE = 300;

export const WEB_SEARCH = 'web_search';
export const WEB_FETCH = 'web_fetch';
export const IMAGE_SEARCH = 'image_search';

/**
 * `web_search` (WEB-1). One shape for all providers: `{query, results: [{title, url, snippet}]}`, or `{error, query}` when there is nothing
 * or the provider failed, which the metadata of tool results tells apart.
 */
export function webSearchTool(provider: SearchProvider, maxResults: number): StructuredToolInterface {
  return defineTool({
    name: WEB_SEARCH,
    description: `Searches the web and answers up to ${maxResults} hits as JSON, each with title, url and snippet. Snippets are short: open the pages that matter with ${WEB_FETCH}.`,
    schema: z.object({
      query: z
        .string()
        .trim()
        .min(1)
        .max(2_000)
        .describe('What to search for, in the words that a good page would use.'),
    }),
    repeatable: true,
    judgedByText: true,
    async run({ query }, { signal }) {
      return await answered(query, async () => {
        const found = await provider.search(query, { maxResults, signal });
        const results = found
          .filter((hit) => hit.url !== '')
          .slice(0, maxResults)
          .map((hit) => ({
            title: hit.title.slice(0, MAX_TITLE),
            url: hit.url,
            snippet: hit.snippet.slice(0, MAX_SNIPPET),
          }));
        return results.length === 0 ? null : { query, results };
      });
    },
  });
}

/** `web_fetch` (WEB-2): a page as Markdown, in parts of at most 4,096 characters. */
export function webFetchTool(provider: FetchProvider): StructuredToolInterface {
  return defineTool({
    name: WEB_FETCH,
    description: `Opens a web page and answers its main text as Markdown, at most ${MAX_PAGE} characters at a time. Only open addresses that the user gave or that a search or a page named; do not guess addresses, do not add "www.", and do not try pages that need a login.`,
    schema: z.object({
      url: z.string().min(1).max(4_000).describe('The complete address, with https://.'),
      offset: z
        .number()
        .int()
        .min(0)
        .max(10_000_000)
        .default(0)
        .describe('Where to go on in a long page; the answer before named it.'),
    }),
    repeatable: true,
    async run({ url, offset }, { signal }) {
      // Also for providers that open the page themselves: an internal address is nothing to tell them.
      const address = publicUrl(url, provider.allowPrivate === true).href;
      const page = await provider.fetch(address, { signal }).catch((error: unknown) => {
        if (ReindeerError.is(error) && error.code === 'configuration') return failed(error.message);
        throw error;
      });
      return pagePart(page.title.slice(0, MAX_TITLE) || address, page.markdown, offset);
    },
  });
}

/** `image_search` (WEB-3). Pictures at internal addresses are left out; a missing address does not fall back to its sibling's. */
export function imageSearchTool(provider: ImageProvider, maxResults: number): StructuredToolInterface {
  return defineTool({
    name: IMAGE_SEARCH,
    description:
      'Searches for pictures on the web, e.g. as references for a design. Answers JSON with the address of each picture, of its small version and of the page that shows it.',
    schema: z.object({
      query: z.string().trim().min(1).max(500).describe('What the pictures should show.'),
      max_results: z.number().int().min(1).max(50).default(maxResults),
      size: z.enum(['Small', 'Medium', 'Large', 'Wallpaper']).optional(),
      type_image: z.enum(['photo', 'clipart', 'gif', 'transparent', 'line']).optional(),
      layout: z.enum(['Square', 'Tall', 'Wide']).optional(),
    }),
    repeatable: true,
    judgedByText: true,
    async run({ query, max_results, size, type_image: type, layout }, { signal }) {
      return await answered(query, async () => {
        const found = await provider.search(query, { maxResults: max_results, size, type, layout, signal });
        const results = found
          .map((image) => ({
            title: image.title.slice(0, MAX_TITLE),
            image_url: isPublicUrl(image.image_url) ? image.image_url : '',
            thumbnail_url: isPublicUrl(image.thumbnail_url) ? image.thumbnail_url : '',
            source_url: isPublicUrl(image.source_url) ? image.source_url : '',
          }))
          .filter((image) => image.image_url !== '' || image.thumbnail_url !== '')
          .slice(0, max_results);
        if (results.length === 0) return null;
        const usage_hint = 'Look at the rights of a picture before you use it; name its page as the source.';
        return { query, results, usage_hint };
      });
    },
  });
}

async function answered(query: string, work: () => Promise<object | null>): Promise<string> {
  try {
    return JSON.stringify((await work()) ?? { error: 'No results found', query });
  } catch (error) {
    if (!ReindeerError.is(error) || !TOLD.has(error.code)) throw error;
    return JSON.stringify({ error: error.message, query });
  }
}
/** Failures of a provider that the model should know of; an abort ends the run as everywhere. */
const TOLD: ReadonlySet<string> = new Set(['tool_failed', 'configuration', 'over_capacity', 'forbidden']);

function pagePart(title: string, markdown: string, offset: number): string {
  if (offset > 0 && offset >= markdown.length)
    throw new ReindeerError(
      'tool_failed',
      `The page has only ${markdown.length} characters; there is nothing at ${offset}.`,
    );
  const heading = offset === 0 ? `# ${title}\n\n` : '';
  if (heading.length + markdown.length - offset <= MAX_PAGE) return `${heading}${markdown.slice(offset)}`;
  const notice = (end: number): string => `\n\n[… ${markdown.length - end} more characters: go on with offset ${end}]`;
  // The notice's own length depends on the numbers in it; the largest ones are assumed.
  const room = MAX_PAGE - heading.length - notice(markdown.length).length - 8;
  const end = wholeCharacter(markdown, offset + room);
  return `${heading}${markdown.slice(offset, end)}${notice(end)}`;
}

/** Not between the halves of a surrogate pair. */
const wholeCharacter = (text: string, end: number): number =>
  /[\uD800-\uDBFF]/.test(text[end - 1] ?? '') ? end - 1 : end;
