import {
  type AttemptContext,
  type Clock,
  type JournalBegin,
  type Json,
  NO_LOG,
  NO_PROBE,
  type Packed,
  ReindeerError,
  type Run,
  type Surroundings,
  type ToolOutcome,
  type WireMessage,
} from '@reindeer/protocol';
import { makeRun } from '@reindeer/testkit';

/** Ids and numbers in a fixed order; the clock moves only when somebody sleeps. */
export function testSurroundings(prefix = 'id'): Surroundings & { readonly sleeps: number[] } {
  let now = Date.UTC(2026, 0, 5, 9, 0, 0);
  let count = 0;
  const sleeps: number[] = [];
  const clock: Clock = {
    now: () => now,
    monotonic: () => now,
    async sleep(milliseconds, signal) {
      signal?.throwIfAborted();
      sleeps.push(milliseconds);
      now += milliseconds;
    },
  };
  return {
    clock,
    random: { uuid: () => `${prefix}-${++count}`, next: () => 0.5 },
    probe: NO_PROBE,
    logger: NO_LOG,
    sleeps,
  };
}

interface Entry {
  attempt: number;
  result: unknown;
  outcome: ToolOutcome | null;
}

/** The journal's rows, shared by the attempts of one thread: what a database would keep over a crash. */
export type JournalRows = Map<string, Entry>;

export interface RecordedAttempt extends AttemptContext {
  readonly pushed: WireMessage[];
  readonly emitted: Json[];
  /** Every event with its namespace; one whose key is known already is left out, as in the log. */
  readonly events: RecordedEvent[];
  /** Namespaces of the pieces in `pushed`. */
  readonly pushedTo: string[];
  readonly named: Map<string, string>;
  /** Every call that was counted. */
  readonly counted: { inputTokens: number; outputTokens: number; model: string }[];
  readonly failures: string[];
  readonly stopReasons: string[];
  readonly rows: JournalRows;
  abort(stop?: string): void;
}

export interface RecordedEvent {
  readonly data: Json;
  readonly ns: string;
  readonly key: string | null;
}

/** An attempt whose durable parts are maps. Begin and finish behave as the port says. */
export function recordedAttempt(
  options: {
    run?: Run;
    attempt?: number;
    rows?: JournalRows;
    events?: RecordedEvent[];
    fenced?: boolean;
    undelivered?: () => Promise<readonly string[]>;
  } = {},
): RecordedAttempt {
  const run = options.run ?? makeRun();
  const attempt = options.attempt ?? 1;
  const rows: JournalRows = options.rows ?? new Map();
  const controller = new AbortController();
  const live = new Map<symbol, string>();
  let waiting: (() => void)[] = [];
  const keyOf = (call: { messageId: string; index: number }): string => `${call.messageId}:${call.index}`;
  const recorded = {
    pushed: [] as WireMessage[],
    emitted: [] as Json[],
    events: options.events ?? [],
    pushedTo: [] as string[],
    named: new Map<string, string>(),
    counted: [] as RecordedAttempt['counted'],
    failures: [] as string[],
    stopReasons: [] as string[],
  };
  return {
    ...recorded,
    rows,
    run,
    attempt,
    signal: controller.signal,
    abort: (stop = 'cancelled') =>
      controller.abort(new ReindeerError('aborted', 'The run was cancelled.', { detail: { stop } })),
    journal: {
      async begin(call): Promise<JournalBegin> {
        if (options.fenced === true) return { outcome: 'fenced' };
        const row = rows.get(keyOf(call));
        if (row?.outcome != null) return { outcome: 'finished', result: row as unknown as Packed };
        if (row !== undefined && !call.again) return { outcome: 'unfinished', startedAt: 0, attempt: row.attempt };
        rows.set(keyOf(call), { attempt, result: null, outcome: null });
        return { outcome: 'begin' };
      },
      async finish(call) {
        const row = rows.get(keyOf(call));
        if (row?.outcome != null) return row.result;
        rows.set(keyOf(call), { attempt, result: call.result, outcome: call.outcome });
        return call.result;
      },
      async retract(call) {
        if (rows.get(keyOf(call))?.outcome === null) rows.delete(keyOf(call));
      },
      unpack: (packed) => (packed as unknown as Entry).result,
    },
    effects: {
      async track(name, work) {
        if (controller.signal.aborted) throw new ReindeerError('aborted', 'The run is stopping.');
        const key = Symbol(name);
        live.set(key, name);
        try {
          return await work();
        } finally {
          live.delete(key);
          if (live.size === 0) {
            for (const done of waiting) done();
            waiting = [];
          }
        }
      },
      async stopped() {
        if (live.size > 0) await new Promise<void>((resolve) => waiting.push(resolve));
        return [...live.values()];
      },
      live: () => [...live.values()],
    },
    tokens: {
      push: (chunk, _metadata, ns = []) => {
        recorded.pushed.push(chunk);
        recorded.pushedTo.push(ns.join('|'));
      },
    },
    emit: (data, ns = [], key) => {
      recorded.emitted.push(data);
      if (key !== undefined && recorded.events.some((event) => event.key === key)) return;
      recorded.events.push({ data, ns: ns.join('|'), key: key ?? null });
    },
    nameTask: (taskId, node) => void recorded.named.set(taskId, node),
    countUsage: (usage) => void recorded.counted.push(usage),
    usage: () =>
      recorded.counted.reduce(
        (sum, usage) => ({
          inputTokens: sum.inputTokens + usage.inputTokens,
          outputTokens: sum.outputTokens + usage.outputTokens,
          totalTokens: sum.totalTokens + usage.inputTokens + usage.outputTokens,
          modelCalls: sum.modelCalls + 1,
        }),
        run.usage,
      ),
    ...(options.undelivered === undefined ? {} : { undelivered: options.undelivered }),
    stopReason: (reason) => void recorded.stopReasons.push(reason),
    fail: (message) => void recorded.failures.push(message),
  };
}
