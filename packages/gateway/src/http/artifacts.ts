import { z } from '@hono/zod-openapi';
import { readMember } from '@reindeer/agent';
import { ReindeerError, type SandboxFiles, VIRTUAL_ROOT } from '@reindeer/protocol';
import mime from 'mime';
import { notFound } from './errors.ts';
import type { HttpParts } from './parts.ts';
import { type Api, type RequestContext, route } from './route.ts';
import { threadParams } from './run-request.ts';

/** Types that a browser runs or renders as a page of our origin: always a download (SEC-04). */
const ACTIVE = new Set([
  'text/html',
  'application/xhtml+xml',
  'image/svg+xml',
  'text/xml',
  'application/xml',
  'application/xslt+xml',
  'application/rss+xml',
  'application/atom+xml',
  'application/mathml+xml',
  'multipart/related',
  'message/rfc822',
  'application/x-mimearchive',
  'application/x-shockwave-flash',
]);

const isActive = (type: string) => ACTIVE.has(type) || type.endsWith('+xml');

/** Scripts and styles as plain text: nothing of a workspace may be loaded as code by any page. */
const asText = (type: string) =>
  /^(?:text|application)\/(?:javascript|ecmascript|x-javascript|typescript|css)$/.test(type);

/** `filename` with everything unusual replaced, `filename*` as it is (RFC 5987). */
export function contentDisposition(kind: 'inline' | 'attachment', name: string): string {
  const plain = name.replaceAll(/[^\x20-\x7e]|["\\%]/g, '_');
  const encoded = encodeURIComponent(name.toWellFormed()).replaceAll(
    /['()*]/g,
    (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return `${kind}; filename="${plain}"; filename*=UTF-8''${encoded}`;
}

export type ByteRange = { readonly start: number; readonly end: number };

/**
 * Reads a `Range` header against a file of `size` bytes. null = send all (none, malformed, several ranges: all allowed by RFC 9110).
 * `end` is exclusive.
 */
export function parseRange(header: string | undefined, size: number): ByteRange | null | 'unsatisfiable' {
  const match = /^bytes\s*=\s*(\d{0,15})-(\d{0,15})$/i.exec(header?.trim() ?? '');
  if (match === null) return null;
  const [, first = '', last = ''] = match;
  if (first === '' && last === '') return null;
  if (first === '') {
    const length = Number(last);
    return length === 0 || size === 0 ? 'unsatisfiable' : { start: Math.max(0, size - length), end: size };
  }
  const start = Number(first);
  if (last !== '' && Number(last) < start) return null;
  if (start >= size) return 'unsatisfiable';
  return { start, end: last === '' ? size : Math.min(Number(last) + 1, size) };
}

/** The virtual path in the address. Checked again, component by component, where the file is opened. */
export function virtualPath(c: RequestContext): string {
  const raw = new URL(c.req.url).pathname.replace(/^.*?\/artifacts\//, '');
  let path: string;
  try {
    path = decodeURIComponent(raw);
  } catch (cause) {
    throw new ReindeerError('bad_request', 'The path is not valid percent-encoded UTF-8. Encode each part of it.', {
      cause,
    });
  }
  const absolute = `/${path.replace(/^\/+/, '')}`;
  if (absolute !== VIRTUAL_ROOT && !absolute.startsWith(`${VIRTUAL_ROOT}/`))
    throw new ReindeerError(
      'path_refused',
      `Only files below ${VIRTUAL_ROOT} can be read. Use a path such as mnt/user-data/outputs/report.md.`,
    );
  if (absolute.split('/').includes('..') || absolute.includes('\0') || absolute.includes('\\'))
    throw new ReindeerError(
      'path_refused',
      'The path may not contain "..", backslashes or null bytes. Use the plain path of the file.',
    );
  return absolute;
}

/** Bytes of an archive that is looked into, and of one file in it. */
const MAX_ARCHIVE = 64 * 1024 * 1024;
const MAX_MEMBER = 16 * 1024 * 1024;
const query = z.object({ download: z.string().optional() });

/** Files of a thread for reading. They are looked up below the user's own folder, so other users' threads do not exist here (SEC-01). */
export function artifactRoutes(api: Api, parts: HttpParts): void {
  route(
    api,
    {
      method: 'get',
      path: '/threads/:thread_id/artifacts/:path{.+}',
      tag: 'Files',
      summary: 'Read a file of the thread. `Range` is honoured; `download=true` saves it.',
      params: threadParams.extend({ path: z.string() }),
      query,
      produces: 'application/octet-stream',
      answers: {
        200: 'The file.',
        206: 'A part of it.',
        400: 'Not a file.',
        403: 'Refused.',
        404: 'No such file.',
        416: 'No such range.',
      },
    },
    async ({ c, params, query }) =>
      await sendFile(c, parts, params.thread_id, virtualPath(c), query.download === 'true' || query.download === '1'),
  );
}

/** A look into a `.skill` archive (FILE-3c): one of its files, as if it lay in a folder of that name. */
async function sendMember(
  c: RequestContext,
  files: SandboxFiles,
  archive: string,
  member: string,
  download: boolean,
): Promise<Response> {
  const bytes = await readMember(await files.read(archive, { maxBytes: MAX_ARCHIVE }), member, MAX_MEMBER);
  if (bytes === null) throw notFound('file', `${archive}/${member}`);
  const headers = headersOf(member, download);
  headers['cache-control'] = 'private, max-age=300';
  const range = parseRange(c.req.header('range'), bytes.length);
  if (range === 'unsatisfiable') {
    c.header('content-range', `bytes */${bytes.length}`);
    throw new ReindeerError('range_not_satisfiable', `The file has ${bytes.length} bytes. Ask for a range inside it.`);
  }
  if (range !== null) headers['content-range'] = `bytes ${range.start}-${range.end - 1}/${bytes.length}`;
  const part = range === null ? bytes : bytes.subarray(range.start, range.end);
  headers['content-length'] = String(part.length);
  const status = range === null ? 200 : 206;
  if (c.req.method === 'HEAD' || part.length === 0) return c.body(null, status, headers);
  return c.body(new Uint8Array(part), status, headers);
}

/** How a file of this name may be shown by a browser. */
function headersOf(path: string, download: boolean): Record<string, string> {
  const type = mime.getType(path) ?? 'application/octet-stream';
  return {
    'content-type':
      asText(type) || type === 'application/json'
        ? 'text/plain; charset=utf-8'
        : type.startsWith('text/')
          ? `${type}; charset=utf-8`
          : type,
    'content-disposition': contentDisposition(
      download || isActive(type) ? 'attachment' : 'inline',
      path.slice(path.lastIndexOf('/') + 1),
    ),
    // Should anything be rendered after all: no scripts, no origin, nothing fetched.
    'content-security-policy':
      "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src 'self'; frame-ancestors 'self'",
    'accept-ranges': 'bytes',
  };
}

async function sendFile(
  c: RequestContext,
  parts: HttpParts,
  threadId: string,
  path: string,
  download: boolean,
): Promise<Response> {
  const files = parts.sandboxes.files({ userId: c.get('userId'), threadId });
  const packed = /^(.+?\.skill)\/(.+)$/i.exec(path);
  if (packed !== null && (await files.stat(packed[1] ?? '').catch(() => null))?.kind === 'file')
    return await sendMember(c, files, packed[1] ?? '', packed[2] ?? '', download);
  const info = await files.stat(path);
  if (info === null) throw notFound('file', path);
  if (info.kind === 'directory') throw new ReindeerError('bad_request', `"${path}" is a folder. Name a file in it.`);
  if (info.kind !== 'file')
    throw new ReindeerError('path_refused', `"${path}" is a link or a special file. Only regular files can be read.`);
  const tagOfFile = `"${info.size.toString(16)}-${Math.round(info.modifiedAt).toString(16)}"`;
  const headers: Record<string, string> = {
    ...headersOf(path, download),
    'cache-control': 'private, no-cache',
    etag: tagOfFile,
    'last-modified': new Date(info.modifiedAt).toUTCString(),
  };
  if (c.req.header('if-none-match') === tagOfFile) return c.body(null, 304, headers);
  const ifRange = c.req.header('if-range');
  const range = ifRange !== undefined && ifRange !== tagOfFile ? null : parseRange(c.req.header('range'), info.size);
  if (range === 'unsatisfiable') {
    c.header('content-range', `bytes */${info.size}`);
    throw new ReindeerError('range_not_satisfiable', `The file has ${info.size} bytes. Ask for a range inside it.`);
  }
  if (range !== null) headers['content-range'] = `bytes ${range.start}-${range.end - 1}/${info.size}`;
  const length = range === null ? info.size : range.end - range.start;
  headers['content-length'] = String(length);
  const status = range === null ? 200 : 206;
  // Nothing may stay open for a body that is not sent, and an empty file has none.
  if (c.req.method === 'HEAD' || length === 0) return c.body(null, status, headers);
  // Bounded in any case: a file that grows meanwhile must not exceed its announced length.
  const opened = await files.openRead(path, range ?? { start: 0, end: info.size });
  return c.body(opened.stream, status, headers);
}
