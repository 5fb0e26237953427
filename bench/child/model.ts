import type { CallbackManagerForLLMRun } from '@langchain/core/callbacks/manager';
import { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { AIMessage, AIMessageChunk, type BaseMessage } from '@langchain/core/messages';
import { ChatGenerationChunk, type ChatResult } from '@langchain/core/outputs';

/**
 * A model without latency: `steps` answers of 120 characters with one call of the tool `probe`, then a plain answer.
 * It looks only at the newest messages, so that its own cost does not grow with the history.
 */
export class StepModel extends BaseChatModel {
  readonly steps: number;
  /** Pieces in which the plain answer streams. */
  readonly pieces: number;
  /** Milliseconds before each piece. */
  readonly pauseMs: number;
  /** Called at every model call with its number in this process. */
  onCall: (call: number) => void = () => {};
  #calls = 0;

  constructor(fields: { steps: number; pieces?: number; pauseMs?: number }) {
    super({});
    this.steps = fields.steps;
    this.pieces = fields.pieces ?? 20;
    this.pauseMs = fields.pauseMs ?? 0;
  }

  _llmType(): string {
    return 'bench';
  }

  override bindTools(): this {
    return this;
  }

  /** Steps since the newest human message, counted from the id of the newest tool call. */
  #position(messages: readonly BaseMessage[]): number {
    const last = messages.at(-1);
    if (last?.type !== 'tool') return 0;
    return Number(/^call-(\d+)-/.exec((last as { tool_call_id?: string }).tool_call_id ?? '')?.[1] ?? 0);
  }

  #call(position: number) {
    return {
      name: 'probe',
      args: { description: 'look', n: position },
      id: `call-${position + 1}-${this.#calls}`,
      type: 'tool_call' as const,
    };
  }

  async _generate(messages: BaseMessage[]): Promise<ChatResult> {
    this.onCall(++this.#calls);
    const position = this.#position(messages);
    const text = `${position} `.padEnd(120, 'thinking about the next step ');
    const message =
      position < this.steps
        ? new AIMessage({ content: text, tool_calls: [this.#call(position)] })
        : new AIMessage('Done. '.repeat(this.pieces));
    return { generations: [{ text, message }] };
  }

  override async *_streamResponseChunks(
    messages: BaseMessage[],
    options: this['ParsedCallOptions'],
    runManager?: CallbackManagerForLLMRun,
  ): AsyncGenerator<ChatGenerationChunk> {
    this.onCall(++this.#calls);
    const position = this.#position(messages);
    if (position < this.steps) {
      const { name, args, id } = this.#call(position);
      const content = `${position} `.padEnd(120, 'thinking about the next step ');
      const message = new AIMessageChunk({
        content,
        tool_call_chunks: [{ name, args: JSON.stringify(args), id, index: 0, type: 'tool_call_chunk' }],
      });
      yield new ChatGenerationChunk({ text: content, message });
      return;
    }
    for (let piece = 0; piece < this.pieces; piece += 1) {
      if (this.pauseMs > 0) await new Promise((resolve) => setTimeout(resolve, this.pauseMs));
      options.signal?.throwIfAborted();
      const text = 'Done. ';
      yield new ChatGenerationChunk({ text, message: new AIMessageChunk(text) });
      await runManager?.handleLLMNewToken(text);
    }
  }
}

export const TOOL_RESULT = 'x'.repeat(800);
