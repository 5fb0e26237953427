import type { ExecRequest, ExecResult, IsolationReport } from '@reindeer/protocol';
import type { ThreadPaths } from './folders.ts';
import type { SandboxSettings } from './settings.ts';

/** How commands run on this machine; the provider does the rest: folders, bounds, shutdown. */
export interface Executor {
  readonly report: IsolationReport;
  readonly pathStyle: 'virtual' | 'relative';
  /** Makes the thread's folders as this executor needs them. Idempotent. */
  prepare(paths: ThreadPaths, key: ThreadKey): Promise<void>;
  /** Runs one checked request to its end, under the limits that its sandbox was acquired with; null when no commands can run here. */
  readonly execute:
    | ((paths: ThreadPaths, key: ThreadKey, request: CheckedRequest, limits: SandboxSettings) => Promise<ExecResult>)
    | null;
  /** Releases what the executor itself holds; every command is over. */
  close(): Promise<void>;
}

export interface ThreadKey {
  readonly userId: string;
  readonly threadId: string;
}

export interface CheckedRequest extends Omit<ExecRequest, 'cwd' | 'env' | 'signal'> {
  /** Virtual path of an existing folder, with its mapping's real folder and the names below it. */
  readonly cwd: { readonly virtual: string; readonly real: string };
  readonly env: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}
