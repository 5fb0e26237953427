import { ToolMessage } from '@langchain/core/messages';
import { DynamicStructuredTool, type StructuredToolInterface } from '@langchain/core/tools';
import type { Command } from '@langchain/langgraph';
import { ReindeerError, type Sandbox } from '@reindeer/protocol';
import type { z } from 'zod';
import { type AttemptScope, scopeOf } from '../loop/scope.ts';
import { type Hide, masked } from './text.ts';
import { metaOfError, metaOfText, SUCCESS, TOOL_META, type ToolMeta } from './tool-meta.ts';

/** What a tool of ours gets beside its arguments. */
export interface ToolContext {
  readonly scope: AttemptScope;
  readonly callId: string;
  readonly signal: AbortSignal | undefined;
  /** Which call this is, as the journal knows it: the message that asks and the place in it. */
  readonly call: { readonly messageId: string; readonly index: number };
  /** LangGraph's configuration of the task. */
  readonly configurable: Readonly<Record<string, unknown>>;
  /** Options of the run, e.g. `disable_clarification`. */
  readonly runContext: Readonly<Record<string, unknown>>;
  /** The state as it was before the call. */
  readonly state: Readonly<Record<string, unknown>>;
  /** The thread's sandbox, acquired at first use. */
  sandbox(): Promise<Sandbox>;
  /**
   * What takes secrets out of a text. Results are rid of them anyway; a tool that cuts a text does it before, since half of a value would be
   * hidden by nobody.
   */
  hider(): Promise<Hide>;
}

export interface ToolDefinition<Schema extends z.ZodObject> {
  readonly name: string;
  readonly description: string;
  readonly schema: Schema;
  /** May run again after a crash left its outcome unknown: it only reads. */
  readonly repeatable: boolean;
  /** Goes on at durable state of its own when it is begun again after a crash (D7). */
  readonly resumable?: boolean;
  /** Values that may not appear in a result (SAFE-4). */
  readonly secrets?: readonly string[];
  /** Its text tells whether it failed, as `{"error": …}` does; otherwise whatever it answers is a success. */
  readonly judgedByText?: boolean;
  /** Answers text, or a command that also changes the state. A failure that the model should read is thrown by `failed`. */
  run(args: z.infer<Schema>, context: ToolContext): Promise<string | MarkedText | Command>;
}

/** A result with facts about it for later middleware; they go into `additional_kwargs`. */
export interface MarkedText {
  readonly text: string;
  readonly kwargs: Readonly<Record<string, unknown>>;
}

/** Ends a tool with a failure that the model reads: say what is wrong and what to do. */
export function failed(message: string): never {
  throw new ReindeerError('tool_failed', message);
}

/**
 * Makes a LangChain tool. Its results carry their metadata already, so that nobody has to guess from a file's text whether reading it
 * failed. Expected failures become `Error:` text here; anything else is left to the tool error handling.
 */
export function defineTool<Schema extends z.ZodObject>(definition: ToolDefinition<Schema>): StructuredToolInterface {
  const {
    name,
    description,
    schema,
    repeatable,
    resumable = false,
    secrets = [],
    judgedByText = false,
    run,
  } = definition;
  const body = async (args: z.infer<Schema>, config: CallConfig): Promise<ToolMessage | Command> => {
    const scope = scopeOf(config);
    const callId = config.toolCallId ?? config.toolCall?.id ?? '';
    const answer = (content: string, meta: ToolMeta, kwargs: MarkedText['kwargs'] = {}): ToolMessage =>
      new ToolMessage({
        content: masked(content, secrets),
        tool_call_id: callId,
        name,
        status: meta.status === 'error' ? 'error' : 'success',
        additional_kwargs: { ...kwargs, [TOOL_META]: meta },
      });
    try {
      const result = await run(args, {
        scope,
        callId,
        signal: config.signal,
        call: config.task ?? { messageId: callId, index: 0 },
        configurable: config.configurable ?? {},
        runContext: config.context ?? {},
        state: config.state ?? {},
        sandbox: () => scope.sandbox(),
        hider: async () => {
          const hidden = [...secrets, ...((await scope.access?.hidden()) ?? [])];
          return (text, cut) => masked(text, hidden, cut);
        },
      });
      if (typeof result === 'string') return answer(result, judgedByText ? metaOfText(result) : SUCCESS);
      return 'kwargs' in result ? answer(result.text, SUCCESS, result.kwargs) : result;
    } catch (error) {
      if (!ReindeerError.is(error) || !READABLE.has(error.code)) throw error;
      return answer(`Error: ${error.message}`, metaOfError(error));
    }
  };
  // The class itself, not LangChain's `tool()`: its promise then is the body's own, which an abort does not cut off (D6).
  const made = new DynamicStructuredTool({
    name,
    description,
    schema,
    metadata: { repeatable, resumable, abortable: true },
    func: (args: unknown, _manager: unknown, config: unknown) => body(args as z.infer<Schema>, config as CallConfig),
  } as never);
  return Object.assign(made, { [DIRECT]: body }) as unknown as StructuredToolInterface;
}

/** The body of a tool of ours, for a caller that has checked the arguments itself. */
const DIRECT = Symbol('direct');
export type DirectBody = (args: Record<string, unknown>, config: CallConfig) => Promise<ToolMessage | Command>;

/** Null for a tool that was not made by `defineTool`. */
export function directBody(tool: StructuredToolInterface): DirectBody | null {
  return (tool as unknown as { [DIRECT]?: DirectBody })[DIRECT] ?? null;
}

export interface CallConfig {
  readonly configurable?: Record<string, unknown>;
  readonly context?: Record<string, unknown>;
  readonly state?: Readonly<Record<string, unknown>>;
  readonly toolCallId?: string;
  /** The loop's key of the call; a caller outside of the loop has none. */
  readonly task?: { readonly messageId: string; readonly index: number };
  readonly toolCall?: { readonly id?: string };
  readonly signal?: AbortSignal;
}

/** Faults whose message was written for the reader: paths in it are virtual, and it says what to do. */
const READABLE: ReadonlySet<string> = new Set([
  'tool_failed',
  'bad_request',
  'validation_failed',
  'not_found',
  'forbidden',
  'conflict',
  'too_large',
  'path_refused',
  'unsupported_media_type',
  'sandbox_unavailable',
  'over_capacity',
]);
