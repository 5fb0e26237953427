import {
  type AttemptContext,
  type Effects,
  EMPTY_REQUEST,
  type JournalBegin,
  type Json,
  type JsonObject,
  NO_USAGE,
  newRun,
  type Packed,
  ReindeerError,
  type Run,
  type Surroundings,
  type TokenUsage,
} from '@reindeer/protocol';

/** One call of an agent without a runtime around it. */
export interface StandaloneRun {
  readonly threadId: string;
  readonly userId: string;
  readonly context: JsonObject;
  readonly agentName: string;
  readonly signal: AbortSignal | undefined;
  readonly surroundings: Surroundings;
  /** Events such as `llm_retry` and `task_started`. */
  readonly onEvent: ((event: Json) => void) | undefined;
}

export interface StandaloneAttempt extends AttemptContext {
  /** Why it ended early, and with which failure; null = it did not. */
  readonly ending: { readonly stopReason: string | null; readonly failure: string | null };
}

/**
 * An attempt whose journal is memory: within one process no tool runs twice, and a crash loses it. The runtime's attempts are durable and fenced;
 * whoever needs that runs the agent there.
 */
export function standaloneAttempt(input: StandaloneRun): StandaloneAttempt {
  const { surroundings } = input;
  const run = runOf(input);
  const signal = input.signal ?? new AbortController().signal;
  const rows = new Map<string, { result: unknown; finished: boolean }>();
  const keyOf = (call: { readonly messageId: string; readonly index: number }): string =>
    `${call.messageId}:${call.index}`;
  let usage: TokenUsage = NO_USAGE;
  const counted = new Set<string>();
  const told = new Set<string>();
  const ending: { stopReason: string | null; failure: string | null } = { stopReason: null, failure: null };
  return {
    run,
    attempt: 1,
    signal,
    ending,
    journal: {
      async begin(call): Promise<JournalBegin> {
        const row = rows.get(keyOf(call));
        if (row?.finished === true) return { outcome: 'finished', result: row as unknown as Packed };
        if (row !== undefined && !call.again) return { outcome: 'unfinished', startedAt: run.createdAt, attempt: 1 };
        rows.set(keyOf(call), { result: null, finished: false });
        return { outcome: 'begin' };
      },
      async finish(call) {
        const row = rows.get(keyOf(call));
        if (row?.finished === true) return row.result;
        rows.set(keyOf(call), { result: call.result, finished: true });
        return call.result;
      },
      async retract(call) {
        if (rows.get(keyOf(call))?.finished === false) rows.delete(keyOf(call));
      },
      unpack: (packed) => (packed as unknown as { readonly result: unknown }).result,
    },
    effects: liveEffects(signal, surroundings),
    // The stream of the graph has whole messages; pieces are the runtime's to keep.
    tokens: { push: () => {} },
    emit: (data, _ns, key) => {
      if (key !== undefined && told.has(key)) return;
      if (key !== undefined) told.add(key);
      input.onEvent?.(data);
    },
    nameTask: () => {},
    countUsage: ({ inputTokens, outputTokens, source }) => {
      if (source !== undefined && counted.has(source)) return;
      if (source !== undefined) counted.add(source);
      usage = {
        ...usage,
        inputTokens: usage.inputTokens + inputTokens,
        outputTokens: usage.outputTokens + outputTokens,
        totalTokens: usage.totalTokens + inputTokens + outputTokens,
        modelCalls: usage.modelCalls + 1,
      };
    },
    usage: () => usage,
    stopReason: (reason) => {
      ending.stopReason ??= reason;
    },
    fail: (message) => {
      ending.failure ??= message;
    },
  };
}

function liveEffects(signal: AbortSignal, { clock }: Surroundings): Effects {
  const live = new Map<symbol, string>();
  let quiet: PromiseWithResolvers<void> | null = null;
  return {
    async track(name, work) {
      if (signal.aborted) throw new ReindeerError('aborted', 'The run is stopping.');
      const key = Symbol(name);
      live.set(key, name);
      try {
        return await work();
      } finally {
        live.delete(key);
        if (live.size === 0) quiet?.resolve();
      }
    },
    async stopped(timeoutMs) {
      if (live.size > 0) {
        quiet = Promise.withResolvers<void>();
        const over = new AbortController();
        await Promise.race([quiet.promise, clock.sleep(timeoutMs, over.signal).catch(() => {})]);
        over.abort();
      }
      return [...live.values()];
    },
    live: () => [...live.values()],
  };
}

function runOf({ threadId, userId, context, agentName, surroundings }: StandaloneRun): Run {
  const now = surroundings.clock.now();
  return newRun({
    runId: surroundings.random.uuid(),
    threadId,
    userId,
    assistantId: agentName,
    status: 'running',
    attempt: 1,
    crashPolicy: 'error',
    request: { ...EMPTY_REQUEST, context, streamModes: ['values'] },
    createdAt: now,
    startedAt: now,
  });
}
