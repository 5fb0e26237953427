import { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { AIMessage, AIMessageChunk, type BaseMessage } from '@langchain/core/messages';
import { ChatGenerationChunk, type ChatResult } from '@langchain/core/outputs';

export interface Turn {
  readonly text?: string;
  readonly calls?: readonly {
    readonly name: string;
    readonly args: Record<string, unknown>;
    readonly id?: string | null;
  }[];
  /** Calls whose arguments are this raw text instead of JSON. */
  readonly raw?: readonly { readonly name: string; readonly args: string; readonly id?: string | null }[];
  readonly error?: unknown;
  readonly usage?: { input_tokens: number; output_tokens: number; total_tokens: number };
  /** Runs before the first piece. */
  readonly before?: (signal: AbortSignal | undefined) => Promise<void>;
}

/** A model that plays turns in order, word by word; the last one repeats. Records each request and what was bound. */
export class FakeModel extends BaseChatModel {
  readonly requests: BaseMessage[][] = [];
  readonly bound: unknown[] = [];
  readonly model: string;
  #turns: readonly Turn[];
  #next = 0;

  constructor(turns: readonly Turn[], model = 'fake-1') {
    super({});
    this.#turns = turns;
    this.model = model;
  }

  _llmType(): string {
    return 'fake';
  }

  override bindTools(tools: unknown[]): this {
    this.bound.push(tools);
    return this;
  }

  /** Only for callers that do not stream, such as LangChain's own loop in comparisons. */
  override async _generate(messages: BaseMessage[], options: { signal?: AbortSignal }): Promise<ChatResult> {
    let whole: AIMessageChunk | null = null;
    for await (const { message } of this._streamResponseChunks(messages, options)) {
      const next = message as AIMessageChunk;
      whole = whole === null ? next : whole.concat(next);
    }
    const message = new AIMessage({
      content: whole?.content ?? '',
      tool_calls: whole?.tool_calls ?? [],
      invalid_tool_calls: whole?.invalid_tool_calls ?? [],
    });
    return { generations: [{ text: message.text, message }] };
  }

  override async *_streamResponseChunks(
    messages: BaseMessage[],
    options: { signal?: AbortSignal },
  ): AsyncGenerator<ChatGenerationChunk> {
    this.requests.push(messages);
    const turn = this.#turns[Math.min(this.#next, this.#turns.length - 1)] ?? {};
    this.#next++;
    await turn.before?.(options.signal);
    if (turn.error !== undefined) throw turn.error;
    const words = (turn.text ?? '').match(/\S+\s*/g) ?? [];
    for (const word of words) yield piece(new AIMessageChunk({ content: word }), word);
    const calls = [
      ...(turn.calls ?? []).map((call) => ({ ...call, args: JSON.stringify(call.args) })),
      ...(turn.raw ?? []),
    ];
    for (const [index, call] of calls.entries()) {
      const half = Math.ceil(call.args.length / 2);
      const id = call.id === null ? undefined : (call.id ?? `call-${this.#next}-${index}`);
      const head = { type: 'tool_call_chunk' as const, index, name: call.name, args: call.args.slice(0, half) };
      yield piece(
        new AIMessageChunk({ content: '', tool_call_chunks: [{ ...head, ...(id === undefined ? {} : { id }) }] }),
      );
      yield piece(
        new AIMessageChunk({
          content: '',
          tool_call_chunks: [{ type: 'tool_call_chunk', index, args: call.args.slice(half) }],
        }),
      );
    }
    if (turn.usage !== undefined) yield piece(new AIMessageChunk({ content: '', usage_metadata: turn.usage } as never));
    if (words.length === 0 && calls.length === 0) yield piece(new AIMessageChunk({ content: '' }));
  }
}

const piece = (message: AIMessageChunk, text = ''): ChatGenerationChunk => new ChatGenerationChunk({ message, text });

/** The same conversation without ids, for comparisons between two loops. */
export function plain(messages: readonly BaseMessage[]): unknown[] {
  return messages.map((message) => ({
    type: message.type,
    content: message.type === 'system' ? message.text : message.content,
    ...(AIMessage.isInstance(message) && (message.tool_calls ?? []).length > 0
      ? { tool_calls: message.tool_calls }
      : {}),
    ...('tool_call_id' in message
      ? { tool_call_id: message.tool_call_id, status: (message as { status?: string }).status }
      : {}),
  }));
}
