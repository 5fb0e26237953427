import { type AIMessage, type BaseMessage, SystemMessage, type ToolMessage } from '@langchain/core/messages';
import { interopParse, isInteropZodObject } from '@langchain/core/utils/types';
import { type Command, isCommand } from '@langchain/langgraph';
import { ReindeerError } from '@reindeer/protocol';
import { isAi, isTool } from './messages.ts';
import type {
  HookRuntime,
  JumpTarget,
  Middleware,
  ModelHandler,
  ModelRequest,
  State,
  ToolHandler,
  ToolRequest,
} from './middleware.ts';

export type Stage = 'beforeAgent' | 'beforeModel' | 'afterModel' | 'afterAgent';

/** One hook of one middleware, ready to run. */
export interface Hook {
  /** For errors: `<middleware>.<stage>`. */
  readonly name: string;
  run(state: State, runtime: HookRuntime): Promise<{ readonly update: unknown; readonly jumpTo: JumpTarget | null }>;
}

/**
 * The middleware list, in LangChain's directions: before-hooks in list order, after-hooks in reverse, and for both kinds
 * of wrappers the first is the outermost. Hooks run in-process, inside a node, not as nodes of their own (D10).
 */
export interface Chain {
  /** In the order in which they run. */
  readonly hooks: Readonly<Record<Stage, readonly Hook[]>>;
  readonly wrapsTools: boolean;
  callModel(base: ModelHandler, request: ModelRequest): Promise<{ message: AIMessage; commands: readonly Command[] }>;
  callTool(base: ToolHandler, request: ToolRequest): Promise<ToolMessage | Command>;
}

/** Throws `configuration` when two middlewares share a name. */
export function compileChain(middleware: readonly Middleware[], toolNames: ReadonlySet<string>): Chain {
  const names = new Set<string>();
  for (const { name } of middleware) {
    if (names.has(name)) throw new ReindeerError('configuration', `Middleware "${name}" is listed twice.`);
    names.add(name);
  }
  const stage = (key: Stage, list: readonly Middleware[]): Hook[] =>
    list.flatMap((item) => (item[key] === undefined ? [] : [compileHook(item, key)]));
  const reversed = [...middleware].reverse();
  const modelWrappers = middleware.filter((item) => item.wrapModelCall !== undefined);
  const toolWrappers = middleware.filter((item) => item.wrapToolCall !== undefined);
  return {
    hooks: {
      beforeAgent: stage('beforeAgent', middleware),
      beforeModel: stage('beforeModel', middleware),
      afterModel: stage('afterModel', reversed),
      afterAgent: stage('afterAgent', reversed),
    },
    wrapsTools: toolWrappers.length > 0,
    callModel: (base, request) => wrapModel(modelWrappers, toolNames, toolWrappers.length > 0, base, request),
    callTool: (base, request) => wrapTool(toolWrappers, base, request),
  };
}

function compileHook(middleware: Middleware, stage: Stage): Hook {
  const declared = middleware[stage] as unknown;
  const name = `${middleware.name}.${stage}`;
  const hook = (typeof declared === 'function' ? declared : (declared as { hook: unknown }).hook) as (
    state: State,
    runtime: HookRuntime,
  ) => unknown;
  const allowed = typeof declared === 'function' ? undefined : (declared as { canJumpTo?: JumpTarget[] }).canJumpTo;
  return {
    name,
    async run(state, runtime) {
      const result = (await hook.call(middleware, state, withContext(middleware, runtime))) as
        | (Record<string, unknown> & { jumpTo?: JumpTarget })
        | undefined
        | null;
      const jumpTo = result?.jumpTo ?? null;
      if (jumpTo !== null && allowed?.includes(jumpTo) !== true)
        throw new ReindeerError(
          'configuration',
          `${name} jumps to "${jumpTo}", which its canJumpTo does not list (${allowed?.join(', ') ?? 'nothing'}).`,
        );
      return { update: result, jumpTo };
    },
  };
}

/** Gives a middleware the part of the run's context that its schema describes, with defaults. */
function withContext(middleware: Middleware, runtime: HookRuntime): HookRuntime {
  const schema = middleware.contextSchema;
  if (schema === undefined || schema === null) return runtime;
  const given = (runtime.context ?? {}) as Record<string, unknown>;
  const context = isInteropZodObject(schema)
    ? interopParse(schema, { ...given })
    : interopParse(schema as never, given);
  return { ...runtime, context };
}

async function wrapModel(
  wrappers: readonly Middleware[],
  toolNames: ReadonlySet<string>,
  wrapsTools: boolean,
  base: ModelHandler,
  request: ModelRequest,
): Promise<{ message: AIMessage; commands: readonly Command[] }> {
  const commands: Command[] = [];
  let last: AIMessage | null = null;
  const innermost: ModelHandler = async (inner) => {
    last = await base(inner);
    return last;
  };
  const handler = wrappers.reduceRight<ModelHandler>((next, middleware) => {
    return async (received) => {
      const wrap = middleware.wrapModelCall as unknown as (
        request: ModelRequest,
        handler: ModelHandler,
      ) => Promise<AIMessage | Command>;
      const own = { ...received, runtime: withContext(middleware, received.runtime) };
      const result: unknown = await wrap.call(middleware, own, async (changed) =>
        next({ ...settle(middleware.name, changed, own, toolNames, wrapsTools), runtime: received.runtime }),
      );
      if (isCommand(result)) {
        commands.push(result);
        // Outer wrappers always see the model's message; the command's updates are applied after it.
        if (last !== null) return last;
        throw new ReindeerError(
          'configuration',
          `${middleware.name}.wrapModelCall returned a command without calling the model.`,
        );
      }
      if (!isAi(result as BaseMessage))
        throw new ReindeerError(
          'configuration',
          `${middleware.name}.wrapModelCall returned ${typeof result}; return the model's message or a command.`,
        );
      last = result as AIMessage;
      return last;
    };
  }, innermost);
  return { message: await handler(request), commands };
}

/** Checks what a wrapper changed in the request, and keeps the two forms of the system prompt equal. */
function settle(
  name: string,
  changed: ModelRequest,
  received: ModelRequest,
  toolNames: ReadonlySet<string>,
  wrapsTools: boolean,
): ModelRequest {
  if (changed.tools !== received.tools && !wrapsTools) {
    const added = changed.tools.map(toolName).filter((tool) => tool !== null && !toolNames.has(tool));
    if (added.length > 0)
      throw new ReindeerError(
        'configuration',
        `${name}.wrapModelCall adds the tools ${added.join(', ')}, but no middleware has a wrapToolCall that could run them.`,
      );
  }
  const textChanged = changed.systemPrompt !== received.systemPrompt;
  const messageChanged = changed.systemMessage !== received.systemMessage;
  if (textChanged && messageChanged)
    throw new ReindeerError(
      'configuration',
      `${name}.wrapModelCall changes both systemPrompt and systemMessage; change one.`,
    );
  if (textChanged) return { ...changed, systemMessage: new SystemMessage(changed.systemPrompt) };
  if (messageChanged) return { ...changed, systemPrompt: changed.systemMessage.text };
  return changed;
}

/** Name of a tool that this process could run; null for a provider's own tool. */
function toolName(tool: unknown): string | null {
  const { name, invoke } = tool as { name?: unknown; invoke?: unknown };
  return typeof name === 'string' && typeof invoke === 'function' ? name : null;
}

function wrapTool(
  wrappers: readonly Middleware[],
  base: ToolHandler,
  request: ToolRequest,
): Promise<ToolMessage | Command> {
  const handler = wrappers.reduceRight<ToolHandler>((next, middleware) => {
    return async (received) => {
      const wrap = middleware.wrapToolCall as unknown as (
        request: ToolRequest,
        handler: ToolHandler,
      ) => Promise<ToolMessage | Command>;
      const own = { ...received, runtime: withContext(middleware, received.runtime) };
      const result: unknown = await wrap.call(middleware, own, (changed) =>
        next({ ...changed, state: { ...received.state, ...changed.state }, runtime: received.runtime }),
      );
      if (!isCommand(result) && !isTool(result as BaseMessage))
        throw new ReindeerError(
          'configuration',
          `${middleware.name}.wrapToolCall returned ${typeof result}; return a tool message or a command.`,
        );
      return result as ToolMessage | Command;
    };
  }, base);
  return handler(request);
}
