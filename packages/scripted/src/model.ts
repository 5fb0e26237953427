import type { CallbackManagerForLLMRun } from '@langchain/core/callbacks/manager';
import type { BaseLanguageModelInput } from '@langchain/core/language_models/base';
import {
  BaseChatModel,
  type BaseChatModelCallOptions,
  type BaseChatModelParams,
  type BindToolsInput,
} from '@langchain/core/language_models/chat_models';
import {
  AIMessage,
  AIMessageChunk,
  type BaseMessage,
  isAIMessage,
  isToolMessage,
  type UsageMetadata,
} from '@langchain/core/messages';
import { ChatGenerationChunk, type ChatResult } from '@langchain/core/outputs';
import type { Runnable } from '@langchain/core/runnables';
import { convertToOpenAITool } from '@langchain/core/utils/function_calling';
import type { Clock, JsonObject } from '@reindeer/protocol';
import { parseObject } from './checking.ts';
import { systemClock } from './clock.ts';
import { answer, type Piece } from './pieces.ts';
import {
  AttemptCounter,
  conversationKey,
  type Fault,
  nameToolResults,
  type Script,
  type ScriptMessage,
  type ScriptRequest,
  type ScriptTool,
} from './script.ts';
import { DEFAULT_CALLER } from './server.ts';

export interface ScriptedChatModelCallOptions extends BaseChatModelCallOptions {
  tools?: BindToolsInput[];
  /** Who calls; see `ScriptRequest.caller`. */
  caller?: string;
}

export interface ScriptedChatModelFields extends BaseChatModelParams {
  readonly script: Script;
  /** Name in `response_metadata` and for scripts; default `scripted`. */
  readonly modelName?: string;
  /** Who calls, unless the call's option `caller` says otherwise. */
  readonly caller?: string;
  readonly clock?: Clock;
}

/** What the clients of the real providers throw: a status and the response headers. */
class ScriptedProviderError extends Error {
  readonly status: number | undefined;
  readonly headers: Readonly<Record<string, string>>;
  readonly code: string | undefined;

  constructor(message: string, status: number | undefined, headers: Readonly<Record<string, string>>, code?: string) {
    super(message);
    this.name = 'ScriptedProviderError';
    this.status = status;
    this.headers = headers;
    this.code = code;
  }
}

/** A chat model that answers from a script inside the process: token by token, stopped by its signal, with the same faults as the server. */
export class ScriptedChatModel extends BaseChatModel<ScriptedChatModelCallOptions> {
  override lc_namespace = ['reindeer', 'scripted'];
  readonly modelName: string;
  readonly #script: Script;
  readonly #caller: string;
  readonly #clock: Clock;
  readonly #attempts = new AttemptCounter();

  constructor(fields: ScriptedChatModelFields) {
    super(fields);
    this.#script = fields.script;
    this.modelName = fields.modelName ?? 'scripted';
    this.#caller = fields.caller ?? DEFAULT_CALLER;
    this.#clock = fields.clock ?? systemClock();
  }

  override _llmType(): string {
    return 'scripted';
  }

  /** An estimate; the inherited counter would download a tokenizer. */
  override async getNumTokens(content: unknown): Promise<number> {
    const text = typeof content === 'string' ? content : JSON.stringify(content);
    return Math.ceil(text.length / 4);
  }

  override bindTools(
    tools: BindToolsInput[],
    kwargs?: Partial<ScriptedChatModelCallOptions>,
  ): Runnable<BaseLanguageModelInput, AIMessageChunk, ScriptedChatModelCallOptions> {
    return this.withConfig({ ...kwargs, tools });
  }

  override async _generate(
    messages: BaseMessage[],
    options: this['ParsedCallOptions'],
    runManager?: CallbackManagerForLLMRun,
  ): Promise<ChatResult> {
    let whole: AIMessageChunk | null = null;
    for await (const chunk of this._streamResponseChunks(messages, options, runManager)) {
      const part = chunk.message as AIMessageChunk;
      whole = whole === null ? part : whole.concat(part);
    }
    const message = new AIMessage({
      ...(whole?.id === undefined ? {} : { id: whole.id }),
      content: whole?.content ?? '',
      tool_calls: whole?.tool_calls ?? [],
      invalid_tool_calls: whole?.invalid_tool_calls ?? [],
      additional_kwargs: whole?.additional_kwargs ?? {},
      response_metadata: whole?.response_metadata ?? {},
    });
    if (whole?.usage_metadata !== undefined) Object.assign(message, { usage_metadata: whole.usage_metadata });
    return { generations: [{ text: message.text, message }] };
  }

  override async *_streamResponseChunks(
    messages: BaseMessage[],
    options: this['ParsedCallOptions'],
    runManager?: CallbackManagerForLLMRun,
  ): AsyncGenerator<ChatGenerationChunk> {
    const signal = options.signal;
    signal?.throwIfAborted();
    const caller = options.caller ?? this.#caller;
    const conversation = nameToolResults(messages.map(toScriptMessage));
    const attempt = this.#attempts.next(conversationKey({ caller, messages: conversation }));
    const request: ScriptRequest = {
      caller,
      model: this.modelName,
      messages: conversation,
      tools: (options.tools ?? []).map(toScriptTool),
      attempt,
    };
    const turn = this.#script(request);
    const fault = turn.fault;
    throwEarlyFault(fault);
    const stopAfter = fault !== undefined && 'afterPieces' in fault ? fault.afterPieces : null;
    const reply = answer(request, turn);
    const id = `scripted-${reply.id}`;
    let sent = 0;
    for (const piece of reply.pieces) {
      if (stopAfter !== null && sent >= stopAfter) break;
      if ((turn.delayMs ?? 0) > 0) await this.#clock.sleep(turn.delayMs ?? 0, signal);
      signal?.throwIfAborted();
      const chunk = toChunk(id, piece);
      yield chunk;
      await runManager?.handleLLMNewToken(chunk.text, undefined, undefined, undefined, undefined, { chunk });
      sent += 1;
    }
    if (stopAfter !== null) await failMidway(fault, signal);
    const last = new AIMessageChunk({
      id,
      content: '',
      response_metadata: { model_provider: 'scripted', model_name: this.modelName, finish_reason: reply.finish },
    });
    if (reply.usage !== null) {
      const usage: UsageMetadata = {
        input_tokens: reply.usage.inputTokens,
        output_tokens: reply.usage.outputTokens,
        total_tokens: reply.usage.inputTokens + reply.usage.outputTokens,
      };
      // The class's generic default types this field as undefined.
      Object.assign(last, { usage_metadata: usage });
    }
    yield new ChatGenerationChunk({ text: '', message: last });
  }
}

function throwEarlyFault(fault: Fault | undefined): void {
  switch (fault?.kind) {
    case 'status':
      throw new ScriptedProviderError(
        `${fault.status} ${fault.message ?? `Scripted failure with status ${fault.status}.`}`,
        fault.status,
        {
          ...(fault.retryAfter === undefined ? {} : { 'retry-after': String(fault.retryAfter) }),
          ...fault.headers,
        },
      );
    case 'error-body':
      throw new ScriptedProviderError(fault.message ?? 'Scripted error body.', undefined, {});
    case 'malformed-body':
    case 'wrong-content-type':
      throw new SyntaxError('Unexpected token in the body of the answer.');
    default:
  }
}

async function failMidway(fault: Fault | undefined, signal: AbortSignal | undefined): Promise<never> {
  if (fault?.kind === 'hang') {
    await new Promise<never>((_resolve, reject) => {
      if (signal?.aborted) reject(signal.reason);
      else signal?.addEventListener('abort', () => reject(signal.reason), { once: true });
    });
  }
  if (fault?.kind === 'error-event')
    throw new ScriptedProviderError(fault.message ?? 'Scripted error in the stream.', undefined, {});
  throw new ScriptedProviderError('terminated: other side closed', undefined, {}, 'ECONNRESET');
}

function toChunk(id: string, piece: Piece): ChatGenerationChunk {
  switch (piece.kind) {
    case 'reasoning':
      return new ChatGenerationChunk({
        text: '',
        message: new AIMessageChunk({ id, content: '', additional_kwargs: { reasoning_content: piece.text } }),
      });
    case 'text':
      return new ChatGenerationChunk({ text: piece.text, message: new AIMessageChunk({ id, content: piece.text }) });
    case 'call':
      return callChunk(id, {
        index: piece.index,
        name: piece.name,
        args: '',
        ...(piece.id === null ? {} : { id: piece.id }),
      });
    case 'arguments':
      return callChunk(id, { index: piece.index, args: piece.text });
  }
}

function callChunk(id: string, call: { index: number; name?: string; args: string; id?: string }): ChatGenerationChunk {
  return new ChatGenerationChunk({
    text: '',
    message: new AIMessageChunk({ id, content: '', tool_call_chunks: [{ type: 'tool_call_chunk', ...call }] }),
  });
}

function toScriptTool(tool: BindToolsInput): ScriptTool {
  if ('input_schema' in tool && typeof tool.input_schema === 'object') {
    return {
      name: String(tool.name),
      description: String(tool.description ?? ''),
      parameters: tool.input_schema as JsonObject,
    };
  }
  const converted =
    'function' in tool ? (tool as ReturnType<typeof convertToOpenAITool>) : convertToOpenAITool(tool as never);
  const { name, description, parameters } = converted.function;
  return { name, description: description ?? '', parameters: (parameters ?? {}) as JsonObject };
}

function toScriptMessage(message: BaseMessage): ScriptMessage {
  const base = { text: message.text, toolCalls: [], toolCallId: null, toolName: null, failed: false, reasoning: null };
  if (isToolMessage(message)) {
    return {
      ...base,
      role: 'tool',
      toolCallId: message.tool_call_id,
      toolName: message.name ?? null,
      failed: message.status === 'error',
    };
  }
  if (isAIMessage(message)) {
    const reasoning = message.additional_kwargs.reasoning_content;
    return {
      ...base,
      role: 'assistant',
      toolCalls: [
        ...(message.tool_calls ?? []).map((call) => ({
          id: call.id ?? '',
          name: call.name,
          args: call.args as JsonObject,
        })),
        ...(message.invalid_tool_calls ?? []).map((call) => ({
          id: call.id ?? '',
          name: call.name ?? '',
          args: parseObject(call.args ?? ''),
        })),
      ],
      reasoning: typeof reasoning === 'string' ? reasoning : null,
    };
  }
  return { ...base, role: message.type === 'system' ? 'system' : 'user' };
}
