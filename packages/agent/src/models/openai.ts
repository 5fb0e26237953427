import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { AIMessage, type AIMessageChunk, type BaseMessage } from '@langchain/core/messages';
import type { ChatGenerationChunk } from '@langchain/core/outputs';
import { ChatOpenAICompletions, ChatOpenAIResponses } from '@langchain/openai';
import { ReindeerError } from '@reindeer/protocol';
import { MISTRAL_CALL_IDS, takesCallIds } from '../history/call-ids.ts';
import type { ModelOptions } from './entry.ts';
import { chunkTimeoutOf, isStream, punctual, type RawStream, tidied } from './openai-stream.ts';

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

/** Servers that speak OpenAI's chat completions, each in its own way. */
export type Family = 'openai' | 'deepseek' | 'vllm' | 'ollama' | 'gemini' | 'mistral';

/** Under which name a family wants the reasoning of earlier answers back; null = it refuses or ignores it. */
const REASONING_FIELD: Readonly<Record<Exclude<Family, 'openai'>, string | null>> = {
  deepseek: 'reasoning_content',
  vllm: 'reasoning',
  ollama: 'reasoning',
  gemini: null,
  mistral: null,
};

/** OpenAI itself gets none; of other servers most follow DeepSeek. */
function reasoningFieldOf(family: Family, baseUrl: string | null): string | null {
  if (family !== 'openai') return REASONING_FIELD[family];
  if (baseUrl === null || /\bapi\.openai\.com\b/.test(baseUrl)) return null;
  return /\bgenerativelanguage\.googleapis\.com\b/.test(baseUrl) ? null : REASONING_FIELD.deepseek;
}

/** By its own name, at its address, or one of its models on a server of one's own, whose template checks the same. */
const isMistral = (family: Family, { baseUrl, model }: ModelOptions): boolean =>
  family === 'mistral' ||
  /\bapi\.mistral\.ai\b/.test(baseUrl ?? '') ||
  /(?:^|\/)(?:open-)?(?:mi[sx]tral|ministral|codestral|devstral|magistral|pixtral)/i.test(model);

/** A client for OpenAI and for servers that speak its chat completions (or, with `use_responses_api`, its responses). */
export function createOpenAi(options: ModelOptions, family: Family = 'openai'): BaseChatModel {
  const { settings } = options;
  const chunkTimeoutMs = chunkTimeoutOf(settings.stream_chunk_timeout);
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
  // It tells the usage by itself, and refuses fields that it does not know.
  if (family === 'mistral') fields.streamUsage = false;
  for (const [key, name] of Object.entries(CLIENT_NAMES)) if (settings[key] !== undefined) fields[name] = settings[key];
  if (settings.use_responses_api === true) return new Responses(withEffort(fields) as never, chunkTimeoutMs);
  const completions = new Completions(fields as never, {
    family,
    reasoningField: reasoningFieldOf(family, options.baseUrl),
    chunkTimeoutMs,
  });
  return isMistral(family, options) ? takesCallIds(completions, MISTRAL_CALL_IDS) : completions;
}

/** Responses take the effort inside `reasoning`. */
function withEffort(fields: Settings): Settings {
  const { reasoning_effort: effort, reasoning, ...rest } = fields.modelKwargs as Record<string, unknown>;
  const given = { ...(effort === undefined ? {} : { effort }), ...(reasoning as object | undefined) };
  return { ...fields, modelKwargs: rest, ...(Object.keys(given).length === 0 ? {} : { reasoning: given }) };
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

const CARRIED = Symbol('what earlier answers carry');

interface Manners {
  readonly family: Family;
  readonly reasoningField: string | null;
  readonly chunkTimeoutMs: number | null;
}

class Completions extends ChatOpenAICompletions {
  readonly #manners: Manners;

  constructor(fields: never, manners: Manners) {
    super(fields);
    this.#manners = manners;
    // No method: the class above calls it before there are manners.
    this._llmType = () => manners.family;
  }

  override async getNumTokens(content: unknown): Promise<number> {
    return estimate(content);
  }

  override async *_streamResponseChunks(
    messages: BaseMessage[],
    options: this['ParsedCallOptions'],
  ): AsyncGenerator<ChatGenerationChunk> {
    const lent = { ...options, [CARRIED]: carriedBy(messages) };
    let finished = false;
    for await (const piece of super._streamResponseChunks(messages, lent)) {
      if (piece.generationInfo?.finish_reason !== undefined) finished = true;
      yield piece;
    }
    mustHaveFinished(finished, options.signal);
  }

  override async completionWithRetry(request: never, options?: never): Promise<never> {
    const { [CARRIED]: carried, ...rest } = (options ?? {}) as Record<PropertyKey, unknown>;
    if (Array.isArray(carried)) giveBack(request, carried as Carried[], this.#manners.reasoningField);
    const answer: unknown = await super.completionWithRetry(request, rest as never);
    return (isStream(answer) ? tidied(punctual(answer, this.#manners.chunkTimeoutMs)) : answer) as never;
  }

  protected override _convertCompletionsDeltaToBaseMessageChunk(...args: never): never {
    const [delta, ...rest] = args as [Delta, ...unknown[]];
    const message = super._convertCompletionsDeltaToBaseMessageChunk(
      ...([delta, ...rest] as never as [never, never]),
    ) as AIMessageChunk;
    if (delta.thought_signatures !== undefined) message.additional_kwargs.thought_signatures = delta.thought_signatures;
    return message as never;
  }
}

class Responses extends ChatOpenAIResponses {
  readonly #chunkTimeoutMs: number | null;

  constructor(fields: never, chunkTimeoutMs: number | null) {
    super(fields);
    this.#chunkTimeoutMs = chunkTimeoutMs;
  }

  override async completionWithRetry(request: never, options?: never): Promise<never> {
    const answer: unknown = await super.completionWithRetry(request, options);
    return (isStream(answer) ? punctual(answer as RawStream<unknown>, this.#chunkTimeoutMs) : answer) as never;
  }

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

/** What the client's own conversion of an earlier answer drops and some providers want back. */
interface Carried {
  readonly reasoning: string | null;
  /** Gemini's thought signatures, by the id of the call or `#` and its place; that of the text under the empty name. */
  readonly signatures: Readonly<Record<string, unknown>>;
}

const carriedBy = (messages: readonly BaseMessage[]): Carried[] =>
  messages.filter(AIMessage.isInstance).map(({ additional_kwargs: { reasoning_content, thought_signatures } }) => ({
    reasoning: typeof reasoning_content === 'string' && reasoning_content !== '' ? reasoning_content : null,
    signatures:
      typeof thought_signatures === 'object' && thought_signatures !== null
        ? (thought_signatures as Readonly<Record<string, unknown>>)
        : {},
  }));

/** Providers that think between tool calls refuse the next request when their reasoning, or their mark on it, does not come back. */
function giveBack(
  request: { messages: Record<string, unknown>[] },
  carried: readonly Carried[],
  reasoningField: string | null,
): void {
  const answers = request.messages.filter((message) => message.role === 'assistant');
  if (answers.length !== carried.length) return;
  for (const [position, message] of answers.entries()) {
    const { reasoning, signatures } = carried[position] as Carried;
    if (reasoning !== null && reasoningField !== null) message[reasoningField] = reasoning;
    sign(message, signatures['']);
    if (Array.isArray(message.tool_calls))
      for (const [place, call] of (message.tool_calls as Record<string, unknown>[]).entries())
        sign(call, signatures[String(call.id)] ?? signatures[`#${place}`]);
  }
}

function sign(part: Record<string, unknown>, signature: unknown): void {
  if (typeof signature === 'string') part.extra_content = { google: { thought_signature: signature } };
}
