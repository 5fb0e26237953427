import { Readability } from '@mozilla/readability';
import { parseHTML } from 'linkedom';
import TurndownService from 'turndown';
import type { PageEntry, PageText } from './jobs.ts';

/** What is used of a DOM; its types at large would let browser globals into the whole package. */
interface Element {
  readonly textContent: string | null;
  getAttribute(name: string): string | null;
  setAttribute(name: string, value: string): void;
  querySelector(selector: string): Element | null;
  querySelectorAll(selector: string): Iterable<Element>;
  prepend(child: Element): void;
  remove(): void;
}
interface Document extends Pick<Element, 'querySelector' | 'querySelectorAll'> {
  readonly head: Element | null;
  readonly body: Element | null;
  createElement(name: string): Element;
}

/** Runs in the thread for documents only: parsing takes tens of milliseconds. */

/** Elements that carry no text for a reader, or that act. */
const NOISE =
  'title,meta,link,script,style,noscript,template,iframe,object,embed,svg,canvas,form,nav,footer,aside,[aria-hidden="true"],[hidden]';
const MAX_ELEMENTS = 50_000;

/** The main text of a page as Markdown, by Readability, or all of its text where that finds none. */
export function pageText(body: Uint8Array, charset: string | null, url: string, maxCharacters: number): PageText {
  const html = textOf(body, charset);
  const document = documentOf(html);
  const title = clean(document.querySelector('title')?.textContent ?? '');
  const article = articleOf(html, url);
  const content = article?.content ?? fallback(document);
  const text = content === null ? '' : turndown(url).turndown(content as never);
  const markdown = text.replace(/\n{3,}/g, '\n\n').trim();
  return {
    title: clean(article?.title ?? '') || title,
    markdown: markdown.slice(0, maxCharacters),
    characters: markdown.length,
  };
}

/** Entries of a page with search results, in the page's order. */
export function pageEntries(
  html: string,
  selectors: { readonly entry: string; readonly link: string; readonly text: string },
  max: number,
): PageEntry[] {
  const entries: PageEntry[] = [];
  for (const element of documentOf(html).querySelectorAll(selectors.entry)) {
    if (entries.length >= max) break;
    const link = element.querySelector(selectors.link);
    const href = link?.getAttribute('href') ?? '';
    const title = clean(link?.textContent ?? '');
    if (href === '' || title === '') continue;
    entries.push({ title, href, text: clean(element.querySelector(selectors.text)?.textContent ?? '') });
  }
  return entries;
}

function articleOf(html: string, url: string): { title: string | null; content: Element } | null {
  // A document of its own: Readability takes it apart.
  const document = documentOf(html);
  try {
    const base = document.createElement('base');
    base.setAttribute('href', url);
    document.head?.prepend(base);
    const article = new Readability<Element>(document as never, {
      maxElemsToParse: MAX_ELEMENTS,
      serializer: (node) => node as unknown as Element,
    }).parse();
    if (article?.content == null || clean(article.textContent ?? '').length < 100) return null;
    return { title: article.title ?? null, content: article.content };
  } catch {
    // Too many elements, or markup that it cannot read: the plain text is still of use.
    return null;
  }
}

function fallback(document: Document): Element | null {
  for (const element of document.querySelectorAll(NOISE)) element.remove();
  return document.body;
}

/** A piece of HTML that was made here, as Markdown. */
export const htmlToMarkdown = (html: string, url: string): string =>
  turndown(url).turndown(documentOf(html).body as never);

function turndown(url: string): TurndownService {
  const service = new TurndownService({
    headingStyle: 'atx',
    codeBlockStyle: 'fenced',
    bulletListMarker: '-',
    hr: '---',
  });
  service.remove(['script', 'style', 'noscript', 'iframe', 'template'] as never);
  // Pictures written into the page as data would fill the answer.
  service.addRule('pictures', {
    filter: 'img',
    replacement: (_content, node) => {
      const image = node as unknown as Element;
      const source = absolute(image.getAttribute('src') ?? '', url);
      const alt = clean(image.getAttribute('alt') ?? '');
      return source === null ? alt : `![${alt}](${source})`;
    },
  });
  service.addRule('links', {
    filter: (node) => node.nodeName === 'A' && node.getAttribute('href') !== null,
    replacement: (content, node) => {
      const text = content.trim();
      const target = absolute((node as unknown as Element).getAttribute('href') ?? '', url);
      return text === '' || target === null ? text : `[${text}](${target})`;
    },
  });
  service.addRule('tables', {
    filter: (node) => node.nodeName === 'TABLE',
    replacement: (_content, node) => `\n\n${tableOf(node as unknown as Element)}\n\n`,
  });
  return service;
}

function tableOf(table: Element): string {
  const rows = [...table.querySelectorAll('tr')].map((row) =>
    [...row.querySelectorAll('th,td')].map((cell) => clean(cell.textContent ?? '').replaceAll('|', '\\|')),
  );
  const width = Math.max(0, ...rows.map((row) => row.length));
  if (width === 0) return '';
  const lines = rows
    .filter((row) => row.length > 0)
    .map((row) => `| ${Array.from({ length: width }, (_, at) => row[at] ?? '').join(' | ')} |`);
  return [lines[0], `|${' --- |'.repeat(width)}`, ...lines.slice(1)].join('\n');
}

/** null for what is no web address (`javascript:`, `data:`). */
function absolute(reference: string, base: string): string | null {
  const url = URL.parse(reference, base);
  return url !== null && (url.protocol === 'http:' || url.protocol === 'https:') ? url.href : null;
}

/** Text of a body in the character set of the header, of the page itself, or UTF-8. */
function textOf(body: Uint8Array, charset: string | null): string {
  const head = new TextDecoder('latin1').decode(body.subarray(0, 2048));
  const named = charset ?? /<meta[^>]+charset\s*=\s*["']?([\w.:-]+)/i.exec(head)?.[1] ?? 'utf-8';
  try {
    return new TextDecoder(named).decode(body);
  } catch {
    return new TextDecoder().decode(body);
  }
}

function documentOf(html: string): Document {
  // A fragment has no document element of its own, and Readability needs one.
  const whole = /<html[\s>]/i.test(html) ? html : `<html><head></head><body>${html}</body></html>`;
  return parseHTML(whole).document as unknown as Document;
}

const clean = (text: string): string => text.replace(/\s+/g, ' ').trim();
