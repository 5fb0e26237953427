import { constants } from 'node:fs';
import { rename, rm } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { ReindeerError } from '@reindeer/protocol';
import { at } from '../container/listing.ts';
import { checkedEntry, PART } from '../mirror/entry.ts';
import { contentFrames, FrameReader, headerFrame, VoidContent } from '../mirror/frames.ts';
import { contentOf, type PlaceFile, Tree } from '../mirror/tree.ts';
import { answer, type Body } from './http.ts';

/** Paths of one request; the client asks again for more. */
const MAX_PATHS = 10_000;

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
export async function* mirrorFrames(
  tree: Tree,
  paths: readonly string[],
  sent: (path: string, stamp: string) => void = () => {},
): AsyncGenerator<Buffer> {
  for (const path of paths) {
    const opened = await tree.open(path);
    if (opened === null) continue;
    const { entry, file } = opened;
    sent(path, entry.stamp);
    yield headerFrame(entry);
    if (file === null) continue;
    try {
      yield* contentFrames(contentOf(file));
    } finally {
      await file.close();
    }
  }
}

/** `POST /v1/mirror/write`: entries to make, and `{"remove": path}`; answers each one's new stamp, null where something is in its way. */
export async function mirrorWriteRoute(tree: Tree, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const reader = new FrameReader(request);
  const written: [string, string | null][] = [];
  for (let header = await reader.header(); header !== undefined; header = await reader.header()) {
    const gone = at(header, 'remove');
    if (typeof gone === 'string') {
      await tree.remove(gone);
      continue;
    }
    const entry = checkedEntry(header);
    const content = entry.kind === 'file' ? reader.content() : nothing();
    try {
      written.push([entry.path, (await tree.put(entry, content))?.stamp ?? null]);
    } catch (error) {
      if (!(error instanceof VoidContent)) throw error;
      written.push([entry.path, null]);
    }
  }
  answer(response, { written });
}

export async function* nothing(): AsyncGenerator<Buffer> {}
