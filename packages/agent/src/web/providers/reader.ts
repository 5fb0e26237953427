import { ReindeerError } from '@reindeer/protocol';
import type { Documents } from '../../documents/documents.ts';
import type { FetchedPage, GuardedFetch } from '../guarded-fetch.ts';
import type { FetchProvider, WebPage } from '../types.ts';

export interface ReaderOptions {
  readonly documents: Documents;
  readonly get: GuardedFetch;
  readonly timeoutMs: number;
  /** As `get` has it. Default false. */
  readonly allowPrivate?: boolean;
}

const MAX_BYTES = 5 * 1024 * 1024;
/** Of a page's text; the tool shows it in parts. */
const MAX_CHARACTERS = 1_000_000;

/** Opens pages from this machine, without anybody in between, and takes their main text (WEB-2). */
export function ownReader(options: ReaderOptions): FetchProvider {
  return {
    name: 'the built-in reader',
    allowPrivate: options.allowPrivate === true,
    async fetch(url, { signal }) {
      const page = await options.get(url, { signal, timeoutMs: options.timeoutMs, maxBytes: MAX_BYTES });
      if (page.status >= 400)
        throw new ReindeerError(
          'tool_failed',
          `The server answered with status ${page.status}${meaning(page.status)}.`,
        );
      return await textOf(page, options.documents, signal);
    },
  };
}

async function textOf(page: FetchedPage, documents: Documents, signal: AbortSignal | undefined): Promise<WebPage> {
  if (page.body.length === 0) throw new ReindeerError('tool_failed', 'The page is empty.');
  const { mediaType } = page;
  if (
    mediaType === 'text/html' ||
    mediaType === 'application/xhtml+xml' ||
    (mediaType === '' && looksLikeHtml(page.body))
  ) {
    const read = await documents.read(
      { kind: 'page', body: page.body, charset: page.charset, url: page.url, maxCharacters: MAX_CHARACTERS },
      signal,
    );
    if (read.markdown === '')
      throw new ReindeerError(
        'tool_failed',
        'No content found on the page. It may need a browser with scripts, or a login.',
      );
    return { title: read.title, markdown: read.markdown };
  }
  if (mediaType === '' || mediaType.startsWith('text/') || /[/+](json|xml|yaml)$/.test(mediaType)) {
    if (page.body.subarray(0, 8192).includes(0))
      throw new ReindeerError('tool_failed', 'The address leads to binary data, not to a page.');
    return { title: page.url, markdown: plain(page) };
  }
  throw new ReindeerError(
    'tool_failed',
    `The address leads to ${mediaType.slice(0, 80)}, which cannot be read as a page.`,
  );
}

function plain(page: FetchedPage): string {
  let text: string;
  try {
    text = new TextDecoder(page.charset ?? 'utf-8').decode(page.body);
  } catch {
    text = new TextDecoder().decode(page.body);
  }
  return text.slice(0, MAX_CHARACTERS);
}

const looksLikeHtml = (body: Uint8Array): boolean =>
  /<(!doctype html|html|head|body)\b/i.test(new TextDecoder('latin1').decode(body.subarray(0, 1024)));

function meaning(status: number): string {
  if (status === 401 || status === 403) return ': the page is not open to everybody';
  if (status === 404 || status === 410) return ': there is no such page';
  if (status === 429) return ': too many requests, wait before you try again';
  return status >= 500 ? ': try again later' : '';
}
