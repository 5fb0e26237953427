import type { BaseMessage } from '@langchain/core/messages';
import { Command, isCommand } from '@langchain/langgraph';
import { type Graph, type GraphConfig, type GraphSnapshot, ReindeerError, type Surroundings } from '@reindeer/protocol';
import { checkedInput, markedByChannel } from './input.ts';
import type { CompiledGraph, Loop } from './loop.ts';
import { type AttemptScope, SCOPE } from './scope.ts';

/** LangGraph's own key for a saver that is lent through the configuration: one compiled graph serves every attempt. */
const SAVER = '__pregel_checkpointer';
/** How long the release of a sandbox waits for commands that an abort left running. */
const STOP_TIMEOUT_MS = 60_000;
const RECURSION_LIMIT = 1_000;

export interface AgentGraphOptions {
  readonly loop: Loop;
  readonly compiled: CompiledGraph;
  readonly saver: unknown;
  /** Null outside of a run: state can be read and edited, nothing can be run. */
  readonly scope: AttemptScope | null;
  readonly surroundings: Surroundings;
  /** Added to the run's metadata: which agent, which model. */
  readonly metadata?: Readonly<Record<string, unknown>>;
}

/** The compiled graph as one attempt sees it. */
export function agentGraph(options: AgentGraphOptions): Graph {
  const { loop, compiled, saver, scope, surroundings, metadata = {} } = options;
  const lend = <T extends GraphConfig>(config: T): T => ({
    ...config,
    configurable: { ...config.configurable, [SAVER]: saver, ...(scope === null ? {} : { [SCOPE]: scope }) },
  });
  return {
    stateKeys: loop.publicKeys,
    async stream(input, config) {
      const checked = prepareInput(loop, input, scope, surroundings);
      const frames = await compiled.stream(checked, {
        recursionLimit: RECURSION_LIMIT,
        ...lend(config),
        metadata: { ...config.metadata, ...metadata },
      });
      return scope === null ? frames : releasing(frames, scope);
    },
    getState: async (config, stateOptions) => visible(loop, await compiled.getState(lend(config), stateOptions)),
    async *getStateHistory(config, historyOptions) {
      for await (const state of compiled.getStateHistory(lend(config), historyOptions)) yield visible(loop, state);
    },
    async updateState(config, values, asNode) {
      const checked = values === null || values === undefined ? values : checkedInput(loop, values, surroundings);
      return (await compiled.updateState(lend(config), checked, asNode)) as GraphConfig;
    },
  };
}

/** A snapshot with the channels that clients may see: LangGraph answers all, the loop's own and private ones too. */
function visible(loop: Loop, state: unknown): GraphSnapshot {
  const snapshot = state as GraphSnapshot;
  const values = Object.entries(snapshot.values ?? {}).filter(([key]) => loop.publicKeys.includes(key));
  return { ...snapshot, values: Object.fromEntries(values) };
}

function prepareInput(loop: Loop, input: unknown, scope: AttemptScope | null, surroundings: Surroundings): unknown {
  if (input === null || input === undefined) return null;
  if (isCommand(input)) {
    const { update } = input as unknown as { update?: unknown };
    if (update === undefined || update === null) return input;
    const checked = checkedInput(loop, update, surroundings);
    if (scope !== null && Array.isArray(checked.messages))
      checked.messages = markedByChannel(checked.messages as BaseMessage[], scope.attempt);
    return new Command({ ...(input as object), update: checked } as never);
  }
  return checkedInput(loop, input, surroundings, scope?.attempt);
}

/** Passes the frames on and gives the sandbox back at every kind of end: answer, error, abort, or a reader that leaves. */
async function* releasing(
  frames: AsyncIterable<[string[], string, unknown]>,
  scope: AttemptScope,
): AsyncGenerator<[string[], string, unknown]> {
  try {
    yield* frames;
  } catch (error) {
    throw decisive(error);
  } finally {
    // Not awaited: an abort is answered at once, and commands that still run keep their sandbox until they end (D6).
    void scope.attempt.effects.stopped(STOP_TIMEOUT_MS).then(
      () => scope.release(),
      () => scope.release(),
    );
  }
}

/** From the one that decides most: a run that is lost, or whose store is silent, is no failed run. */
const DECISIVE: readonly ReindeerError['code'][] = ['fenced', 'store_unavailable', 'aborted'];

/** When several tasks of a step fail LangGraph wraps their errors together: the one that decides what becomes of the run is thrown. */
function decisive(error: unknown): unknown {
  if (!(error instanceof AggregateError)) return error;
  const faults = error.errors.filter((inner) => ReindeerError.is(inner));
  for (const code of DECISIVE) {
    const found = faults.find((fault) => fault.code === code);
    if (found !== undefined) return found;
  }
  return error;
}
