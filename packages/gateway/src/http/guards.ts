import { createHash, timingSafeEqual } from 'node:crypto';
import { isIP } from 'node:net';
import { ReindeerError } from '@reindeer/protocol';
import type { MiddlewareHandler } from 'hono';
import type { Environment } from './route.ts';

/** Who may talk to the server (D12). */
export interface GuardSettings {
  /** Host names, without port, beside the loopback names. */
  readonly allowedHosts: readonly string[];
  /** Exact origins, e.g. `https://reindeer.example.org`, beside the server's own. They get CORS headers. */
  readonly allowedOrigins: readonly string[];
  /** null = none needed: only on loopback, with a sandbox that cannot reach the loopback. */
  readonly token: string | null;
  /** Token of programs that act for users, in place of the other one; absent or null = there are none. */
  readonly internalToken?: string | null;
}

/** Splits `host:port` of a Host header; null when it is malformed. */
export function parseHost(header: string | undefined): { readonly name: string; readonly host: string } | null {
  if (header === undefined || header === '' || header.length > 300) return null;
  const match = /^(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::(\d{1,5}))?$/.exec(header.toLowerCase());
  const name = match?.[1];
  if (name === undefined) return null;
  return { name: name.replace(/^\[|\]$/g, '').replace(/\.$/, ''), host: header.toLowerCase() };
}

/** Names that always mean this machine. `*.localhost` is loopback by RFC 6761. */
export function isLoopbackName(name: string): boolean {
  return (
    name === 'localhost' ||
    name.endsWith('.localhost') ||
    name === '::1' ||
    (isIP(name) === 4 && name.startsWith('127.'))
  );
}

const EXPOSED = 'Content-Location, Location, X-Request-Id, X-Pagination-Next, Retry-After';
const ACCEPTED = 'Authorization, Content-Type, Last-Event-ID, Idempotency-Key, X-Api-Key, Range, Prefer';

const digest = (text: string) => createHash('sha256').update(text).digest();

/** Equal in constant time, whatever the lengths. */
export function tokenMatches(given: string, expected: string): boolean {
  return timingSafeEqual(digest(given), digest(expected));
}

/** The token of a request: `Authorization: Bearer …`, or `x-api-key` as the LangGraph SDK sends its `apiKey`. */
function tokenOf(header: (name: string) => string | undefined): string | null {
  const bearer = /^Bearer +(\S+)$/i.exec(header('authorization') ?? '')?.[1];
  return bearer ?? header('x-api-key') ?? null;
}

/** A DNS name pointed at this machine by somebody else (DNS rebinding) is not in the list, so its pages get nothing. */
export function hostGuard(settings: GuardSettings): MiddlewareHandler<Environment> {
  const allowed = new Set(settings.allowedHosts.map((name) => name.toLowerCase().replace(/^\[|\]$/g, '')));
  return async (c, next) => {
    const host = parseHost(c.req.header('host'));
    // An address literal cannot be rebound; with a token it needs no entry in the list.
    const literal = host !== null && settings.token !== null && isIP(host.name) !== 0;
    if (host === null || !(isLoopbackName(host.name) || allowed.has(host.name) || literal))
      throw new ReindeerError(
        'forbidden',
        'The Host header names a host that this server does not answer for. Use http://127.0.0.1, or add the name to server.allowed_hosts in config.yaml.',
      );
    await next();
  };
}

/**
 * Every request that carries an `Origin` must come from the server's own pages or a configured origin (SEC-02). Browsers send it
 * with every state-changing request; for the rest `Sec-Fetch-Site` keeps other pages from even triggering a GET of the API.
 */
export function originGuard(settings: GuardSettings): MiddlewareHandler<Environment> {
  const allowed = new Set(settings.allowedOrigins.map((origin) => origin.toLowerCase().replace(/\/$/, '')));
  const refused = () =>
    new ReindeerError(
      'forbidden',
      'This request comes from a web page of another origin. Open Reindeer itself, or add the origin to server.allowed_origins in config.yaml.',
    );
  return async (c, next) => {
    const origin = c.req.header('origin')?.toLowerCase();
    const configured = origin !== undefined && allowed.has(origin);
    if (origin !== undefined && !configured && !isOwnOrigin(origin, c.req.header('host'))) throw refused();
    const site = c.req.header('sec-fetch-site');
    const foreign = site !== undefined && site !== 'same-origin' && site !== 'none';
    if (foreign && !configured && c.req.path.startsWith('/api')) throw refused();
    if (configured) {
      // On the Node response, so that streams that are written past Hono carry them too.
      const { outgoing } = c.env;
      outgoing.setHeader('access-control-allow-origin', origin);
      outgoing.setHeader('vary', 'Origin');
      // The SDK reads the run's id from Content-Location.
      outgoing.setHeader('access-control-expose-headers', EXPOSED);
      if (c.req.method === 'OPTIONS') {
        outgoing.setHeader('access-control-allow-methods', 'GET, POST, PUT, PATCH, DELETE');
        outgoing.setHeader('access-control-allow-headers', ACCEPTED);
        outgoing.setHeader('access-control-max-age', '600');
        return c.body(null, 204);
      }
    }
    await next();
    return undefined;
  };
}

function isOwnOrigin(origin: string, host: string | undefined): boolean {
  if (!URL.canParse(origin)) return false;
  const url = new URL(origin);
  if (url.protocol !== 'http:' && url.protocol !== 'https:') return false;
  const own = (host ?? '').toLowerCase();
  return url.host === own || `${url.host}:${url.protocol === 'https:' ? 443 : 80}` === own;
}

const MULTIPART = /^multipart\/form-data\s*;/i;
const JSON_TYPE = /^application\/(?:[a-z0-9.+-]+\+)?json\s*(?:;|$)/i;

/**
 * A body must say that it is JSON (uploads: multipart). A page elsewhere can send `text/plain` or a form without asking first;
 * it cannot send JSON without a preflight.
 */
export function contentTypeGuard(): MiddlewareHandler<Environment> {
  return async (c, next) => {
    const method = c.req.method;
    if (method === 'GET' || method === 'HEAD' || method === 'OPTIONS') return await next();
    const type = c.req.header('content-type');
    const hasBody = Number(c.req.header('content-length') ?? 0) > 0 || c.req.header('transfer-encoding') !== undefined;
    const upload = method === 'POST' && /\/threads\/[^/]+\/uploads\/?$/.test(c.req.path);
    if (upload ? !MULTIPART.test(type ?? '') : type === undefined ? hasBody : !JSON_TYPE.test(type))
      throw new ReindeerError(
        'unsupported_media_type',
        upload
          ? 'Uploads need "Content-Type: multipart/form-data; boundary=…", with the files in fields named "files".'
          : `A body of type "${(type ?? 'none').slice(0, 80)}" is not accepted. Send JSON with "Content-Type: application/json".`,
      );
    return await next();
  };
}

/** Needs the token on everything below `/api` and on `/metrics`; the page itself, `/health` and `/openapi.json` hold nothing private. */
export function tokenGuard(settings: GuardSettings): MiddlewareHandler<Environment> {
  return async (c, next) => {
    if (settings.token !== null && c.get('internal') !== true) {
      const given = tokenOf((name) => c.req.header(name));
      if (given === null || !tokenMatches(given, settings.token)) {
        c.header('www-authenticate', 'Bearer realm="reindeer"');
        throw new ReindeerError(
          'unauthorized',
          given === null
            ? 'This server needs a token. Open the address that `reindeer serve` printed, or send "Authorization: Bearer <token>".'
            : 'The token is wrong. Open the address that `reindeer serve` printed at its last start.',
        );
      }
    }
    await next();
  };
}

/** Headers for everything; a route may set a stricter policy of its own. */
export const PAGE_POLICY = [
  "default-src 'self'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data: blob:",
  "media-src 'self' blob:",
  "connect-src 'self'",
  "frame-src 'self' blob:",
  "object-src 'none'",
  "base-uri 'none'",
  "form-action 'self'",
  "frame-ancestors 'none'",
].join('; ');

export const API_POLICY = "default-src 'none'; frame-ancestors 'none'; sandbox";

export const SECURITY_HEADERS: Readonly<Record<string, string>> = {
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'x-frame-options': 'DENY',
  'cross-origin-resource-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
};
