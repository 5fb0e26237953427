import type {
  Batch,
  BatchAddress,
  BatchControl,
  BatchCounts,
  BatchStore,
  BatchUsage,
  ClaimedItem,
  ItemVerdict,
  NewItem,
} from './batch.ts';
import type { JsonObject } from './json.ts';

/** One attempt of one item, as whoever runs it sees it. */
export interface ItemWork {
  readonly item: ClaimedItem;
  readonly batch: Batch;
  /** Fires when the attempt is to end: cancelled, its lease lost, or the service stops. */
  readonly signal: AbortSignal;
}

export type ItemResult =
  | {
      readonly outcome: 'succeeded';
      readonly result: string;
      readonly stopReason: string | null;
      readonly modelName: string | null;
      readonly usage: BatchUsage;
    }
  | {
      readonly outcome: 'failed';
      readonly error: string;
      readonly stopReason: string | null;
      readonly modelName: string | null;
      readonly usage: BatchUsage;
    }
  /** The child was never begun: the attempt does not count. */
  | { readonly outcome: 'not_admitted'; readonly error: string };

/** A child that can begin. Nothing of it acts before `run`. */
export interface PreparedItem {
  /**
   * Runs the child. Settles when it has *ended*: nothing of it acts any more, whatever its status says (BT-21). After the signal it ends soon, and
   * what it answers then is not looked at.
   */
  run(): Promise<ItemResult>;
  /**
   * Judges a result of an item that asks for it. Advice: whatever comes of it, rejections included, the item has succeeded (BT-28). It ends
   * soon after the signal.
   */
  check?(result: string): Promise<{ readonly verdict: ItemVerdict | null; readonly usage: BatchUsage }>;
  /** The attempt's outcome is stored: what was kept for a resumption can go. Never rejects. */
  forget(): Promise<void>;
}

/** Runs items of batches: a sub-agent for each. Implemented by `agent`, in tests by whatever is to be seen. */
export interface BatchExecutor {
  /**
   * Everything before the child begins. Rejects with `over_capacity` or `conflict` when the child cannot be admitted now (the attempt is given
   * back), with the signal's reason after a stop, and with anything else when the attempt failed.
   */
  prepare(work: ItemWork): Promise<PreparedItem>;
}

export interface SubmitBatch {
  readonly userId: string;
  readonly threadId: string;
  readonly runId: string | null;
  readonly toolCallId: string | null;
  /** The same key again answers the same batch. */
  readonly submissionKey: string;
  readonly title: string;
  readonly subagentType: string;
  readonly items: readonly NewItem[];
  readonly spec: JsonObject;
  /** Defaults are those of the configuration. */
  readonly maxLive?: number;
  readonly maxRunning?: number;
  readonly maxAttempts?: number;
  readonly notify: boolean;
  /** Called when nothing is wrong with the input, before anything is stored: for a thread that only a good batch needs. */
  readonly makeThread?: () => Promise<unknown>;
}

export interface BatchProgress {
  readonly batch: Batch;
  readonly counts: BatchCounts;
}

/** Batches as the gateway, the tools and the command line use them. */
export interface BatchService {
  /** False = nothing here works on items (BT-27): batches can be read, and that is all. */
  readonly working: boolean;
  /**
   * @throws ReindeerError `validation_failed` (too many items, keys that stand twice, bad limits; nothing is stored, BT-02), `shutting_down`
   */
  submit(
    input: SubmitBatch,
  ): Promise<
    { readonly outcome: 'created' | 'existing'; readonly batch: Batch } | { readonly outcome: 'thread_not_found' }
  >;
  get(input: BatchAddress): Promise<BatchProgress | null>;
  list: BatchStore['list'];
  items: BatchStore['items'];
  pause(input: BatchAddress): Promise<BatchControl>;
  resume(input: BatchAddress): Promise<BatchControl>;
  cancel(input: BatchAddress): Promise<BatchControl>;
  cancelItem(input: BatchAddress & { readonly itemId: string }): Promise<BatchControl>;
  retryItem(input: BatchAddress & { readonly itemId: string }): Promise<BatchControl>;
  /** Where the batch stands, now and after each change (coalesced), until it is over, gone, or `signal` fires. */
  watch(input: BatchAddress, signal: AbortSignal): AsyncIterable<BatchProgress>;
  /** The agent has read of the batch's end itself. */
  told(input: { readonly batchId: string; readonly ends: number }): Promise<void>;
}
