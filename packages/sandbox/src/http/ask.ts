import { request as plainRequest, type RequestOptions } from 'node:http';
import { type RequestOptions as SecureOptions, request as secureRequest } from 'node:https';
import type { Clock } from '@reindeer/protocol';

/** Bytes of one answer. */
const MAX_ANSWER_BYTES = 8 * 1024 * 1024;

export interface JsonAnswer {
  readonly status: number;
  /** Parsed JSON; null when the answer was empty or no JSON. */
  readonly body: unknown;
}

export interface JsonRequest {
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** With its query. */
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: unknown;
  readonly timeoutMs: number;
}

/**
 * Asks an API of the operator's once, bounded in time and size, and follows no redirect. An answer, whatever its status, is what the other
 * side knows; a rejection means that it could not be asked.
 *
 * @param where socket, or host and port, with the agent to use
 */
export function askJson(clock: Clock, where: RequestOptions & SecureOptions, input: JsonRequest): Promise<JsonAnswer> {
  const body = input.body === undefined ? null : Buffer.from(JSON.stringify(input.body));
  const over = new AbortController();
  const send = where.protocol === 'https:' ? secureRequest : plainRequest;
  return new Promise<JsonAnswer>((resolve, reject) => {
    const request = send({
      ...where,
      method: input.method,
      path: input.path,
      headers: {
        ...input.headers,
        accept: 'application/json',
        ...(body === null ? {} : { 'content-type': 'application/json', 'content-length': body.length }),
      },
      signal: over.signal,
    });
    clock.sleep(input.timeoutMs, over.signal).then(
      () => {
        reject(new Error(`no answer within ${Math.round(input.timeoutMs / 1000)} s`));
        over.abort();
      },
      () => {},
    );
    request.once('error', reject);
    request.once('response', (response) => {
      const parts: Buffer[] = [];
      let bytes = 0;
      response.on('data', (part: Buffer) => {
        bytes += part.length;
        if (bytes <= MAX_ANSWER_BYTES) parts.push(part);
        else {
          reject(new Error(`an answer of more than ${MAX_ANSWER_BYTES} bytes`));
          over.abort();
        }
      });
      response.once('error', reject);
      response.once('end', () => resolve({ status: response.statusCode ?? 0, body: parsed(Buffer.concat(parts)) }));
      response.once('close', () => reject(new Error('the answer was cut')));
    });
    request.end(body ?? undefined);
  }).finally(() => over.abort());
}

function parsed(bytes: Buffer): unknown {
  if (bytes.length === 0) return null;
  try {
    return JSON.parse(bytes.toString('utf8'));
  } catch {
    return null;
  }
}

/** The other side's own words about a failure: one line, bounded. */
export function messageOf(answer: JsonAnswer): string {
  const body = answer.body;
  const text = typeof body === 'object' && body !== null && 'message' in body ? String(body.message) : '';
  return (text.split('\n')[0] ?? '').slice(0, 300);
}
