import type { JsonObject } from './json.ts';

/**
 * A batch is many items of work of one kind, each done by a sub-agent of its own. It outlives the run that asked for it.
 *
 *   batch: queued ⇄ paused;  queued ─claim→ running ⇄ paused (resume → queued);  any that is open ─→ cancelled
 *          all items over → completed | failed (when all that were not cancelled failed);  completed/failed ─retry of an item→ queued
 *   item:  pending ─promote→ queued ─claim→ leased ─start→ running ─→ succeeded | failed | cancelled
 *          leased|running ─attempt failed, attempts left→ queued     leased|running ─lease over→ queued | failed | cancelled
 *          leased|running ─not admitted→ queued (the attempt is given back)     failed ─retry→ pending (attempt 0)
 *
 * The rules as pure functions are in `batch-machine.ts`; every store behaves as they say.
 */
export type BatchStatus = 'queued' | 'running' | 'paused' | 'completed' | 'failed' | 'cancelled';
export const BATCH_ITEM_STATUSES = [
  'pending',
  'queued',
  'leased',
  'running',
  'succeeded',
  'failed',
  'cancelled',
] as const;
export type BatchItemStatus = (typeof BATCH_ITEM_STATUSES)[number];

/** A batch as its user sees it. Times are wall-clock milliseconds. */
export interface Batch {
  readonly batchId: string;
  readonly userId: string;
  readonly threadId: string;
  /** The run and tool call that asked for it; null = a client did. */
  readonly runId: string | null;
  readonly toolCallId: string | null;
  readonly title: string;
  readonly subagentType: string;
  readonly status: BatchStatus;
  readonly totalItems: number;
  /** Open items that are not `pending`, at most. */
  readonly maxLive: number;
  /** Items at work at once, at most, over all instances. */
  readonly maxRunning: number;
  readonly maxAttempts: number;
  /** What the executor needs beyond the prompts: model, result schema, … */
  readonly spec: JsonObject;
  /** Times that the batch came to its end; more than one after a retry. */
  readonly ends: number;
  /** It is over, and its results stand in the files of its thread. */
  readonly filed: boolean;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly startedAt: number | null;
  readonly endedAt: number | null;
}

export type BatchCounts = { readonly [status in BatchItemStatus]: number };

export interface BatchUsage {
  readonly inputTokens: number;
  readonly outputTokens: number;
}

export const NO_BATCH_USAGE: BatchUsage = { inputTokens: 0, outputTokens: 0 };

export interface ItemVerdict {
  readonly accepted: boolean;
  readonly reason: string;
}

/** An item as its user sees it: never with the holder's token. */
export interface BatchItem {
  readonly itemId: string;
  readonly batchId: string;
  /** Chosen by whoever made the batch; the child's identity for work that must not happen twice (BT-16). */
  readonly key: string;
  /** 0, 1, 2, … in the order of the input. */
  readonly position: number;
  readonly status: BatchItemStatus;
  /** Attempts that were begun and not given back. */
  readonly attempt: number;
  readonly cancelRequested: boolean;
  readonly modelName: string | null;
  /** Only where it was asked for; at most the limit of the executor. */
  readonly result: string | null;
  readonly resultPreview: string | null;
  /** The row holds a part; the whole stands in `resultFile`. */
  readonly resultTruncated: boolean;
  /** Virtual path in the thread's files. */
  readonly resultFile: string | null;
  /** By what the result is judged; null = it is not. */
  readonly acceptance: string | null;
  /** What a check said of the result: advice, on which nothing else depends (BT-28). */
  readonly verdict: ItemVerdict | null;
  readonly error: string | null;
  readonly stopReason: string | null;
  /** Of all attempts. */
  readonly usage: BatchUsage;
  readonly startedAt: number | null;
  readonly endedAt: number | null;
  readonly updatedAt: number;
}

/**
 * The proof of the right to one attempt of an item (D1). `owner` is new at every claim; `epoch` grows with every claim of the item, so that
 * even an equal owner cannot pass for a later one (BT-24).
 */
export interface ItemLease {
  readonly itemId: string;
  readonly owner: string;
  readonly epoch: number;
}

/**
 * An item as somebody saw it. As long as its epoch is the same nobody has begun it since: what was left of it then is of no use to anybody
 * now. An item that is gone was not begun either.
 */
export type SeenItem = Pick<ItemLease, 'itemId' | 'epoch'>;

/** A thread of an item that nobody needs any more. */
export interface LeftThread {
  readonly threadId: string;
  readonly userId: string;
  readonly item: SeenItem;
}

export interface ClaimedItem {
  readonly lease: ItemLease;
  readonly batchId: string;
  readonly key: string;
  readonly position: number;
  readonly prompt: string;
  readonly acceptance: string | null;
  readonly attempt: number;
}

/** One item of a new batch. */
export interface NewItem {
  readonly key: string;
  readonly prompt: string;
  /** By what its result is judged; absent = it is not. */
  readonly acceptance?: string | undefined;
}

/**
 * Items have threads and runs of their own, which belong to the batch and not to its user: no listing shows them, no client reaches them.
 * Stores know these names too: they find what a batch left behind by them.
 */
export const itemUser = (batchId: string): string => `${ITEM_USERS}${batchId}`;
export const itemThread = (batchId: string, position: number): string => `${batchId}-${position}`;
/** What the names of all such users begin with. */
export const ITEM_USERS = 'batch_';

export interface NewBatch {
  readonly batchId: string;
  readonly userId: string;
  readonly threadId: string;
  readonly runId: string | null;
  readonly toolCallId: string | null;
  /** One batch per user and key: the same call again answers the same batch (BT-01). */
  readonly submissionKey: string;
  readonly title: string;
  readonly subagentType: string;
  readonly maxLive: number;
  readonly maxRunning: number;
  readonly maxAttempts: number;
  readonly spec: JsonObject;
  /** Tell the thread's agent about the end? */
  readonly notify: boolean;
  /** In order; keys are unique (checked by the caller, and again by the store). */
  readonly items: readonly NewItem[];
  readonly now: number;
}

export type ItemOutcome =
  | {
      readonly succeeded: true;
      readonly result: string;
      readonly resultPreview: string;
      readonly resultTruncated: boolean;
      readonly resultFile: string | null;
      /** null = nobody judged it. */
      readonly verdict: ItemVerdict | null;
    }
  | {
      readonly succeeded: false;
      readonly error: string;
      /** Not claimed again before; wall-clock milliseconds. */
      readonly notBefore: number;
    };

export type FinishItem = ItemOutcome & {
  readonly lease: ItemLease;
  readonly stopReason: string | null;
  readonly modelName: string | null;
  readonly usage: BatchUsage;
  readonly now: number;
};

export interface RenewedItem {
  readonly valid: boolean;
  /** True only when the item or its batch really was cancelled. */
  readonly cancelRequested: boolean;
  /** Somebody holds the row: neither yes nor no, ask again. */
  readonly busy: boolean;
}

/** How a batch is found: by its user, and its thread where the caller knows it. Anything else is as good as missing (BT-17). */
export interface BatchAddress {
  readonly batchId: string;
  readonly userId: string;
  readonly threadId?: string;
}

export type BatchControl =
  | { readonly outcome: 'done' | 'unchanged'; readonly batch: Batch }
  /** The state does not allow it. */
  | { readonly outcome: 'conflict'; readonly batch: Batch }
  | { readonly outcome: 'not_found' };

/** A batch whose end is to be written to files and told. */
export interface EndedBatch {
  readonly batch: Batch;
  /** The agent is to be told, and has not read of this end itself. */
  readonly notify: boolean;
}

/**
 * The durable side of batches. What acts for a holder is one conditional statement on (item, owner, epoch, state) and answers `false`
 * when it changed nothing: a stopped holder, a peer that claimed meanwhile and a cancel are all the same to it.
 */
export interface BatchStore {
  /** `thread_not_found`: the thread is not the user's. `duplicate_keys`: nothing was stored (BT-02). */
  create(
    input: NewBatch,
  ): Promise<
    | { readonly outcome: 'created' | 'existing'; readonly batch: Batch }
    | { readonly outcome: 'thread_not_found' }
    | { readonly outcome: 'duplicate_keys' }
  >;
  get(input: BatchAddress): Promise<{ readonly batch: Batch; readonly counts: BatchCounts } | null>;
  /** Newest first. `threadId` null = all of the user's. */
  list(input: {
    readonly userId: string;
    readonly threadId: string | null;
    readonly limit: number;
  }): Promise<readonly Batch[]>;
  /** By position. `results` also reads the whole results that the rows hold. */
  items(
    input: BatchAddress & {
      readonly status: BatchItemStatus | null;
      readonly offset: number;
      readonly limit: number;
      readonly results: boolean;
    },
  ): Promise<readonly BatchItem[] | null>;

  /**
   * One pass of a scheduler, for every open batch that others do not hold this moment: leases that are over are recovered, items are
   * promoted up to `maxLive`, and at most `limit` are leased, each batch within its `maxRunning`. Slots are shared evenly between users,
   * then between their batches; among equals the oldest batch comes first (BT-18). Items in `exclude` are promoted, but neither leased nor recovered: they are still
   * at work in the calling process.
   */
  claim(input: {
    readonly owner: string;
    readonly leaseMs: number;
    readonly limit: number;
    readonly exclude: readonly string[];
    readonly now: number;
  }): Promise<{
    readonly items: readonly ClaimedItem[];
    readonly batches: ReadonlyMap<string, Batch>;
    /** A batch with waiting items was held by somebody else, or more items wait than were asked for: try again soon. */
    readonly more: boolean;
  }>;
  /** All leases of a process in one statement; an answer for each (BT-06). A lease is never shortened. */
  renew(input: {
    readonly leases: readonly ItemLease[];
    readonly leaseMs: number;
    readonly now: number;
  }): Promise<ReadonlyMap<string, RenewedItem>>;
  /** leased → running. False: it is not this holder's any more, or was cancelled (BT-07). */
  start(input: { readonly lease: ItemLease; readonly now: number }): Promise<boolean>;
  /** The end of an attempt. A cancel wins over a success (BT-09). Null: it is not this holder's any more (BT-08). */
  finish(input: FinishItem): Promise<BatchItemStatus | null>;
  /** The attempt never began: back to the queue, attempt − 1 (BT-05). */
  release(input: {
    readonly lease: ItemLease;
    readonly error: string;
    readonly notBefore: number;
    readonly now: number;
  }): Promise<boolean>;

  /**
   * Ends the leases of an instance that is known to be gone: its tokens begin with `prefix`. The next claim recovers them. Answers how many
   * there were.
   */
  forfeit(input: { readonly prefix: string; readonly now: number }): Promise<number>;

  pause(input: BatchAddress & { readonly now: number }): Promise<BatchControl>;
  resume(input: BatchAddress & { readonly now: number }): Promise<BatchControl>;
  /** All open items end at once, in one transaction (BT-13). */
  cancel(input: BatchAddress & { readonly now: number }): Promise<BatchControl>;
  /** One item: waiting ones end at once, the holder of one at work is asked to stop by its next renewal. */
  cancelItem(input: BatchAddress & { readonly itemId: string; readonly now: number }): Promise<BatchControl>;
  /** Only a failed item; reopens the batch (BT-14). */
  retryItem(input: BatchAddress & { readonly itemId: string; readonly now: number }): Promise<BatchControl>;

  /** Takes the reports of batches that have ended and were not reported yet, for `leaseMs`; others leave them alone meanwhile. */
  claimEnded(input: {
    readonly owner: string;
    readonly leaseMs: number;
    readonly limit: number;
    readonly now: number;
  }): Promise<readonly EndedBatch[]>;
  /** The results stand in files; the rest of the report is free for whoever takes it next. False as for `reported`. */
  filed(input: { readonly batchId: string; readonly owner: string; readonly ends: number }): Promise<boolean>;
  /** The agent cannot be told now: nobody takes the report before `until`. False as for `reported`. */
  postpone(input: {
    readonly batchId: string;
    readonly owner: string;
    readonly ends: number;
    readonly until: number;
  }): Promise<boolean>;
  /** The report is done. False: a retry reopened the batch, or another one reports. */
  reported(input: { readonly batchId: string; readonly owner: string; readonly ends: number }): Promise<boolean>;
  /**
   * Threads of items that nobody needs any more, since their item is over or went with its batch, and that nothing has touched since `before`
   * (wall-clock milliseconds). By id, those after `after`.
   */
  leftThreads(input: {
    readonly before: number;
    readonly after: string;
    readonly limit: number;
  }): Promise<readonly LeftThread[]>;
  /** The agent has read of this end: nobody needs to tell it. Of a later one it is told all the same. */
  told(input: { readonly batchId: string; readonly ends: number }): Promise<void>;
}
