import { stat } from 'node:fs/promises';
import { Agent } from 'node:http';
import { type Clock, ReindeerError } from '@reindeer/protocol';
import { systemCode } from '../files/file-errors.ts';
import { askJson, type JsonAnswer, type JsonRequest } from '../http/ask.ts';

const CONNECTIONS = 8;

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
  async ask(request: JsonRequest): Promise<JsonAnswer> {
    try {
      // Podman wants a host name, Docker ignores it.
      const where = { socketPath: this.socket, agent: this.#agent };
      return await askJson(this.#clock, where, { ...request, headers: { host: 'engine' } });
    } catch (error) {
      throw this.#unreachable(error);
    }
  }

  /** Idempotent. */
  close(): void {
    this.#agent.destroy();
  }

  #unreachable(cause: unknown): ReindeerError {
    const why = cause instanceof Error ? cause.message : 'no reason given';
    return new ReindeerError(
      'sandbox_unavailable',
      `The container engine at ${this.socket} does not answer (${why.slice(0, 200)}). ${engineHint(cause)}`,
      { cause, retryable: true },
    );
  }
}

/** What to do about an engine that could not be asked. */
export function engineHint(cause: unknown): string {
  if (systemCode(cause) === 'EACCES')
    return 'The user of this server may not use it: add the user to its group ("usermod -aG docker <user>", then log in again), or name the socket of an engine of the user’s own (sandbox.engine_socket).';
  return 'Is it running? Start it with "systemctl start docker", or "systemctl --user start podman.socket".';
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
