import type { Logger, SandboxInfo } from '@reindeer/protocol';

/** What listing needs of an engine. A rejection means that it could not be asked. */
export interface ListingEngine {
  /** Names of all running containers that begin with `prefix`; the engine may answer more. One request. */
  names(prefix: string): Promise<readonly string[]>;
  /** The engine's description of all of them, as JSON text of an array. One request, however many there are. */
  inspect(names: readonly string[]): Promise<string>;
}

export interface ListingOptions {
  /** Containers are named `<prefix>-<sandbox id>`. */
  readonly prefix: string;
  /** Port of the server inside the container. */
  readonly port: number;
  /** Host under which published ports are reached. */
  readonly host: string;
  readonly logger: Logger;
}

type Describe<Info extends SandboxInfo> = (entry: unknown) => Info | null;

/**
 * All running sandboxes of ours, by one list and one batched inspection (SX-03). A container without a published port has an empty
 * address. An engine that fails, or speaks no JSON, lists nothing (SX-04): that adopts nothing and stops nothing.
 */
export async function listContainers(engine: ListingEngine, options: ListingOptions): Promise<readonly SandboxInfo[]>;
/** @param describe what is kept of one container; null = it is none of ours */
export async function listContainers<Info extends SandboxInfo>(
  engine: ListingEngine,
  options: ListingOptions,
  describe: Describe<Info>,
): Promise<readonly Info[]>;
export async function listContainers(
  engine: ListingEngine,
  options: ListingOptions,
  describe: Describe<SandboxInfo> = (entry) => infoOf(entry, options),
): Promise<readonly SandboxInfo[]> {
  const { prefix, logger } = options;
  try {
    const names = (await engine.names(`${prefix}-`)).filter((name) => idOfName(name, prefix) !== null);
    if (names.length === 0) return [];
    const described: unknown = JSON.parse(await engine.inspect(names));
    if (!Array.isArray(described)) return [];
    return described.flatMap((entry: unknown) => describe(entry) ?? []);
  } catch (error) {
    logger.warn('The running containers could not be listed', {
      cause: error instanceof Error ? error.name : 'unknown',
    });
    return [];
  }
}

/** The sandbox id in a container's name; null when the name is not one of ours. */
export function idOfName(name: string, prefix: string): string | null {
  const plain = name.startsWith('/') ? name.slice(1) : name;
  if (!plain.startsWith(`${prefix}-`)) return null;
  const id = plain.slice(prefix.length + 1);
  // The prefix itself may be the beginning of another deployment's prefix.
  return /^[A-Za-z0-9_]{1,64}$/.test(id) ? id : null;
}

/** Wall-clock milliseconds of an engine's timestamp, nanoseconds or not; 0 = unknown (SX-05). */
export function parseEngineTime(text: unknown): number {
  if (typeof text !== 'string') return 0;
  const match = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)$/.exec(text);
  if (match === null) return 0;
  const [, seconds = '', fraction = '', zone = ''] = match;
  const time = Date.parse(`${seconds}${fraction.slice(0, 4)}${zone}`);
  return Number.isFinite(time) && time > 0 ? time : 0;
}

/** The host's port that is published for `port` of the container; null when there is none. */
export function publishedPort(entry: unknown, port: number): number | null {
  const bindings = at(at(at(entry, 'NetworkSettings'), 'Ports'), `${port}/tcp`);
  if (!Array.isArray(bindings)) return null;
  const found = Number(at(bindings[0], 'HostPort'));
  return Number.isInteger(found) && found > 0 && found < 65_536 ? found : null;
}

/** Addresses of the sixth version stand in brackets there. */
export function hostInUrl(host: string): string {
  return host.includes(':') ? `[${host}]` : host;
}

function infoOf(entry: unknown, { prefix, port, host }: ListingOptions): SandboxInfo | null {
  const name = at(entry, 'Name');
  if (typeof name !== 'string') return null;
  const id = idOfName(name, prefix);
  if (id === null) return null;
  const published = publishedPort(entry, port);
  return {
    id,
    name: name.startsWith('/') ? name.slice(1) : name,
    url: published === null ? '' : `http://${hostInUrl(host)}:${published}`,
    createdAt: parseEngineTime(at(entry, 'Created')),
  };
}

/** A field of something that came from outside; undefined when there is none. */
export function at(value: unknown, key: string): unknown {
  return typeof value === 'object' && value !== null ? (value as Readonly<Record<string, unknown>>)[key] : undefined;
}
