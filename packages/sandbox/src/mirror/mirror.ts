import { ReindeerError, VIRTUAL_ROOT } from '@reindeer/protocol';
import { KeyedLock } from '../keyed-lock.ts';
import { mirrorFrames } from '../server/mirror-routes.ts';
import type { MirrorClient } from './client.ts';
import { type MirrorEntry, type MirrorListing, WRITABLE } from './entry.ts';
import { headerFrame, VoidContent } from './frames.ts';
import { firstBase, type Pair, type PullPlan, planPull, planPush } from './plan.ts';
import type { Tree } from './tree.ts';

/** Entries of one request. */
const BATCH = 2_000;
/** The stamp of what may have been written. */
const UNKNOWN = '?';
/** Names in a notice. */
const MAX_NAMED = 5;

/**
 * Keeps the copy that a sandbox has of a thread's folders like them, where it does not share them. The local folders are the record: what
 * a sandbox lacks of them is brought *before* each command, and what a command changed is fetched *after* it, which is all that can
 * change, since a command ends with everything that it has started. A sandbox that is lost takes nothing along but what its last command did.
 *
 * `base` is what both sides had alike, by stamps of each: so each side's changes are told apart, and a listing that is not complete removes
 * nothing. It is a cache: without it (another instance, a restart) the local folders win.
 */
export class FolderMirror {
  readonly #tree: Tree;
  readonly #maxBytes: number;
  /** A transfer at a time, whoever runs commands. */
  readonly #turn = new KeyedLock();
  #base: Map<string, Pair> | null = null;

  /** @param maxBytes the thread's disk space: a sandbox cannot make it pass that */
  constructor(tree: Tree, maxBytes: number) {
    this.#tree = tree;
    this.#maxBytes = maxBytes;
  }

  /** Brings what the sandbox lacks. Rejects when it could not all be brought: then no command may run on it. */
  bring(client: MirrorClient, signal?: AbortSignal): Promise<void> {
    return this.#turn.run('', () => this.#bring(client, signal), signal);
  }

  /** Fetches what commands changed. Rejects when it could not; a later call fetches it all the same, as long as the sandbox lives. */
  fetch(client: MirrorClient): Promise<{ readonly notices: readonly string[] }> {
    return this.#turn.run('', () => this.#fetch(client));
  }

  async #bring(client: MirrorClient, signal: AbortSignal | undefined): Promise<void> {
    const local = await this.#tree.list();
    const base = this.#base ?? firstBase(local, await client.list(signal));
    this.#base = base;
    const { put, remove } = planPush(base, local);
    if (put.length === 0 && remove.length === 0) return;
    // Removals go first, in one request: what is made later may stand in the same place.
    for (let from = 0; from < remove.length || from < put.length; from += BATCH) {
      const gone = remove.slice(from, from + BATCH);
      if (gone.length === 0) break;
      await client.write(removals(gone), 0, signal);
      for (const path of gone) base.delete(path);
    }
    for (let from = 0; from < put.length; from += BATCH) {
      const batch = put.slice(from, from + BATCH);
      const sent = new Map<string, string>();
      const paths = batch.map(({ path }) => path);
      // Until it is known to be there, it is not.
      for (const path of paths) base.set(path, { local: '', remote: UNKNOWN });
      const frames = mirrorFrames(this.#tree, paths, (path, stamp) => sent.set(path, stamp));
      const written = await client.write(frames, sizeOf(batch), signal);
      for (const [path, remote] of written) {
        const stamp = sent.get(path);
        if (stamp !== undefined && remote !== null) base.set(path, { local: stamp, remote });
      }
    }
  }

  async #fetch(client: MirrorClient): Promise<{ readonly notices: readonly string[] }> {
    const remote = await client.list();
    const local = await this.#tree.list();
    const base = this.#base ?? firstBase(local, remote);
    this.#base = base;
    const plan = planPull(base, remote, local);
    for (const [path, pair] of plan.spoilt) {
      if (pair === null) base.delete(path);
      else base.set(path, pair);
    }
    this.#checkSpace(local, plan);
    for (const path of plan.remove) {
      await this.#tree.remove(path);
      base.delete(path);
    }
    const blocked: string[] = [];
    const conflicts = [...plan.conflicts];
    for (let from = 0; from < plan.get.length; from += BATCH) {
      await client.read(plan.get.slice(from, from + BATCH), async (entry, content) => {
        // A file tool may have been faster since the listing.
        const changed = (await this.#tree.stampOf(entry.path)) !== (local.entries.get(entry.path)?.stamp ?? '');
        if (changed) conflicts.push(entry.path);
        else if (!(await this.#take(base, entry, content))) blocked.push(entry.path);
      });
    }
    return { notices: noticesOf(remote, conflicts, blocked) };
  }

  async #take(base: Map<string, Pair>, entry: MirrorEntry, content: AsyncIterable<Buffer>): Promise<boolean> {
    try {
      const made = await this.#tree.put(entry, content);
      if (made === null) return false;
      base.set(entry.path, { local: made.stamp, remote: entry.stamp });
      return true;
    } catch (error) {
      // It changed while it was read; whoever changes it has not ended, and it is fetched after that.
      if (error instanceof VoidContent) return true;
      throw error;
    }
  }

  /** What the thread would have once everything is fetched. What it has already is carried, however much that is. */
  #checkSpace(local: MirrorListing, { get, remove }: PullPlan): void {
    if (get.length === 0) return;
    const replaced = new Set([...remove, ...get.map(({ path }) => path)]);
    const kept = [...local.entries.values()].filter(({ path }) => !path.startsWith('skills/') && !replaced.has(path));
    const bytes = sizeOf(kept) + sizeOf(get);
    if (bytes <= this.#maxBytes) return;
    throw new ReindeerError(
      'too_large',
      `the thread would have ${bytes} bytes of files, and may have ${this.#maxBytes}; remove some in the sandbox`,
    );
  }
}

async function* removals(paths: readonly string[]): AsyncGenerator<Buffer> {
  for (const path of paths) yield headerFrame({ remove: path });
}

function sizeOf(entries: readonly MirrorEntry[]): number {
  return entries.reduce((sum, { size }) => sum + size, 0);
}

function noticesOf(remote: MirrorListing, conflicts: readonly string[], blocked: readonly string[]): readonly string[] {
  const named = (paths: readonly string[]) =>
    `${paths
      .slice(0, MAX_NAMED)
      .map((path) => `${VIRTUAL_ROOT}/${path}`.slice(0, 200))
      .join(', ')}${paths.length > MAX_NAMED ? ` and ${paths.length - MAX_NAMED} more` : ''}`;
  const leftOut = [...remote.leftOut].filter((path) => WRITABLE.some((folder) => path.startsWith(`${folder}/`)));
  return [
    ...(conflicts.length === 0
      ? []
      : [`changed by a file tool while the command ran, and kept as the tool left it: ${named(conflicts)}`]),
    ...(blocked.length === 0 ? [] : [`not read back, because something else is in its place: ${named(blocked)}`]),
    ...(leftOut.length === 0
      ? []
      : [`only in the sandbox, because it is special, has an odd name or more than 100 MB: ${named(leftOut)}`]),
    ...(remote.complete
      ? []
      : [
          'not everything could be looked at, because there is too much, or a folder is closed or missing; that is only in the sandbox',
        ]),
  ];
}
