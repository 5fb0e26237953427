import { constants } from 'node:fs';
import { type FileHandle, lstat, open } from 'node:fs/promises';
import { Agent, request as httpRequest, type IncomingMessage } from 'node:http';
import { request as secureRequest } from 'node:https';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { type Clock, ReindeerError } from '@reindeer/protocol';
import { agentFor, type ProxyEnvironment } from '../http/proxy.ts';

/** Where the server of one sandbox listens. */
export type ServerAddress =
  | { readonly kind: 'socket'; readonly folder: string; readonly name: string }
  | { readonly kind: 'url'; readonly url: URL };

export interface ServerCall {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly body?: unknown;
  /** Sent as it comes instead of a body; must end, or fail. */
  readonly stream?: AsyncIterable<Buffer>;
  readonly accept?: string;
  readonly signal: AbortSignal;
  /** Called once the whole request is handed over. */
  readonly onSent?: () => void;
}

const CONNECTIONS = 64;

/**
 * Connections to the server of one sandbox. Proxies of the environment are asked only where it is neither on this machine nor in a private
 * network (SX-10). A unix socket is reached through the opened folder, so that its path may be of any length; what lies there is the container's, and anything
 * but a socket is refused.
 */
export class ServerTransport {
  readonly #address: ServerAddress;
  readonly #secret: string | null;
  readonly #agent: Agent;
  #folder: Promise<FileHandle> | null = null;
  #closed = false;

  /** @param secret null for an image that knows none */
  constructor(address: ServerAddress, secret: string | null, environment: ProxyEnvironment = {}) {
    this.#address = address;
    this.#secret = secret;
    // No connection is kept: one that the server closes in the very moment of its next use would lose a command.
    this.#agent =
      address.kind === 'url'
        ? agentFor(address.url, environment, CONNECTIONS)
        : new Agent({ keepAlive: false, maxSockets: CONNECTIONS });
  }

  /** Sends one request and resolves with the answer's head; the caller consumes or destroys it. */
  async call(input: ServerCall): Promise<IncomingMessage> {
    if (this.#closed) throw new ReindeerError('sandbox_unavailable', 'The connection to this sandbox is closed.');
    const where = await this.#where();
    const body = input.body === undefined ? null : Buffer.from(JSON.stringify(input.body));
    const headers = {
      ...(this.#address.kind === 'url' ? {} : { host: 'sandbox' }),
      accept: input.accept ?? 'application/json',
      ...(this.#secret === null ? {} : { authorization: `Bearer ${this.#secret}` }),
      ...(body === null ? {} : { 'content-type': 'application/json', 'content-length': body.length }),
      ...(input.stream === undefined ? {} : { 'content-type': 'application/octet-stream' }),
    };
    return new Promise((resolve, reject) => {
      const { method, path, signal } = input;
      const send =
        this.#address.kind === 'url' && this.#address.url.protocol === 'https:' ? secureRequest : httpRequest;
      const request = send({ ...where, agent: this.#agent, method, path, headers, signal });
      request.once('error', reject);
      request.once('response', resolve);
      request.once('finish', () => input.onSent?.());
      if (input.stream === undefined) request.end(body ?? undefined);
      else pipeline(Readable.from(input.stream), request).catch(reject);
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

  async #where(): Promise<{ readonly socketPath: string } | { readonly hostname: string; readonly port: string }> {
    const address = this.#address;
    if (address.kind === 'url')
      return { hostname: address.url.hostname.replace(/^\[|\]$/g, ''), port: address.url.port };
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
