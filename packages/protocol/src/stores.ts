import type { BatchStore, SeenItem } from './batch.ts';
import type { ChannelStore } from './channel.ts';
import type { DeliveryReceipt } from './delivery.ts';
import type { FactPage, NewFact, ToolOutcome } from './facts.ts';
import type { FeedbackStore } from './feedback.ts';
import type { JsonObject } from './json.ts';
import type { MemoryStore } from './memory.ts';
import type {
  CancelAction,
  CrashPolicy,
  DisconnectMode,
  Fence,
  MultitaskStrategy,
  Run,
  RunKind,
  RunRequest,
  RunStatus,
  TerminalStatus,
  TokenUsage,
} from './run.ts';
import type { ScheduleStore } from './schedule.ts';

/**
 * The durable ports. Every method is one transaction. A method that acts for a holder starts with one conditional update of the
 * run's row on its token, which a takeover also updates; with a stale token it changes nothing and answers `fenced` (D1).
 * A store that cannot answer throws `store_unavailable`: unknown is never reported as *no*.
 * Facts named in a comment are appended in the same transaction.
 */

export type Fenced<T> = ({ readonly outcome: 'ok' } & T) | { readonly outcome: 'fenced' };

/** Message bodies travel beside the JSON that mentions them, so that a store keeps each body once (D4). */
export interface Packed {
  /** JSON text in which each message stands as `{"$m":"<hash>"}`. */
  readonly json: string;
  readonly messages: readonly PackedMessage[];
}
export interface PackedMessage {
  /** Content address: base64url of the first 16 bytes of SHA-256 of `body`. */
  readonly hash: string;
  /** The message id, when it has one. */
  readonly id: string | null;
  /** JSON text of a `WireMessage`, or of LangChain's serialized form for a class without one. */
  readonly body: string;
}

// ---- threads ---------------------------------------------------------------------------------------------------------

export type ThreadStatus = 'idle' | 'busy' | 'interrupted' | 'error';

export interface Thread {
  readonly threadId: string;
  readonly userId: string;
  readonly metadata: JsonObject;
  readonly title: string | null;
  /**
   * Derived at every read, never stored: busy ⇔ a run is active; else from the newest acknowledged run (S5). A run that ended
   * `success` with stop reason `interrupt` stopped to ask something: the thread is `interrupted`.
   */
  readonly status: ThreadStatus;
  readonly createdAt: number;
  readonly updatedAt: number;
}

export interface ThreadStore {
  /** Idempotent for one user; a thread of another user answers `not_found` everywhere (owner isolation). */
  create(input: {
    threadId: string;
    userId: string;
    metadata: JsonObject;
    now: number;
  }): Promise<{ readonly outcome: 'created' | 'exists'; readonly thread: Thread } | { readonly outcome: 'not_found' }>;
  get(input: { threadId: string; userId: string }): Promise<Thread | null>;
  /** Newest `updatedAt` first, pinned (`metadata.pinned === true`) before others; `metadata` entries must all be equal. limit 1..1000. */
  search(input: {
    userId: string;
    metadata: JsonObject;
    status: ThreadStatus | null;
    limit: number;
    offset: number;
  }): Promise<readonly Thread[]>;
  /** Merges metadata (null removes a key); `title` undefined = unchanged. `touch` false keeps `updatedAt`. */
  update(input: {
    threadId: string;
    userId: string;
    metadata: JsonObject;
    title?: string | null;
    touch: boolean;
    now: number;
  }): Promise<Thread | null>;
  /**
   * Removes the thread with its runs, facts, journal, checkpoints and messages. The holder's own `delete` reservation allows it; with `item`
   * only as long as nobody has begun the item since.
   */
  delete(input: { fence: Fence; threadId: string; userId: string; item?: SeenItem }): Promise<Fenced<object>>;
  /** Copies checkpoints, messages and title (not runs or facts) into a new thread of the same user. */
  copy(input: { fromThreadId: string; toThreadId: string; userId: string; now: number }): Promise<Thread | null>;
}

// ---- runs ------------------------------------------------------------------------------------------------------------

export interface Admission {
  readonly runId: string;
  readonly threadId: string;
  readonly userId: string;
  readonly assistantId: string;
  readonly kind: RunKind;
  readonly multitaskStrategy: MultitaskStrategy;
  readonly onDisconnect: DisconnectMode;
  readonly crashPolicy: CrashPolicy;
  /** Runs that may wait in the queue of one thread; for strategy `enqueue`. Default 0: none. */
  readonly queueLimit?: number;
  readonly idempotencyKey: string | null;
  readonly payloadHash: string;
  readonly request: RunRequest;
  readonly metadata: JsonObject;
  /** Create the thread when it is missing; else a missing thread is `thread_not_found`. */
  readonly createThread: boolean;
  /** The admitting instance, the token it will work under, and its first lease. */
  readonly owner: string;
  readonly token: string;
  readonly leaseExpiresAt: number;
  readonly now: number;
}

export type AdmissionResult =
  /** `superseded`: runs that this admission interrupted; their holders finalize them. Fact: `run pending`. */
  | { readonly outcome: 'admitted'; readonly run: Run; readonly superseded: readonly Run[] }
  /**
   * Waits for its turn; no worker may be attached. `ahead`: queued runs before it. `free`: nothing holds the thread, so that its
   * queue can go on at once (`takeQueued`). Fact: `run pending`.
   */
  | { readonly outcome: 'queued'; readonly run: Run; readonly ahead: number; readonly free: boolean }
  /** Same key, same user, thread and payload: the run of then. No second worker may be attached. */
  | { readonly outcome: 'reused'; readonly run: Run }
  | {
      readonly outcome: 'conflict';
      readonly reason: 'busy' | 'reserved' | 'live_elsewhere' | 'key_reused' | 'queue_full';
      readonly active: Run | null;
      /** `live_elsewhere`: what is left of the other holder's lease, in milliseconds (RL-28). */
      readonly leaseLeftMs?: number;
    }
  | { readonly outcome: 'thread_not_found' };

export interface LeaseHolder {
  readonly runId: string;
  readonly token: string;
  readonly expiresAt: number;
  /** Renew although the row reads `interrupted`: the holder is rolling back a superseded run (seed 003). */
  readonly allowInterrupted: boolean;
}
export type RenewOutcome =
  | { readonly outcome: 'renewed'; readonly expiresAt: number; readonly cancelAction: CancelAction | null }
  /** The row reads `interrupted` and `allowInterrupted` was not set: superseded, not lost. */
  | { readonly outcome: 'interrupted' }
  /** Another token, or acknowledged: a definite no. */
  | { readonly outcome: 'lost' }
  /** Another transaction holds the row; try again before the deadline. */
  | { readonly outcome: 'busy' };

export interface RunStore {
  /**
   * One transaction: idempotency key, one active run per thread (a partial unique index decides), fence and lease.
   * `reject`: an active or unacknowledged run of the thread is a conflict. `interrupt`/`rollback`: active runs become `interrupted`
   * ("Cancelled by newer run") unless a live lease of *another* owner or a reservation stands against it; queued runs of the thread
   * end with them, acknowledged. `enqueue`: waits behind whatever has the thread, or waits for it; only the deletion of the thread
   * stands against it. A queue counts as busy for `reject` and for reservations.
   */
  admit(input: Admission): Promise<AdmissionResult>;
  /**
   * pending → running, attempt + 1, by the holder. `checkpointBefore` is stored by the first attempt only. Fact: `run running`.
   * `cancelled`: a cancel was recorded or the row was superseded; the holder finalizes without touching checkpoints.
   */
  start(input: {
    fence: Fence;
    /** `''` = the thread had no checkpoint; null = it could not be captured, which disables a rollback (RB-02). */
    checkpointBefore: string | null;
    now: number;
  }): Promise<
    | { readonly outcome: 'started'; readonly run: Run }
    | { readonly outcome: 'cancelled'; readonly run: Run }
    | { readonly outcome: 'fenced' }
  >;
  /** The holder's terminal write and acknowledgement; frees the thread, drops the lease. Facts: `delivery`, `run <status> terminal`; every
   * way in which a run ends writes both (RT-03). */
  finalize(input: {
    fence: Fence;
    status: TerminalStatus;
    error: string | null;
    stopReason: string | null;
    usage: TokenUsage;
    unlessCancelled: boolean;
    /** Absent: the run touched no file. */
    receipt?: DeliveryReceipt;
    now: number;
  }): Promise<
    /** `waiting`: runs are queued on the thread (`takeQueued`). */
    | { readonly outcome: 'finalized'; readonly run: Run; readonly waiting: boolean }
    | { readonly outcome: 'cancel_requested'; readonly action: CancelAction }
    /** Already acknowledged, by this holder's earlier call whose answer was lost or by somebody else: see `run`. */
    | { readonly outcome: 'terminal'; readonly run: Run }
    | { readonly outcome: 'fenced' }
  >;
  /**
   * Durable intent; the first action wins and is the one returned. A queued run has no holder that could act on it: it is ended at
   * once, and the answer is `terminal`. Fact then: `run interrupted terminal`.
   */
  requestCancel(input: {
    runId: string;
    action: CancelAction;
    now: number;
  }): Promise<
    | { readonly outcome: 'recorded'; readonly action: CancelAction; readonly run: Run }
    | { readonly outcome: 'terminal'; readonly run: Run }
    | { readonly outcome: 'not_found' }
  >;
  /** One statement for all of an instance's leases; never shortens one (RL-09). Answers per run id. */
  renew(input: { holders: readonly LeaseHolder[]; now: number }): Promise<ReadonlyMap<string, RenewOutcome>>;
  /**
   * Atomically takes unacknowledged rows whose lease is missing or expired for longer than `graceMs`, or whose owner is in
   * `deadOwners`, under fresh tokens (one per row from `tokens`, in order). Rows of `skipRunIds` and queued ones are left alone.
   */
  claimOrphans(input: {
    owner: string;
    tokens: readonly string[];
    leaseExpiresAt: number;
    graceMs: number;
    deadOwners: readonly string[];
    skipRunIds: readonly string[];
    now: number;
  }): Promise<readonly { readonly run: Run; readonly token: string }[]>;
  get(runId: string): Promise<Run | null>;
  /** Kind `run` only, newest first, stable on equal times. limit 1..1000. */
  list(input: {
    threadId: string;
    userId: string;
    status: RunStatus | null;
    limit: number;
    offset: number;
  }): Promise<readonly Run[]>;
  /**
   * Gives the first queued run of the thread to the caller, if nothing holds the thread: no run that is not acknowledged, no
   * reservation. Of many callers one gets it; the same call again (by its token) gets the same run.
   */
  takeQueued(input: {
    threadId: string;
    owner: string;
    token: string;
    leaseExpiresAt: number;
    now: number;
  }): Promise<Run | null>;
  /** Threads whose queue can go on, at most `limit`, the longest waiting first. */
  freeQueues(limit: number): Promise<readonly string[]>;
  /** The run or reservation that holds the thread's slot, if any; also an unacknowledged superseded one. Queued runs hold nothing. */
  active(threadId: string): Promise<readonly Run[]>;
  /** Ends a reservation by deleting its row. `waiting`: runs are queued on the thread (`takeQueued`). */
  release(fence: Fence): Promise<Fenced<{ readonly waiting: boolean }>>;
  /** Gives back a right that nobody acts under: the lease goes, the row stays as it is, and any process may claim it at once. */
  relinquish(fence: Fence): Promise<Fenced<object>>;
  /** Removes an acknowledged run of kind `run` (its facts stay). */
  remove(input: { runId: string; userId: string }): Promise<'removed' | 'active' | 'not_found'>;
}

// ---- the log of facts ------------------------------------------------------------------------------------------------

/** A message of the conversation that has what was looked for. */
export interface FoundMessage {
  readonly seq: number;
  readonly runId: string | null;
  /** Wall-clock milliseconds. */
  readonly at: number;
  readonly messageId: string | null;
  readonly role: 'human' | 'ai';
  /** Its text around what was found. */
  readonly snippet: string;
}

export interface Log {
  /** Identity of the sequence numbers; see `cursor.ts`. */
  epoch(): Promise<string>;
  /** Facts with `seq > afterSeq`, ascending; `runId` filters. Stops at `limit` facts or about `maxBytes` of bodies, at least one fact. */
  read(input: {
    threadId: string;
    runId: string | null;
    afterSeq: number;
    limit: number;
    maxBytes: number;
  }): Promise<FactPage>;
  /** First fact of a run, or null. */
  firstSeq(input: { threadId: string; runId: string }): Promise<number | null>;
  /** Appends under the run's fence; facts whose key exists are skipped. `head` is the thread's highest sequence afterwards. */
  append(input: {
    fence: Fence;
    threadId: string;
    facts: readonly NewFact[];
    now: number;
  }): Promise<Fenced<{ readonly head: number }>>;
  /** Message facts only, newest page: `before` exclusive; null = latest. Ascending within the page. */
  messages(input: {
    threadId: string;
    runId: string | null;
    before: number | null;
    after: number | null;
    limit: number;
  }): Promise<FactPage>;
  /**
   * Messages of people and of the agent whose text has every word, newest first, `most` at the most. Looks at the newest `limit` messages, and
   * at about `maxBytes` of them; `complete` = there are no older ones.
   * @param input.words lower case, not empty
   */
  find(input: {
    threadId: string;
    words: readonly string[];
    most: number;
    limit: number;
    maxBytes: number;
  }): Promise<{ readonly found: readonly FoundMessage[]; readonly complete: boolean }>;
  /** Called after each commit that appended facts; a hint, at most one per flush and thread. Returns the unsubscribe. */
  onAppend(listener: (threadId: string, head: number) => void): () => void;
}

// ---- the tool journal ------------------------------------------------------------------------------------------------

/** One tool call: its thread, the message that asks for it, and its place in that message (provider ids can be null or repeat). */
export interface ToolCallKey {
  readonly threadId: string;
  readonly messageId: string;
  readonly index: number;
}

export type JournalBegin =
  /** This attempt may start the effect. Fact: `tool-started`. */
  | { readonly outcome: 'begin' }
  /** It ran to its end before; `result` is what it returned. It must not run again. */
  | { readonly outcome: 'finished'; readonly result: Packed }
  /** An earlier attempt started it and its end was never recorded. `repeatable` tools may begin again with `again: true`. */
  | { readonly outcome: 'unfinished'; readonly startedAt: number; readonly attempt: number }
  | { readonly outcome: 'fenced' };

export interface ToolJournal {
  /** Durable before the effect starts. `again`: begin although an earlier attempt's end is unknown. */
  begin(input: {
    fence: Fence;
    key: ToolCallKey;
    toolCallId: string | null;
    name: string;
    attempt: number;
    again: boolean;
    now: number;
  }): Promise<JournalBegin>;
  /** Stores the result once; a second finish of the same call keeps the first and answers it. Fact: `tool-finished`. */
  finish(input: {
    fence: Fence;
    key: ToolCallKey;
    outcome: ToolOutcome;
    result: Packed;
    now: number;
  }): Promise<Fenced<{ readonly result: Packed }>>;
  /**
   * Takes a begin back: the call stopped to ask a person, and begins anew with the answer, in whatever run brings it. A finished call
   * stays finished.
   */
  retract(input: { fence: Fence; key: ToolCallKey }): Promise<Fenced<object>>;
  /** Calls of a thread that started and did not finish, oldest first. */
  unfinished(threadId: string): Promise<
    readonly {
      readonly key: ToolCallKey;
      readonly name: string;
      readonly attempt: number;
      readonly startedAt: number;
    }[]
  >;
}

// ---- checkpoints -----------------------------------------------------------------------------------------------------

/** A channel value as stored: JSON, or bytes for binary pending writes. */
export interface CheckpointWriteRow {
  readonly index: number;
  readonly channel: string;
  readonly type: 'json' | 'bytes';
  readonly value: Packed | Uint8Array;
}

export interface CheckpointPut {
  /** null only outside a run (conformance tests, imports). */
  readonly fence: Fence | null;
  readonly threadId: string;
  readonly ns: string;
  readonly checkpointId: string;
  readonly parentId: string | null;
  /** The checkpoint without channel values, as JSON. */
  readonly checkpoint: string;
  readonly metadata: string;
  /**
   * New versions of channels; the store keeps unchanged ones once. With `base` (only for stores that say `incremental`) the value
   * is a list: the first `keep` elements of this channel's stored `base.version`, then the elements of `value`.
   */
  readonly channels: readonly {
    readonly name: string;
    readonly version: string;
    readonly value: Packed;
    readonly base?: { readonly version: string; readonly keep: number };
  }[];
  /** Messages, removals, checkpoint fact, … written in this transaction. */
  readonly facts: readonly NewFact[];
  readonly now: number;
}

export interface LoadedCheckpoint {
  readonly threadId: string;
  readonly ns: string;
  readonly checkpointId: string;
  readonly parentId: string | null;
  readonly checkpoint: string;
  readonly metadata: string;
  readonly channels: readonly { readonly name: string; readonly version: string; readonly json: string }[];
  readonly writes: readonly {
    readonly taskId: string;
    readonly taskPath: string;
    readonly index: number;
    readonly channel: string;
    readonly type: 'json' | 'bytes';
    readonly json: string;
    readonly bytes: Uint8Array | null;
  }[];
  /** Bodies of all messages that the JSON above mentions, by hash, each once. */
  readonly messages: readonly PackedMessage[];
}

/** A message or a base version that the input only mentions is not in the store; nothing was written. Send everything. */
export interface Incomplete {
  readonly outcome: 'incomplete';
}

export interface CheckpointStore {
  /**
   * Bodies are kept per thread: `messages` of a write may leave out those that this thread was given before, and `put` takes
   * `base`. So a step costs O(change), not O(history).
   */
  readonly incremental?: true;
  put(input: CheckpointPut): Promise<Fenced<object> | Incomplete>;
  putWrites(input: {
    fence: Fence | null;
    threadId: string;
    ns: string;
    checkpointId: string;
    taskId: string;
    taskPath: string;
    replace: boolean;
    writes: readonly CheckpointWriteRow[];
    facts: readonly NewFact[];
    now: number;
  }): Promise<Fenced<object> | Incomplete>;
  load(input: { threadId: string; ns: string; checkpointId: string | null }): Promise<LoadedCheckpoint | null>;
  list(input: {
    threadId: string | null;
    ns: string | null;
    checkpointId: string | null;
    before: string | null;
    limit: number | null;
    filter: JsonObject;
  }): Promise<readonly LoadedCheckpoint[]>;
  /** Removes every checkpoint of the thread newer than `checkpointId` ('' = all), and messages that nothing mentions any more. */
  rollback(input: { fence: Fence; threadId: string; checkpointId: string; now: number }): Promise<Fenced<object>>;
  /** Keeps the newest `keep` checkpoints per namespace. Answers how many were removed. */
  prune(input: { threadId: string; keep: number }): Promise<number>;
  deleteThread(threadId: string): Promise<void>;
  copyThread(input: { fromThreadId: string; toThreadId: string }): Promise<void>;
}

// ---- the writes of one attempt, in order ---------------------------------------------------------------------------------

/** One write of an attempt, as the method of its port takes it. */
export type AttemptWrite =
  | { readonly kind: 'put'; readonly input: CheckpointPut }
  | { readonly kind: 'putWrites'; readonly input: Parameters<CheckpointStore['putWrites']>[0] }
  | { readonly kind: 'begin'; readonly input: Parameters<ToolJournal['begin']>[0] }
  | { readonly kind: 'finish'; readonly input: Parameters<ToolJournal['finish']>[0] };

/** What the method of the port answers. */
export type AttemptAnswer = Fenced<object> | Incomplete | JournalBegin | Fenced<{ readonly result: Packed }>;

export interface AttemptStore {
  /**
   * Starts an admitted run on whose thread nobody else works, and reads the head that it begins with and its facts so far: what
   * `RunStore.active`, `CheckpointStore.load`, `RunStore.start` and `Log.read` do, as one transaction. Calls to this database are carried out in their order, so it
   * may be sent right behind the admission, whose answer is not known then. `not_now`: nothing was changed; another run of the
   * thread is not over, or the run does not exist under this token, was cancelled, or was started before.
   */
  begin(input: {
    readonly fence: Fence;
    readonly threadId: string;
    readonly now: number;
  }): Promise<
    | { readonly outcome: 'begun'; readonly run: Run; readonly head: LoadedCheckpoint | null; readonly log: FactPage }
    | { readonly outcome: 'not_now' }
  >;
  /**
   * Several writes of one attempt, all for one thread, as one transaction and in their order: all or nothing is stored, so that the
   * call can be repeated as it is. It ends behind the first write that is answered `fenced` or `incomplete`: what stands before
   * it is stored, what stands behind it was not tried and has no answer. 1 to 64 writes.
   */
  write(writes: readonly AttemptWrite[]): Promise<readonly AttemptAnswer[]>;
}

/** All durable ports of one database, and its life. */
export interface Stores {
  readonly threads: ThreadStore;
  readonly runs: RunStore;
  readonly log: Log;
  readonly journal: ToolJournal;
  readonly checkpoints: CheckpointStore;
  readonly batches: BatchStore;
  readonly memory: MemoryStore;
  readonly feedback: FeedbackStore;
  readonly schedules: ScheduleStore;
  readonly channels: ChannelStore;
  /** Where a transaction costs more than what is in it; without it an attempt calls `journal` and `checkpoints` write by write. */
  readonly attempts?: AttemptStore;
  /** Flushes and closes; idempotent. */
  close(): Promise<void>;
}
