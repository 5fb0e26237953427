import { constants } from 'node:fs';
import { type FileHandle, lstat, mkdir, open, readdir } from 'node:fs/promises';
import type { ServerResponse } from 'node:http';
import { dirname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { ReindeerError } from '@reindeer/protocol';
import { answer, type Body, flagOf, numberOf, textOf } from './http.ts';

/** Largest file that is read as a whole or downloaded (SX-17). */
export const MAX_FILE_BYTES = 100 * 1024 * 1024;
/** Text in a JSON answer. */
const MAX_TEXT_BYTES = 16 * 1024 * 1024;
const MAX_ENTRIES = 50_000;

/** Opens a regular file without waiting for anybody: a FIFO or device is refused, not read. */
async function openFile(path: string, flags: number): Promise<{ handle: FileHandle; size: number }> {
  const handle = await open(path, flags | constants.O_NONBLOCK | constants.O_NOCTTY, 0o644).catch((error: unknown) => {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT')
      throw new ReindeerError('not_found', `${path}: no such file`);
    throw error;
  });
  try {
    const info = await handle.stat();
    if (info.isFile()) return { handle, size: info.size };
    throw new ReindeerError('path_refused', `${path}: not a regular file`);
  } catch (error) {
    await handle.close();
    throw error;
  }
}

function absolute(path: string): string {
  if (!path.startsWith('/') || path.includes('\0'))
    throw new ReindeerError('bad_request', 'The path must be absolute.', { detail: { field: 'path' } });
  return path;
}

/** `POST /v1/file/read`: text, whole or some lines (0-based, the end exclusive). */
export async function readRoute(body: Body, response: ServerResponse): Promise<void> {
  const file = absolute(textOf(body, 'file'));
  const { handle, size } = await openFile(file, constants.O_RDONLY);
  try {
    if (size > MAX_TEXT_BYTES)
      throw new ReindeerError('too_large', `${file}: more than ${MAX_TEXT_BYTES} bytes; download it instead`);
    const text = await handle.readFile('utf8');
    const start = numberOf(body, 'start_line', null);
    const end = numberOf(body, 'end_line', null);
    const content =
      start === null && end === null
        ? text
        : text
            .split('\n')
            .slice(start ?? 0, end ?? undefined)
            .join('\n');
    answer(response, { content, file });
  } finally {
    await handle.close();
  }
}

/** `POST /v1/file/write`: the text, or bytes as base64; makes missing folders. */
export async function writeRoute(body: Body, response: ServerResponse): Promise<void> {
  const file = absolute(textOf(body, 'file'));
  const encoding = textOf(body, 'encoding', 'utf-8');
  if (encoding !== 'utf-8' && encoding !== 'base64')
    throw new ReindeerError('bad_request', 'encoding must be utf-8 or base64.', { detail: { field: 'encoding' } });
  const content = textOf(body, 'content');
  const bytes =
    encoding === 'base64'
      ? Buffer.from(content, 'base64')
      : Buffer.from(
          `${flagOf(body, 'leading_newline') ? '\n' : ''}${content}${flagOf(body, 'trailing_newline') ? '\n' : ''}`,
        );
  await mkdir(dirname(file), { recursive: true });
  const mode = flagOf(body, 'append') ? constants.O_APPEND : 0;
  const { handle } = await openFile(file, constants.O_WRONLY | constants.O_CREAT | mode);
  try {
    // Only after it is known to be a regular file.
    if (mode === 0) await handle.truncate(0);
    await handle.writeFile(bytes);
  } finally {
    await handle.close();
  }
  answer(response, { file, bytes_written: bytes.length });
}

/** `GET /v1/file/download?path=`: the very bytes. */
export async function downloadRoute(path: string, response: ServerResponse): Promise<void> {
  const file = absolute(path);
  const { handle, size } = await openFile(file, constants.O_RDONLY);
  if (size > MAX_FILE_BYTES) {
    await handle.close();
    throw new ReindeerError('too_large', `${file}: more than ${MAX_FILE_BYTES} bytes`);
  }
  response.writeHead(200, { 'content-type': 'application/octet-stream', 'content-length': size });
  if (size === 0) {
    await handle.close();
    response.end();
    return;
  }
  // A file that grows meanwhile is cut, one that shrinks ends the connection: the announced length holds.
  await pipeline(handle.createReadStream({ start: 0, end: size - 1, highWaterMark: 256 * 1024 }), response);
}

/** `POST /v1/file/list`. */
export async function listRoute(body: Body, response: ServerResponse): Promise<void> {
  const path = absolute(textOf(body, 'path'));
  const depth = flagOf(body, 'recursive') ? numberOf(body, 'max_depth', 64) : 1;
  const hidden = body.show_hidden !== false;
  const files: Record<string, unknown>[] = [];
  let level: string[] = [path];
  for (let at = 0; at < depth && level.length > 0 && files.length < MAX_ENTRIES; at += 1) {
    const next: string[] = [];
    for (const folder of level) {
      const names = await readdir(folder).catch((error: unknown) => {
        if (folder !== path) return [];
        if (error instanceof Error && 'code' in error && error.code === 'ENOENT')
          throw new ReindeerError('not_found', `${path}: no such folder`);
        throw error;
      });
      for (const name of names.sort()) {
        if (!hidden && name.startsWith('.')) continue;
        if (files.length >= MAX_ENTRIES) break;
        const full = join(folder, name);
        const info = await lstat(full).catch(() => null);
        if (info === null) continue;
        files.push({
          name,
          path: full,
          is_directory: info.isDirectory(),
          size: info.size,
          modified_time: info.mtime.toISOString(),
        });
        if (info.isDirectory()) next.push(full);
      }
    }
    level = next;
  }
  const directories = files.filter((file) => file.is_directory === true).length;
  answer(response, {
    path,
    files,
    total_count: files.length,
    directory_count: directories,
    file_count: files.length - directories,
  });
}
