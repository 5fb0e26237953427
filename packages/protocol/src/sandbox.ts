/** Isolated execution for one (user, thread), with a fixed virtual file system. */

/** The roots a model sees. Nothing outside them exists for file tools. */
export const VIRTUAL_ROOT = '/mnt/user-data';
export const VIRTUAL_FOLDERS = ['workspace', 'uploads', 'outputs'] as const;
/** Where the skills that are switched on lie, read-only, in every sandbox. */
export const SKILLS_ROOT = '/mnt/skills';
export type VirtualFolder = (typeof VIRTUAL_FOLDERS)[number];

export interface ExecRequest {
  readonly command: string;
  /** Virtual folder to start in; default the workspace. */
  readonly cwd?: string;
  /** Added to the clean environment; names must be POSIX identifiers. */
  readonly env?: Readonly<Record<string, string>>;
  /** Milliseconds until the whole process group is killed; the provider's bound applies as well. */
  readonly timeoutMs: number;
  /** Ends the process group; the result is still returned (`ended: 'aborted'`) once it is gone. */
  readonly signal?: AbortSignal;
  /** Called with decoded chunks while the command runs (stdout and stderr interleaved). Never awaited. */
  readonly onOutput?: (text: string) => void;
}

export interface ExecResult {
  /** stdout and stderr interleaved, decoded leniently; at most the provider's cap, with a notice where bytes were dropped. */
  readonly output: string;
  /** null when a signal ended it. */
  readonly exitCode: number | null;
  readonly ended: 'exit' | 'timeout' | 'aborted' | 'limit';
  /** Which limit ended it: `memory`, `processes`, `disk`, `output`, … */
  readonly limit?: string;
  readonly truncatedBytes: number;
  readonly durationMs: number;
}

export interface FileInfo {
  /** Virtual path. */
  readonly path: string;
  readonly kind: 'file' | 'directory' | 'link' | 'special';
  readonly size: number;
  readonly modifiedAt: number;
}

/**
 * Files of one thread by virtual path. Every path is parsed once and opened component by component without following links;
 * FIFOs, devices, sockets and files with several hard links are refused (`path_refused`) and never block. Errors carry virtual paths only.
 */
export interface SandboxFiles {
  stat(path: string): Promise<FileInfo | null>;
  /** Whole file, at most `maxBytes` (`too_large` beyond). */
  read(path: string, options: { readonly maxBytes: number }): Promise<Uint8Array>;
  /** Creates parents; replaces atomically unless `append`. `read-only` roots refuse with `forbidden`. */
  write(path: string, data: Uint8Array | string, options?: { readonly append?: boolean }): Promise<FileInfo>;
  remove(path: string): Promise<boolean>;
  /** Breadth-first, at most `depth` levels and `limit` entries. A missing directory is `not_found`. */
  list(
    path: string,
    options: { readonly depth: number; readonly limit: number; readonly ignore?: readonly string[] },
  ): Promise<{ readonly entries: readonly FileInfo[]; readonly truncated: boolean }>;
  glob(
    pattern: string,
    path: string,
    options: { readonly includeDirectories: boolean; readonly limit: number; readonly signal?: AbortSignal },
  ): Promise<{ readonly paths: readonly string[]; readonly truncated: boolean }>;
  /** Regular expressions run in a worker under a time limit, so that none can block the loop. */
  grep(
    pattern: string,
    path: string,
    options: {
      readonly glob?: string;
      readonly literal: boolean;
      readonly caseSensitive: boolean;
      readonly limit: number;
      readonly signal?: AbortSignal;
    },
  ): Promise<{
    readonly matches: readonly { readonly path: string; readonly line: number; readonly text: string }[];
    readonly truncated: boolean;
    readonly filesSkipped: number;
  }>;
  /** Byte range for downloads; `end` exclusive. The caller must consume or destroy the stream. */
  openRead(
    path: string,
    range?: { readonly start: number; readonly end: number },
  ): Promise<{ readonly info: FileInfo; readonly stream: ReadableStream<Uint8Array> }>;
  /** Streams into a staging file and renames it into place; nothing is left when the source fails or `maxBytes` is passed (`too_large`). */
  writeStream(
    path: string,
    source: AsyncIterable<Uint8Array>,
    options: { readonly maxBytes: number; readonly overwrite: boolean },
  ): Promise<FileInfo>;
}

export interface Sandbox {
  readonly id: string;
  /** Can commands run? False when only file tools are available. */
  readonly canExecute: boolean;
  /** How the model should speak of paths: real `/mnt/user-data/...` inside commands, or relative ones (`local`). */
  readonly pathStyle: 'virtual' | 'relative';
  readonly files: SandboxFiles;
  exec(request: ExecRequest): Promise<ExecResult>;
}

/** What is enforced on this machine; never claims more than was tested (D8). */
export interface IsolationReport {
  readonly provider: 'bubblewrap' | 'local' | 'files-only' | string;
  readonly canExecute: boolean;
  /** Why commands cannot run, and the one command that changes it. */
  readonly reason?: string;
  readonly remedy?: string;
  /** `bridge`: the internet, but not the loopback of the host. */
  readonly network: 'none' | 'bridge' | 'host';
  readonly limits: readonly {
    readonly name: string;
    readonly enforcedBy: string | null;
    readonly value: string;
    readonly note?: string;
  }[];
}

/**
 * Should agents be offered commands? Where they can run, and where they could as soon as the engine of containers, or the provisioner, answers: it may be away
 * at the start, and a command that meets it away is told so.
 */
export function offersCommands(report: Pick<IsolationReport, 'provider' | 'canExecute'>): boolean {
  return report.canExecute || report.provider === 'container' || report.provider === 'remote';
}

export interface SandboxProvider {
  report(): IsolationReport;
  /** Same (user, thread) → same sandbox. Aborting the wait leaves nothing behind. */
  acquire(input: {
    readonly userId: string;
    readonly threadId: string;
    readonly signal?: AbortSignal;
  }): Promise<Sandbox>;
  /** Synchronous map look-up, no I/O (SB-24). */
  get(sandboxId: string): Sandbox | undefined;
  /** The turn is over; must not throw because of a store. */
  release(sandboxId: string): Promise<void>;
  /** Files of a thread without acquiring a sandbox: uploads, artifacts. */
  files(input: { readonly userId: string; readonly threadId: string }): SandboxFiles;
  /** Removes all files of a thread. */
  removeThread(input: { readonly userId: string; readonly threadId: string }): Promise<void>;
  /** Kills what runs, waits for its end (bounded), closes. Idempotent. */
  shutdown(): Promise<void>;
}
