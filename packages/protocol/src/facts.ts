import type { DeliveryReceipt, WorkspaceChanges } from './delivery.ts';
import type { Json } from './json.ts';
import type { RunStatus } from './run.ts';

/**
 * A thread's history: one dense, append-only log of facts (D3). Each fact is written in the transaction of the change that
 * it reports and has a `key` that is unique in its thread, so that a repeat writes nothing. Stream modes are projections.
 */
export interface Fact {
  readonly threadId: string;
  /** 1, 2, 3, … without holes per thread, from the thread's counter row. */
  readonly seq: number;
  readonly runId: string | null;
  /** Wall-clock milliseconds. */
  readonly at: number;
  readonly body: FactBody;
}

/** A message as it goes over the wire and rests in the store: LangChain's dictionary form. */
export type WireMessage = {
  readonly type: string;
  readonly id?: string | null;
  readonly content: Json;
  readonly [key: string]: Json | undefined;
};

/** A message that stands elsewhere in the same store, by content address. Only in facts to append; readers get whole messages. */
export interface MessageRef {
  readonly $m: string;
}

export type FactBody =
  /** A change of a run's status. `terminal` only with the acknowledgement; a superseded row has none before. */
  | {
      readonly kind: 'run';
      readonly status: RunStatus;
      readonly attempt: number;
      readonly terminal: boolean;
      readonly error?: string;
      readonly stopReason?: string;
    }
  /** A message entered a message channel, or one with the same id and another content replaced it. Written by the saver's `put`. */
  | { readonly kind: 'message'; readonly ns: string; readonly message: WireMessage | MessageRef }
  | { readonly kind: 'message-removed'; readonly ns: string; readonly messageId: string }
  | {
      readonly kind: 'tool-started';
      readonly messageId: string;
      readonly index: number;
      readonly toolCallId: string | null;
      readonly name: string;
      readonly attempt: number;
    }
  | {
      readonly kind: 'tool-finished';
      readonly messageId: string;
      readonly index: number;
      readonly toolCallId: string | null;
      readonly name: string;
      readonly outcome: ToolOutcome;
    }
  /** What one task of a step returned: the `updates` mode. Messages stand as `{"$m": hash}` in the store and whole when read. */
  | {
      readonly kind: 'update';
      readonly ns: string;
      readonly node: string;
      readonly taskId: string;
      readonly values: Json;
    }
  /** A checkpoint was written: the `values` and `checkpoints` modes load it. `step` -1 is the input. */
  | {
      readonly kind: 'checkpoint';
      readonly ns: string;
      readonly checkpointId: string;
      readonly parentId: string | null;
      readonly source: string;
      readonly step: number;
    }
  /** The graph stopped to ask: the interrupts of the pending tasks. */
  | { readonly kind: 'interrupt'; readonly ns: string; readonly interrupts: Json }
  /** An event on the `custom` mode. */
  | { readonly kind: 'custom'; readonly ns: string; readonly data: Json }
  /** What the thread's files were when the run first touched them; kept for the comparison at its end, also over a crash (FILE-4). */
  | { readonly kind: 'workspace-before'; readonly snapshot: Json }
  /** What the run did to the thread's files; only where it did something. */
  | { readonly kind: 'workspace-changes'; readonly changes: WorkspaceChanges }
  /** Exactly one per run, right before its terminal fact and in the same transaction (RT-02, RT-03). null: `NO_DELIVERY`. */
  | { readonly kind: 'delivery'; readonly receipt: DeliveryReceipt | null }
  /** A frame of a mode that has no projection of its own (`debug`, `tasks`), only when the run asked for it. */
  | { readonly kind: 'frame'; readonly ns: string; readonly mode: string; readonly data: Json };

export type ToolOutcome = 'ok' | 'error' | 'unknown' | 'refused';

/** A fact to append. `key` must be deterministic for the reported change, e.g. `run:<id>:2:running`. */
export interface NewFact {
  readonly key: string;
  readonly body: FactBody;
}

/** Keys in one place, so that two writers of one fact cannot disagree. */
export const factKey = {
  run: (runId: string, attempt: number, status: RunStatus) => `run:${runId}:${attempt}:${status}`,
  terminal: (runId: string) => `end:${runId}`,
  delivery: (runId: string) => `delivery:${runId}`,
  workspace: (runId: string, when: 'before' | 'changes') => `workspace:${runId}:${when}`,
  /** With the checkpoint by which it entered, a message that comes back after its removal or a rollback is news again. */
  message: (ns: string, messageId: string, hash: string, checkpointId?: string) =>
    `message:${ns}:${messageId}:${hash}${checkpointId === undefined ? '' : `:${checkpointId}`}`,
  messageRemoved: (ns: string, messageId: string, checkpointId: string) => `removed:${ns}:${messageId}:${checkpointId}`,
  toolStarted: (messageId: string, index: number, runId: string, attempt: number) =>
    `tool:${messageId}:${index}:${runId}:${attempt}:started`,
  toolFinished: (messageId: string, index: number) => `tool:${messageId}:${index}:finished`,
  update: (checkpointId: string, taskId: string) => `update:${checkpointId}:${taskId}`,
  checkpoint: (ns: string, checkpointId: string) => `checkpoint:${ns}:${checkpointId}`,
  interrupt: (ns: string, checkpointId: string, taskId: string) => `interrupt:${ns}:${checkpointId}:${taskId}`,
  custom: (runId: string, token: string, n: number) => `custom:${runId}:${token}:${n}`,
} as const;

/** What a thread's log answers. `facts` may be shorter than asked (limits); the log is exhausted when `facts` is empty. */
export interface FactPage {
  readonly facts: readonly Fact[];
  /** Highest sequence of the thread at the time of the read; 0 = none. */
  readonly head: number;
  /** Facts up to here were pruned; a reader that needs one of them gets a gap. 0 = none. */
  readonly prunedThrough: number;
}
