import type { Json, JsonObject } from './json.ts';

/**
 * A run is one execution of a graph on a thread. States of its durable row:
 *
 *   admit → pending → running → success | error | timeout | interrupted
 *   admit → pending, queued → (its turn) pending
 *
 * A *queued* run waits behind the others of its thread (strategy `enqueue`), in the order of admission. Nobody holds it: it has no
 * owner, token or lease, and a cancel ends it at once.
 * `interrupted` is written at once when a newer run supersedes this one or when a cancel is finalized. As long as the
 * row is not *acknowledged* its holder keeps the authority to finalize it, and may move it once to `error` (a finished
 * rollback). `success`, `error`, `timeout` and anything acknowledged never change (D2). The rules as a pure function:
 * `reduceRun` in `run-machine.ts`; every store implements exactly that function, and the contract suite compares.
 */
export type RunStatus = 'pending' | 'running' | 'success' | 'error' | 'timeout' | 'interrupted';
export type TerminalStatus = 'success' | 'error' | 'timeout' | 'interrupted';

/** Kinds other than `run` are reservations: they hold the thread's only slot and stay out of listings. */
export type RunKind = 'run' | 'checkpoint_write' | 'artifact_write' | 'delete';
export type MultitaskStrategy = 'reject' | 'interrupt' | 'rollback' | 'enqueue';
export type CancelAction = 'interrupt' | 'rollback';
/** What a restarted process or a peer does with a run whose holder died (D7). */
export type CrashPolicy = 'resume' | 'error';
export type DisconnectMode = 'cancel' | 'continue';

export const isTerminal = (status: RunStatus): status is TerminalStatus => status !== 'pending' && status !== 'running';

/** The proof of an exclusive right. The token is new at every acquisition and stands on the row of the right (D1). */
export interface Fence {
  readonly runId: string;
  readonly token: string;
}

/** What the creator of a run asked for; stored as it is, minus secrets. */
export interface RunRequest {
  /** Graph input, e.g. `{messages: [...]}`; null to continue from the checkpoint. */
  readonly input: Json;
  /** `{resume}`, `{goto}`, `{update}` of a LangGraph command; excludes `input`. */
  readonly command: JsonObject | null;
  /** Runnable config without server-owned keys: `recursion_limit`, `tags`, `configurable`. */
  readonly config: JsonObject;
  /** Run options such as `model_name`; only keys that the gateway allows. */
  readonly context: JsonObject;
  /** LangGraph mode names as asked (`values`, `messages-tuple`, `updates`, `custom`, `debug`, `tasks`, `checkpoints`). */
  readonly streamModes: readonly string[];
  readonly streamSubgraphs: boolean;
  /** Start from this checkpoint of the thread instead of its head. */
  readonly checkpointId: string | null;
  readonly interruptBefore: readonly string[] | '*';
  readonly interruptAfter: readonly string[] | '*';
}

/** Asks for nothing: what a request leaves unsaid. */
export const EMPTY_REQUEST: RunRequest = {
  input: null,
  command: null,
  config: {},
  context: {},
  streamModes: [],
  streamSubgraphs: false,
  checkpointId: null,
  interruptBefore: [],
  interruptAfter: [],
};

export interface TokenUsage {
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly totalTokens: number;
  readonly modelCalls: number;
  /** Who used what, as far as it is known; absent where nothing was counted. */
  readonly by?: UsageShares;
}
export type UsageCaller = 'lead_agent' | 'subagent' | 'middleware';
export type ModelShare = {
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly calls: number;
  /** Of the input, what the provider read from its cache; absent = nothing, or it does not say. */
  readonly cacheReadTokens?: number;
  /** Of the output, what was thought. */
  readonly reasoningTokens?: number;
};
export interface UsageShares {
  /** Tokens by the provider's name of the model. At most 32 models; the rest counts for `other`. */
  readonly models: Readonly<Record<string, ModelShare>>;
  readonly callers: Readonly<Partial<Record<UsageCaller, number>>>;
}
export const NO_USAGE: TokenUsage = { inputTokens: 0, outputTokens: 0, totalTokens: 0, modelCalls: 0 };

/** A row of `runs`. Times are wall-clock milliseconds. */
export interface Run {
  readonly runId: string;
  readonly threadId: string;
  readonly userId: string;
  readonly assistantId: string;
  readonly kind: RunKind;
  readonly status: RunStatus;
  /** `pending` and waiting for its turn behind other runs of the thread. */
  readonly queued: boolean;
  /** The instance that holds the run; null while it is queued and once it is acknowledged. */
  readonly owner: string | null;
  /** Number of times a worker took the run: 0 when pending, 1 during its first attempt. */
  readonly attempt: number;
  /** Terminal, written by its finalizer, with its terminal fact. Nothing changes any more. */
  readonly acknowledged: boolean;
  readonly multitaskStrategy: MultitaskStrategy;
  readonly onDisconnect: DisconnectMode;
  readonly crashPolicy: CrashPolicy;
  readonly idempotencyKey: string | null;
  /** SHA-256 (hex) of the canonical request; a key that is reused with another payload is a conflict. */
  readonly payloadHash: string;
  readonly request: RunRequest;
  readonly metadata: JsonObject;
  /** First action wins and is never overwritten (RL-12). */
  readonly cancelAction: CancelAction | null;
  readonly cancelRequestedAt: number | null;
  /** Head checkpoint before the first attempt: the target of a rollback. `''` = the thread had none; null = not captured. */
  readonly checkpointBefore: string | null;
  readonly error: string | null;
  /** e.g. `loop_capped`, `orphan_recovered`; null = none. */
  readonly stopReason: string | null;
  readonly usage: TokenUsage;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly startedAt: number | null;
  readonly endedAt: number | null;
}

/** A run to which nothing has happened yet but what `part` says. */
export const newRun = (
  part: Pick<Run, 'runId' | 'threadId' | 'userId' | 'assistantId' | 'createdAt'> & Partial<Run>,
): Run => ({
  kind: 'run',
  status: 'pending',
  queued: false,
  owner: null,
  attempt: 0,
  acknowledged: false,
  multitaskStrategy: 'reject',
  onDisconnect: 'continue',
  crashPolicy: 'resume',
  idempotencyKey: null,
  payloadHash: '',
  request: EMPTY_REQUEST,
  metadata: {},
  cancelAction: null,
  cancelRequestedAt: null,
  checkpointBefore: null,
  error: null,
  stopReason: null,
  usage: NO_USAGE,
  updatedAt: part.createdAt,
  startedAt: null,
  endedAt: null,
  ...part,
});
