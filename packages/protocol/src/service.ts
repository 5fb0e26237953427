import type { SeenItem } from './batch.ts';
import type { Fact } from './facts.ts';
import type { Json, JsonObject } from './json.ts';
import type { CancelAction, CrashPolicy, DisconnectMode, MultitaskStrategy, Run, RunRequest } from './run.ts';
import type { AdmissionResult, Log, RunStore, Thread, ThreadStore } from './stores.ts';

/** What `runtime` offers to the gateway, the command line and an embedded client. */
export interface CreateRun {
  /** null = mint one (with its thread). */
  readonly threadId: string | null;
  readonly userId: string;
  readonly assistantId: string;
  readonly request: RunRequest;
  readonly metadata: JsonObject;
  readonly multitaskStrategy: MultitaskStrategy;
  readonly onDisconnect: DisconnectMode;
  readonly crashPolicy: CrashPolicy | null;
  readonly createThread: boolean;
  readonly idempotencyKey: string | null;
  /** Values for secrets that skills declare (SK-8). This process keeps them in memory for as long as it holds the run; they are never stored. */
  readonly secrets?: Readonly<Record<string, string>>;
}

export type CancelResult =
  /** Recorded; `stopped` is true when `wait` was asked and nothing of the run acts any more (D6). */
  | {
      readonly outcome: 'accepted';
      readonly run: Run;
      readonly stopped: boolean;
      readonly stillRunning: readonly string[];
    }
  | { readonly outcome: 'terminal'; readonly run: Run }
  | { readonly outcome: 'not_found' };

/** One server-sent event; `data` is JSON text already. */
export interface StreamEvent {
  readonly id: string | null;
  readonly event: string;
  readonly data: string;
}
export type StreamItem = StreamEvent | 'heartbeat';

export interface StateSnapshot {
  readonly values: JsonObject;
  readonly next: readonly string[];
  readonly metadata: JsonObject;
  readonly checkpoint: {
    readonly thread_id: string;
    readonly checkpoint_ns: string;
    readonly checkpoint_id: string;
    readonly checkpoint_map: null;
  };
  readonly parentCheckpoint: StateSnapshot['checkpoint'] | null;
  readonly createdAt: string | null;
  readonly tasks: readonly JsonObject[];
  readonly interrupts: readonly Json[];
}

export interface RunService {
  /**
   * Admits and attaches a worker with nothing in between (RA-21). When `signal` fires before the answer, the admission is closed
   * (its row is terminal) and the signal's reason is thrown (RA-17).
   */
  create(input: CreateRun, signal?: AbortSignal): Promise<AdmissionResult>;
  get(input: { runId: string; threadId: string; userId: string }): Promise<Run | null>;
  list: RunStore['list'];
  cancel(input: {
    runId: string;
    threadId: string;
    userId: string;
    action: CancelAction;
    wait: boolean;
    signal?: AbortSignal;
  }): Promise<CancelResult>;
  /**
   * The run's stream from a cursor to its end, projected to `modes` (null = as created). A slow reader only slows itself: it re-reads the log.
   * Ends with `end` after the terminal fact. When `signal` fires it ends quietly; the disconnect rule is the caller's (`disconnected`).
   */
  stream(input: {
    runId: string;
    threadId: string;
    userId: string;
    lastEventId: string | null;
    modes: readonly string[] | null;
    heartbeatMs: number;
    signal: AbortSignal;
  }): AsyncIterable<StreamItem>;
  /** Resolves at the terminal fact. */
  join(input: { runId: string; threadId: string; userId: string; signal?: AbortSignal }): Promise<Run | null>;
  /** A reader left: cancels the run if it was created with `on_disconnect: cancel`, is active, and no other such reader is attached. */
  disconnected(input: { runId: string; threadId: string }): Promise<void>;
  remove(input: { runId: string; threadId: string; userId: string }): Promise<'removed' | 'active' | 'not_found'>;
}

export interface ThreadService {
  create(input: {
    threadId: string | null;
    userId: string;
    metadata: JsonObject;
    ifExists: 'do_nothing' | 'raise';
  }): Promise<
    { readonly outcome: 'created' | 'exists'; readonly thread: Thread } | { readonly outcome: 'conflict' | 'not_found' }
  >;
  get: ThreadStore['get'];
  search: ThreadStore['search'];
  /** Messages of one thread that have every word; see `Log.find`. null = no such thread. */
  find(input: { userId: string } & Parameters<Log['find']>[0]): Promise<Awaited<ReturnType<Log['find']>> | null>;
  update(input: {
    threadId: string;
    userId: string;
    metadata: JsonObject;
    title?: string | null;
  }): Promise<Thread | null>;
  /** @param input.item the thread is that of a batch item, and goes only while nobody has begun the item since (`busy`) */
  delete(input: { threadId: string; userId: string; item?: SeenItem }): Promise<'deleted' | 'busy' | 'not_found'>;
  copy(input: { threadId: string; userId: string }): Promise<Thread | null>;
  /**
   * A new thread that goes on from a checkpoint of this one, with its messages. Both are held meanwhile (`busy`: a run works). `copyFiles`
   * is called in between. `gone`: there is no such checkpoint any more.
   */
  branch(input: {
    threadId: string;
    userId: string;
    checkpointId: string;
    metadata: JsonObject;
    title?: string;
    copyFiles(toThreadId: string): Promise<void>;
  }): Promise<
    | { readonly outcome: 'branched'; readonly threadId: string; readonly messages: number }
    | { readonly outcome: 'busy' | 'gone' | 'not_found' }
  >;
  state(input: {
    threadId: string;
    userId: string;
    checkpointId: string | null;
    subgraphs: boolean;
  }): Promise<StateSnapshot | null>;
  /** `before`: checkpoint id, exclusive. limit 1..1000. */
  history(input: {
    threadId: string;
    userId: string;
    limit: number;
    before: string | null;
    metadata: JsonObject;
  }): Promise<readonly StateSnapshot[] | null>;
  updateState(input: {
    threadId: string;
    userId: string;
    values: Json;
    checkpointId: string | null;
    asNode: string | null;
  }): Promise<
    | { readonly outcome: 'updated'; readonly checkpoint: StateSnapshot['checkpoint'] }
    | { readonly outcome: 'busy' | 'not_found' }
    | { readonly outcome: 'invalid'; readonly message: string }
  >;
  /**
   * Reads the newest state, lets `change` work out what to write, and writes it, with the thread's only slot held from before the reading until
   * after the writing: no run and no other edit comes in between. `change` gets the live values and a signal that fires when the
   * slot is lost; null = nothing to write. `waiting`: the thread waits for a person's answer, which an edit would throw away.
   */
  changeState(input: {
    threadId: string;
    userId: string;
    asNode: string;
    change(state: {
      readonly values: Readonly<Record<string, unknown>>;
      readonly signal: AbortSignal;
    }): Promise<unknown>;
  }): Promise<
    | { readonly outcome: 'updated'; readonly checkpoint: StateSnapshot['checkpoint'] }
    | { readonly outcome: 'unchanged' | 'waiting' | 'busy' | 'not_found' }
    | { readonly outcome: 'invalid'; readonly message: string }
  >;
  /** Facts for the message list, oldest first within the page. */
  messages(input: {
    threadId: string;
    userId: string;
    runId: string | null;
    before: number | null;
    after: number | null;
    limit: number;
  }): Promise<{ readonly facts: readonly Fact[]; readonly hasMore: boolean } | null>;
  /** Facts after a sequence; for `run --json`, the history checker, the events API. */
  facts(input: {
    threadId: string;
    userId: string;
    runId: string | null;
    afterSeq: number;
    limit: number;
  }): Promise<{ readonly facts: readonly Fact[]; readonly head: number } | null>;
}
