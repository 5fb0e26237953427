import { ChatAnthropic } from '@langchain/anthropic';
import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import type { BaseMessage } from '@langchain/core/messages';
import type { ChatGenerationChunk } from '@langchain/core/outputs';
import { ReindeerError } from '@reindeer/protocol';
import { withCacheMarks } from './cache-marks.ts';
import type { ModelOptions } from './entry.ts';

/** Thinking may use at most this part of the answer's tokens. */
const THINKING_SHARE = 0.8;
const DEFAULT_MAX_TOKENS = 8_192;
const MIN_THINKING = 1_024;
const CLIENT_KEYS: ReadonlySet<string> = new Set([
  'temperature',
  'max_tokens',
  'top_p',
  'top_k',
  'stop',
  'thinking',
  'timeout',
  'default_headers',
  'streaming',
  'stream_chunk_timeout',
  'output_version',
  'prompt_caching',
  'reasoning_effort',
]);
/** The efforts of others in the words of this provider; `none` says nothing. */
const EFFORTS: Readonly<Record<string, string>> = {
  minimal: 'low',
  low: 'low',
  medium: 'medium',
  high: 'high',
  xhigh: 'high',
  max: 'max',
};

/** A client for Anthropic's messages. */
export function createAnthropic(options: ModelOptions): BaseChatModel {
  const { settings } = options;
  const maxTokens = typeof settings.max_tokens === 'number' ? settings.max_tokens : DEFAULT_MAX_TOKENS;
  const thinking = boundedThinking(settings.thinking, maxTokens);
  const effort = typeof settings.reasoning_effort === 'string' ? EFFORTS[settings.reasoning_effort] : undefined;
  const { headers, ...credentials } = credentialsOf(options.apiKey);
  const rest = Object.fromEntries(Object.entries(settings).filter(([key]) => !CLIENT_KEYS.has(key)));
  const fields: Record<string, unknown> = {
    model: options.model,
    apiKey: options.apiKey,
    maxTokens,
    // Retries are the harness's.
    maxRetries: 0,
    ...(options.baseUrl === null ? {} : { anthropicApiUrl: options.baseUrl }),
    ...(settings.temperature === undefined || isThinking(thinking) ? {} : { temperature: settings.temperature }),
    ...(settings.top_p === undefined ? {} : { topP: settings.top_p }),
    ...(settings.top_k === undefined ? {} : { topK: settings.top_k }),
    ...(settings.stop === undefined ? {} : { stopSequences: settings.stop }),
    ...(thinking === undefined ? {} : { thinking }),
    ...(effort === undefined ? {} : { outputConfig: { effort } }),
    ...(Object.keys(rest).length === 0 ? {} : { invocationKwargs: rest }),
    clientOptions: {
      ...credentials,
      ...(typeof settings.timeout === 'number' ? { timeout: settings.timeout * 1_000 } : {}),
      defaultHeaders: { ...headers, ...(settings.default_headers as object | undefined) },
    },
  };
  return new Anthropic(fields as never, settings.prompt_caching !== false);
}

/** How tokens of a login begin. */
const LOGIN_TOKEN = /^sk-ant-oat/;

/**
 * A key, or a token of a login, which goes as a bearer with the header that allows it (MOD-5b). The client is told of both: by itself it would take a
 * token out of the environment and send it to whatever address an entry names.
 */
function credentialsOf(key: string | null): { readonly authToken: string | null; readonly headers: object } {
  if (key === null || !LOGIN_TOKEN.test(key)) return { authToken: null, headers: {} };
  return { authToken: key, headers: { 'x-api-key': null, 'anthropic-beta': 'oauth-2025-04-20' } };
}

const isThinking = (thinking: unknown): boolean => (thinking as { type?: string } | undefined)?.type === 'enabled';

function boundedThinking(value: unknown, maxTokens: number): unknown {
  if (typeof value !== 'object' || value === null) return undefined;
  const thinking = value as { type?: unknown; budget_tokens?: unknown };
  if (thinking.type !== 'enabled') return thinking;
  const most = Math.floor(maxTokens * THINKING_SHARE);
  const budget = typeof thinking.budget_tokens === 'number' ? thinking.budget_tokens : most;
  return { ...thinking, budget_tokens: Math.max(MIN_THINKING, Math.min(budget, most)) };
}

class Anthropic extends ChatAnthropic {
  readonly #caching: boolean;

  constructor(fields: never, caching: boolean) {
    super(fields);
    this.#caching = caching;
  }

  override async getNumTokens(content: unknown): Promise<number> {
    return Math.ceil((typeof content === 'string' ? content.length : JSON.stringify(content ?? '').length) / 4);
  }

  protected override createStreamWithRetry(
    request: Parameters<ChatAnthropic['createStreamWithRetry']>[0],
    options?: Parameters<ChatAnthropic['createStreamWithRetry']>[1],
  ): ReturnType<ChatAnthropic['createStreamWithRetry']> {
    return super.createStreamWithRetry(this.#caching ? withCacheMarks(request) : request, options);
  }

  override async *_streamResponseChunks(
    messages: BaseMessage[],
    options: this['ParsedCallOptions'],
  ): AsyncGenerator<ChatGenerationChunk> {
    let finished = false;
    for await (const piece of super._streamResponseChunks(messages, options)) {
      if (typeof piece.message.additional_kwargs.stop_reason === 'string') finished = true;
      yield piece;
    }
    options.signal?.throwIfAborted();
    if (!finished)
      throw new ReindeerError('model_failed', 'The model’s answer ended early: the connection was cut.', {
        retryable: true,
      });
  }
}
