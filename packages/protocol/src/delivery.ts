import type { Json } from './json.ts';

/** What a run did to the files of its thread, and whether the user was shown what it made (FILE-4, RT-02…05). */

export interface FileChange {
  /** Virtual path. */
  readonly path: string;
  readonly root: 'workspace' | 'outputs';
  readonly status: 'created' | 'modified' | 'deleted' | 'symlink_created';
  readonly binary: boolean;
  /** Its name says that it may hold secrets: nothing of its content is told. */
  readonly sensitive: boolean;
  readonly size_before: number | null;
  readonly size_after: number | null;
  /** Hex; null where the content was not read. */
  readonly sha256_before: string | null;
  readonly sha256_after: string | null;
  /** Unified, without a file header. */
  readonly diff: string | null;
  readonly diff_truncated: boolean;
  /** `unavailable`: the content of before was not kept, because the server was restarted since or the thread has too many files. */
  readonly diff_unavailable_reason: 'binary' | 'large' | 'sensitive' | 'truncated' | 'symlink' | 'unavailable' | null;
  readonly additions: number;
  readonly deletions: number;
  readonly symlink: boolean;
}

export interface WorkspaceChanges {
  readonly version: 1;
  readonly summary: {
    readonly created: number;
    readonly modified: number;
    readonly deleted: number;
    readonly symlink_created: number;
    readonly additions: number;
    readonly deletions: number;
    /** More files than are scanned, or more changes than are reported. */
    readonly truncated: boolean;
  };
  readonly files: readonly FileChange[];
}

/**
 * Compares the files of a thread at two times. What `snapshot` answers is kept in the log, so it is small: names, sizes and times. It lies
 * outside of the run's fence and only reads.
 */
export interface WorkspaceWatch {
  snapshot(thread: { readonly userId: string; readonly threadId: string }): Promise<Json>;
  /** `before` is an answer of `snapshot`, perhaps of another process. */
  changes(thread: { readonly userId: string; readonly threadId: string }, before: Json): Promise<WorkspaceChanges>;
}

/** One per run, written with its end and before it. */
export interface DeliveryReceipt {
  /** Files that were presented in this run, and through which tools. */
  readonly presented: number;
  readonly by_tool: Readonly<Record<string, number>>;
  /** Regular files in outputs that the run created or changed; at most 200. */
  readonly produced_paths: readonly string[];
  readonly presented_paths: readonly string[];
  /** Produced files that were presented, themselves or with a folder above them. */
  readonly matched_paths: readonly string[];
  readonly stage: 'not_started' | 'mismatched' | 'presented';
  readonly satisfied: boolean;
  /** `none`: the run touched no file. `failed`: the files could not be compared, so nothing is claimed. */
  readonly verification: 'none' | 'checked' | 'failed';
}

/** The receipt of a run that touched no file; in the log it stands as null. */
export const NO_DELIVERY: DeliveryReceipt = {
  presented: 0,
  by_tool: {},
  produced_paths: [],
  presented_paths: [],
  matched_paths: [],
  stage: 'not_started',
  satisfied: true,
  verification: 'none',
};

/** Works out the receipt from what was produced and what was presented, as virtual paths. */
export function deliveryReceipt(input: {
  readonly produced: readonly string[];
  readonly presented: readonly { readonly tool: string; readonly path: string }[];
  readonly verified: boolean;
}): DeliveryReceipt {
  const { produced, presented, verified } = input;
  const paths = [...new Set(presented.map(({ path }) => withoutSlash(path)))];
  const matched = produced.filter((file) => paths.some((path) => file === path || file.startsWith(`${path}/`)));
  const byTool: Record<string, number> = {};
  for (const { tool } of presented) byTool[tool] = (byTool[tool] ?? 0) + 1;
  return {
    presented: paths.length,
    by_tool: byTool,
    produced_paths: produced,
    presented_paths: paths,
    matched_paths: matched,
    stage:
      matched.length > 0 || (paths.length > 0 && produced.length === 0)
        ? 'presented'
        : paths.length > 0
          ? 'mismatched'
          : 'not_started',
    satisfied: produced.length === 0 || matched.length > 0,
    verification: verified ? 'checked' : 'failed',
  };
}

const withoutSlash = (path: string): string => (path.endsWith('/') ? path.slice(0, -1) : path);
