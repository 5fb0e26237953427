import { Busboy, type BusboyFileStream, type BusboyHeaders, type BusboyInstance } from '@fastify/busboy';
import { z } from '@hono/zod-openapi';
import { type Clock, type FileInfo, ReindeerError, type SandboxFiles } from '@reindeer/protocol';
import { makeCompanion, removeCompanion } from './companions.ts';
import { notFound } from './errors.ts';
import type { HttpParts, UploadLimits } from './parts.ts';
import { type Api, type RequestContext, route } from './route.ts';
import { threadParams } from './run-request.ts';

const FOLDER = '/mnt/user-data/uploads';
const tag = 'Files';
const MAX_NAME_BYTES = 255;

/**
 * The name under which an uploaded file is kept: the base name alone, without control characters. null = it cannot be kept
 * (empty, dots only, a backslash, too long, or our own staging names).
 */
export function safeFileName(given: string): string | null {
  if (given.includes('\\') || given.includes('\0')) return null;
  const base = given.slice(given.lastIndexOf('/') + 1);
  const name = base
    .toWellFormed()
    .normalize('NFC')
    .replaceAll(/[\p{Cc}\p{Bidi_Control}]/gu, '')
    .trim();
  if (name === '' || /^\.+$/.test(name) || name.startsWith('.upload-')) return null;
  return Buffer.byteLength(name) > MAX_NAME_BYTES ? null : name;
}

/** `report.md`, `report_1.md`, … for the second and later file of one name in a request. */
export function distinctName(name: string, taken: ReadonlySet<string>): string {
  if (!taken.has(name)) return name;
  const dot = name.lastIndexOf('.');
  const [stem, extension] = dot > 0 ? [name.slice(0, dot), name.slice(dot)] : [name, ''];
  for (let n = 1; ; n += 1) {
    const suffix = `_${n}${extension}`;
    let short = stem;
    while (Buffer.byteLength(short + suffix) > MAX_NAME_BYTES) short = short.slice(0, -1);
    if (!taken.has(short + suffix)) return short + suffix;
  }
}

const artifactUrl = (threadId: string, path: string) =>
  `/api/threads/${threadId}/artifacts/${path.split('/').filter(Boolean).map(encodeURIComponent).join('/')}`;

function fileView(threadId: string, info: FileInfo) {
  const filename = info.path.slice(info.path.lastIndexOf('/') + 1);
  const dot = filename.lastIndexOf('.');
  return {
    filename,
    size: info.size,
    path: info.path,
    virtual_path: info.path,
    artifact_url: artifactUrl(threadId, info.path),
    extension: dot > 0 ? filename.slice(dot) : '',
    modified: info.modifiedAt / 1000,
  };
}

/** The Markdown that was made of a document. */
function markdownView(threadId: string, info: FileInfo) {
  const view = fileView(threadId, info);
  return {
    markdown_file: view.filename,
    markdown_path: view.path,
    markdown_virtual_path: view.virtual_path,
    markdown_artifact_url: view.artifact_url,
  };
}

interface Skipped {
  readonly filename: string;
  readonly reason: string;
}
type Limits = UploadLimits & { readonly clock: Clock };

interface Received {
  readonly stored: { readonly info: FileInfo; readonly original: string }[];
  readonly skipped: Skipped[];
}

/** Upload, list, delete, limits. */
export function uploadRoutes(api: Api, parts: HttpParts): void {
  const filesOf = (c: RequestContext, threadId: string) => parts.sandboxes.files({ userId: c.get('userId'), threadId });

  route(
    api,
    {
      method: 'post',
      path: '/threads/:thread_id/uploads',
      tag,
      summary: 'Upload files: multipart/form-data with fields named "files". The thread need not exist yet.',
      params: threadParams,
      answers: {
        200: '{success, files, message, skipped_files}',
        413: 'Too many or too large; nothing new of this request stays.',
        415: 'Not multipart.',
      },
    },
    async ({ c, params }) => {
      if (parts.intake().stopping)
        throw new ReindeerError('shutting_down', 'The server is stopping. Upload again after its restart.', {
          retryable: true,
        });
      const { stored, skipped } = await receive(c, filesOf(c, params.thread_id), {
        ...parts.uploads,
        clock: parts.surroundings.clock,
      });
      const views = [];
      for (const { info, original } of stored) {
        const view = fileView(params.thread_id, info);
        const { convert } = parts.uploads;
        const markdown =
          convert == null
            ? null
            : await makeCompanion(filesOf(c, params.thread_id), info, convert, parts.surroundings.logger);
        views.push({
          ...view,
          ...(view.filename === original ? {} : { original_filename: original }),
          ...(markdown === null ? {} : markdownView(params.thread_id, markdown)),
        });
      }
      const message =
        views.length === 0 && skipped.length === 0
          ? 'The request had no files. Send them in fields named "files".'
          : `${views.length} file${views.length === 1 ? '' : 's'} uploaded${skipped.length === 0 ? '' : `, ${skipped.length} skipped`}.`;
      return c.json({
        success: skipped.length === 0 && views.length > 0,
        files: views,
        message,
        skipped_files: skipped,
      });
    },
  );

  route(
    api,
    {
      method: 'get',
      path: '/threads/:thread_id/uploads/limits',
      tag,
      summary: 'Limits of uploads.',
      params: threadParams,
      answers: { 200: 'Limits.' },
    },
    ({ c }) =>
      c.json({
        max_files: parts.uploads.maxFiles,
        max_file_size: parts.uploads.maxFileSize,
        max_total_size: parts.uploads.maxTotalSize,
      }),
  );

  route(
    api,
    {
      method: 'get',
      path: '/threads/:thread_id/uploads/list',
      tag,
      summary: 'Uploaded files.',
      params: threadParams,
      answers: { 200: '{files, count}' },
    },
    async ({ c, params }) => {
      const found = await listed(filesOf(c, params.thread_id));
      const files = found.map((info) => fileView(params.thread_id, info));
      return c.json({ files, count: files.length });
    },
  );

  route(
    api,
    {
      method: 'delete',
      path: '/threads/:thread_id/uploads/:filename',
      tag,
      summary: 'Delete an uploaded file.',
      params: threadParams.extend({ filename: z.string().max(1000) }),
      answers: { 200: 'Deleted.', 400: 'Not a plain file name.', 404: 'No such file.' },
    },
    async ({ c, params }) => {
      const name = safeFileName(params.filename);
      if (name === null || name !== params.filename)
        throw new ReindeerError(
          'bad_request',
          'The name must be a plain file name without folders. Use a name from …/uploads/list.',
        );
      const files = filesOf(c, params.thread_id);
      const info = await files.stat(`${FOLDER}/${name}`);
      if (info === null || info.kind === 'directory' || !(await files.remove(info.path)))
        throw notFound('uploaded file', name);
      await removeCompanion(files, info.path);
      return c.json({ success: true, message: `${name} was deleted.` });
    },
  );
}

async function listed(files: SandboxFiles): Promise<FileInfo[]> {
  try {
    const { entries } = await files.list(FOLDER, { depth: 1, limit: 1000 });
    return entries.filter((entry) => entry.kind === 'file' && !/\/\.upload-[^/]*$/.test(entry.path));
  } catch (error) {
    if (ReindeerError.is(error) && error.code === 'not_found') return [];
    throw error;
  }
}

/**
 * Streams the parts of a multipart request into the thread, one file after the other and never whole in memory. A file that breaks a
 * limit ends the request with 413; files that it newly created are removed again.
 */
async function receive(c: RequestContext, files: SandboxFiles, limits: Limits): Promise<Received> {
  const { incoming, outgoing } = c.env;
  // Room for the part headers; the exact count is kept below.
  if (Number(incoming.headers['content-length'] ?? 0) > limits.maxTotalSize + 64 * 1024) {
    outgoing.setHeader('connection', 'close');
    await discard(c, limits);
    throw tooLarge(`One upload may have ${limits.maxTotalSize} bytes in total. Send fewer files at once.`);
  }
  const received: Received = { stored: [], skipped: [] };
  const created: string[] = [];
  const taken = new Set<string>();
  const counter = { total: 0, files: 0 };
  try {
    await eachFile(incoming, limits, async (stream, original) => {
      counter.files += 1;
      if (counter.files > limits.maxFiles)
        throw tooLarge(`One upload may have ${limits.maxFiles} files. Send the rest in another request.`);
      const safe = safeFileName(original);
      if (safe === null) {
        received.skipped.push({
          filename: original.slice(0, MAX_NAME_BYTES),
          reason: 'The name cannot be used. Rename the file and upload it again.',
        });
        await drain(counted(stream, counter, limits));
        return;
      }
      const name = distinctName(safe, taken);
      taken.add(name);
      const path = `${FOLDER}/${name}`;
      const existed = await files.stat(path);
      if (existed !== null && existed.kind !== 'file') {
        received.skipped.push({
          filename: name,
          reason: 'Something that is not a regular file has this name. Rename the file and upload it again.',
        });
        await drain(counted(stream, counter, limits));
        return;
      }
      const source = counted(stream, counter, limits);
      try {
        const info = await files.writeStream(path, source, { maxBytes: limits.maxFileSize, overwrite: true });
        if (existed === null) created.push(path);
        received.stored.push({ info, original });
      } catch (error) {
        if (!(ReindeerError.is(error) && error.code === 'path_refused')) {
          if (ReindeerError.is(error) && error.code === 'too_large')
            throw tooLarge(
              /in total/.test(error.message)
                ? error.message
                : `"${name}" is larger than ${limits.maxFileSize} bytes. Make it smaller or split it.`,
            );
          throw error;
        }
        received.skipped.push({ filename: name, reason: error.message });
        await drain(source);
      }
    });
  } catch (error) {
    outgoing.setHeader('connection', 'close');
    for (const path of created) await files.remove(path);
    await discard(c, limits);
    throw error;
  }
  return received;
}

/**
 * Takes the rest of a refused body, within bounds, and throws it away: a client that is still sending when the connection
 * closes sees a broken pipe and never reads the answer.
 */
async function discard(c: RequestContext, limits: Limits): Promise<void> {
  const { incoming } = c.env;
  if (incoming.readableEnded || incoming.destroyed) return;
  let left = 2 * limits.maxTotalSize;
  const over = new AbortController();
  const enough = () => over.abort();
  const count = (chunk: Buffer) => {
    left -= chunk.byteLength;
    if (left < 0) enough();
  };
  incoming.on('data', count);
  for (const event of ['end', 'close', 'error'] as const) incoming.once(event, enough);
  incoming.resume();
  await limits.clock.sleep(30_000, over.signal).catch(() => {});
  incoming.off('data', count);
  for (const event of ['end', 'close', 'error'] as const) incoming.off(event, enough);
}

const tooLarge = (message: string) => new ReindeerError('too_large', message);

async function* counted(
  stream: BusboyFileStream,
  counter: { total: number },
  limits: UploadLimits,
): AsyncGenerator<Uint8Array> {
  for await (const chunk of stream) {
    const bytes = chunk as Buffer;
    counter.total += bytes.byteLength;
    if (counter.total > limits.maxTotalSize)
      throw tooLarge(`One upload may have ${limits.maxTotalSize} bytes in total. Send fewer files at once.`);
    yield bytes;
  }
  if (stream.truncated)
    throw tooLarge(`A file is larger than ${limits.maxFileSize} bytes. Make it smaller or split it.`);
}

async function drain(source: AsyncGenerator<Uint8Array>): Promise<void> {
  for await (const _ of source) {
    // Only counted.
  }
}

/** Feeds the request to the parser and handles its files strictly one after the other; ends on the first failure. */
async function eachFile(
  incoming: RequestContext['env']['incoming'],
  limits: UploadLimits,
  handle: (stream: BusboyFileStream, name: string) => Promise<void>,
): Promise<void> {
  const parser = createParser(incoming.headers as BusboyHeaders, limits);
  await new Promise<void>((resolve, reject) => {
    let work = Promise.resolve();
    let failed = false;
    const streams: BusboyFileStream[] = [];
    const fail = (error: unknown) => {
      if (failed) return;
      failed = true;
      incoming.unpipe(parser);
      parser.destroy();
      for (const stream of streams) stream.destroy(new Error('The upload failed'));
      // Only when no file is being written any more can the caller take back what was.
      void work.then(() => reject(error instanceof Error ? error : new Error(String(error))));
    };
    parser.on('file', (_field: string, stream: BusboyFileStream, name: string | undefined) => {
      streams.push(stream);
      stream.on('error', () => {});
      work = work
        .then(() => (failed ? undefined : handle(stream, name ?? '')))
        .catch((error: unknown) => {
          stream.resume();
          fail(error);
        });
    });
    parser.on('filesLimit', () =>
      fail(tooLarge(`One upload may have ${limits.maxFiles} files. Send the rest in another request.`)),
    );
    parser.on('partsLimit', () => fail(tooLarge('The request has too many parts. Send fewer files at once.')));
    parser.on('error', (error: unknown) =>
      fail(
        new ReindeerError('bad_request', 'The multipart body is malformed or was cut. Send it again.', {
          cause: error,
        }),
      ),
    );
    parser.on('finish', () => {
      void work.then(() => {
        if (!failed) resolve();
      });
    });
    const cut = () => fail(new ReindeerError('aborted', 'The upload was cut. Send it again.'));
    incoming.once('aborted', cut);
    incoming.once('error', cut);
    incoming.pipe(parser);
  });
}

function createParser(headers: BusboyHeaders, limits: UploadLimits): BusboyInstance {
  try {
    return new Busboy({
      headers,
      limits: {
        files: limits.maxFiles,
        // One more than allowed, so that a file of exactly the limit passes.
        fileSize: limits.maxFileSize + 1,
        fields: 50,
        fieldSize: 64 * 1024,
        parts: limits.maxFiles + 60,
        headerPairs: 100,
      },
    });
  } catch (cause) {
    throw new ReindeerError(
      'unsupported_media_type',
      'The multipart content type has no usable boundary. Let your HTTP library set it.',
      { cause },
    );
  }
}
