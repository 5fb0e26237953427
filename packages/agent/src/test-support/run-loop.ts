import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { type BaseMessage, SystemMessage } from '@langchain/core/messages';
import type { StructuredToolInterface } from '@langchain/core/tools';
import { type BaseCheckpointSaver, MemorySaver } from '@langchain/langgraph';
import type { Graph, SandboxProvider } from '@reindeer/protocol';
import { SharedLeases } from '@reindeer/sandbox';
import { agentGraph } from '../loop/attempt-graph.ts';
import { compileGraph, createLoop } from '../loop/loop.ts';
import type { Middleware } from '../loop/middleware.ts';
import { AttemptScope } from '../loop/scope.ts';
import { threadChannels } from '../loop/thread-channels.ts';
import type { Skill } from '../skills/library.ts';
import { type RecordedAttempt, recordedAttempt, testSurroundings } from './fake-attempt.ts';

export interface LoopFixture {
  readonly model: BaseChatModel;
  readonly tools?: readonly StructuredToolInterface[];
  readonly middleware?: readonly Middleware[];
  readonly systemPrompt?: string;
  readonly sandboxes?: SandboxProvider;
  readonly maxCharacters?: number;
  /** Before every id that is made; two loops on one thread need different ones. */
  readonly ids?: string;
  /** null = they could not be read. */
  readonly skills?: readonly Skill[] | null;
  /** Does the model see pictures? */
  readonly vision?: boolean;
}

/** A loop over a fixed model; `start` gives one attempt's graph. */
export function fixture(options: LoopFixture) {
  const surroundings = testSurroundings(options.ids);
  const systemMessage = new SystemMessage(options.systemPrompt ?? '');
  const loop = createLoop({
    channels: threadChannels(surroundings.random),
    middleware: options.middleware ?? [],
    tools: options.tools ?? [],
    random: surroundings.random,
    historyLimits: { maxCharacters: options.maxCharacters ?? 1_000_000 },
    request: (_scope, _runtime, tools) => ({ model: options.model, systemMessage, tools }),
  });
  const compiled = compileGraph(loop, 'test');
  const leases = options.sandboxes === undefined ? null : new SharedLeases(options.sandboxes, surroundings.logger);
  const start = (saver: BaseCheckpointSaver, attempt: RecordedAttempt = recordedAttempt()): Graph =>
    agentGraph({
      loop,
      compiled,
      saver,
      scope: new AttemptScope(attempt, leases, null, undefined, null, options.skills, options.vision),
      surroundings,
    });
  return { loop, compiled, start, surroundings };
}

export interface Outcome {
  readonly messages: BaseMessage[];
  readonly values: Record<string, unknown>;
  readonly interrupts: readonly { readonly value?: unknown }[];
  readonly attempt: RecordedAttempt;
}

/** Runs a graph to its end or interrupt and answers the state. */
export async function drain(
  graph: Graph,
  input: unknown,
  attempt: RecordedAttempt,
  more: { context?: Record<string, unknown>; recursionLimit?: number } = {},
): Promise<Outcome> {
  const configurable = { thread_id: attempt.run.threadId };
  const stream = await graph.stream(input, {
    configurable,
    streamMode: ['updates'],
    subgraphs: true,
    durability: 'sync',
    signal: attempt.signal,
    ...more,
  });
  for await (const _ of stream) {
    // The frames are not looked at here; reading them is what makes the graph run.
  }
  const snapshot = await graph.getState({ configurable });
  return {
    messages: (snapshot.values.messages ?? []) as BaseMessage[],
    values: snapshot.values,
    interrupts: snapshot.tasks.flatMap((task) => task.interrupts),
    attempt,
  };
}

export async function runLoop(
  options: LoopFixture & {
    readonly input: unknown;
    readonly saver?: BaseCheckpointSaver;
    readonly attempt?: RecordedAttempt;
    readonly context?: Record<string, unknown>;
  },
): Promise<Outcome> {
  const attempt = options.attempt ?? recordedAttempt();
  const graph = fixture(options).start(options.saver ?? new MemorySaver(), attempt);
  const input = Array.isArray(options.input) ? { messages: options.input } : options.input;
  return drain(graph, input, attempt, options.context === undefined ? {} : { context: options.context });
}
