import { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { type AIMessage, AIMessageChunk, type BaseMessage, type UsageMetadata } from '@langchain/core/messages';
import type { ChatGenerationChunk } from '@langchain/core/outputs';
import { type Runnable, RunnableBinding } from '@langchain/core/runnables';
import { type AttemptContext, type Json, type JsonObject, ReindeerError, type WireMessage } from '@reindeer/protocol';
import { finishedMessage, setId } from './messages.ts';

export interface CallModel {
  readonly model: BaseChatModel;
  readonly messages: readonly BaseMessage[];
  readonly tools: readonly unknown[];
  readonly options: Readonly<Record<string, unknown>>;
  /** Id that the finished message will have; the pieces carry it from the first one on. */
  readonly messageId: string;
  readonly metadata: JsonObject;
  readonly signal: AbortSignal | undefined;
}

/**
 * Calls models as streams and remembers what it bound: converting the schemas of the same tools for the same model is done once.
 * Owned by one loop; entries go with their models.
 */
export class ModelCaller {
  readonly #bindings = new WeakMap<object, WeakMap<object, unknown>>();

  /**
   * Hands each piece to the attempt and answers the finished message under `call.messageId`. Rejects with the signal's reason
   * after an abort, even when the provider's client ends quietly; with `model_failed` for an answer without a single piece.
   */
  async call(call: CallModel, attempt: AttemptContext): Promise<AIMessage> {
    call.signal?.throwIfAborted();
    const pieces: AIMessageChunk[] = [];
    const wholes: AIMessage[] = [];
    for await (const piece of streamOf(this.#bound(call.model, call.tools, call.options), call)) {
      call.signal?.throwIfAborted();
      const wire = toWire(piece, call.messageId);
      if (wire !== null) attempt.tokens.push(wire, call.metadata);
      if (AIMessageChunk.isInstance(piece)) pieces.push(piece);
      else wholes.push(piece);
    }
    // Some clients end quietly when they are aborted: what came so far is not an answer.
    call.signal?.throwIfAborted();
    const message = wholes.at(-1) ?? joined(pieces, call.messageId);
    setId(message, call.messageId);
    const usage = message.usage_metadata as UsageMetadata | undefined;
    attempt.countUsage({
      inputTokens: usage?.input_tokens ?? 0,
      outputTokens: usage?.output_tokens ?? 0,
      ...(usage?.input_token_details?.cache_read === undefined
        ? {}
        : { cacheReadTokens: usage.input_token_details.cache_read }),
      ...(usage?.output_token_details?.reasoning === undefined
        ? {}
        : { reasoningTokens: usage.output_token_details.reasoning }),
      model: modelName(call.model),
    });
    return message;
  }

  #bound(model: BaseChatModel, tools: readonly unknown[], options: Readonly<Record<string, unknown>>): unknown {
    if (Object.keys(options).length > 0) return bind(model, tools, options);
    if (tools.length === 0) return model;
    const ofModel = this.#bindings.get(model) ?? new WeakMap<object, unknown>();
    this.#bindings.set(model, ofModel);
    const known = ofModel.get(tools);
    if (known !== undefined) return known;
    const bound = bind(model, tools, options);
    ofModel.set(tools, bound);
    return bound;
  }
}

/** The provider's own name of a model, for usage and stream metadata. */
export function modelName(model: BaseChatModel): string {
  const named = model as unknown as { model?: unknown; modelName?: unknown };
  if (typeof named.model === 'string') return named.model;
  return typeof named.modelName === 'string' ? named.modelName : model._llmType();
}

/**
 * Joins pieces pairwise. Joining one after the other, as LangChain's stream does, parses the growing tool arguments once
 * per piece: quadratic for a long file that is written through a tool.
 */
function joined(pieces: readonly AIMessageChunk[], id: string): AIMessage {
  let level: AIMessageChunk[] = [...pieces];
  if (level.length === 0)
    throw new ReindeerError('model_failed', 'The model ended its answer without sending anything.', {
      retryable: true,
    });
  while (level.length > 1) {
    const next: AIMessageChunk[] = [];
    for (let index = 0; index < level.length; index += 2) {
      const left = level[index];
      const right = level[index + 1];
      if (left !== undefined) next.push(right === undefined ? left : left.concat(right));
    }
    level = next;
  }
  const [last] = level;
  if (last === undefined) throw new ReindeerError('internal', 'No piece is left.');
  return finishedMessage(last, id);
}

async function* streamOf(bound: unknown, call: CallModel): AsyncGenerator<AIMessageChunk | AIMessage> {
  const { model, options } = target(bound);
  const signal = call.signal === undefined ? {} : { signal: call.signal };
  if (!(model instanceof BaseChatModel)) {
    for await (const piece of await (model as Runnable).stream([...call.messages], signal))
      yield piece as AIMessageChunk;
    return;
  }
  if (model._streamResponseChunks === BaseChatModel.prototype._streamResponseChunks || model.disableStreaming) {
    yield (await model.invoke([...call.messages], { ...options, ...signal })) as AIMessage;
    return;
  }
  // Straight to the provider's stream: `stream()` would set up tracing and join every piece a second time.
  const pieces = model._streamResponseChunks([...call.messages], { ...options, ...signal } as never);
  for await (const piece of pieces as AsyncGenerator<ChatGenerationChunk>) {
    const message = piece.message as AIMessageChunk;
    if (piece.generationInfo !== undefined)
      message.response_metadata = { ...piece.generationInfo, ...message.response_metadata };
    yield message;
  }
}

/** Options of a binding lie around the model, one layer inside the other. */
function target(runnable: unknown): { model: unknown; options: Record<string, unknown> } {
  let model = runnable;
  let options: Record<string, unknown> = {};
  while (RunnableBinding.isRunnableBinding(model)) {
    const binding = model as unknown as { bound: unknown; config?: object; kwargs?: object };
    options = { ...binding.config, ...binding.kwargs, ...options };
    model = binding.bound;
  }
  return { model, options };
}

function bind(model: BaseChatModel, tools: readonly unknown[], options: Readonly<Record<string, unknown>>): unknown {
  if (tools.length === 0) return model.withConfig(options as never);
  if (typeof model.bindTools === 'function') return model.bindTools([...tools] as never, options as never);
  throw new ReindeerError('configuration', `The model ${modelName(model)} cannot use tools; choose another one.`);
}

/** A piece in wire form; null when it says nothing. */
function toWire(piece: AIMessageChunk | AIMessage, id: string): WireMessage | null {
  const wire: Record<string, unknown> = { type: 'AIMessageChunk', id, content: piece.content };
  let says = piece.content.length > 0;
  const add = (key: string, value: unknown, filled: boolean): void => {
    if (!filled) return;
    wire[key] = value;
    says = true;
  };
  const calls = AIMessageChunk.isInstance(piece) ? piece.tool_call_chunks : undefined;
  add('tool_call_chunks', calls, calls !== undefined && calls.length > 0);
  if (!AIMessageChunk.isInstance(piece) && piece.tool_calls !== undefined && piece.tool_calls.length > 0)
    add(
      'tool_call_chunks',
      piece.tool_calls.map((toolCall, index) => ({
        type: 'tool_call_chunk',
        index,
        id: toolCall.id ?? null,
        name: toolCall.name,
        args: JSON.stringify(toolCall.args),
      })),
      true,
    );
  const reasoning = piece.additional_kwargs.reasoning_content;
  if (typeof reasoning === 'string' && reasoning.length > 0)
    add('additional_kwargs', { reasoning_content: reasoning }, true);
  add('usage_metadata', piece.usage_metadata, piece.usage_metadata !== undefined);
  return says ? (wire as Record<string, Json> as WireMessage) : null;
}
