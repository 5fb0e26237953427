import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { AIMessage, type AIMessageChunk, type BaseMessage } from '@langchain/core/messages';
import type { ChatGenerationChunk } from '@langchain/core/outputs';
import { ChatOpenAICompletions, ChatOpenAIResponses } from '@langchain/openai';
import { ReindeerError } from '@reindeer/protocol';
import type { ModelOptions } from './entry.ts';

type Settings = Readonly<Record<string, unknown>>;
type Delta = Record<string, unknown>;

/** Keys of an entry that the client names differently; all others go into the request body as they are. */
const CLIENT_NAMES: Readonly<Record<string, string>> = {
  temperature: 'temperature',
  max_tokens: 'maxTokens',
  max_completion_tokens: 'maxTokens',
  top_p: 'topP',
  frequency_penalty: 'frequencyPenalty',
  presence_penalty: 'presencePenalty',
  stop: 'stop',
  user: 'user',
  stream_usage: 'streamUsage',
};
/** Settings of the client or the page that a request body must not carry. */
const NOT_IN_BODY: ReadonlySet<string> = new Set([
  'extra_body',
  'model_kwargs',
  'timeout',
  'default_headers',
  'organization',
  'use_responses_api',
  'output_version',
  'stream_chunk_timeout',
  'streaming',
]);

/** A client for OpenAI and for servers that speak its chat completions (or, with `use_responses_api`, its responses). */
export function createOpenAi(options: ModelOptions): BaseChatModel {
  const { settings } = options;
  const fields: Record<string, unknown> = {
    model: options.model,
    apiKey: options.apiKey ?? '',
    // Retries are the harness's: it knows about budgets, events and aborts. `streaming` stays unset, or the client would
    // download a tokenizer from the network when a server reports no usage.
    maxRetries: 0,
    configuration: {
      ...(options.baseUrl === null ? {} : { baseURL: options.baseUrl }),
      ...(settings.default_headers === undefined ? {} : { defaultHeaders: settings.default_headers }),
      ...(settings.organization === undefined ? {} : { organization: settings.organization }),
    },
    modelKwargs: bodyOf(settings),
    ...(typeof settings.timeout === 'number' ? { timeout: settings.timeout * 1_000 } : {}),
  };
  for (const [key, name] of Object.entries(CLIENT_NAMES)) if (settings[key] !== undefined) fields[name] = settings[key];
  if (settings.use_responses_api === true) return new Responses(fields as never);
  return new Completions(fields as never, options.baseUrl !== null && !/\bapi\.openai\.com\b/.test(options.baseUrl));
}

function bodyOf(settings: Settings): Record<string, unknown> {
  const body: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(settings))
    if (!(key in CLIENT_NAMES) && !NOT_IN_BODY.has(key)) body[key] = value;
  return { ...body, ...(settings.model_kwargs as object | undefined), ...(settings.extra_body as object | undefined) };
}

/** About four characters a token: counting exactly would download a tokenizer. */
const estimate = (content: unknown): number =>
  Math.ceil((typeof content === 'string' ? content.length : JSON.stringify(content ?? '').length) / 4);

const REASONING = Symbol('reasoning');

class Completions extends ChatOpenAICompletions {
  readonly #echoReasoning: boolean;

  constructor(fields: never, echoReasoning: boolean) {
    super(fields);
    this.#echoReasoning = echoReasoning;
  }

  override async getNumTokens(content: unknown): Promise<number> {
    return estimate(content);
  }

  override async *_streamResponseChunks(
    messages: BaseMessage[],
    options: this['ParsedCallOptions'],
  ): AsyncGenerator<ChatGenerationChunk> {
    const lent = this.#echoReasoning ? { ...options, [REASONING]: reasoningOf(messages) } : options;
    let finished = false;
    for await (const piece of super._streamResponseChunks(messages, lent)) {
      if (piece.generationInfo?.finish_reason !== undefined) finished = true;
      yield piece;
    }
    mustHaveFinished(finished, options.signal);
  }

  override async completionWithRetry(request: never, options?: never): Promise<never> {
    const { [REASONING]: reasoning, ...rest } = (options ?? {}) as Record<PropertyKey, unknown>;
    if (Array.isArray(reasoning)) echo(request, reasoning as (string | null)[]);
    return super.completionWithRetry(request, rest as never) as unknown as Promise<never>;
  }

  protected override _convertCompletionsDeltaToBaseMessageChunk(...args: never): never {
    const [delta, ...rest] = args as [Delta, ...unknown[]];
    const message = super._convertCompletionsDeltaToBaseMessageChunk(
      ...([delta, ...rest] as never as [never, never]),
    ) as AIMessageChunk;
    // vLLM, OpenRouter and others name it `reasoning`.
    if (typeof delta.reasoning === 'string' && message.additional_kwargs.reasoning_content === undefined)
      message.additional_kwargs.reasoning_content = delta.reasoning;
    return message as never;
  }
}

class Responses extends ChatOpenAIResponses {
  override async getNumTokens(content: unknown): Promise<number> {
    return estimate(content);
  }

  override async *_streamResponseChunks(
    messages: BaseMessage[],
    options: this['ParsedCallOptions'],
  ): AsyncGenerator<ChatGenerationChunk> {
    let finished = false;
    for await (const piece of super._streamResponseChunks(messages, options)) {
      // Only the last event of a response says how it ended.
      if (piece.message.response_metadata.status !== undefined) finished = true;
      yield piece;
    }
    mustHaveFinished(finished, options.signal);
  }
}

/** A connection that is cut looks like an end to the client; half an answer must not pass as a whole one. */
function mustHaveFinished(finished: boolean, signal: AbortSignal | undefined): void {
  signal?.throwIfAborted();
  if (finished) return;
  throw new ReindeerError('model_failed', 'The model’s answer ended early: the connection was cut.', {
    retryable: true,
  });
}

/** The reasoning of each model message, in order; the client's own conversion drops it. */
function reasoningOf(messages: readonly BaseMessage[]): (string | null)[] {
  return messages.filter(AIMessage.isInstance).map((message) => {
    const reasoning = message.additional_kwargs.reasoning_content;
    return typeof reasoning === 'string' && reasoning !== '' ? reasoning : null;
  });
}

/** Providers that think between tool calls refuse the next request when their reasoning does not come back with it. */
function echo(request: { messages: Record<string, unknown>[] }, reasoning: readonly (string | null)[]): void {
  const answers = request.messages.filter((message) => message.role === 'assistant');
  if (answers.length !== reasoning.length) return;
  for (const [index, message] of answers.entries())
    if (reasoning[index] !== null) message.reasoning_content = reasoning[index];
}
