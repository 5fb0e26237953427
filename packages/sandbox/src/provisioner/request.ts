import { DEFAULT_USER, ReindeerError } from '@reindeer/protocol';
import { at } from '../container/listing.ts';
import type { Body } from '../server/http.ts';

/** One folder of the server's that a pod gets. */
export interface PodMount {
  /** Below the state base, without a leading slash. */
  readonly folder: string;
  readonly place: string;
  readonly readOnly: boolean;
}

/** What a gateway asks for, checked. */
export interface SandboxRequest {
  readonly id: string;
  readonly userId: string;
  readonly threadId: string;
  /** Tells this pod from a later one of the same id. */
  readonly nonce: string;
  /** SHA-256 of the pod's secret, which only the gateway has. */
  readonly secretHash: string;
  /** Which deployment it belongs to. */
  readonly home: string;
  readonly mounts: readonly PodMount[];
}

export const SANDBOX_ID = /^[A-Za-z0-9_-]{1,64}$/;
const MAX_MOUNTS = 10;
const MAX_PATH = 4_096;
const NAME = '[^/\\0]{1,255}';
const userData = (folder: string) => new RegExp(`^users/${NAME}/threads/${NAME}/user-data/${folder}$`);

/**
 * The places in a pod that may be filled from outside, each with the only folders that may fill it. No folder *in* one of these can be
 * asked for: what runs in a pod could have put a link in its place, and a node follows links.
 */
const PLACES: ReadonlyMap<string, RegExp> = new Map([
  ['/mnt/user-data/workspace', userData('workspace')],
  ['/mnt/user-data/uploads', userData('uploads')],
  ['/mnt/user-data/outputs', userData('outputs')],
  ['/mnt/skills', new RegExp(`^users/${NAME}/skills/view$`)],
]);

const refuse = (field: string, why: string) =>
  new ReindeerError('bad_request', `${field}: ${why}`, { detail: { field } });

/** @throws ReindeerError `bad_request` that names the field (SX-14) */
export function sandboxRequest(body: Body, stateBase: string | null): SandboxRequest {
  const text = (field: string, grammar: RegExp, hint: string, otherwise?: string): string => {
    const value = body[field] ?? otherwise;
    if (typeof value === 'string' && grammar.test(value)) return value;
    throw refuse(field, hint);
  };
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is refused
  const plain = /^[^\u0000-\u001f\u007f]{1,256}$/;
  return {
    id: text('sandbox_id', SANDBOX_ID, 'must be 1 to 64 letters, digits, "_" or "-"'),
    threadId: text('thread_id', plain, 'must be a text of at most 256 characters'),
    userId: text('user_id', plain, 'must be a text of at most 256 characters', DEFAULT_USER),
    nonce: text('nonce', /^[A-Za-z0-9-]{8,64}$/, 'must be 8 to 64 letters, digits or "-"'),
    secretHash: text(
      'secret_sha256',
      /^[0-9a-f]{64}$/,
      'must be a SHA-256 in hexadecimal: only Reindeer’s gateway sends it',
    ),
    home: text('home', /^[0-9a-f]{16}$/, 'must be 16 hexadecimal digits'),
    mounts: mountsOf(body.extra_mounts, stateBase),
  };
}

function mountsOf(value: unknown, stateBase: string | null): readonly PodMount[] {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value)) throw refuse('extra_mounts', 'must be a list');
  if (value.length > MAX_MOUNTS) throw refuse('extra_mounts', `at most ${MAX_MOUNTS} are allowed`);
  const seen = new Set<string>();
  return value.map((entry: unknown, index) => {
    const field = `extra_mounts[${index}]`;
    const place = at(entry, 'container_path');
    const path = at(entry, 'host_path');
    const grammar = typeof place === 'string' ? PLACES.get(place) : undefined;
    if (typeof place !== 'string' || grammar === undefined)
      throw refuse(`${field}.container_path`, `must be one of ${[...PLACES.keys()].join(', ')}`);
    if (seen.has(place)) throw refuse(`${field}.container_path`, 'is there twice');
    seen.add(place);
    if (stateBase === null)
      throw refuse(
        field,
        'this provisioner mounts no folders: set REINDEER_HOST_BASE_DIR, or sandbox.thread_data_mounts: false',
      );
    if (typeof path !== 'string' || path.length > MAX_PATH || !path.startsWith(`${stateBase}/`))
      throw refuse(`${field}.host_path`, 'must lie in the data folder of the deployment');
    const folder = path.slice(stateBase.length + 1);
    if (folder.split('/').some((part) => part === '' || part === '.' || part === '..') || !grammar.test(folder))
      throw refuse(`${field}.host_path`, `is no folder that may be mounted at ${place}`);
    return { folder, place, readOnly: at(entry, 'read_only') !== false };
  });
}
