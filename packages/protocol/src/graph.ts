import type { ToolOutcome, WireMessage } from './facts.ts';
import type { Json, JsonObject } from './json.ts';
import type { Run, TokenUsage, UsageCaller } from './run.ts';
import type { JournalBegin, Packed } from './stores.ts';

/** How the runtime runs a graph without knowing what is inside. The shapes are those of a compiled LangGraph graph. */
export interface GraphFactory {
  readonly assistantId: string;
  readonly name: string;
  readonly description: string;
  /** Only parts of this program may run it: no client is told of it, and none can ask for it. */
  readonly internal?: true;
  /** For one attempt of a run. `saver` is a LangGraph `BaseCheckpointSaver` bound to the attempt's token. */
  forAttempt(attempt: AttemptContext, saver: unknown): Promise<Graph>;
  /** For reading and editing state outside a run. */
  forState(saver: unknown): Promise<Graph>;
}

export interface GraphConfig {
  configurable: Record<string, unknown>;
  signal?: AbortSignal;
  recursionLimit?: number;
  tags?: string[];
  metadata?: Record<string, unknown>;
  context?: Record<string, unknown>;
}

export interface Graph {
  /** Yields `[namespace, mode, data]`. Rejects with the signal's reason soon after an abort, while tools may still run (D6). */
  stream(
    input: unknown,
    options: GraphConfig & {
      streamMode: string[];
      subgraphs: boolean;
      durability: 'sync';
      interruptBefore?: string[] | '*';
      interruptAfter?: string[] | '*';
    },
  ): Promise<AsyncIterable<[string[], string, unknown]>>;
  getState(config: GraphConfig, options?: { subgraphs?: boolean }): Promise<GraphSnapshot>;
  getStateHistory(
    config: GraphConfig,
    options?: { limit?: number; before?: GraphConfig; filter?: Record<string, unknown> },
  ): AsyncIterable<GraphSnapshot>;
  updateState(config: GraphConfig, values: unknown, asNode?: string): Promise<GraphConfig>;
  /** Names of the state's channels that clients may read and write. */
  readonly stateKeys: readonly string[];
}

export interface GraphSnapshot {
  readonly values: Record<string, unknown>;
  readonly next: readonly string[];
  readonly config: GraphConfig;
  readonly parentConfig?: GraphConfig;
  readonly metadata?: Record<string, unknown>;
  readonly createdAt?: string;
  readonly tasks: readonly {
    readonly id: string;
    readonly name: string;
    readonly path?: unknown;
    readonly error?: unknown;
    readonly interrupts: readonly { readonly id?: string; readonly value?: unknown }[];
    readonly state?: unknown;
    readonly result?: unknown;
  }[];
}

/** What the runtime lends to a graph for one attempt. Everything on it is fenced by the attempt's token. */
export interface AttemptContext {
  readonly run: Run;
  /** 1 = the first. */
  readonly attempt: number;
  /**
   * Fires on cancel, fence, timeout or shutdown. The reason is a `ReindeerError` whose `detail.stop` names which: `cancelled`,
   * `superseded`, `timeout`, `shutdown`, `fenced`.
   */
  readonly signal: AbortSignal;
  /** What the creator of the run gave for secrets that skills declare; absent where there is none, or another process was told. */
  readonly secrets?: Readonly<Record<string, string>>;
  readonly journal: AttemptJournal;
  readonly effects: Effects;
  readonly tokens: TokenSink;
  /**
   * A `custom` event: live at once, and a fact within the next flush. With a `key` that is unique in the thread, an event that a later
   * attempt reports again is no news.
   */
  emit(data: Json, ns?: readonly string[], key?: string): void;
  /**
   * The graph is about to touch the files of the run's thread: notes what they are, once per run. Resolves when that is durable;
   * rejects only when the run has to stop. Absent where nobody compares.
   */
  touchFiles?(): Promise<void>;
  /**
   * Files in outputs that the run changed although it presented none of them: it would end as not delivered. Empty = nothing is missing, or
   * that cannot be told. Absent where nobody asks for it.
   */
  undelivered?(): Promise<readonly string[]>;
  /** Which node produced the writes of a task; called by a node before it returns, so that `update` facts name it. */
  nameTask(taskId: string, node: string): void;
  /** Adds to the run's counters. */
  countUsage(usage: {
    readonly inputTokens: number;
    readonly outputTokens: number;
    readonly model: string;
    /** Of the input, read from the provider's cache; of the output, thought. Absent = none, or not said. */
    readonly cacheReadTokens?: number;
    readonly reasoningTokens?: number;
    /** Who asked the model; default the lead agent (OBS-1). */
    readonly caller?: UsageCaller;
    /** An id of what was counted: the same one counts once (RE-09). */
    readonly source?: string;
  }): void;
  /** The run's counters so far: what was counted here, for the run and its sub-agents, and what its row says of earlier attempts. */
  usage(): TokenUsage;
  /** Why the run ends early, e.g. `loop_capped`. The first reason stays. */
  stopReason(reason: string): void;
  /** Marks the run as failed although the graph ended normally (a provider's final failure shown as a message). */
  fail(message: string): void;
}

/** The tool journal as one attempt sees it (D7). */
export interface AttemptJournal {
  begin(call: {
    readonly messageId: string;
    readonly index: number;
    readonly toolCallId: string | null;
    readonly name: string;
    readonly again: boolean;
  }): Promise<JournalBegin>;
  /** Packs `result` (a value that may hold LangChain messages) and stores it; answers the stored one, unpacked. */
  finish(call: {
    readonly messageId: string;
    readonly index: number;
    readonly outcome: ToolOutcome;
    readonly result: unknown;
  }): Promise<unknown>;
  /** The call stopped to ask a person: it has begun nothing that a later run with the answer would have to fear. */
  retract(call: { readonly messageId: string; readonly index: number }): Promise<void>;
  /** Turns a stored result into live objects again. */
  unpack(packed: Packed): unknown;
}

/** Everything of a run that may still act on the world: raw tool promises, process groups, provider sockets (D6). */
export interface Effects {
  /** Registers live work until it settles; never rejects because of it. Refused (`aborted`) once the run is stopping. */
  track<T>(name: string, work: () => Promise<T>): Promise<T>;
  /** Resolves when nothing is alive any more, or after `timeoutMs` with the names of what still is. */
  stopped(timeoutMs: number): Promise<readonly string[]>;
  live(): readonly string[];
}

/** Tokens of a message that is being written: not facts, coalesced, lost on a crash (D3). */
export interface TokenSink {
  /** `chunk` is an `AIMessageChunk` in wire form with the id that the finished message will have. */
  push(chunk: WireMessage, metadata: JsonObject, ns?: readonly string[]): void;
}
