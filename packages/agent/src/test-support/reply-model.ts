import type { BaseMessage } from '@langchain/core/messages';
import type { ChatGenerationChunk } from '@langchain/core/outputs';
import { FakeModel, type Turn } from './fake-model.ts';

/** A model that decides each answer by what it is sent: several agents can share it, in any order. */
export class ReplyModel extends FakeModel {
  readonly #reply: (messages: readonly BaseMessage[]) => Turn;

  constructor(reply: (messages: readonly BaseMessage[]) => Turn, model = 'fake-1') {
    super([], model);
    this.#reply = reply;
  }

  override async *_streamResponseChunks(
    messages: BaseMessage[],
    options: { signal?: AbortSignal },
  ): AsyncGenerator<ChatGenerationChunk> {
    this.requests.push(messages);
    yield* new FakeModel([this.#reply(messages)])._streamResponseChunks(messages, options);
  }
}

/** Is this request one of a sub-agent? */
export const isChild = (messages: readonly BaseMessage[]): boolean =>
  messages[0]?.text.includes('sub-agent "') === true;
