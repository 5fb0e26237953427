import { ReindeerError, VIRTUAL_ROOT } from '@reindeer/protocol';
import { systemCode, toFileError } from '../files/file-errors.ts';
import { KeyedLock } from '../keyed-lock.ts';
import { mirrorFrames, Taking } from '../server/mirror-routes.ts';
import type { FolderBatch } from './batch.ts';
import type { MirrorClient } from './client.ts';
import { MAX_MIRRORED_ENTRIES, type MirrorEntry, type MirrorListing, WRITABLE } from './entry.ts';
import { headerFrame, VoidContent } from './frames.ts';
import { firstBase, type Pair, type PullPlan, planPull, planPush } from './plan.ts';
import type { Tree } from './tree.ts';

/** Entries of one request. */
const BATCH = 2_000;
/** The stamp of what may have been written. */
const UNKNOWN = '?';
/** What no connection fails with. */
const OF_THE_DISK = ['ENOSPC', 'EDQUOT', 'EROFS', 'EIO'];
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
  readonly #maxEntries: number;
  /** A transfer at a time, whoever runs commands. */
  readonly #turn = new KeyedLock();
  #base: Map<string, Pair> | null = null;

  /** @param maxBytes the thread's disk space: a sandbox cannot make it pass that, nor this number of entries, whatever it says */
  constructor(tree: Tree, maxBytes: number, maxEntries = MAX_MIRRORED_ENTRIES) {
    this.#tree = tree;
    this.#maxBytes = maxBytes;
    this.#maxEntries = maxEntries;
  }

  /**
   * Brings what the sandbox lacks. Rejects when it could not be brought: then no command may run on it. What can never be brought, and
   * what something in the sandbox is in the way of, is told: a command is what could clear the way.
   */
  bring(client: MirrorClient, signal?: AbortSignal): Promise<{ readonly notices: readonly string[] }> {
    return this.#turn.run('', () => this.#bring(client, signal), signal);
  }

  /** Fetches what commands changed. Rejects when it could not; a later call fetches it all the same, as long as the sandbox lives. */
  fetch(client: MirrorClient): Promise<{ readonly notices: readonly string[] }> {
    return this.#turn.run('', () => this.#fetch(client));
  }

  async #bring(
    client: MirrorClient,
    signal: AbortSignal | undefined,
  ): Promise<{ readonly notices: readonly string[] }> {
    const local = await this.#tree.list();
    const base = this.#base ?? firstBase(local, await client.list(signal));
    this.#base = base;
    const { put, remove } = planPush(base, local);
    const blocked: string[] = [];
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
        if (stamp === undefined) continue;
        if (remote === null) blocked.push(path);
        else base.set(path, { local: stamp, remote });
      }
    }
    return { notices: broughtNotices(local, blocked) };
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
    let left = this.#space(local, plan);
    const counted = async function* (content: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
      for await (const piece of content) {
        left -= piece.length;
        if (left < 0) throw tooLarge('the sandbox sends more bytes of files than it said');
        yield piece;
      }
    };
    for (const path of plan.remove) {
      await this.#tree.remove(path);
      base.delete(path);
    }
    const blocked: string[] = [];
    const conflicts = [...plan.conflicts];
    for (let from = 0; from < plan.get.length; from += BATCH) {
      const taking = new Taking();
      try {
        await client.read(plan.get.slice(from, from + BATCH), (entry, content) =>
          taking.take(entry, counted(content), async (given) => {
            // A file tool may have been faster since the listing.
            const now = await this.#tree.stampOf(entry.path, taking.batch);
            if (now !== (local.entries.get(entry.path)?.stamp ?? '')) conflicts.push(entry.path);
            else if (!(await this.#take(base, entry, given, taking.batch))) blocked.push(entry.path);
          }),
        );
        await taking.end();
      } finally {
        await taking.close();
      }
    }
    return { notices: noticesOf(remote, conflicts, blocked) };
  }

  async #take(
    base: Map<string, Pair>,
    entry: MirrorEntry,
    content: AsyncIterable<Buffer>,
    batch: FolderBatch,
  ): Promise<boolean> {
    try {
      const made = await this.#tree.put(entry, content, batch);
      if (made === null) return false;
      base.set(entry.path, { local: made.stamp, remote: entry.stamp });
      return true;
    } catch (error) {
      // It changed while it was read; whoever changes it has not ended, and it is fetched after that.
      if (error instanceof VoidContent) return true;
      if (OF_THE_DISK.includes(systemCode(error) ?? '')) throw toFileError(error, `${VIRTUAL_ROOT}/${entry.path}`);
      throw error;
    }
  }

  /**
   * The bytes that may come now. What the thread has already is carried, however much that is.
   *
   * @throws ReindeerError `too_large` when the thread would have more than it may once everything is fetched
   */
  #space(local: MirrorListing, { get, remove }: PullPlan): number {
    const replaced = new Set([...remove, ...get.map(({ path }) => path)]);
    const kept = [...local.entries.values()].filter(({ path }) => !path.startsWith('skills/') && !replaced.has(path));
    const left = this.#maxBytes - sizeOf(kept);
    if (get.length === 0) return left;
    const entries = kept.length + get.length;
    if (entries > this.#maxEntries)
      throw tooLarge(`the thread would have ${entries} files and folders, and may have ${this.#maxEntries}`);
    if (sizeOf(get) > left)
      throw tooLarge(
        `the thread would have ${sizeOf(kept) + sizeOf(get)} bytes of files, and may have ${this.#maxBytes}`,
      );
    return left;
  }
}

function tooLarge(why: string): ReindeerError {
  return new ReindeerError('too_large', `${why}; remove some in the sandbox`);
}

async function* removals(paths: readonly string[]): AsyncGenerator<Buffer> {
  for (const path of paths) yield headerFrame({ remove: path });
}

function sizeOf(entries: readonly MirrorEntry[]): number {
  return entries.reduce((sum, { size }) => sum + size, 0);
}

function named(paths: readonly string[]): string {
  const shown = paths.slice(0, MAX_NAMED).map((path) => `${VIRTUAL_ROOT}/${path}`.slice(0, 200).toWellFormed());
  return `${shown.join(', ')}${paths.length > MAX_NAMED ? ` and ${paths.length - MAX_NAMED} more` : ''}`;
}

/** A text for each list that is not empty. */
function told(...lists: readonly (readonly [string, readonly string[]])[]): readonly string[] {
  return lists.flatMap(([text, paths]) => (paths.length === 0 ? [] : [`${text}: ${named(paths)}`]));
}

function broughtNotices(local: MirrorListing, blocked: readonly string[]): readonly string[] {
  return [
    ...told(
      [
        'not in the sandbox, because it is special, has several or an odd name, or more than 100 MB',
        [...local.leftOut],
      ],
      ['not brought to the sandbox, because something else is in its place there, or it could not be read', blocked],
    ),
    ...(local.complete
      ? []
      : ['not everything was brought to the sandbox, because there is too much, or a folder is missing']),
  ];
}

function noticesOf(remote: MirrorListing, conflicts: readonly string[], blocked: readonly string[]): readonly string[] {
  const leftOut = [...remote.leftOut].filter((path) => WRITABLE.some((folder) => path.startsWith(`${folder}/`)));
  return [
    ...told(
      ['changed by a file tool while the command ran, and kept as the tool left it', conflicts],
      ['not read back, because something else is in its place', blocked],
      ['only in the sandbox, because it is special, has an odd or too long name, or more than 100 MB', leftOut],
    ),
    ...(remote.complete
      ? []
      : [
          'not everything could be looked at, because there is too much, or a folder is closed or missing; that is only in the sandbox',
        ]),
  ];
}
