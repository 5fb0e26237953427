import type { CheckpointStore, GraphConfig, GraphFactory, JsonObject, Run } from '@reindeer/protocol';
import { factKey, ReindeerError } from '@reindeer/protocol';
import { toWire } from '../stream/wire.ts';
import type { Attempt } from './attempt.ts';
import { type Head, whereToBegin } from './beginning.ts';
import type { Ending } from './ending.ts';
import { ASKS, failure, SUCCESS } from './ending.ts';
import type { RunParts } from './ports.ts';

/** Modes that have no projection of facts: their frames are kept only for runs that asked. */
const FRAME_MODES = ['debug', 'tasks'] as const;

const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/**
 * Streams the graph of one attempt to its end and answers how the run ends. Facts of messages, updates and checkpoints are written
 * by the saver; here only `custom` events, frames that were asked for, and breakpoints without an interrupt value.
 *
 * @throws what the graph throws; after an abort the signal's reason.
 */
export async function executeGraph(
  parts: RunParts,
  attempt: Attempt,
  factory: GraphFactory,
  head: Head,
  saverOn: (store: CheckpointStore) => unknown,
): Promise<Ending> {
  const { run } = attempt;
  const begin = await whereToBegin(parts, run, head);
  const graph = await factory.forAttempt(attempt, saverOn(begin.store));
  const asked = FRAME_MODES.filter((mode) => run.request.streamModes.includes(mode));
  const stream = await graph.stream(begin.input, {
    ...configOf(parts, attempt, begin.checkpointId),
    streamMode: ['custom', 'updates', ...asked],
    subgraphs: true,
    durability: 'sync',
    ...(run.request.interruptBefore.length > 0 ? { interruptBefore: mutable(run.request.interruptBefore) } : {}),
    ...(run.request.interruptAfter.length > 0 ? { interruptAfter: mutable(run.request.interruptAfter) } : {}),
  });
  let asks = false;
  for await (const [namespace, mode, data] of stream) {
    attempt.signal.throwIfAborted();
    const ns = namespace.join('|');
    if (mode === 'custom') attempt.record({ kind: 'custom', ns, data: toWire(data) });
    else if (mode === 'updates') {
      if (!isObject(data) || !('__interrupt__' in data)) continue;
      asks = true;
      // The saver reports interrupts with a value; a breakpoint has none and would leave no trace.
      const interrupts = data.__interrupt__;
      if (Array.isArray(interrupts) && interrupts.length === 0 && ns === '') {
        const key = factKey.interrupt('', 'breakpoint', `${run.runId}:${run.attempt}`);
        attempt.record({ kind: 'interrupt', ns, interrupts: [] }, key);
      }
    } else attempt.record({ kind: 'frame', ns, mode, data: toWire(data) });
  }
  attempt.signal.throwIfAborted();
  const { failure: failed, stopReason } = attempt.outcome;
  if (failed !== null) return failure(failed, stopReason);
  return { ...SUCCESS, stopReason: stopReason ?? (asks ? ASKS : null) };
}

/** What a graph's exception means for the run. */
export function endingOfError(error: unknown, recursionLimit: number): Ending {
  const code = isObject(error) ? (error as { lc_error_code?: unknown }).lc_error_code : undefined;
  if (code === 'GRAPH_RECURSION_LIMIT') {
    return failure(
      `The run reached its limit of ${recursionLimit} steps. Raise config.recursion_limit, or send another message to continue.`,
      'loop_capped',
    );
  }
  if (ReindeerError.is(error)) return failure(error.message);
  if (error instanceof Error) {
    if (error.name === 'EmptyInputError') {
      return failure('There is nothing to do: the run has no input, and the thread has nothing to continue.');
    }
    return failure(error.message === '' ? error.name : error.message);
  }
  return failure(String(error));
}

export function recursionLimitOf(parts: Pick<RunParts, 'settings'>, run: Run): number {
  const asked = run.request.config.recursion_limit;
  const { recursionLimit, maxRecursionLimit } = parts.settings;
  if (typeof asked !== 'number' || !Number.isFinite(asked) || asked < 1) return recursionLimit;
  return Math.min(Math.floor(asked), maxRecursionLimit);
}

/** Keys of `configurable` that belong to the server (RT-16); LangGraph's own begin with `__`. */
const OWNED = new Set([
  'thread_id',
  'checkpoint_id',
  'checkpoint_ns',
  'checkpoint_map',
  'run_id',
  'user_id',
  'assistant_id',
]);

function configOf(parts: RunParts, attempt: Attempt, checkpointId: string | null): GraphConfig {
  const { run } = attempt;
  const { config, context } = run.request;
  const identity = {
    thread_id: run.threadId,
    run_id: run.runId,
    user_id: run.userId,
    assistant_id: run.assistantId,
  };
  const asked = isObject(config.configurable) ? config.configurable : {};
  const tags = Array.isArray(config.tags) ? config.tags.filter((tag) => typeof tag === 'string') : [];
  return {
    configurable: {
      ...withoutOwned(asked),
      ...identity,
      checkpoint_ns: '',
      ...(checkpointId === null ? {} : { checkpoint_id: checkpointId }),
    },
    context: { ...withoutOwned(context), ...identity },
    metadata: { ...run.metadata, ...identity },
    signal: attempt.signal,
    recursionLimit: recursionLimitOf(parts, run),
    ...(tags.length > 0 ? { tags } : {}),
  };
}

function withoutOwned(asked: JsonObject): Record<string, unknown> {
  return Object.fromEntries(Object.entries(asked).filter(([key]) => !OWNED.has(key) && !key.startsWith('__')));
}

const mutable = (nodes: readonly string[] | '*'): string[] | '*' => (nodes === '*' ? '*' : [...nodes]);
