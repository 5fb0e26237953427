import { type MirrorEntry, type MirrorListing, WRITABLE } from './entry.ts';

/** An entry that both sides had alike, with the stamp of each; '' = on that side there should be none. */
export interface Pair {
  readonly local: string;
  readonly remote: string;
}
export type Base = ReadonlyMap<string, Pair>;

export interface PushPlan {
  /** Folders before what is in them. */
  readonly put: readonly MirrorEntry[];
  /** What is in a folder before the folder. */
  readonly remove: readonly string[];
}

export interface PullPlan {
  readonly get: readonly MirrorEntry[];
  readonly remove: readonly string[];
  /** Changed on both sides: the local one stays and is brought over before the next command. */
  readonly conflicts: readonly string[];
  /** What the sandbox changed where it may not: the pair, as it is to be for the next push to put it right; null = no pair. */
  readonly spoilt: ReadonlyMap<string, Pair | null>;
}

const ascending = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);
const folderOf = (path: string) => path.slice(0, path.indexOf('/'));

/** What both sides have alike when nothing is known of the past: what could not be told apart by size, time and mode. The rest of the sandbox's is to go. */
export function firstBase(local: MirrorListing, remote: MirrorListing): Map<string, Pair> {
  const base = new Map<string, Pair>();
  for (const [path, theirs] of remote.entries) {
    const ours = local.entries.get(path);
    const alike =
      ours !== undefined &&
      ours.kind === theirs.kind &&
      ours.size === theirs.size &&
      ours.target === theirs.target &&
      ours.modifiedAt === theirs.modifiedAt &&
      ours.mode === theirs.mode;
    base.set(path, { local: alike ? ours.stamp : '', remote: theirs.stamp });
  }
  return base;
}

/** What a sandbox lacks of the local folders, before a command. */
export function planPush(base: Base, local: MirrorListing): PushPlan {
  const put = [...local.entries.values()].filter(({ path, stamp }) => base.get(path)?.local !== stamp);
  const remove = local.complete
    ? [...base.keys()].filter((path) => !local.entries.has(path) && !local.leftOut.has(path))
    : [];
  return {
    put: put.sort((a, b) => ascending(a.path, b.path)),
    remove: remove.sort((a, b) => ascending(b, a)),
  };
}

/** What a command changed, after it. Nothing that was changed locally meanwhile is overwritten or removed. */
export function planPull(base: Base, remote: MirrorListing, local: MirrorListing): PullPlan {
  const get: MirrorEntry[] = [];
  const remove: string[] = [];
  const conflicts: string[] = [];
  const spoilt = new Map<string, Pair | null>();
  const changedHere = (path: string) =>
    local.leftOut.has(path) || (local.entries.get(path)?.stamp ?? '') !== (base.get(path)?.local ?? '');
  for (const [path, theirs] of remote.entries) {
    if (theirs.stamp === base.get(path)?.remote) continue;
    if (!WRITABLE.includes(folderOf(path))) {
      spoilt.set(path, { local: '', remote: theirs.stamp });
      continue;
    }
    const ours = local.entries.get(path);
    // Two sides may well make the same folder.
    if (ours?.kind === 'directory' && theirs.kind === 'directory')
      spoilt.set(path, { local: ours.stamp, remote: theirs.stamp });
    else if (changedHere(path)) conflicts.push(path);
    else get.push(theirs);
  }
  if (remote.complete)
    for (const [path, pair] of base) {
      if (pair.remote === '' || remote.entries.has(path) || remote.leftOut.has(path)) continue;
      // Gone there: the next push brings back what may not be changed, or was changed here.
      if (!WRITABLE.includes(folderOf(path)) || changedHere(path)) spoilt.set(path, null);
      else remove.push(path);
    }
  return {
    get: get.sort((a, b) => ascending(a.path, b.path)),
    remove: remove.sort((a, b) => ascending(b, a)),
    conflicts: conflicts.sort(ascending),
    spoilt,
  };
}
