import { constants } from 'node:fs';
import { type FileHandle, lstat, open } from 'node:fs/promises';
import { Agent, request as httpRequest, type IncomingMessage } from 'node:http';
import { type Clock, ReindeerError } from '@reindeer/protocol';

/** Where the server of one sandbox listens. */
export type ServerAddress =
  | { readonly kind: 'socket'; readonly folder: string; readonly name: string }
  | { readonly kind: 'port'; readonly host: string; readonly port: number };

export interface ServerCall {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly body?: unknown;
  readonly accept?: string;
  readonly signal: AbortSignal;
  /** Called once the whole request is handed over. */
  readonly onSent?: () => void;
}

const CONNECTIONS = 64;

/**
 * Connections to the server of one sandbox. Proxies of the environment are never asked: the server is on this machine (SX-10). A unix
 * socket is reached through the opened folder, so that its path may be of any length; what lies there is the container's, and anything
 * but a socket is refused.
 */
export class ServerTransport {
  readonly #address: ServerAddress;
  readonly #secret: string | null;
  /** No connection is kept: one that the server closes in the very moment of its next use would lose a command. */
  readonly #agent = new Agent({ keepAlive: false, maxSockets: CONNECTIONS });
  #folder: Promise<FileHandle> | null = null;
  #closed = false;

  /** @param secret null for an image that knows none */
  constructor(address: ServerAddress, secret: string | null) {
    this.#address = address;
    this.#secret = secret;
  }

  /** Sends one request and resolves with the answer's head; the caller consumes or destroys it. */
  async call(input: ServerCall): Promise<IncomingMessage> {
    if (this.#closed) throw new ReindeerError('sandbox_unavailable', 'The connection to this sandbox is closed.');
    const where = await this.#where();
    const body = input.body === undefined ? null : Buffer.from(JSON.stringify(input.body));
    const headers = {
      host: 'sandbox',
      accept: input.accept ?? 'application/json',
      ...(this.#secret === null ? {} : { authorization: `Bearer ${this.#secret}` }),
      ...(body === null ? {} : { 'content-type': 'application/json', 'content-length': body.length }),
    };
    return new Promise((resolve, reject) => {
      const { method, path, signal } = input;
      const request = httpRequest({ ...where, agent: this.#agent, method, path, headers, signal });
      request.once('error', reject);
      request.once('response', resolve);
      request.once('finish', () => input.onSent?.());
      request.end(body ?? undefined);
    });
  }

  /** Idempotent, never throws. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#agent.destroy();
    const folder = this.#folder;
    this.#folder = null;
    await folder?.then((handle) => handle.close()).catch(() => {});
  }

  async #where(): Promise<{ readonly socketPath: string } | { readonly host: string; readonly port: number }> {
    const address = this.#address;
    if (address.kind === 'port') return { host: address.host, port: address.port };
    if (process.platform !== 'linux') return { socketPath: `${address.folder}/${address.name}` };
    this.#folder ??= open(address.folder, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
    const opening = this.#folder;
    opening.catch(() => {
      if (this.#folder === opening) this.#folder = null;
    });
    const socketPath = `/proc/self/fd/${(await opening).fd}/${address.name}`;
    if (!(await lstat(socketPath)).isSocket())
      throw new ReindeerError('path_refused', 'What lies in the place of the sandbox’s socket is no socket.');
    return { socketPath };
  }
}

/** Reads a whole JSON answer of at most `maxBytes`. */
export async function jsonAnswer(response: IncomingMessage, maxBytes: number): Promise<unknown> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of response) {
    const part: Buffer = chunk;
    bytes += part.length;
    if (bytes > maxBytes) {
      response.destroy();
      throw new ReindeerError('too_large', `The sandbox answered more than ${maxBytes} bytes.`);
    }
    parts.push(part);
  }
  try {
    return JSON.parse(Buffer.concat(parts).toString('utf8'));
  } catch (cause) {
    throw new ReindeerError('sandbox_unavailable', 'The sandbox gave an answer that cannot be read.', { cause });
  }
}

/** A signal that fires after so many milliseconds or with `signal`; `done` lets go of both. */
export function timeLimit(
  clock: Clock,
  milliseconds: number,
  signal?: AbortSignal,
): { signal: AbortSignal; done(): void } {
  const over = new AbortController();
  const timeout = new AbortController();
  clock.sleep(milliseconds, over.signal).then(
    () => timeout.abort(new Error(`no answer within ${Math.round(milliseconds / 1000)} s`)),
    () => {},
  );
  return {
    signal: signal === undefined ? timeout.signal : AbortSignal.any([timeout.signal, signal]),
    done: () => over.abort(),
  };
}
