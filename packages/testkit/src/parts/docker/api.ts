import { request as httpRequest } from 'node:http';
import type { Readable } from 'node:stream';

export interface EngineReply {
  readonly status: number;
  readonly text: string;
  /** Parsed; null when it is no JSON. */
  readonly body: unknown;
}

/** One request to an engine's unix socket, without any of the product's code. */
export function askEngine(
  socketPath: string,
  method: string,
  path: string,
  body?: Readable | Readonly<Record<string, unknown>>,
): Promise<EngineReply> {
  return new Promise((resolve, reject) => {
    const json = body !== undefined && !('pipe' in body) ? Buffer.from(JSON.stringify(body)) : null;
    const headers = json === null ? {} : { 'content-type': 'application/json', 'content-length': json.length };
    const request = httpRequest({ socketPath, method, path, headers: { host: 'engine', ...headers } }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (part: string) => {
        text += part;
      });
      response.once('error', reject);
      response.once('end', () => resolve({ status: response.statusCode ?? 0, text, body: parsed(text) }));
    });
    request.once('error', reject);
    if (body !== undefined && 'pipe' in body) (body as Readable).once('error', reject).pipe(request);
    else request.end(json ?? undefined);
  });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

export function answersPing(socketPath: string): Promise<boolean> {
  return askEngine(socketPath, 'GET', '/_ping').then(
    ({ status }) => status === 200,
    () => false,
  );
}
