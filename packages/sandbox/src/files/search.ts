import { constants } from 'node:fs';
import { type Clock, ReindeerError } from '@reindeer/protocol';
import picomatch from 'picomatch';
import { type Directory, descend, type Entry } from './directory.ts';
import { systemCode, toFileError } from './file-errors.ts';
import type { Expression, LineMatch, Matcher } from './matcher.ts';
import { show } from './virtual-path.ts';

/** Folders that searches leave out: version control, dependencies, caches, build results. */
export const IGNORED_FOLDERS: readonly string[] = [
  '.git',
  '.hg',
  '.svn',
  'node_modules',
  '__pycache__',
  '.venv',
  'venv',
  '.tox',
  '.nox',
  '.mypy_cache',
  '.pytest_cache',
  '.ruff_cache',
  '.cache',
  '.npm',
  '.idea',
  '.gradle',
  '.next',
  '.nuxt',
  '.turbo',
  '.parcel-cache',
  '.eggs',
  'dist',
  'build',
  'target',
];

export const MAX_GREP_FILE_BYTES = 1_000_000;
const MAX_PATTERN = 1_000;
/** Milliseconds for one search; what was found until then is returned as cut short. */
const MAX_SEARCH_MS = 30_000;
/** Entries one search may look at, and how many one folder may give. */
const MAX_VISITED = 200_000;
const MAX_FOLDER_ENTRIES = 50_000;
const MAX_DEPTH = 100;
const BATCH_FILES = 64;
const BATCH_BYTES = 2_000_000;
const BATCH_PATHS = 5_000;

/** One place to search: how to open it and what it is called. */
export interface SearchRoot {
  /** Virtual path of the folder. */
  readonly path: string;
  /** Opens the folder anew; null when it does not exist yet. */
  open(): Promise<Directory | null>;
}

export interface Found extends Entry {
  readonly path: string;
  /** Path below the folder where the search began. */
  readonly relative: string;
  readonly folder: readonly string[];
  readonly root: SearchRoot;
}

function compile(what: string, build: () => RegExp): Expression {
  try {
    const { source, flags } = build();
    return { source, flags };
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : 'not understood';
    throw new ReindeerError('bad_request', `The ${what} is not valid: ${why}`, { cause });
  }
}

/** Glob → expression over a relative path. A pattern without a slash matches the name at any depth, as in `.gitignore`. */
export function globExpression(pattern: string): Expression {
  const text = pattern.replaceAll('\\', '/').replace(/^(\.?\/)+/, '');
  if (text === '' || text.length > MAX_PATTERN) {
    throw new ReindeerError('bad_request', `The glob pattern must have 1 to ${MAX_PATTERN} characters.`);
  }
  if (text.split('/').includes('..'))
    throw new ReindeerError('path_refused', 'The glob pattern must not contain "..".');
  const full = text.includes('/') ? text : `**/${text}`;
  return compile('glob pattern', () => picomatch.makeRe(full, { dot: true, nonegate: true, strictSlashes: false }));
}

/** Text or regular expression → expression over a line. A leading `(?i)`, usual elsewhere, is understood. */
export function lineExpression(pattern: string, literal: boolean, caseSensitive: boolean): Expression {
  if (pattern === '' || pattern.length > MAX_PATTERN) {
    throw new ReindeerError('bad_request', `The search pattern must have 1 to ${MAX_PATTERN} characters.`);
  }
  const inline = !literal && pattern.startsWith('(?i)');
  const text = inline ? pattern.slice(4) : pattern;
  const source = literal ? text.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&') : text;
  return compile('regular expression', () => new RegExp(source, caseSensitive && !inline ? '' : 'i'));
}

/** Counts what a search has looked at and for how long, across its roots. */
export class SearchBudget {
  readonly signal: AbortSignal | undefined;
  readonly #clock: Clock;
  readonly #deadline: number;
  visited = 0;
  exhausted = false;

  constructor(clock: Clock, signal: AbortSignal | undefined) {
    this.signal = signal;
    this.#clock = clock;
    this.#deadline = clock.monotonic() + MAX_SEARCH_MS;
  }

  /** False when the search must stop; throws when it was cancelled. */
  spend(): boolean {
    if (this.signal?.aborted) throw new ReindeerError('aborted', 'The search was cancelled.');
    if (this.visited >= MAX_VISITED || this.#clock.monotonic() >= this.#deadline) this.exhausted = true;
    else this.visited += 1;
    return !this.exhausted;
  }
}

/**
 * All entries below a folder, breadth first, sorted by name within each folder, links never followed, ignored folders left out.
 * A folder that vanishes or closes itself to us meanwhile is passed over.
 */
export async function* walk(root: SearchRoot, budget: SearchBudget): AsyncGenerator<Found> {
  const ignored = new Set(IGNORED_FOLDERS);
  const pending: (readonly string[])[] = [[]];
  for (let folder = pending.shift(); folder !== undefined; folder = pending.shift()) {
    const listing = await listFolder(root, folder);
    if (listing === null) continue;
    if (!listing.complete) budget.exhausted = true;
    for (const entry of listing.entries) {
      if (!budget.spend()) return;
      const parts = [...folder, entry.name];
      const descendable = entry.kind === 'directory' && !ignored.has(entry.name);
      if (entry.kind === 'directory' && !descendable) continue;
      if (descendable && parts.length < MAX_DEPTH) pending.push(parts);
      const relative = parts.join('/');
      yield { ...entry, relative, path: `${root.path}/${relative}`, folder, root };
    }
  }
}

async function listFolder(root: SearchRoot, parts: readonly string[]) {
  try {
    const top = await root.open();
    if (top === null) return null;
    const folder = await descend(top, parts, { create: false });
    try {
      return await folder.entries(MAX_FOLDER_ENTRIES);
    } finally {
      await folder.close();
    }
  } catch (error) {
    const code = systemCode(error);
    if (parts.length > 0 && ['ENOENT', 'ENOTDIR', 'ELOOP', 'EACCES'].includes(code ?? '')) return null;
    throw toFileError(error, root.path);
  }
}

/** Yields the entries whose path below `base` matches; matching runs in the worker, in batches. */
export async function* matchPaths(
  entries: AsyncIterable<Found>,
  expression: Expression,
  matcher: Matcher,
  signal: AbortSignal | undefined,
): AsyncGenerator<Found> {
  let batch: Found[] = [];
  async function* flush(): AsyncGenerator<Found> {
    const current = batch;
    batch = [];
    if (current.length === 0) return;
    const paths = current.map((entry) => entry.relative);
    const answer = await matcher.run({ kind: 'paths', expression, paths }, signal);
    if (answer.kind !== 'paths') return;
    for (const [index, entry] of current.entries()) if (answer.matches[index] === true) yield entry;
  }
  for await (const entry of entries) {
    batch.push(entry);
    if (batch.length >= BATCH_PATHS) yield* flush();
  }
  yield* flush();
}

interface FileText {
  readonly path: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

export interface LineSearch {
  readonly matches: readonly LineMatch[];
  readonly truncated: boolean;
  readonly filesSkipped: number;
}

/** Searches the regular files among `entries`; others and unreadable, large, hard-linked or binary ones are counted as skipped. */
export async function searchLines(
  entries: AsyncIterable<Found>,
  expression: Expression,
  limit: number,
  matcher: Matcher,
  signal: AbortSignal | undefined,
): Promise<LineSearch> {
  const matches: LineMatch[] = [];
  let batch: FileText[] = [];
  let bytes = 0;
  let filesSkipped = 0;
  let more = false;
  const flush = async () => {
    const files = batch;
    batch = [];
    bytes = 0;
    if (files.length === 0) return;
    const answer = await matcher.run({ kind: 'lines', expression, files, limit: limit - matches.length }, signal);
    if (answer.kind !== 'lines') return;
    matches.push(...answer.matches);
    filesSkipped += answer.binary;
    more ||= answer.more;
  };
  const reader = new FolderReader();
  try {
    for await (const entry of entries) {
      if (entry.kind === 'directory') continue;
      const content = entry.kind === 'file' ? await reader.read(entry) : null;
      if (content === null) filesSkipped += 1;
      else {
        batch.push({ path: entry.path, bytes: content });
        bytes += content.byteLength;
      }
      if (batch.length >= BATCH_FILES || bytes >= BATCH_BYTES) await flush();
      if (more) break;
    }
    if (!more) await flush();
  } finally {
    await reader.close();
  }
  return { matches, truncated: more, filesSkipped };
}

/** Keeps the folder of the last file open: a walk gives all files of a folder one after the other. */
class FolderReader {
  #key: string | null = null;
  #folder: Directory | null = null;

  /** Bytes of a regular file with one name; null when it is skipped: another kind, too large, vanished, or closed to us. */
  async read(entry: Found): Promise<Uint8Array<ArrayBuffer> | null> {
    try {
      const folder = await this.#open(entry);
      const file = await folder?.openFile(entry.name, constants.O_RDONLY);
      if (file === undefined) return null;
      try {
        const stats = await file.stat();
        if (!stats.isFile() || stats.nlink > 1 || stats.size > MAX_GREP_FILE_BYTES) return null;
        const buffer = new Uint8Array(stats.size);
        const { bytesRead } = await file.read(buffer, 0, stats.size, 0);
        return buffer.subarray(0, bytesRead);
      } finally {
        await file.close();
      }
    } catch (error) {
      // Vanished, closed to us, or turned into something else meanwhile: skipped. Anything else is a fault.
      if (systemCode(error) === undefined) throw error;
      return null;
    }
  }

  async close(): Promise<void> {
    const folder = this.#folder;
    this.#key = null;
    this.#folder = null;
    await folder?.close();
  }

  async #open(entry: Found): Promise<Directory | null> {
    const key = `${entry.root.path}/${entry.folder.join('/')}`;
    if (key === this.#key) return this.#folder;
    await this.close();
    const top = await entry.root.open();
    this.#folder = top === null ? null : await descend(top, entry.folder, { create: false });
    this.#key = key;
    return this.#folder;
  }
}

/** Checks a caller's limit: 1 … `most`. */
export function checkLimit(name: string, limit: number, most: number): number {
  if (Number.isInteger(limit) && limit >= 1 && limit <= most) return limit;
  throw new ReindeerError('bad_request', `${show(name)} must be a whole number from 1 to ${most}.`);
}
