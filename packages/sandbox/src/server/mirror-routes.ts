import { constants } from 'node:fs';
import { type FileHandle, rename, rm } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { ReindeerError } from '@reindeer/protocol';
import { at } from '../container/listing.ts';
import { FolderBatch } from '../mirror/batch.ts';
import { Beside } from '../mirror/beside.ts';
import { checkedEntry, type MirrorEntry, PART } from '../mirror/entry.ts';
import { contentFrames, FrameReader, headerFrame, packed, piecesOf, VoidContent } from '../mirror/frames.ts';
import { contentOf, type PlaceFile, Tree } from '../mirror/tree.ts';
import { answer, type Body } from './http.ts';

/** Paths of one request; the client asks again for more. */
const MAX_PATHS = 10_000;
/** Bytes of a file that is read, or written, beside others. */
const SMALL = 64 * 1024;
/** … of which so many are held in memory at once. */
const AT_ONCE = 16;

/** The carried folders of a sandbox, as its server sees them. @param folders name → where it lies */
export function serverTree(folders: ReadonlyMap<string, string>, uuid: () => string): Tree {
  // Beside the file: each folder may be a mount of its own, over which nothing can be renamed.
  const place: PlaceFile = async (folder, name, _mode, fill) => {
    const part = `${PART}${uuid()}`;
    const { O_CREAT, O_EXCL, O_WRONLY } = constants;
    const file = await folder.openFile(part, O_CREAT | O_EXCL | O_WRONLY, 0o600);
    try {
      try {
        await fill(file);
      } finally {
        await file.close();
      }
      await rename(folder.child(part), folder.child(name));
    } catch (error) {
      await rm(folder.child(part), { force: true });
      throw error;
    }
  };
  return new Tree({ folders, place, commands: true });
}

/** `POST /v1/mirror/list`: a line per entry, then what is left out, then the end. */
export async function mirrorListRoute(tree: Tree, response: ServerResponse): Promise<void> {
  const { entries, leftOut, complete } = await tree.list();
  const lines = function* () {
    for (const entry of entries.values()) yield headerFrame(entry);
    for (const path of leftOut) yield headerFrame({ leftOut: path });
    yield headerFrame({ complete });
  };
  response.writeHead(200, { 'content-type': 'application/x-ndjson' });
  await pipeline(Readable.from(lines()), response);
}

/** `POST /v1/mirror/read`: the entries of these paths, with their contents. What is gone is left out. */
export async function mirrorReadRoute(tree: Tree, body: Body, response: ServerResponse): Promise<void> {
  const paths = at(body, 'paths');
  if (!Array.isArray(paths) || paths.length > MAX_PATHS || paths.some((path) => typeof path !== 'string'))
    throw new ReindeerError('bad_request', `paths must be a list of at most ${MAX_PATHS} texts.`, {
      detail: { field: 'paths' },
    });
  response.writeHead(200, { 'content-type': 'application/octet-stream' });
  await pipeline(Readable.from(mirrorFrames(tree, paths as string[])), response);
}

/** Entries with their contents, as they travel. @param sent told of each entry as it was when it was opened */
export function mirrorFrames(
  tree: Tree,
  paths: readonly string[],
  sent: (path: string, stamp: string) => void = () => {},
): AsyncGenerator<Buffer> {
  return packed(framesOf(tree, paths, sent));
}

interface Loaded {
  readonly entry: MirrorEntry;
  /** Open, of one that is too large to be at hand. */
  readonly file: FileHandle | null;
  /** Of a small one; null = it could not be read to its end. */
  readonly content: readonly Buffer[] | null;
}

async function* framesOf(
  tree: Tree,
  paths: readonly string[],
  sent: (path: string, stamp: string) => void,
): AsyncGenerator<Buffer> {
  const batch = new FolderBatch();
  const coming: Promise<Loaded | null>[] = [];
  let next = 0;
  try {
    for (;;) {
      for (; next < paths.length && coming.length < AT_ONCE; next += 1) {
        const loading = load(tree, paths[next] ?? '', batch);
        // It is heard of in its turn.
        loading.catch(() => {});
        coming.push(loading);
      }
      const first = coming[0];
      if (first === undefined) return;
      const loaded = await first;
      if (loaded !== null) {
        sent(loaded.entry.path, loaded.entry.stamp);
        yield headerFrame(loaded.entry);
        if (loaded.entry.kind === 'file') yield* contentFrames(contentIn(loaded));
        await loaded.file?.close();
      }
      void coming.shift();
    }
  } finally {
    for (const left of await Promise.allSettled(coming))
      if (left.status === 'fulfilled') await left.value?.file?.close();
    await batch.close();
  }
}

/** Opens an entry, and reads it where it is small. */
async function load(tree: Tree, path: string, batch: FolderBatch): Promise<Loaded | null> {
  const opened = await tree.open(path, batch);
  if (opened === null) return null;
  const { entry, file } = opened;
  if (file === null || entry.size > SMALL) return { entry, file, content: null };
  try {
    return { entry, file: null, content: await gathered(contentOf(file, entry.size)) };
  } catch {
    return { entry, file: null, content: null };
  } finally {
    await file.close();
  }
}

async function* contentIn({ entry, file, content }: Loaded): AsyncGenerator<Buffer> {
  if (file !== null) yield* contentOf(file, entry.size);
  else if (content !== null) yield* content;
  else throw new Error('it could not be read');
}

/** A small content as a whole. Rejects when it is none, as when it grows while it is read. */
async function gathered(content: AsyncIterable<Buffer>): Promise<readonly Buffer[]> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of content) {
    bytes += piece.length;
    if (bytes > 2 * SMALL) throw new VoidContent('It grows.');
    pieces.push(piece);
  }
  return pieces;
}

/**
 * Takes entries as they come, small files beside each other: `take` must be done with a content that it is given before the next one can come, so a
 * small one is gathered first. `end` waits for all of them.
 */
export class Taking {
  readonly batch = new FolderBatch();
  readonly #beside = new Beside(AT_ONCE);

  async take(
    entry: MirrorEntry,
    content: AsyncIterable<Buffer>,
    put: (content: AsyncIterable<Buffer>) => Promise<void>,
  ): Promise<void> {
    if (entry.kind !== 'file' || entry.size > SMALL) return await put(content);
    const pieces = await gathered(content).catch((error: unknown) => {
      if (error instanceof VoidContent) return null;
      throw error;
    });
    await this.#beside.add(() => put(pieces === null ? voided() : piecesOf(pieces)));
  }

  end(): Promise<void> {
    return this.#beside.end();
  }

  /** Waits for what is under way, however it ends. */
  async close(): Promise<void> {
    await this.#beside.settle();
    await this.batch.close();
  }
}

// biome-ignore lint/correctness/useYield: it ends before there is anything
async function* voided(): AsyncGenerator<Buffer> {
  throw new VoidContent('The content could not be read.');
}

/** `POST /v1/mirror/write`: entries to make, and `{"remove": path}`; answers each one's new stamp, null where something is in its way. */
export async function mirrorWriteRoute(tree: Tree, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const reader = new FrameReader(request);
  const written: [string, string | null][] = [];
  const taking = new Taking();
  try {
    for (let header = await reader.header(); header !== undefined; header = await reader.header()) {
      const gone = at(header, 'remove');
      if (typeof gone === 'string') {
        // Behind what was to be made before it.
        await taking.end();
        await tree.remove(gone);
        continue;
      }
      const entry = checkedEntry(header);
      await taking.take(entry, entry.kind === 'file' ? reader.content() : nothing(), async (content) => {
        try {
          written.push([entry.path, (await tree.put(entry, content, taking.batch))?.stamp ?? null]);
        } catch (error) {
          if (!(error instanceof VoidContent)) throw error;
          written.push([entry.path, null]);
        }
      });
    }
    await taking.end();
  } finally {
    await taking.close();
  }
  answer(response, { written });
}

export async function* nothing(): AsyncGenerator<Buffer> {}
