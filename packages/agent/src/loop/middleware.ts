import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import type { AIMessage, BaseMessage, SystemMessage, ToolMessage } from '@langchain/core/messages';
import type { StructuredToolInterface } from '@langchain/core/tools';
import type { Command } from '@langchain/langgraph';

/**
 * Middleware as LangChain types it (`AgentMiddleware`), reduced to what the loop uses. Anything that `createMiddleware` or
 * LangChain's built-in factories return fits. Methods, not function properties: their parameters then compare bivariantly.
 */
export interface Middleware {
  readonly name: string;
  readonly stateSchema?: unknown;
  readonly contextSchema?: unknown;
  readonly tools?: readonly unknown[] | undefined;
  readonly beforeAgent?: unknown;
  readonly beforeModel?: unknown;
  readonly afterModel?: unknown;
  readonly afterAgent?: unknown;
  wrapModelCall?(request: never, handler: never): unknown;
  wrapToolCall?(request: never, handler: never): unknown;
}

export type JumpTarget = 'model' | 'tools' | 'end';
export type State = Record<string, unknown> & { messages: BaseMessage[] };

export interface HookRuntime {
  readonly context: unknown;
  readonly configurable: Record<string, unknown> | undefined;
  readonly store: unknown;
  readonly writer: unknown;
  readonly interrupt: unknown;
  readonly signal: AbortSignal | undefined;
  /** Only where a question is being answered: the tools that it was about. */
  readonly asked?: readonly string[];
  /** Likewise: wall-clock milliseconds until which it may be answered; absent or null = for ever. */
  readonly askedUntil?: number | null;
}

/** What `wrapModelCall` sees; the fields and their meaning are LangChain's. */
export interface ModelRequest {
  readonly model: BaseChatModel;
  readonly messages: readonly BaseMessage[];
  readonly systemPrompt: string;
  readonly systemMessage: SystemMessage;
  readonly tools: readonly unknown[];
  readonly toolChoice?: unknown;
  readonly modelSettings?: Record<string, unknown>;
  readonly state: State;
  readonly runtime: HookRuntime;
}
export type ModelHandler = (request: ModelRequest) => Promise<AIMessage>;

export interface ToolRequest {
  readonly toolCall: ToolCall;
  readonly tool: StructuredToolInterface | undefined;
  readonly state: State;
  readonly runtime: HookRuntime;
}
export type ToolHandler = (request: ToolRequest) => Promise<ToolMessage | Command>;

export interface ToolCall {
  readonly name: string;
  readonly args: Record<string, unknown>;
  readonly id?: string | undefined;
  readonly type?: 'tool_call' | undefined;
}

/** Middleware of our own, with the types that our hooks really use. */
export interface OwnMiddleware extends Middleware {
  beforeAgent?: OwnHook | JumpingHook;
  beforeModel?: OwnHook | JumpingHook;
  afterModel?: OwnHook | JumpingHook;
  afterAgent?: OwnHook | JumpingHook;
  wrapModelCall?(request: ModelRequest, handler: ModelHandler): Promise<AIMessage | Command>;
  wrapToolCall?(request: ToolRequest, handler: ToolHandler): Promise<ToolMessage | Command>;
}
export type HookUpdate = (Record<string, unknown> & { jumpTo?: JumpTarget }) | undefined;
export type OwnHook = (state: State, runtime: HookRuntime) => HookUpdate | Promise<HookUpdate>;
/** A hook that may send the run elsewhere must say where. */
export interface JumpingHook {
  readonly canJumpTo: readonly JumpTarget[];
  hook(state: State, runtime: HookRuntime): HookUpdate | Promise<HookUpdate>;
}

export const defineMiddleware = (middleware: OwnMiddleware): Middleware => middleware as Middleware;
