import { zipSync } from 'fflate';
import mammoth from 'mammoth';
import readWorkbook from 'read-excel-file/node';
import { extractText, getDocumentProxy } from 'unpdf';
import { htmlToMarkdown, pageText } from './html.ts';
import type { Converted } from './jobs.ts';
import { zipEntries } from './zip.ts';

/** Runs in the thread for documents only. */

/** Below this many characters a page, a PDF is pictures of text. */
const SPARSE = 50;
const MAX_ROWS = 5_000;
const MAX_COLUMNS = 100;
const MAX_SLIDES = 1_000;
const MAX_PART = 32 * 1024 * 1024;
/** Of an office file, all parts with text together; also how many parts there may be. */
const MAX_UNPACKED = 128 * 1024 * 1024;
const MAX_PARTS = 10_000;
/** Office files are archives. */
const ARCHIVES = ['.docx', '.xlsx', '.pptx'];

/** Turns a document into Markdown. Throws for one that is damaged, protected, or of another kind. */
export async function convertDocument(name: string, bytes: Uint8Array, maxCharacters: number): Promise<Converted> {
  const extension = /\.[^.]+$/.exec(name)?.[0].toLowerCase() ?? '';
  const { text, note } = await read(extension, bytes);
  const markdown = text.replace(/\n{3,}/g, '\n\n').trim();
  return { markdown: markdown.slice(0, maxCharacters), characters: markdown.length, note };
}

async function read(extension: string, given: Uint8Array): Promise<{ text: string; note: string | null }> {
  const bytes = ARCHIVES.includes(extension) ? await repacked(given) : given;
  switch (extension) {
    case '.pdf':
      return await pdf(bytes);
    case '.docx':
      return { text: await word(bytes), note: null };
    case '.xlsx':
      return await workbook(bytes);
    case '.pptx':
      return { text: await slides(bytes), note: null };
    case '.html':
    case '.htm': {
      const page = pageText(bytes, null, 'file:///', Number.MAX_SAFE_INTEGER);
      return { text: page.title === '' ? page.markdown : `# ${page.title}\n\n${page.markdown}`, note: null };
    }
    default:
      throw new Error(`no reader for ${extension}`);
  }
}

async function pdf(bytes: Uint8Array): Promise<{ text: string; note: string | null }> {
  // A copy: the reader takes its bytes away.
  const document = await getDocumentProxy(new Uint8Array(bytes), {
    isEvalSupported: false,
    // Nothing of its warnings is for the operator.
    verbosity: 0,
    disableFontFace: true,
    useSystemFonts: false,
  } as never);
  const { text, totalPages } = await extractText(document, { mergePages: false });
  const pages = text.map((page, at) => `## Page ${at + 1}\n\n${page.trim()}`);
  const characters = text.reduce((sum, page) => sum + page.trim().length, 0);
  return {
    text: pages.join('\n\n'),
    note: characters < totalPages * SPARSE ? 'It has hardly any text: its pages may be scanned pictures.' : null,
  };
}

async function word(bytes: Uint8Array): Promise<string> {
  const { value } = await mammoth.convertToHtml(
    { buffer: Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength) },
    // Pictures as data would fill the text; files that the document names are never opened.
    { convertImage: mammoth.images.imgElement(async () => ({ src: '' })), externalFileAccess: false },
  );
  return htmlToMarkdown(value, 'file:///');
}

async function workbook(bytes: Uint8Array): Promise<{ text: string; note: string | null }> {
  const sheets = await readWorkbook(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength));
  let cut = false;
  const parts = sheets.map(({ sheet, data }) => {
    const rows = data.slice(0, MAX_ROWS).map((row) => row.slice(0, MAX_COLUMNS).map(cellText));
    cut ||= data.length > MAX_ROWS || data.some((row) => row.length > MAX_COLUMNS);
    const width = Math.max(0, ...rows.map((row) => row.length));
    if (width === 0) return `## ${sheet}\n\n(empty)`;
    const line = (row: readonly string[]): string =>
      `| ${Array.from({ length: width }, (_, at) => row[at] ?? '').join(' | ')} |`;
    const [head = [], ...body] = rows;
    return `## ${sheet}\n\n${line(head)}\n|${' --- |'.repeat(width)}\n${body.map(line).join('\n')}`;
  });
  return {
    text: parts.join('\n\n'),
    note: cut ? `Only the first ${MAX_ROWS} rows and ${MAX_COLUMNS} columns of a sheet are here.` : null,
  };
}

function cellText(value: unknown): string {
  if (value === null || value === undefined) return '';
  const text = value instanceof Date ? value.toISOString().replace(/T00:00:00\.000Z$/, '') : String(value);
  return text.replace(/\s+/g, ' ').replaceAll('|', '\\|').trim();
}

/** The texts of a presentation, slide by slide; the first line of each is its title. */
async function slides(bytes: Uint8Array): Promise<string> {
  const parts = await zipParts(bytes, (name) => /^ppt\/(?:slides\/slide|notesSlides\/notesSlide)\d+\.xml$/.test(name));
  const number = (name: string): number => Number(/(\d+)\.xml$/.exec(name)?.[1] ?? 0);
  const names = [...parts.keys()]
    .filter((name) => name.startsWith('ppt/slides/'))
    .sort((a, b) => number(a) - number(b));
  if (names.length === 0) throw new Error('no slides');
  return names
    .slice(0, MAX_SLIDES)
    .map((name, at) => {
      const [title, ...lines] = paragraphs(parts.get(name) ?? '');
      const notes = paragraphs(parts.get(`ppt/notesSlides/notesSlide${number(name)}.xml`) ?? '').filter(
        (line) => !/^\d+$/.test(line),
      );
      return [
        `## Slide ${at + 1}${title === undefined ? '' : `: ${title}`}`,
        lines.map((line) => `- ${line}`).join('\n'),
        notes.length === 0 ? '' : `> ${notes.join(' ')}`,
      ]
        .filter((part) => part !== '')
        .join('\n\n');
    })
    .join('\n\n');
}

function paragraphs(xml: string): string[] {
  return xml
    .split(/<a:p[\s>]/)
    .slice(1)
    .map((part) => [...part.matchAll(/<a:t(?:\s[^>]{0,200})?>([^<]*)<\/a:t>/g)].map((match) => match[1] ?? '').join(''))
    .map((text) => entities(text).replace(/\s+/g, ' ').trim())
    .filter((text) => text !== '');
}

const NAMED: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" };
const entities = (text: string): string =>
  text.replace(
    /&(?:#x([0-9a-f]{1,6})|#(\d{1,7})|(\w{2,6}));/gi,
    (whole, hex: string | undefined, decimal: string | undefined, name: string | undefined) => {
      const code = hex === undefined ? Number(decimal) : Number.parseInt(hex, 16);
      if (name !== undefined) return NAMED[name] ?? whole;
      return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : whole;
    },
  );

/**
 * The parts with text in an archive of our own. The readers of office files unpack without a bound, into memory that the thread's own limit does not
 * count, and each finds the parts in its own way: by the list, beyond the number that the list names, or without it. What was measured in one way and
 * unpacked in another was not measured; so they get nothing but what was.
 */
async function repacked(bytes: Uint8Array): Promise<Uint8Array> {
  const parts: Record<string, Uint8Array> = {};
  for await (const { entry, content } of zipEntries(bytes, { entries: MAX_PARTS, bytes: MAX_UNPACKED }))
    if (/\.(?:xml|rels)$/.test(entry.fileName)) parts[entry.fileName] = await content();
  return zipSync(parts, { level: 0 });
}

/** The wanted parts of an office file as text. */
async function zipParts(bytes: Uint8Array, wanted: (name: string) => boolean): Promise<Map<string, string>> {
  const parts = new Map<string, string>();
  for await (const { entry, content } of zipEntries(bytes, { entries: MAX_PARTS, bytes: MAX_PART }))
    if (wanted(entry.fileName)) parts.set(entry.fileName, (await content()).toString('utf8'));
  return parts;
}
