import { lookup as systemLookup } from 'node:dns';
import http from 'node:http';
import https from 'node:https';
import { isIP, type LookupFunction } from 'node:net';
import type { Readable } from 'node:stream';
import zlib from 'node:zlib';
import { ReindeerError } from '@reindeer/protocol';
import { internal, publicUrl, refusedAddress } from './address.ts';

/** What a server sent for an address. */
export interface FetchedPage {
  /** Where the redirects led to. */
  readonly url: string;
  readonly status: number;
  /** Lower case, without parameters; '' when the server named none. */
  readonly mediaType: string;
  /** Lower case; null when the server named none. */
  readonly charset: string | null;
  readonly body: Uint8Array;
  /** There was more than `maxBytes`. */
  readonly truncated: boolean;
}

export interface GuardedFetchOptions {
  /** Operators may allow addresses of their own network. Default false. */
  readonly allowPrivate?: boolean;
  /** Resolves names; replaced in tests. */
  readonly lookup?: typeof systemLookup;
  /** Judges an address that a socket would connect to; replaced in tests, which have no public address. */
  readonly refused?: (address: string) => string | null;
}

export interface PageRequest {
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds for all redirects and the body together. */
  readonly timeoutMs: number;
  readonly maxBytes: number;
  readonly accept?: string;
}

export type GuardedFetch = (url: string, request: PageRequest) => Promise<FetchedPage>;

const MAX_REDIRECTS = 5;
const AGENT = 'Mozilla/5.0 (compatible; Reindeer/0.1; reads pages for a user)';

/**
 * Opens public pages for a model (WEB-4). Every address is judged twice: as it is written, and when the socket connects, by the very address
 * that it connects to, so a name that answers differently the second time gains nothing. Redirects are followed here, each judged anew.
 */
export function createGuardedFetch(options: GuardedFetchOptions = {}): GuardedFetch {
  const { allowPrivate = false, lookup = systemLookup, refused = refusedAddress } = options;
  return async (address, request) => {
    const deadline = AbortSignal.timeout(request.timeoutMs);
    const signal = request.signal === undefined ? deadline : AbortSignal.any([request.signal, deadline]);
    try {
      let url = publicUrl(address, allowPrivate);
      for (let hop = 0; hop <= MAX_REDIRECTS; hop += 1) {
        const answer = await send(url, request, signal, allowPrivate ? lookup : guarded(lookup, refused));
        const next = redirectOf(answer, url);
        if (next === null) return await read(answer, url, request.maxBytes);
        answer.destroy();
        url = publicUrl(next, allowPrivate);
      }
    } catch (error) {
      if (ReindeerError.is(error)) throw error;
      if (request.signal?.aborted === true)
        throw new ReindeerError('aborted', 'The request was cut short.', { cause: error });
      if (deadline.aborted)
        throw new ReindeerError(
          'tool_failed',
          `The page did not arrive within ${Math.round(request.timeoutMs / 1000)} s.`,
          { cause: error, retryable: true },
        );
      throw new ReindeerError('tool_failed', `The page could not be opened: ${reason(error)}.`, { cause: error });
    }
    throw new ReindeerError('tool_failed', `The address leads on more than ${MAX_REDIRECTS} times.`);
  };
}

/** A look-up that answers nothing when any answer is internal: the caller cannot choose which one a socket takes. */
function guarded(lookup: typeof systemLookup, judge: (address: string) => string | null): typeof systemLookup {
  const checked: LookupFunction = (host, options, done) => {
    lookup(host, { ...options, all: true }, (error, found) => {
      if (error !== null) return done(error, '', 0);
      const refused = found.length === 0 || found.some(({ address }) => judge(address) !== null);
      const first = found[0];
      if (refused || first === undefined) return done(internal(host) as NodeJS.ErrnoException, '', 0);
      if (options.all === true) return done(null, found);
      done(null, first.address, first.family);
    });
  };
  return checked as unknown as typeof systemLookup;
}

function send(
  url: URL,
  request: PageRequest,
  signal: AbortSignal,
  lookup: typeof systemLookup,
): Promise<http.IncomingMessage> {
  return new Promise((resolve, reject) => {
    const client = url.protocol === 'https:' ? https : http;
    const host = url.hostname.replace(/^\[|\]$/g, '');
    const outgoing = client.request(
      {
        protocol: url.protocol,
        hostname: host,
        ...(url.port === '' ? {} : { port: Number(url.port) }),
        path: `${url.pathname}${url.search}`,
        ...(isIP(host) === 0 ? { servername: host } : {}),
        lookup: lookup as unknown as LookupFunction,
        // A socket of an earlier request would not be looked up again.
        agent: false,
        signal,
        maxHeaderSize: 32 * 1024,
        headers: {
          host: url.host,
          'user-agent': AGENT,
          accept: request.accept ?? 'text/html,application/xhtml+xml,text/markdown,text/plain;q=0.9,*/*;q=0.5',
          'accept-encoding': 'gzip, deflate, br',
          'accept-language': 'en,*;q=0.5',
        },
      },
      resolve,
    );
    outgoing.on('error', reject);
    outgoing.end();
  });
}

function redirectOf(answer: http.IncomingMessage, url: URL): string | null {
  const status = answer.statusCode ?? 0;
  const { location } = answer.headers;
  if (![301, 302, 303, 307, 308].includes(status) || location === undefined) return null;
  return URL.parse(location, url.href)?.href ?? location;
}

async function read(answer: http.IncomingMessage, url: URL, maxBytes: number): Promise<FetchedPage> {
  const type = answer.headers['content-type'] ?? '';
  const stream = decoded(answer);
  const chunks: Buffer[] = [];
  let size = 0;
  let truncated = false;
  try {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      const room = maxBytes - size;
      // Counted after decompression, so that a small body cannot become a large one.
      chunks.push(chunk.length > room ? chunk.subarray(0, room) : chunk);
      size += Math.min(chunk.length, room);
      if (chunk.length > room) {
        truncated = true;
        break;
      }
    }
  } finally {
    stream.destroy();
    answer.destroy();
  }
  return {
    url: url.href,
    status: answer.statusCode ?? 0,
    mediaType: (type.split(';')[0] ?? '').trim().toLowerCase(),
    charset: /charset\s*=\s*"?([\w.:-]+)/i.exec(type)?.[1]?.toLowerCase() ?? null,
    body: Buffer.concat(chunks),
    truncated,
  };
}

function decoded(answer: http.IncomingMessage): Readable {
  const encoding = (answer.headers['content-encoding'] ?? 'identity').trim().toLowerCase();
  const through = (() => {
    switch (encoding) {
      case 'gzip':
      case 'x-gzip':
        return zlib.createGunzip();
      case 'deflate':
        return zlib.createInflate();
      case 'br':
        return zlib.createBrotliDecompress();
      case 'identity':
      case '':
        return null;
      default:
        throw new ReindeerError(
          'tool_failed',
          `The page came in an encoding that is not known: ${encoding.slice(0, 40)}.`,
        );
    }
  })();
  if (through === null) return answer;
  answer.on('error', (error) => through.destroy(error));
  return answer.pipe(through);
}

/** What a person understands of a failed connection; the rest stays in `cause`. */
function reason(error: unknown): string {
  const code = (error as { code?: unknown }).code;
  switch (code) {
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return 'the host name is not known';
    case 'ECONNREFUSED':
      return 'the host refused the connection';
    case 'ECONNRESET':
      return 'the host broke the connection off';
    case 'ETIMEDOUT':
      return 'the host did not answer';
    default:
      return typeof code === 'string' ? code : 'the answer made no sense';
  }
}
