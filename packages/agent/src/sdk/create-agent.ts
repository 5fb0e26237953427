import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { type BaseMessage, SystemMessage } from '@langchain/core/messages';
import type { StructuredToolInterface } from '@langchain/core/tools';
import { type BaseCheckpointSaver, MemorySaver } from '@langchain/langgraph';
import {
  DEFAULT_USER,
  type Json,
  type JsonObject,
  offersCommands,
  ReindeerError,
  type SandboxProvider,
  type Surroundings,
  type TokenUsage,
} from '@reindeer/protocol';
import { SharedLeases } from '@reindeer/sandbox';
import type { MemorySource } from '../context/memory-port.ts';
import { SUMMARIZATION } from '../context/summarization.ts';
import { systemPrompt as defaultPrompt } from '../lead/prompt.ts';
import { DEFAULT_SAFEGUARDS, safeguards } from '../lead/safeguards.ts';
import { agentGraph } from '../loop/attempt-graph.ts';
import { compileGraph, createLoop } from '../loop/loop.ts';
import type { Middleware } from '../loop/middleware.ts';
import { AttemptScope } from '../loop/scope.ts';
import { threadChannels } from '../loop/thread-channels.ts';
import { BASH_AUDIT } from '../middleware/bash-audit.ts';
import { clarificationMiddleware } from '../middleware/clarification.ts';
import { GUARDRAIL } from '../middleware/guardrail.ts';
import { DEFAULT_LLM_CALL } from '../middleware/llm-errors.ts';
import { LOOP_DETECTION } from '../middleware/loop-detection.ts';
import { checkOrder } from '../middleware/order.ts';
import { READ_BEFORE_WRITE } from '../middleware/read-before-write.ts';
import { SANDBOX } from '../middleware/sandbox.ts';
import { THREAD_DATA, threadDataMiddleware } from '../middleware/thread-data.ts';
import { DEFAULT_TITLE_SETTINGS, TITLE, titleMiddleware } from '../middleware/title.ts';
import { TODOS_PROMPT, todosMiddleware } from '../middleware/todos.ts';
import { DEFAULT_TOKEN_BUDGET, TOKEN_BUDGET, tokenBudgetMiddleware } from '../middleware/token-budget.ts';
import { UPLOADS, uploadsMiddleware } from '../middleware/uploads.ts';
import { VIEWED_IMAGES, viewedImagesMiddleware } from '../middleware/viewed-images.ts';
import { createModelRegistry } from '../models/registry.ts';
import { DEFAULT_SUBAGENTS } from '../subagents/settings.ts';
import { Subagents } from '../subagents/subagents.ts';
import { CLARIFICATION_TOOL } from '../tools/ask-clarification.ts';
import { coreTools, DEFAULT_CORE_TOOLS } from '../tools/core-tools.ts';
import { VIEW_IMAGE } from '../tools/view-image.ts';
import { writeTodosTool } from '../tools/write-todos.ts';
import { type ExtraMiddleware, withExtras } from './anchors.ts';
import { standaloneAttempt } from './standalone.ts';

/** What an agent made in code has. `true` = as it comes, `false` = not at all, or one of your own. */
export interface AgentFeatures {
  /** Files and commands; default: when `sandboxes` are given. */
  readonly sandbox?: boolean | Middleware;
  /** What is remembered of the user. */
  readonly memory?: false | MemorySource;
  readonly summarization?: false | Middleware;
  readonly subagent?: boolean | Subagents;
  /** Pictures, for a model that sees them; needs the sandbox. */
  readonly vision?: boolean;
  readonly autoTitle?: boolean | Middleware;
  readonly guardrail?: false | Middleware;
  /** Default true. */
  readonly loopDetection?: boolean | Middleware;
  readonly tokenBudget?: boolean | Middleware;
}

export interface AgentOptions {
  readonly model: BaseChatModel;
  /** Before those that features bring: of two of one name the first counts. */
  readonly tools?: readonly StructuredToolInterface[];
  /** Default: the lead agent's, for what there is. */
  readonly systemPrompt?: string;
  readonly features?: AgentFeatures;
  /** The whole chain: nothing else is added, no tools either. Excludes `features` and `extraMiddleware`. */
  readonly middleware?: readonly Middleware[];
  readonly extraMiddleware?: readonly ExtraMiddleware[];
  /** The agent keeps a list of what is to do. */
  readonly planMode?: boolean;
  /** More keys of the state, as zod's object. */
  readonly stateSchema?: unknown;
  /** Keeps conversations; without one each call begins anew. */
  readonly checkpointer?: BaseCheckpointSaver;
  readonly name?: string;
  readonly sandboxes?: SandboxProvider;
  readonly surroundings: Surroundings;
}

export interface AgentCall {
  /** Default: a new one. */
  readonly threadId?: string;
  readonly userId?: string;
  /** Options of the run, as over HTTP. */
  readonly context?: JsonObject;
  readonly signal?: AbortSignal;
  readonly recursionLimit?: number;
  readonly onEvent?: (event: Json) => void;
}

export interface AgentResult {
  readonly threadId: string;
  readonly values: Readonly<Record<string, unknown>> & { readonly messages: readonly BaseMessage[] };
  /** Questions that wait for an answer: call again with a `Command` and the same thread. */
  readonly interrupts: readonly { readonly value?: unknown }[];
  readonly usage: TokenUsage;
  /** Why it ended early, e.g. `loop_capped`; null = it did not. */
  readonly stopReason: string | null;
  /** The failure that stands in the answer; null = none. */
  readonly failure: string | null;
}

/** An agent made in code (AG-5). */
export interface ReindeerAgent {
  readonly name: string;
  /** Names, outermost first. */
  readonly middleware: readonly string[];
  readonly tools: readonly string[];
  /** Runs a turn to its end, or to a question. Rejects with the signal's reason after an abort. */
  invoke(input: unknown, call?: AgentCall): Promise<AgentResult>;
  /** The same, piece by piece: `[namespace, mode, data]` of LangGraph's modes. */
  stream(
    input: unknown,
    call?: AgentCall & { readonly streamMode?: readonly string[] },
  ): AsyncGenerator<[string[], string, unknown]>;
}

/** Middleware that is nothing without a sandbox. */
const OF_THE_SANDBOX: readonly string[] = [THREAD_DATA, UPLOADS, VIEWED_IMAGES, SANDBOX, BASH_AUDIT, READ_BEFORE_WRITE];

const refuse = (message: string): never => {
  throw new ReindeerError('configuration', message);
};

/**
 * Makes an agent without any configuration file: the loop, tools and safe-guards of the lead agent, each of which can be left out or replaced. It runs
 * in this process only, without the runtime's durable journal: what a crash cuts off is not taken up again.
 *
 * @throws ReindeerError `configuration` for options that contradict each other, and for a chain that breaks an order rule
 */
export function createReindeerAgent(options: AgentOptions): ReindeerAgent {
  const { surroundings, model, name = 'Reindeer', sandboxes } = options;
  const { chain, tools, prompt } = assembled(options, name);
  checkOrder(chain);
  const leases = sandboxes === undefined ? null : new SharedLeases(sandboxes, surroundings.logger);
  const systemMessage = new SystemMessage(prompt);
  const state = options.stateSchema === undefined ? [] : [{ name: 'state', stateSchema: options.stateSchema }];
  const loop = createLoop({
    channels: threadChannels(surroundings.random),
    middleware: [...chain, ...(state as Middleware[])],
    tools,
    random: surroundings.random,
    historyLimits: { maxCharacters: 1_000_000 },
    request: (_scope, _runtime, offered) => ({ model, systemMessage, tools: offered }),
  });
  const compiled = compileGraph(loop, name);
  const begin = (call: AgentCall) => {
    const threadId = call.threadId ?? surroundings.random.uuid();
    const context: JsonObject = { ...call.context, ...(options.planMode === true ? { is_plan_mode: true } : {}) };
    const attempt = standaloneAttempt({
      threadId,
      userId: call.userId ?? DEFAULT_USER,
      context,
      agentName: name,
      signal: call.signal,
      surroundings,
      onEvent: call.onEvent,
    });
    const graph = agentGraph({
      loop,
      compiled,
      saver: options.checkpointer ?? new MemorySaver(),
      surroundings,
      scope: new AttemptScope(attempt, leases, model, undefined, null, [], options.features?.vision === true),
    });
    const config = {
      configurable: { thread_id: threadId },
      context: context as Record<string, unknown>,
      signal: attempt.signal,
      ...(call.recursionLimit === undefined ? {} : { recursionLimit: call.recursionLimit }),
    };
    return {
      attempt,
      threadId,
      run: (input: unknown, streamMode: readonly string[]) =>
        graph.stream(input, { ...config, streamMode: [...streamMode], subgraphs: true, durability: 'sync' }),
      snapshot: () => graph.getState({ configurable: { thread_id: threadId } }),
    };
  };
  return {
    name,
    middleware: chain.map((item) => item.name),
    tools: [...loop.tools.keys()],
    async invoke(input, call = {}) {
      const { attempt, threadId, run, snapshot } = begin(call);
      for await (const _ of await run(input, ['updates'])) {
        // Reading is what makes the graph run; the state at its end is what counts here.
      }
      const { values, tasks } = await snapshot();
      return {
        threadId,
        values: values as AgentResult['values'],
        interrupts: tasks.flatMap((task) => task.interrupts),
        usage: attempt.usage(),
        ...attempt.ending,
      };
    },
    async *stream(input, call = {}) {
      yield* await begin(call).run(input, call.streamMode ?? ['updates']);
    },
  };
}

interface Assembled {
  readonly chain: readonly Middleware[];
  readonly tools: readonly StructuredToolInterface[];
  readonly prompt: string;
}

function assembled(options: AgentOptions, name: string): Assembled {
  const { features, middleware, extraMiddleware, tools = [] } = options;
  if (middleware === undefined) return fromFeatures(options, name);
  if (features !== undefined || extraMiddleware !== undefined)
    refuse(
      'middleware is the whole chain: it excludes features and extraMiddleware. Leave it out, or put everything into it.',
    );
  return { chain: middleware, tools, prompt: options.systemPrompt ?? '' };
}

function fromFeatures(options: AgentOptions, name: string): Assembled {
  const { features = {}, sandboxes, surroundings, planMode = false } = options;
  for (const key of ['summarization', 'guardrail', 'memory'] as const)
    if ((features[key] as unknown) === true)
      refuse(`features.${key}: there is none to begin with. Give one of your own, or false.`);
  const sandbox = features.sandbox ?? sandboxes !== undefined;
  if (sandbox !== false && sandboxes === undefined) refuse('features.sandbox needs sandboxes: give a SandboxProvider.');
  const report = sandboxes?.report();
  const abilities = {
    canExecute: sandbox !== false && report !== undefined && offersCommands(report),
    pathStyle: report?.provider === 'local' ? ('relative' as const) : ('virtual' as const),
  };
  const guards = safeguards({
    settings: DEFAULT_SAFEGUARDS,
    llmCall: DEFAULT_LLM_CALL,
    agentName: name,
    pathStyle: abilities.pathStyle,
    surroundings,
    ...(features.memory === undefined || features.memory === false ? {} : { memory: features.memory }),
  });
  const all: Middleware[] = [
    ...guards.first,
    threadDataMiddleware(),
    ...(sandboxes === undefined ? [] : [uploadsMiddleware(sandboxes)]),
    viewedImagesMiddleware(),
    ...guards.context,
    ...guards.calls,
    ...(planMode ? [todosMiddleware()] : []),
    titleMiddleware(DEFAULT_TITLE_SETTINGS, surroundings),
    tokenBudgetMiddleware({ ...DEFAULT_TOKEN_BUDGET, enabled: true }),
    ...guards.answers,
    clarificationMiddleware(),
  ];
  const flags: Readonly<Record<string, boolean | Middleware>> = {
    [SUMMARIZATION]: features.summarization ?? false,
    [GUARDRAIL]: features.guardrail ?? false,
    [LOOP_DETECTION]: features.loopDetection ?? true,
    [TITLE]: features.autoTitle ?? false,
    [TOKEN_BUDGET]: features.tokenBudget ?? false,
    ...(sandbox === false ? Object.fromEntries(OF_THE_SANDBOX.map((item) => [item, false])) : { [SANDBOX]: sandbox }),
  };
  const chain = all.flatMap((item): Middleware[] => {
    const flag = flags[item.name] ?? true;
    return flag === true ? [item] : flag === false ? [] : [flag];
  });
  const own = [
    ...(sandbox === false
      ? coreTools(DEFAULT_CORE_TOOLS, abilities).filter((tool) => tool.name === CLARIFICATION_TOOL)
      : coreTools(DEFAULT_CORE_TOOLS, abilities).filter(
          (tool) => tool.name !== VIEW_IMAGE || features.vision === true,
        )),
    ...(planMode ? [writeTodosTool()] : []),
  ];
  const tools = [...(options.tools ?? []), ...own];
  return {
    chain: withExtras(chain, options.extraMiddleware ?? []),
    tools: [...tools, ...delegation(options, tools, abilities)],
    prompt:
      options.systemPrompt ??
      defaultPrompt({
        agentName: name,
        interactive: true,
        ...abilities,
        ...(planMode ? { planning: TODOS_PROMPT } : {}),
      }),
  };
}

/** The `task` tool, where the agent may delegate. */
function delegation(
  { model, features = {}, surroundings }: AgentOptions,
  tools: readonly StructuredToolInterface[],
  abilities: { readonly canExecute: boolean; readonly pathStyle: 'virtual' | 'relative' },
): StructuredToolInterface[] {
  const { subagent = false } = features;
  if (subagent === false) return [];
  const subagents = subagent === true ? new Subagents({ settings: DEFAULT_SUBAGENTS, surroundings }) : subagent;
  const models = createModelRegistry({
    entries: [{ name: 'model', use: 'model', model: 'model' }],
    environment: {},
    logger: surroundings.logger,
    factories: { model: () => model },
  });
  return [
    subagents.taskTool({
      models,
      tools: tools.filter((tool) => tool.name !== VIEW_IMAGE),
      middleware: [],
      approvals: [],
      llmCall: DEFAULT_LLM_CALL,
      safeguards: DEFAULT_SAFEGUARDS,
      history: { maxCharacters: 1_000_000 },
      ...abilities,
      // There is one model, and whoever calls the library is its user.
      permitsOf: () => ({}),
      surroundings,
    }),
  ];
}
