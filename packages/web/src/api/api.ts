import type { Dictionary } from '../chat/wire.ts';
import type { Rest } from './rest.ts';

/** What the page asks of the server. The chat's logic knows this port only, so that it can be tried without one. */
export interface Api {
  /** Everything that is no chat: pages read and write through it. */
  readonly rest: Rest;
  searchThreads(limit: number, offset: number): Promise<readonly ThreadEntry[]>;
  /** Chats with a message that has every word. */
  findInChats(text: string, signal: AbortSignal): Promise<FoundInChats>;
  createThread(threadId: string, agent?: string | null): Promise<void>;
  renameThread(threadId: string, title: string): Promise<void>;
  /** Pinned chats stand above the others. */
  pinThread(threadId: string, pinned: boolean): Promise<void>;
  deleteThread(threadId: string): Promise<void>;
  /** null = there is no such thread. */
  state(threadId: string): Promise<ThreadState | null>;
  /** The newest run of a thread, or null. */
  newestRun(threadId: string): Promise<RunEntry | null>;
  run(threadId: string, runId: string): Promise<RunEntry | null>;
  startRun(input: StartRun): AsyncIterable<StreamPart>;
  joinRun(input: JoinRun): AsyncIterable<StreamPart>;
  /** Resolves when the run has stopped, or with what still runs after the server's patience. */
  stopRun(
    threadId: string,
    runId: string,
  ): Promise<{ readonly stopped: boolean; readonly stillRunning: readonly string[] }>;
  models(): Promise<readonly ModelEntry[]>;
  features(): Promise<Features>;
  uploadLimits(threadId: string): Promise<UploadLimits>;
  upload(threadId: string, files: readonly File[], signal: AbortSignal): Promise<UploadResult>;
  /** A file of the thread; `maxBytes` asks for its beginning only. */
  file(threadId: string, path: string, maxBytes: number | null, signal: AbortSignal): Promise<FileContent>;
}

export interface ThreadEntry {
  readonly threadId: string;
  readonly title: string | null;
  readonly status: string;
  readonly updatedAt: string;
  readonly pinned: boolean;
  /** The messenger that it came from; null = it was begun here. */
  readonly messenger: string | null;
}

export interface FoundInChats {
  readonly chats: readonly { readonly threadId: string; readonly title: string | null; readonly snippet: string }[];
  /** false = there are older messages, which were not looked at. */
  readonly complete: boolean;
}

export interface ThreadState {
  readonly values: Dictionary;
  readonly next: readonly string[];
  readonly interrupts: unknown;
}

export interface RunEntry {
  readonly runId: string;
  readonly status: string;
  readonly error: string | null;
  /** The custom agent that it was given; null = the default one. */
  readonly agent?: string | null;
}

export const EFFORTS = ['minimal', 'low', 'medium', 'high'] as const;
export type Effort = (typeof EFFORTS)[number];

/** What the user chose for a run. */
export interface RunOptions {
  /** The agent keeps a plan that the user sees. */
  readonly plan?: boolean;
  /** It may hand work to sub-agents and start batches. */
  readonly helpers?: boolean;
  readonly thinking?: boolean;
  /** How hard a model that can be told so thinks. */
  readonly effort?: Effort;
  /** A custom agent; with `bootstrap` one that is being made. */
  readonly agent?: string;
  readonly bootstrap?: boolean;
}

export interface StartRun extends RunOptions {
  readonly threadId: string;
  /** null = go on from the last checkpoint. */
  readonly input: Dictionary | null;
  /** Answers an interrupt instead of an input. */
  readonly resume?: unknown;
  readonly model: string | null;
  /** Begin anew at an earlier state. */
  readonly checkpoint?: Dictionary;
  readonly metadata?: Dictionary;
  readonly signal: AbortSignal;
  readonly onRun: (runId: string) => void;
}

export interface JoinRun {
  readonly threadId: string;
  readonly runId: string;
  /** The last event that was seen; null = from the run's beginning. */
  readonly lastEventId: string | null;
  readonly signal: AbortSignal;
}

export interface StreamPart {
  readonly id?: string | undefined;
  readonly event: string;
  readonly data: unknown;
}

export interface ModelEntry {
  readonly name: string;
  readonly displayName: string;
  readonly description: string;
  readonly demo: boolean;
  readonly thinks: boolean;
  /** Can it be told how hard to think? */
  readonly effort: boolean;
  readonly sees: boolean;
  /** The provider's name for it. */
  readonly model: string;
}

export interface Features {
  /** May custom agents be managed here? */
  readonly agents: boolean;
  readonly sandbox: SandboxEntry | null;
}

export interface SandboxEntry {
  readonly canExecute: boolean;
  readonly reason: string | null;
  readonly remedy: string | null;
  /** What runs commands, e.g. `bubblewrap`. */
  readonly provider: string;
}

export interface UploadLimits {
  readonly maxFiles: number;
  readonly maxFileSize: number;
  readonly maxTotalSize: number;
}

export interface UploadResult {
  readonly files: readonly { readonly name: string; readonly path: string; readonly size: number }[];
  readonly skipped: readonly string[];
}

export interface FileContent {
  readonly blob: Blob;
  /** Size of the whole file in bytes; null = unknown. */
  readonly size: number | null;
}
