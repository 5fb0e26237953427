import { constants } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { type Clock, type FileInfo, ReindeerError, type SandboxFiles } from '@reindeer/protocol';
import picomatch from 'picomatch';
import { type Directory, descend, kindOf, openRoot } from './directory.ts';
import { notFound, refused, systemCode, toFileError } from './file-errors.ts';
import type { Matcher } from './matcher.ts';
import { readRange } from './read-range.ts';
import {
  checkLimit,
  globExpression,
  lineExpression,
  matchPaths,
  SearchBudget,
  type SearchRoot,
  searchLines,
  walk,
} from './search.ts';
import type { Staging } from './staging.ts';
import { type Mapping, mappedChildren, type ParsedPath, parseVirtualPath } from './virtual-path.ts';

export interface ThreadFilesOptions {
  readonly mappings: readonly Mapping[];
  readonly staging: Staging;
  readonly matcher: Matcher;
  readonly clock: Clock;
  /** Makes the real folders of the thread; called before the first write, idempotent. */
  readonly prepare: () => Promise<void>;
}

const { O_RDONLY, O_WRONLY, O_APPEND, O_CREAT, O_EXCL } = constants;
/** Largest content that one `write` takes; larger ones stream through `writeStream`. */
const MAX_WRITE_BYTES = 64 * 1024 * 1024;
const MAX_LIST_ENTRIES = 100_000;
const MAX_LIST_DEPTH = 64;

/**
 * `SandboxFiles` over the real folders of one thread (SL-01 … SL-05). Every path is parsed once, then opened name by name without
 * following links; what is opened is judged by `fstat` on the open descriptor, so nothing can change between check and use.
 */
export class ThreadFiles implements SandboxFiles {
  readonly #options: ThreadFilesOptions;

  constructor(options: ThreadFilesOptions) {
    this.#options = options;
  }

  stat(path: string): Promise<FileInfo | null> {
    return this.#guard(path, async (parsed) => {
      const name = parsed.parts.at(-1);
      if (name === undefined) return { path: parsed.path, kind: 'directory', size: 0, modifiedAt: 0 };
      return missingAsNull(() =>
        this.#inFolder(parsed, false, async (folder) => {
          const stats = await folder.stat(name);
          return { path: parsed.path, kind: kindOf(stats), size: stats.size, modifiedAt: stats.mtimeMs };
        }),
      );
    });
  }

  read(path: string, options: { readonly maxBytes: number }): Promise<Uint8Array> {
    return this.#guard(path, (parsed) =>
      this.#withFile(parsed, async (file, info) => {
        if (info.size > options.maxBytes) throw tooLarge(parsed.path, options.maxBytes, info.size);
        const chunks: Uint8Array[] = [];
        let total = 0;
        // The file may grow meanwhile: the bound is kept on what was read, not on what fstat said.
        for (;;) {
          const chunk = new Uint8Array(Math.min(256 * 1024, options.maxBytes + 1 - total));
          const { bytesRead } = await file.read(chunk, 0, chunk.length, total);
          if (bytesRead === 0) break;
          total += bytesRead;
          if (total > options.maxBytes) throw tooLarge(parsed.path, options.maxBytes, total);
          chunks.push(chunk.subarray(0, bytesRead));
        }
        return Buffer.concat(chunks, total);
      }),
    );
  }

  write(path: string, data: Uint8Array | string, options: { readonly append?: boolean } = {}): Promise<FileInfo> {
    const bytes = typeof data === 'string' ? Buffer.from(data, 'utf8') : data;
    return this.#guard(path, async (parsed) => {
      if (bytes.byteLength > MAX_WRITE_BYTES) throw tooLarge(parsed.path, MAX_WRITE_BYTES, bytes.byteLength);
      return this.#inWritableFolder(parsed, async (folder, name) => {
        if (options.append === true) return this.#append(parsed, folder, name, bytes);
        return this.#replace(parsed, folder, name, true, (file) => file.writeFile(bytes));
      });
    });
  }

  remove(path: string): Promise<boolean> {
    return this.#guard(path, async (parsed) => {
      const removed = await missingAsNull(() =>
        this.#inWritableFolder(parsed, (folder, name) => this.#options.staging.discard(folder, name), false),
      );
      return removed ?? false;
    });
  }

  list(
    path: string,
    options: { readonly depth: number; readonly limit: number; readonly ignore?: readonly string[] },
  ): Promise<{ readonly entries: readonly FileInfo[]; readonly truncated: boolean }> {
    return this.#guard(path, async (parsed) => {
      const depth = checkLimit('depth', options.depth, MAX_LIST_DEPTH);
      const limit = checkLimit('limit', options.limit, MAX_LIST_ENTRIES);
      const ignored = options.ignore?.length
        ? picomatch([...options.ignore], { dot: true, nonegate: true })
        : () => false;
      const entries: FileInfo[] = [];
      let level: ParsedPath[] = [parsed];
      for (let reached = 0; reached < depth && level.length > 0; reached += 1) {
        const next: ParsedPath[] = [];
        for (const folder of level) {
          for await (const info of this.#children(folder, ignored, folder === parsed)) {
            if (entries.length >= limit) return { entries, truncated: true };
            entries.push(info);
            if (info.kind === 'directory') next.push(parseVirtualPath(info.path, this.#options.mappings));
          }
        }
        level = next;
      }
      return { entries, truncated: false };
    });
  }

  glob(
    pattern: string,
    path: string,
    options: { readonly includeDirectories: boolean; readonly limit: number; readonly signal?: AbortSignal },
  ): Promise<{ readonly paths: readonly string[]; readonly truncated: boolean }> {
    return this.#guard(path, async (parsed) => {
      const limit = checkLimit('limit', options.limit, MAX_LIST_ENTRIES);
      const expression = globExpression(pattern);
      const budget = new SearchBudget(this.#options.clock, options.signal);
      const paths: string[] = [];
      for await (const found of matchPaths(
        this.#walk(parsed, budget),
        expression,
        this.#options.matcher,
        options.signal,
      )) {
        if (found.kind === 'directory' && !options.includeDirectories) continue;
        if (paths.length >= limit) return { paths, truncated: true };
        paths.push(found.path);
      }
      return { paths, truncated: budget.exhausted };
    });
  }

  grep(
    pattern: string,
    path: string,
    options: {
      readonly glob?: string;
      readonly literal: boolean;
      readonly caseSensitive: boolean;
      readonly limit: number;
      readonly signal?: AbortSignal;
    },
  ): Promise<{
    readonly matches: readonly { readonly path: string; readonly line: number; readonly text: string }[];
    readonly truncated: boolean;
    readonly filesSkipped: number;
  }> {
    return this.#guard(path, async (parsed) => {
      const limit = checkLimit('limit', options.limit, MAX_LIST_ENTRIES);
      const expression = lineExpression(pattern, options.literal, options.caseSensitive);
      const budget = new SearchBudget(this.#options.clock, options.signal);
      const { matcher } = this.#options;
      const all = this.#walk(parsed, budget);
      const chosen =
        options.glob === undefined ? all : matchPaths(all, globExpression(options.glob), matcher, options.signal);
      const result = await searchLines(chosen, expression, limit, matcher, options.signal);
      return { ...result, truncated: result.truncated || budget.exhausted };
    });
  }

  openRead(
    path: string,
    range?: { readonly start: number; readonly end: number },
  ): Promise<{ readonly info: FileInfo; readonly stream: ReadableStream<Uint8Array> }> {
    return this.#guard(path, async (parsed) => {
      const { file, info } = await this.#openFile(parsed);
      try {
        return { info, stream: readRange(file, info, range) };
      } catch (error) {
        await file.close();
        throw error;
      }
    });
  }

  writeStream(
    path: string,
    source: AsyncIterable<Uint8Array>,
    options: { readonly maxBytes: number; readonly overwrite: boolean },
  ): Promise<FileInfo> {
    return this.#guard(path, (parsed) =>
      this.#inWritableFolder(parsed, (folder, name) =>
        this.#replace(parsed, folder, name, options.overwrite, async (file) => {
          let total = 0;
          for await (const chunk of source) {
            total += chunk.byteLength;
            if (total > options.maxBytes) throw tooLarge(parsed.path, options.maxBytes, total);
            await file.writeFile(chunk);
          }
        }),
      ),
    );
  }

  /** Parses the path and turns every system error into one that names the virtual path only. */
  async #guard<T>(path: string, body: (parsed: ParsedPath) => Promise<T>): Promise<T> {
    const parsed = parseVirtualPath(path, this.#options.mappings);
    try {
      return await body(parsed);
    } catch (error) {
      throw toFileError(error, parsed.path);
    }
  }

  async #inFolder<T>(parsed: ParsedPath, create: boolean, body: (folder: Directory) => Promise<T>): Promise<T> {
    if (parsed.mapping === null) throw refused(parsed.path, 'is not a place for files');
    const folder = await descend(await openRoot(parsed.mapping.real), parsed.parts.slice(0, -1), { create });
    try {
      return await body(folder);
    } finally {
      await folder.close();
    }
  }

  async #inWritableFolder<T>(
    parsed: ParsedPath,
    body: (folder: Directory, name: string) => Promise<T>,
    create = true,
  ): Promise<T> {
    if (parsed.mapping?.readOnly === true) {
      throw new ReindeerError('forbidden', `${parsed.path}: read-only; write below the workspace or outputs folder`, {
        detail: { path: parsed.path },
      });
    }
    const name = parsed.parts.at(-1);
    if (name === undefined) throw refused(parsed.path, 'is a fixed folder');
    await this.#options.prepare();
    return this.#inFolder(parsed, create, (folder) => body(folder, name));
  }

  async #openFile(parsed: ParsedPath): Promise<{ file: FileHandle; info: FileInfo }> {
    const name = parsed.parts.at(-1);
    if (name === undefined) throw refused(parsed.path, 'is a folder, not a file');
    const file = await this.#inFolder(parsed, false, (folder) => folder.openFile(name, O_RDONLY));
    try {
      return { file, info: await checkRegular(file, parsed.path) };
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  async #withFile<T>(parsed: ParsedPath, body: (file: FileHandle, info: FileInfo) => Promise<T>): Promise<T> {
    const { file, info } = await this.#openFile(parsed);
    try {
      return await body(file, info);
    } finally {
      await file.close();
    }
  }

  async #append(parsed: ParsedPath, folder: Directory, name: string, bytes: Uint8Array): Promise<FileInfo> {
    const file = await folder.openFile(name, O_WRONLY | O_APPEND).catch(async (error: unknown) => {
      if (systemCode(error) !== 'ENOENT') throw error;
      const made = await folder.openFile(name, O_WRONLY | O_APPEND | O_CREAT | O_EXCL, 0o644);
      if (folder.owner !== null) await made.chown(folder.owner.uid, folder.owner.gid);
      return made;
    });
    try {
      await checkRegular(file, parsed.path);
      await file.writeFile(bytes);
      return await checkRegular(file, parsed.path);
    } finally {
      await file.close();
    }
  }

  async #replace(
    parsed: ParsedPath,
    folder: Directory,
    name: string,
    overwrite: boolean,
    fill: (file: FileHandle) => Promise<void>,
  ): Promise<FileInfo> {
    const before = await missingAsNull(() => folder.stat(name));
    if (before !== null) {
      // The rename below would only replace the entry itself, never follow it; the refusal is for clarity.
      if (!before.isFile())
        throw refused(parsed.path, `is a ${describe(kindOf(before))}; only regular files are written`);
      if (before.nlink > 1) throw refused(parsed.path, 'has several hard links; remove it first');
      if (!overwrite)
        throw new ReindeerError('conflict', `${parsed.path}: exists already`, { detail: { path: parsed.path } });
    }
    const mode = before === null ? 0o644 : before.mode & 0o777;
    let info: FileInfo | undefined;
    await this.#options.staging.place(folder, name, { mode, overwrite, owner: folder.owner }, async (file) => {
      await fill(file);
      info = await checkRegular(file, parsed.path);
    });
    if (info === undefined) throw new ReindeerError('internal', `${parsed.path}: nothing was written`);
    return info;
  }

  /** Entries directly below a folder, by name. Only the folder that was asked for may reject; a deeper one that vanished is empty. */
  async *#children(parsed: ParsedPath, ignored: (name: string) => boolean, asked: boolean): AsyncGenerator<FileInfo> {
    const { mappings } = this.#options;
    if (parsed.mapping === null) {
      for (const name of mappedChildren(parsed.path, mappings)) {
        if (!ignored(name)) yield { path: `${parsed.path}/${name}`, kind: 'directory', size: 0, modifiedAt: 0 };
      }
      return;
    }
    const folder = await this.#openFolder(parsed, parsed.mapping).catch((error: unknown) => {
      if (asked) throw error;
      return null;
    });
    if (folder === null) return;
    try {
      for (const { name } of (await folder.entries(MAX_LIST_ENTRIES)).entries) {
        if (ignored(name)) continue;
        const stats = await missingAsNull(() => folder.stat(name));
        if (stats === null) continue;
        yield { path: `${parsed.path}/${name}`, kind: kindOf(stats), size: stats.size, modifiedAt: stats.mtimeMs };
      }
    } finally {
      await folder.close();
    }
  }

  /** Opens a folder for reading; null for the thread's own folders as long as nobody has made them. */
  async #openFolder(parsed: ParsedPath, mapping: Mapping): Promise<Directory | null> {
    const top = await missingAsNull(() => openRoot(mapping.real));
    if (top !== null) return descend(top, parsed.parts, { create: false });
    if (parsed.parts.length > 0) throw notFound(parsed.path);
    return null;
  }

  async *#walk(parsed: ParsedPath, budget: SearchBudget) {
    for (const root of this.#searchRoots(parsed)) yield* walk(root, budget);
  }

  #searchRoots(parsed: ParsedPath): readonly SearchRoot[] {
    const mappings = this.#options.mappings;
    if (parsed.mapping === null) {
      return mappedChildren(parsed.path, mappings).flatMap((name) =>
        this.#searchRoots(parseVirtualPath(`${parsed.path}/${name}`, mappings)),
      );
    }
    const mapping = parsed.mapping;
    const open = () => this.#openFolder(parsed, mapping);
    return [{ path: parsed.path, open }];
  }
}

/** A regular file with one name; everything else is refused (design D9). Judged on the open descriptor. */
async function checkRegular(file: FileHandle, path: string): Promise<FileInfo> {
  const stats = await file.stat();
  if (!stats.isFile()) throw refused(path, `is a ${describe(kindOf(stats))}, not a regular file`);
  if (stats.nlink > 1) throw refused(path, 'has several hard links; copy it to a new file first');
  return { path, kind: 'file', size: stats.size, modifiedAt: stats.mtimeMs };
}

function describe(kind: FileInfo['kind']): string {
  return { file: 'file', directory: 'folder', link: 'symbolic link', special: 'special file (FIFO, socket or device)' }[
    kind
  ];
}

async function missingAsNull<T>(body: () => Promise<T>): Promise<T | null> {
  try {
    return await body();
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return null;
    throw error;
  }
}

function tooLarge(path: string, most: number, size: number): ReindeerError {
  return new ReindeerError('too_large', `${path}: ${size} bytes are more than the ${most} allowed here`, {
    detail: { path, maxBytes: most },
  });
}
