import { ReindeerError, SKILLS_ROOT, VIRTUAL_FOLDERS, VIRTUAL_ROOT, type VirtualFolder } from '@reindeer/protocol';

/** One virtual folder and the real folder behind it. */
export interface Mapping {
  /** Virtual prefix without a trailing slash: `/mnt/user-data/workspace`. */
  readonly virtual: string;
  /** Real folder, absolute. Never shown to a model or a client. */
  readonly real: string;
  readonly readOnly: boolean;
}

/** A virtual path after parsing: the mapping that owns it and the names below that mapping's folder. */
export interface ParsedPath {
  /** Normal form: absolute, no `.`, no empty part, no trailing slash. */
  readonly path: string;
  /** null for a folder that only holds mappings (`/mnt/user-data` itself). */
  readonly mapping: Mapping | null;
  /** Names below the mapping's folder; empty for the folder itself. */
  readonly parts: readonly string[];
}

const MAX_PATH = 4_096;
const MAX_NAME_BYTES = 255;
const MAX_PARTS = 256;

function refuse(path: string, why: string): ReindeerError {
  return new ReindeerError('path_refused', `${show(path)}: ${why}`, { detail: { path: show(path) } });
}

/** A path that is safe to put in a message: no control characters, bounded. */
export function show(path: string): string {
  let text = '';
  for (const character of path.slice(0, 300)) text += character < ' ' || character === '\u007f' ? '?' : character;
  return path.length > 300 ? `${text}…` : text;
}

/** Are there characters that no file name of ours may hold? */
function hasControl(text: string): boolean {
  for (let index = 0; index < text.length; index += 1) {
    const code = text.charCodeAt(index);
    if (code < 32 || code === 127) return true;
  }
  return false;
}

/**
 * The mapping that owns a normalised path: the longest prefix that ends at a segment boundary (SL-02, SL-03).
 * `/mnt/user-data2` is not below `/mnt/user-data`.
 */
export function findMapping(path: string, mappings: readonly Mapping[]): Mapping | null {
  let best: Mapping | null = null;
  for (const mapping of mappings) {
    const owns = path === mapping.virtual || path.startsWith(`${mapping.virtual}/`);
    if (owns && (best === null || mapping.virtual.length > best.virtual.length)) best = mapping;
  }
  return best;
}

/**
 * Parses a path as a model or a client wrote it. Relative paths start in the workspace; backslashes count as slashes;
 * `.` and empty parts vanish; `..` is resolved by text and must stay below a known folder (SL-01). Nothing is touched on disk.
 * Throws `path_refused` with the virtual path only (SL-05).
 */
export function parseVirtualPath(input: string, mappings: readonly Mapping[]): ParsedPath {
  if (typeof input !== 'string' || input.length === 0) throw refuse(String(input), 'the path is empty');
  if (input.length > MAX_PATH) throw refuse(input, `the path is longer than ${MAX_PATH} characters`);
  if (hasControl(input)) throw refuse(input, 'the path holds a control character');
  const slashed = input.replaceAll('\\', '/');
  const absolute = slashed.startsWith('/') ? slashed : `${VIRTUAL_ROOT}/workspace/${slashed}`;
  const parts: string[] = [];
  for (const part of absolute.split('/')) {
    if (part === '' || part === '.') continue;
    if (part !== '..') parts.push(part);
    else if (parts.pop() === undefined) throw refuse(input, outside(mappings));
  }
  if (parts.length > MAX_PARTS) throw refuse(input, `the path has more than ${MAX_PARTS} parts`);
  for (const part of parts) {
    if (Buffer.byteLength(part) > MAX_NAME_BYTES) throw refuse(input, `a name is longer than ${MAX_NAME_BYTES} bytes`);
  }
  const path = `/${parts.join('/')}`;
  const mapping = findMapping(path, mappings);
  if (mapping === null) {
    const inside = path === VIRTUAL_ROOT || path.startsWith(`${VIRTUAL_ROOT}/`);
    if (inside && mappings.some((candidate) => candidate.virtual.startsWith(`${path}/`))) {
      return { path, mapping, parts: [] };
    }
    throw refuse(input, outside(mappings));
  }
  const below = path.slice(mapping.virtual.length + 1);
  return { path, mapping, parts: below === '' ? [] : below.split('/') };
}

function outside(mappings: readonly Mapping[]): string {
  return `outside the folders of this thread; use a path below ${mappings.map((mapping) => mapping.virtual).join(', ')}`;
}

/** The names directly below a folder that only holds mappings. */
export function mappedChildren(path: string, mappings: readonly Mapping[]): readonly string[] {
  const names = new Set<string>();
  for (const mapping of mappings) {
    if (!mapping.virtual.startsWith(`${path}/`)) continue;
    const name = mapping.virtual.slice(path.length + 1).split('/')[0];
    if (name !== undefined) names.add(name);
  }
  return [...names].sort();
}

/** The three folders of a thread. `readOnly` names those that refuse writes in this view. */
export function threadMappings(userData: string, readOnly: readonly VirtualFolder[]): readonly Mapping[] {
  return VIRTUAL_FOLDERS.map((folder) => ({
    virtual: `${VIRTUAL_ROOT}/${folder}`,
    real: `${userData}/${folder}`,
    readOnly: readOnly.includes(folder),
  }));
}

/** What tools and commands see: the thread's folders, of which uploads are read-only, and the user's skills, read-only. */
export function toolMappings(paths: { readonly userData: string; readonly skills: string }): readonly Mapping[] {
  return [...threadMappings(paths.userData, ['uploads']), { virtual: SKILLS_ROOT, real: paths.skills, readOnly: true }];
}
