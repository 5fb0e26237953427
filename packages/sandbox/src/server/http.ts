import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type ErrorCode, ReindeerError } from '@reindeer/protocol';

/** Largest JSON body: a part of a file of 1 MiB in base64, or a command with its environment. */
const MAX_BODY_BYTES = 24 * 1024 * 1024;

export type Body = Readonly<Record<string, unknown>>;

/** Whether a request carries the secret; compared by hashes, so that neither contents nor length show in the time (SX-12). */
export function isAuthorized(request: IncomingMessage, secretHash: Buffer): boolean {
  const given = /^Bearer (.+)$/.exec(request.headers.authorization ?? '')?.[1] ?? '';
  return sameDigest(digest(given), secretHash);
}

/** SHA-256. */
export function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

/** Takes the same time whatever is compared. */
export function sameDigest(left: Buffer, right: Buffer): boolean {
  return left.length === right.length && timingSafeEqual(left, right);
}

/** The address that a request asks for. @throws ReindeerError `bad_request` for one that is none, such as `//` */
export function addressOf(request: IncomingMessage): URL {
  const text = request.url ?? '/';
  if (URL.canParse(text, 'http://server')) return new URL(text, 'http://server');
  throw new ReindeerError('bad_request', 'The address of the request cannot be read.');
}

/** One part of an address. @throws ReindeerError `bad_request` for one whose percent signs mean nothing */
export function decodedPart(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    throw new ReindeerError('bad_request', 'The address of the request cannot be read.');
  }
}

export async function readJson(request: IncomingMessage, maxBytes = MAX_BODY_BYTES): Promise<Body> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request) {
    const part: Buffer = chunk;
    bytes += part.length;
    if (bytes > maxBytes) throw new ReindeerError('too_large', `A request has at most ${maxBytes} bytes.`);
    parts.push(part);
  }
  try {
    const value: unknown = JSON.parse(Buffer.concat(parts).toString('utf8'));
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Body;
  } catch {
    // Told below, like any other body that is no object.
  }
  throw new ReindeerError('bad_request', 'The body must be a JSON object.');
}

/** The envelope that every answer of the public image has. */
export function answer(response: ServerResponse, data: unknown, message = 'Operation successful'): void {
  sendJson(response, 200, { success: true, message, data });
}

export function sendJson(response: ServerResponse, status: number, body: unknown): void {
  const text = Buffer.from(JSON.stringify(body));
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': text.length });
  response.end(text);
}

const STATUS: Partial<Record<ErrorCode, number>> = {
  bad_request: 422,
  validation_failed: 422,
  unauthorized: 401,
  not_found: 404,
  path_refused: 403,
  too_large: 413,
  over_capacity: 429,
  conflict: 409,
  sandbox_unavailable: 503,
};

export function sendError(response: ServerResponse, error: unknown): void {
  const known = ReindeerError.is(error) ? error : null;
  if (response.headersSent) {
    response.destroy();
    return;
  }
  sendJson(response, known === null ? 500 : (STATUS[known.code] ?? 500), {
    success: false,
    message: known?.message ?? systemText(error),
    data: null,
    code: known?.code ?? 'internal',
  });
}

/** A system error without its stack: `EACCES: permission denied, open '/x'`. */
function systemText(error: unknown): string {
  return error instanceof Error ? error.message.slice(0, 500) : 'The request failed.';
}

export function textOf(body: Body, field: string): string;
export function textOf(body: Body, field: string, otherwise: string): string;
export function textOf(body: Body, field: string, otherwise?: string): string {
  const value = body[field];
  if (typeof value === 'string') return value;
  if ((value === undefined || value === null) && otherwise !== undefined) return otherwise;
  throw new ReindeerError('bad_request', `${field} must be a text.`, { detail: { field } });
}

export function numberOf(body: Body, field: string, otherwise: number): number;
export function numberOf(body: Body, field: string, otherwise: null): number | null;
export function numberOf(body: Body, field: string, otherwise: number | null): number | null {
  const value = body[field];
  if (value === undefined || value === null) return otherwise;
  if (typeof value === 'number' && Number.isFinite(value) && value >= 0) return value;
  throw new ReindeerError('bad_request', `${field} must be a number, 0 or more.`, { detail: { field } });
}

export function flagOf(body: Body, field: string): boolean {
  return body[field] === true;
}

export function textsOf(body: Body, field: string): Readonly<Record<string, string>> {
  const value = body[field];
  if (value === undefined || value === null) return {};
  if (typeof value !== 'object' || Object.values(value).some((one) => typeof one !== 'string'))
    throw new ReindeerError('bad_request', `${field} must hold texts only.`, { detail: { field } });
  return value as Readonly<Record<string, string>>;
}
