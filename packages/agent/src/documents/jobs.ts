import type { Finding, ScannedFile } from '../skills/scan.ts';

/** What the thread for documents can be asked, and what it answers. Everything is plain data: it travels between threads. */
export type DocumentJob =
  /** The main text of a page as Markdown. */
  | {
      readonly kind: 'page';
      readonly body: Uint8Array;
      readonly charset: string | null;
      readonly url: string;
      /** Longest Markdown, in characters. */
      readonly maxCharacters: number;
    }
  /** Entries of a page with search results. */
  | {
      readonly kind: 'entries';
      readonly html: string;
      /** CSS selectors: an entry, and within it the link and the text. */
      readonly entry: string;
      readonly link: string;
      readonly text: string;
      readonly max: number;
    }
  /** A document as Markdown. */
  | {
      readonly kind: 'convert';
      /** Its end says what it is. */
      readonly name: string;
      readonly body: Uint8Array;
      readonly maxCharacters: number;
    }
  /** What is suspicious in the files of a skill. */
  | { readonly kind: 'scan'; readonly files: readonly ScannedFile[] };

export interface PageText {
  /** '' when the page has none. */
  readonly title: string;
  readonly markdown: string;
  /** Characters of the whole text, of which `markdown` may be the beginning. */
  readonly characters: number;
}

/** Ends of names of documents that can be turned into Markdown. */
export const CONVERTIBLE: readonly string[] = ['.pdf', '.docx', '.xlsx', '.pptx', '.html', '.htm'];

export interface Converted {
  readonly markdown: string;
  /** Characters of the whole text, of which `markdown` may be the beginning. */
  readonly characters: number;
  /** What the reader should know of the result; null = nothing. */
  readonly note: string | null;
}

export interface PageEntry {
  readonly title: string;
  readonly href: string;
  readonly text: string;
}

/** The answer to each kind of job. */
export interface DocumentResults {
  readonly page: PageText;
  readonly entries: readonly PageEntry[];
  readonly convert: Converted;
  readonly scan: readonly Finding[];
}

export type ToDocumentWorker = { readonly id: number; readonly job: DocumentJob };
export type FromDocumentWorker =
  /** The thread has loaded what it needs. */
  | 'ready'
  | { readonly id: number; readonly result: DocumentResults[keyof DocumentResults] }
  | { readonly id: number; readonly failed: string };
