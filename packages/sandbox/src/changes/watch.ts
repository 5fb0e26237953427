import { hash } from 'node:crypto';
import {
  type FileChange,
  type FileInfo,
  type Json,
  type Logger,
  ReindeerError,
  type SandboxFiles,
  type SandboxProvider,
  VIRTUAL_ROOT,
  type WorkspaceChanges,
  type WorkspaceWatch,
} from '@reindeer/protocol';
import { EXCLUDED_FOLDERS, isSensitive, textOf } from './classify.ts';
import { type Kept, KeptTexts } from './kept-texts.ts';
import { patchOf } from './patch.ts';

export interface WorkspaceLimits {
  /** Files that are looked at. */
  readonly scanned: number;
  /** Changes that are reported. */
  readonly reported: number;
  /** Bytes of a text whose content is compared. */
  readonly textBytes: number;
  /** Characters of all differences of a run. */
  readonly diffCharacters: number;
}

export const WORKSPACE_LIMITS: WorkspaceLimits = {
  scanned: 2_000,
  reported: 200,
  textBytes: 256 * 1024,
  diffCharacters: 1024 * 1024,
};

const ROOTS = ['workspace', 'outputs'] as const;
const DEPTH = 12;
/** Bytes of contents that one look may read, and that are kept of all threads. */
const READ_BYTES = 8 * 1024 * 1024;
const KEPT_BYTES = 32 * 1024 * 1024;
/** Kinds, as they stand in a snapshot. */
const FILE = 0;
const LINK = 1;

interface Seen {
  readonly path: string;
  readonly size: number;
  readonly modifiedAt: number;
  readonly kind: number;
}
interface Look {
  readonly files: ReadonlyMap<string, Seen>;
  readonly truncated: boolean;
}
interface Budget {
  /** Characters that differences may still have. */
  left: number;
  readonly hide: (text: string) => string;
}
type Thread = { readonly userId: string; readonly threadId: string };

/**
 * Tells what a run changed in workspace and outputs (FILE-4), through the safe files of the provider: no link is followed, and no special
 * file is opened. A snapshot holds names, sizes and times; contents of small texts are kept in memory, which is only a cache.
 */
export class WorkspaceChangeWatch implements WorkspaceWatch {
  readonly #files: SandboxProvider['files'];
  readonly #logger: Logger;
  readonly #limits: WorkspaceLimits;
  readonly #hide: (thread: Thread) => Promise<(text: string) => string>;
  readonly #kept = new KeptTexts(KEPT_BYTES);

  constructor(parts: {
    readonly files: SandboxProvider['files'];
    readonly logger: Logger;
    readonly limits?: Partial<WorkspaceLimits>;
    /** Answers what takes secrets out of a difference before it is stored: a command may have written one into a file. */
    readonly hide?: (thread: Thread) => Promise<(text: string) => string>;
  }) {
    this.#files = parts.files;
    this.#logger = parts.logger;
    this.#hide = parts.hide ?? (async () => (text) => text);
    this.#limits = { ...WORKSPACE_LIMITS, ...parts.limits };
  }

  async snapshot(thread: Thread): Promise<Json> {
    const files = this.#files(thread);
    const look = await this.#look(files);
    await this.#contents(files, thread, look);
    return {
      version: 1,
      truncated: look.truncated,
      files: [...look.files.values()].map(({ path, size, modifiedAt, kind }) => [path, size, modifiedAt, kind]),
    };
  }

  async changes(thread: Thread, snapshot: Json): Promise<WorkspaceChanges> {
    const before = lookOf(snapshot);
    const files = this.#files(thread);
    const after = await this.#look(files);
    const old = (seen: Seen): Kept | null => this.#kept.get(nameOf(thread), seen.path, seen.size, seen.modifiedAt);
    // The old contents are taken out before the new ones replace them.
    const keptBefore = new Map([...before.files.values()].map((seen) => [seen.path, old(seen)]));
    const contents = await this.#contents(files, thread, after);
    const changed: FileChange[] = [];
    const budget = { left: this.#limits.diffCharacters, hide: await this.#hide(thread) };
    const total = { created: 0, modified: 0, deleted: 0, symlink_created: 0, additions: 0, deletions: 0 };
    let truncated = after.truncated || before.truncated;
    const report = async (was: Seen | null, is: Seen | null): Promise<void> => {
      const first = was === null ? null : (keptBefore.get(was.path) ?? null);
      const second = is === null ? null : (contents.get(is.path) ?? null);
      // Written anew with what it held before is no change.
      if (first !== null && second !== null && first.sha256 === second.sha256) return;
      if (changed.length >= this.#limits.reported) {
        truncated = true;
        return;
      }
      const change = await this.#change(was, is, first, second, budget);
      total[change.status] += 1;
      total.additions += change.additions;
      total.deletions += change.deletions;
      changed.push(change);
    };
    // What can be delivered first, so that the bound never hides it behind the workspace.
    const order = (a: Seen, b: Seen) => rank(a.path) - rank(b.path) || (a.path < b.path ? -1 : 1);
    for (const is of [...after.files.values()].sort(order)) {
      const was = before.files.get(is.path) ?? null;
      if (was !== null && was.kind === is.kind && was.size === is.size && was.modifiedAt === is.modifiedAt) continue;
      // Where not everything was seen before, what is new to us may be old.
      if (was === null && before.truncated && is.modifiedAt < newest(before)) continue;
      await report(was, is);
    }
    // What a bounded look did not reach is not deleted.
    if (!after.truncated)
      for (const was of [...before.files.values()].sort(order)) if (!after.files.has(was.path)) await report(was, null);
    return { version: 1, summary: { ...total, truncated }, files: changed };
  }

  async #look(files: SandboxFiles): Promise<Look> {
    const found = new Map<string, Seen>();
    let truncated = false;
    // Outputs first: they are few, and what is delivered lies there.
    for (const root of [...ROOTS].reverse()) {
      const left = this.#limits.scanned - found.size;
      if (left <= 0) return { files: found, truncated: true };
      const listed = await listOf(files, `${VIRTUAL_ROOT}/${root}`, left);
      truncated ||= listed.truncated;
      for (const { path, kind, size, modifiedAt } of listed.entries) {
        if (kind === 'file') found.set(path, { path, size, modifiedAt, kind: FILE });
        else if (kind === 'link') found.set(path, { path, size: 0, modifiedAt, kind: LINK });
      }
    }
    return { files: found, truncated };
  }

  /** Contents of the small texts of a look: kept ones, and the others read within the bound. */
  async #contents(files: SandboxFiles, thread: Thread, look: Look): Promise<Map<string, Kept>> {
    const name = nameOf(thread);
    const contents = new Map<string, Kept>();
    let left = READ_BYTES;
    for (const { path, size, modifiedAt, kind } of look.files.values()) {
      if (kind !== FILE || size > this.#limits.textBytes || isSensitive(path)) continue;
      const known = this.#kept.get(name, path, size, modifiedAt);
      if (known !== null) contents.set(path, known);
      else if (size <= left) {
        left -= size;
        const read = await this.#read(files, path, modifiedAt);
        if (read !== null) contents.set(path, read);
      }
    }
    this.#kept.set(name, contents);
    return contents;
  }

  async #read(files: SandboxFiles, path: string, modifiedAt: number): Promise<Kept | null> {
    try {
      const bytes = await files.read(path, { maxBytes: this.#limits.textBytes });
      return { size: bytes.byteLength, modifiedAt, text: textOf(bytes), sha256: hash('sha256', bytes, 'hex') };
    } catch (error) {
      // Gone, replaced or refused meanwhile: it is told of without its content.
      this.#logger.debug('a file was not read for the changes of a run', { error: String(error) });
      return null;
    }
  }

  async #change(
    was: Seen | null,
    is: Seen | null,
    before: Kept | null,
    after: Kept | null,
    budget: Budget,
  ): Promise<FileChange> {
    const path = (is ?? was)?.path ?? '';
    const symlink = (is ?? was)?.kind === LINK;
    const sensitive = isSensitive(path);
    const binary = after?.text === null || before?.text === null;
    const status = is === null ? 'deleted' : symlink ? 'symlink_created' : was === null ? 'created' : 'modified';
    const shown = await this.#shown({ was, is, before, after, symlink, sensitive, binary }, budget);
    return {
      path,
      root: path.startsWith(`${VIRTUAL_ROOT}/outputs/`) ? 'outputs' : 'workspace',
      status,
      binary,
      sensitive,
      size_before: was?.size ?? null,
      size_after: is?.size ?? null,
      sha256_before: before?.sha256 ?? null,
      sha256_after: after?.sha256 ?? null,
      symlink,
      ...shown,
    };
  }

  async #shown(
    file: {
      readonly was: Seen | null;
      readonly is: Seen | null;
      readonly before: Kept | null;
      readonly after: Kept | null;
      readonly symlink: boolean;
      readonly sensitive: boolean;
      readonly binary: boolean;
    },
    budget: Budget,
  ): Promise<Pick<FileChange, 'diff' | 'diff_truncated' | 'diff_unavailable_reason' | 'additions' | 'deletions'>> {
    const { was, is, before, after } = file;
    const without = (reason: FileChange['diff_unavailable_reason'], additions = 0, deletions = 0) => ({
      diff: null,
      diff_truncated: reason === 'truncated',
      diff_unavailable_reason: reason,
      additions,
      deletions,
    });
    if (file.symlink) return without('symlink');
    if (file.sensitive) return without('sensitive');
    if (file.binary) return without('binary');
    if ((was?.size ?? 0) > this.#limits.textBytes || (is?.size ?? 0) > this.#limits.textBytes) return without('large');
    if ((was?.kind === FILE && before === null) || (is !== null && after === null)) return without('unavailable');
    const patch = await patchOf(before?.text ?? '', after?.text ?? '');
    if (patch === null) return without('large');
    const { additions, deletions } = patch;
    const text = budget.hide(patch.text);
    if (text.length > budget.left) return without('truncated', additions, deletions);
    budget.left -= text.length;
    return { diff: text, diff_truncated: false, diff_unavailable_reason: null, additions, deletions };
  }
}

const nameOf = ({ userId, threadId }: Thread): string => JSON.stringify([userId, threadId]);
const rank = (path: string): number => (path.startsWith(`${VIRTUAL_ROOT}/outputs/`) ? 0 : 1);
const newest = ({ files }: Look): number => Math.max(0, ...[...files.values()].map(({ modifiedAt }) => modifiedAt));

async function listOf(
  files: SandboxFiles,
  root: string,
  limit: number,
): Promise<{ readonly entries: readonly FileInfo[]; readonly truncated: boolean }> {
  try {
    return await files.list(root, { depth: DEPTH, limit, ignore: EXCLUDED_FOLDERS });
  } catch (error) {
    if (ReindeerError.is(error) && error.code === 'not_found') return { entries: [], truncated: false };
    throw error;
  }
}

/** A snapshot that was read back from the log; what does not look like one of ours counts as nothing seen. */
function lookOf(snapshot: Json): Look {
  const { files, truncated } = (snapshot ?? {}) as { readonly files?: unknown; readonly truncated?: unknown };
  const seen = new Map<string, Seen>();
  for (const entry of Array.isArray(files) ? (files as unknown[]) : []) {
    const [path, size, modifiedAt, kind] = Array.isArray(entry) ? (entry as unknown[]) : [];
    if (typeof path === 'string' && typeof size === 'number' && typeof modifiedAt === 'number')
      seen.set(path, { path, size, modifiedAt, kind: kind === LINK ? LINK : FILE });
  }
  return { files: seen, truncated: truncated === true };
}
