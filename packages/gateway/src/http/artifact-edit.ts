import { createHash } from 'node:crypto';
import { z } from '@hono/zod-openapi';
import { ReindeerError, type SandboxFiles } from '@reindeer/protocol';
import { virtualPath } from './artifacts.ts';
import { notFound } from './errors.ts';
import type { HttpParts } from './parts.ts';
import { type Api, route } from './route.ts';
import { threadParams } from './run-request.ts';

const OUTPUTS = '/mnt/user-data/outputs/';
/** Bytes of a text that can be edited. */
const MAX_TEXT = 2 * 1024 * 1024;

/**
 * Editing a deliverable in the page (FILE-3b). The thread's only slot is held while the file is compared and replaced, so that no run and no other
 * editor writes in between, and the hash that the editor started from must still be the file's.
 */
export function artifactEditRoute(api: Api, parts: HttpParts): void {
  route(
    api,
    {
      method: 'put',
      path: '/threads/:thread_id/artifacts/:path{.+}',
      tag: 'Files',
      summary: 'Replace a text file in outputs that has not changed since it was read.',
      params: threadParams.extend({ path: z.string() }),
      body: z.strictObject({
        content: z.string(),
        expected_sha256: z.string().regex(/^[0-9a-f]{64}$/, 'must be 64 hexadecimal digits in lower case'),
      }),
      answers: {
        200: '{path, sha256, size}',
        400: 'Not in outputs.',
        404: 'No such file or thread.',
        409: 'A run is active, or waits for an answer.',
        412: 'The file has changed.',
        413: 'Too large.',
        415: 'No text.',
      },
    },
    async ({ c, params, body }) => {
      const path = virtualPath(c);
      if (!path.startsWith(OUTPUTS))
        throw new ReindeerError('bad_request', `Only files below ${OUTPUTS} can be edited. Save a copy of others.`);
      if (/\.skill(?:\/|$)/i.test(path))
        throw new ReindeerError('unsupported_media_type', 'An archive cannot be edited as text.');
      const bytes = new TextEncoder().encode(body.content);
      if (bytes.length > MAX_TEXT) throw tooLarge();
      const userId = c.get('userId');
      const files = parts.sandboxes.files({ userId, threadId: params.thread_id });
      const held = await parts.threads.changeState({
        threadId: params.thread_id,
        userId,
        asNode: 'prepare',
        change: async ({ signal }) => {
          await replace(files, path, bytes, body.expected_sha256, signal);
          // The conversation's state stays as it is.
          return null;
        },
      });
      switch (held.outcome) {
        case 'unchanged':
        case 'updated':
          return c.json({ path, sha256: hashOf(bytes), size: bytes.length });
        case 'busy':
          throw new ReindeerError('conflict', 'A run is active on this thread. Edit when it has ended.', {
            retryable: true,
          });
        case 'waiting':
          throw new ReindeerError('conflict', 'The thread waits for an answer. Answer first, then edit.');
        case 'not_found':
          throw notFound('thread', params.thread_id);
        case 'invalid':
          throw new ReindeerError('conflict', held.message);
      }
    },
  );
}

async function replace(
  files: SandboxFiles,
  path: string,
  bytes: Uint8Array,
  expected: string,
  signal: AbortSignal,
): Promise<void> {
  const info = await files.stat(path);
  if (info === null) throw notFound('file', path);
  if (info.kind !== 'file')
    throw new ReindeerError('unsupported_media_type', 'Only regular files can be edited, no links and no folders.');
  if (info.size > MAX_TEXT) throw tooLarge();
  const before = await files.read(path, { maxBytes: MAX_TEXT });
  if (!isText(before)) throw new ReindeerError('unsupported_media_type', 'The file is no text in UTF-8.');
  if (hashOf(before) !== expected)
    throw new ReindeerError(
      'precondition_failed',
      'The file has changed since it was read. Read it again, and put your changes in anew.',
    );
  signal.throwIfAborted();
  await files.write(path, bytes);
}

const hashOf = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
const tooLarge = (): ReindeerError =>
  new ReindeerError('too_large', `A text that is edited here may have ${MAX_TEXT} bytes.`);

function isText(bytes: Uint8Array): boolean {
  if (bytes.includes(0)) return false;
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    return true;
  } catch {
    return false;
  }
}
