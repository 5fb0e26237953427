import { ReindeerError, type SandboxInfo } from '@reindeer/protocol';
import { at, hostInUrl, idOfName, parseEngineTime, publishedPort } from './listing.ts';

/** Labels of every container; they say whose it is, and hold nothing secret. */
export const LABELS = {
  /** Hash of the data folder: containers of another one are not touched. */
  home: 'reindeer.home',
  user: 'reindeer.user',
  thread: 'reindeer.thread',
  /** The instance that started it. */
  instance: 'reindeer.instance',
  /** One per container: tells it from a later one of the same name, and from it the secret is derived. */
  nonce: 'reindeer.nonce',
  /** How it is reached: `socket` or `port`. */
  transport: 'reindeer.transport',
  /** `own` where our server is in the image: it wants a secret, another knows none. */
  server: 'reindeer.server',
} as const;

/** Label of an image that holds our server. */
export const IMAGE_LABEL = 'reindeer.sandbox';

export interface ContainerInfo extends SandboxInfo {
  /** The engine's own id: a later container of the same name has another one. */
  readonly containerId: string;
  readonly home: string;
  /** Whose folders are mounted in it. */
  readonly userId: string;
  readonly threadId: string;
  readonly nonce: string;
  readonly transport: 'socket' | 'port';
  readonly ownServer: boolean;
}

/** What an inspection (or a listing in its form) says of a container; null when it is none of ours. */
export function containerInfo(
  entry: unknown,
  options: { readonly prefix: string; readonly port: number; readonly host: string },
): ContainerInfo | null {
  const name = at(entry, 'Name');
  const containerId = at(entry, 'Id');
  const labels = at(at(entry, 'Config'), 'Labels');
  const nonce = at(labels, LABELS.nonce);
  const home = at(labels, LABELS.home);
  if (typeof name !== 'string' || typeof containerId !== 'string') return null;
  const userId = at(labels, LABELS.user);
  const threadId = at(labels, LABELS.thread);
  if (typeof nonce !== 'string' || typeof home !== 'string') return null;
  if (typeof userId !== 'string' || typeof threadId !== 'string') return null;
  const id = idOfName(name, options.prefix);
  if (id === null) return null;
  const published = publishedPort(entry, options.port);
  return {
    id,
    name: name.startsWith('/') ? name.slice(1) : name,
    url: published === null ? '' : `http://${hostInUrl(options.host)}:${published}`,
    createdAt: parseEngineTime(at(entry, 'Created')),
    containerId,
    home,
    userId,
    threadId,
    nonce,
    transport: at(labels, LABELS.transport) === 'port' ? 'port' : 'socket',
    ownServer: at(labels, LABELS.server) === 'own',
  };
}

export type ContainerState = 'running' | 'starting' | 'going' | 'stopped' | 'paused';

/** In which state an inspection found it. */
export function stateOf(entry: unknown): ContainerState {
  const state = at(entry, 'State');
  if (at(state, 'Paused') === true) return 'paused';
  if (at(state, 'Running') === true) return 'running';
  const status = at(state, 'Status');
  if (status === 'removing') return 'going';
  // Podman says `configured` and `initialized` where Docker says `created`.
  return status === 'created' || status === 'configured' || status === 'initialized' ? 'starting' : 'stopped';
}

/** One entry of a listing, as an inspection would put it. */
export function asInspection(entry: unknown): unknown {
  const names = at(entry, 'Names');
  const ports = at(entry, 'Ports');
  const created = at(entry, 'Created');
  const published: Record<string, { HostPort: string }[]> = {};
  for (const port of Array.isArray(ports) ? ports : []) {
    const inside = at(port, 'PrivatePort');
    const outside = at(port, 'PublicPort');
    if (typeof inside === 'number' && typeof outside === 'number')
      published[`${inside}/tcp`] = [{ HostPort: String(outside) }];
  }
  return {
    Id: at(entry, 'Id'),
    Name: Array.isArray(names) ? names[0] : undefined,
    Created: typeof created === 'number' ? new Date(created * 1000).toISOString() : created,
    Config: { Labels: at(entry, 'Labels') },
    NetworkSettings: { Ports: published },
  };
}

/** Infos of our backends carry more than the port says; others were never handed out by one. */
export function asContainer(info: SandboxInfo): ContainerInfo {
  if ('containerId' in info && 'nonce' in info) return info as ContainerInfo;
  throw new ReindeerError('internal', `Sandbox ${info.id} is no container of this backend.`);
}
