import { stat } from 'node:fs/promises';
import { Agent, request as httpRequest } from 'node:http';
import { type Clock, ReindeerError } from '@reindeer/protocol';

/** Bytes of one answer of the engine. */
const MAX_ANSWER_BYTES = 8 * 1024 * 1024;
const CONNECTIONS = 8;

export interface EngineAnswer {
  readonly status: number;
  /** Parsed JSON; null when the answer was empty or no JSON. */
  readonly body: unknown;
}

export interface EngineRequest {
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** With its query. */
  readonly path: string;
  readonly body?: unknown;
  readonly timeoutMs: number;
}

/**
 * The HTTP API of Docker or Podman on a unix socket. An answer, whatever its status, is what the engine knows; a rejection
 * (`sandbox_unavailable`) means that it could not be asked, which proves nothing about any container.
 */
export class EngineClient {
  readonly socket: string;
  readonly #agent: Agent;
  readonly #clock: Clock;

  constructor(socket: string, clock: Clock) {
    this.socket = socket;
    this.#clock = clock;
    // A connection is cheap here, and one that was kept may be closed by the engine in the very moment of its next use.
    this.#agent = new Agent({ keepAlive: false, maxSockets: CONNECTIONS });
  }

  /** Bounded in time and size. */
  async ask(request: EngineRequest): Promise<EngineAnswer> {
    try {
      return await this.#once(request);
    } catch (error) {
      throw this.#unreachable(error);
    }
  }

  /** Idempotent. */
  close(): void {
    this.#agent.destroy();
  }

  #once(input: EngineRequest): Promise<EngineAnswer> {
    const body = input.body === undefined ? null : Buffer.from(JSON.stringify(input.body));
    const over = new AbortController();
    return new Promise<EngineAnswer>((resolve, reject) => {
      const request = httpRequest({
        socketPath: this.socket,
        agent: this.#agent,
        method: input.method,
        path: input.path,
        // Podman wants a host name, Docker ignores it.
        headers: {
          host: 'engine',
          ...(body === null ? {} : { 'content-type': 'application/json', 'content-length': body.length }),
        },
        signal: over.signal,
      });
      this.#clock.sleep(input.timeoutMs, over.signal).then(
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

  #unreachable(cause: unknown): ReindeerError {
    const why = cause instanceof Error ? cause.message : 'no reason given';
    return new ReindeerError(
      'sandbox_unavailable',
      `The container engine at ${this.socket} does not answer (${why.slice(0, 200)}). Is it running? ${START_HINT}`,
      { cause, retryable: true },
    );
  }
}

const START_HINT = 'Start it with "systemctl start docker", or "systemctl --user start podman.socket".';

function parsed(bytes: Buffer): unknown {
  if (bytes.length === 0) return null;
  try {
    return JSON.parse(bytes.toString('utf8'));
  } catch {
    return null;
  }
}

/** The engine's own words about a failure: at most one line, without what it quotes of an environment. */
export function messageOf(answer: EngineAnswer): string {
  const body = answer.body;
  const text = typeof body === 'object' && body !== null && 'message' in body ? String(body.message) : '';
  return (text.split('\n')[0] ?? '').slice(0, 300);
}

/**
 * Which socket: the one that was configured, that of `DOCKER_HOST` or `CONTAINER_HOST`, or the first that is there of Docker's and
 * Podman's usual places (root's, then the user's own); Docker's when there is none.
 *
 * @throws ReindeerError `configuration` for an address that is no unix socket
 */
export async function findEngineSocket(
  configured: string | null,
  environment: Readonly<Record<string, string | undefined>>,
): Promise<string> {
  if (configured !== null) return socketOf(configured, 'sandbox.engine_socket');
  for (const name of ['DOCKER_HOST', 'CONTAINER_HOST'] as const) {
    const value = environment[name];
    if (value !== undefined && value !== '') return socketOf(value, name);
  }
  const own = environment.XDG_RUNTIME_DIR;
  const places = [
    '/var/run/docker.sock',
    ...(own === undefined ? [] : [`${own}/docker.sock`]),
    '/run/podman/podman.sock',
    ...(own === undefined ? [] : [`${own}/podman/podman.sock`]),
    ...(environment.HOME === undefined ? [] : [`${environment.HOME}/.docker/run/docker.sock`]),
  ];
  for (const place of places) if ((await stat(place).catch(() => null))?.isSocket() === true) return place;
  return '/var/run/docker.sock';
}

function socketOf(address: string, key: string): string {
  const path = address.startsWith('unix://') ? address.slice('unix://'.length) : address;
  if (path.startsWith('/')) return path;
  throw new ReindeerError(
    'configuration',
    `${key} is "${address.slice(0, 80)}": only an engine on a unix socket of this machine can mount the folders of threads; use unix:///path/to/docker.sock.`,
  );
}
