import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import type { SystemMessage } from '@langchain/core/messages';
import type { StructuredToolInterface } from '@langchain/core/tools';
import { END, START, StateGraph } from '@langchain/langgraph';
import { type Random, ReindeerError } from '@reindeer/protocol';
import type { HistoryLimits } from '../history/canonicalise.ts';
import { ModelCaller } from './call-model.ts';
import { type Chain, compileChain } from './chain.ts';
import { type Channels, channelsOfSchema, graphChannels, JUMP } from './channels.ts';
import type { HookRuntime, Middleware } from './middleware.ts';
import { modelNode, type NodeConfig, prepareNode, reviewNode } from './nodes.ts';
import { edge, entryEdge, NODES, type ToolTask } from './route.ts';
import type { AttemptScope } from './scope.ts';
import { toolNode } from './tool-node.ts';

/** What the model is asked with, before middleware: chosen per call, since it may depend on the run and its sandbox. */
export interface BaseRequest {
  readonly model: BaseChatModel;
  readonly systemMessage: SystemMessage;
  /** The same array object for the same tools: bindings are remembered by it. */
  readonly tools: readonly unknown[];
}

export interface LoopOptions {
  readonly channels: Channels;
  readonly middleware: readonly Middleware[];
  readonly tools: readonly StructuredToolInterface[];
  readonly random: Random;
  readonly historyLimits: HistoryLimits;
  request(scope: AttemptScope, runtime: HookRuntime, allTools: readonly unknown[]): BaseRequest;
}

/** The agent loop's fixed parts, made once and shared by all runs. */
export interface Loop {
  readonly channels: Channels;
  /** Channels that clients may see. */
  readonly publicKeys: readonly string[];
  readonly stateKeys: readonly string[];
  readonly chain: Chain;
  readonly caller: ModelCaller;
  readonly tools: ReadonlyMap<string, StructuredToolInterface>;
  readonly returnDirect: ReadonlySet<string>;
  readonly random: Random;
  readonly historyLimits: HistoryLimits;
  request(scope: AttemptScope, runtime: HookRuntime): BaseRequest;
}

/** Joins tools, channels and middleware. Throws `configuration` for two middlewares of one name. */
export function createLoop(options: LoopOptions): Loop {
  const middlewareTools = options.middleware.flatMap((item) => [...(item.tools ?? [])]);
  const tools = new Map<string, StructuredToolInterface>();
  const offered: unknown[] = [];
  for (const tool of [...options.tools, ...middlewareTools]) {
    const runnable = runnableTool(tool);
    // Names are unique, the first wins (AG-2); a provider's own tools have no body here and are offered as they are.
    if (runnable !== null && tools.has(runnable.name)) continue;
    if (runnable !== null) tools.set(runnable.name, runnable);
    offered.push(tool);
  }
  const channels: Record<string, Channels[string]> = { ...options.channels };
  for (const { stateSchema } of options.middleware)
    for (const [key, channel] of Object.entries(channelsOfSchema(stateSchema))) channels[key] ??= channel;
  const returnDirect = [...tools.values()].filter((tool) => (tool as { returnDirect?: boolean }).returnDirect === true);
  return {
    channels,
    publicKeys: Object.keys(channels).filter((key) => channels[key]?.hidden === false),
    stateKeys: Object.keys(channels),
    chain: compileChain(options.middleware, new Set(tools.keys())),
    caller: new ModelCaller(),
    tools,
    returnDirect: new Set(returnDirect.map((tool) => tool.name)),
    random: options.random,
    historyLimits: options.historyLimits,
    request: (scope, runtime) => options.request(scope, runtime, offered),
  };
}

function runnableTool(tool: unknown): StructuredToolInterface | null {
  const { name, invoke } = tool as { name?: unknown; invoke?: unknown };
  return typeof name === 'string' && typeof invoke === 'function' ? (tool as StructuredToolInterface) : null;
}

/**
 * The graph: prepare → model → (review) → one task per tool call → model … It is compiled once; a run brings its saver
 * and its attempt in `configurable`.
 */
export function compileGraph(loop: Loop, name: string): CompiledGraph {
  const all = graphChannels(loop.channels);
  const visible = Object.fromEntries(Object.entries(all).filter(([key]) => loop.publicKeys.includes(key)));
  if (JUMP in visible) throw new ReindeerError('internal', 'The jump channel is private.');
  const builder = new StateGraph({ state: all, input: visible, output: visible } as never) as unknown as GraphBuilder;
  builder
    .addNode(NODES.prepare, (state, config) => prepareNode(loop, state, config))
    .addNode(NODES.model, (state, config) => modelNode(loop, state, config))
    .addNode(NODES.review, (state, config) => reviewNode(loop, state, config))
    .addNode(NODES.tools, (task, config) => toolNode(loop, task as unknown as ToolTask, config))
    .addEdge(START, NODES.prepare)
    .addConditionalEdges(NODES.prepare, entryEdge, [NODES.model, NODES.tools, END])
    .addConditionalEdges(NODES.model, edge, [NODES.tools, NODES.model, NODES.review, END])
    .addConditionalEdges(NODES.review, edge, [NODES.tools, NODES.model, END])
    .addEdge(NODES.tools, NODES.model);
  return builder.compile({ name });
}

type NodeFunction = (state: Record<string, unknown>, config: NodeConfig) => Promise<unknown>;
/** LangGraph's builder without its type arithmetic: node names here are ours, and the state's type is `Record`. */
interface GraphBuilder {
  addNode(name: string, node: NodeFunction): GraphBuilder;
  addEdge(from: string, to: string): GraphBuilder;
  addConditionalEdges(from: string, edge: (state: Record<string, unknown>) => unknown, ends: string[]): GraphBuilder;
  compile(options: { name: string }): CompiledGraph;
}

/** A compiled LangGraph graph, as far as it is used here. */
export interface CompiledGraph {
  stream(input: unknown, options: unknown): Promise<AsyncIterable<[string[], string, unknown]>>;
  getState(config: unknown, options?: unknown): Promise<unknown>;
  getStateHistory(config: unknown, options?: unknown): AsyncIterable<unknown>;
  updateState(config: unknown, values: unknown, asNode?: string): Promise<unknown>;
}
