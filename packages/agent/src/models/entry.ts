import type { BaseChatModel } from '@langchain/core/language_models/chat_models';

/** One entry of `models:` in the configuration, with `$NAME` references resolved. Unknown keys go to the provider's request. */
export interface ModelEntry {
  readonly name: string;
  /** Which adapter: `openai`, `anthropic`, or a class path that ends in the name of one of their classes. */
  readonly use: string;
  /** The provider's name of the model. */
  readonly model: string;
  readonly display_name?: string;
  readonly description?: string;
  readonly api_key?: string;
  readonly base_url?: string;
  readonly max_tokens?: number;
  readonly temperature?: number;
  readonly supports_thinking?: boolean;
  readonly supports_reasoning_effort?: boolean;
  readonly supports_vision?: boolean;
  readonly when_thinking_enabled?: Readonly<Record<string, unknown>>;
  readonly when_thinking_disabled?: Readonly<Record<string, unknown>>;
  readonly thinking?: Readonly<Record<string, unknown>>;
  /** Answers from a script; shown with that label wherever models are listed. */
  readonly demo?: boolean;
  readonly [key: string]: unknown;
}

/** What a client may know of a model. */
export interface ModelInfo {
  readonly name: string;
  readonly model: string;
  readonly display_name: string;
  readonly description: string | null;
  readonly supports_thinking: boolean;
  readonly supports_reasoning_effort: boolean;
  readonly supports_vision: boolean;
  readonly demo: boolean;
  readonly context_window?: unknown;
  readonly pricing?: unknown;
}

/** What a provider's adapter is made from. */
export interface ModelOptions {
  /** The provider's name of the model. */
  readonly model: string;
  readonly apiKey: string | null;
  readonly baseUrl: string | null;
  /** Settings that go to the provider: temperature, max_tokens, extra_body and the like, with thinking already merged. */
  readonly settings: Readonly<Record<string, unknown>>;
}
export type ModelFactory = (options: ModelOptions) => BaseChatModel | Promise<BaseChatModel>;

/** Keys that describe an entry or serve the page; they never reach a provider. */
const OWN_KEYS: ReadonlySet<string> = new Set([
  'name',
  'use',
  'model',
  'display_name',
  'description',
  'api_key',
  'base_url',
  'supports_thinking',
  'supports_reasoning_effort',
  'supports_vision',
  'when_thinking_enabled',
  'when_thinking_disabled',
  'thinking',
  'context_window',
  'pricing',
  'demo',
  'max_retries',
]);

export const providerSettings = (entry: ModelEntry): Record<string, unknown> =>
  Object.fromEntries(Object.entries(entry).filter(([key, value]) => !OWN_KEYS.has(key) && value !== undefined));

export function modelInfo(entry: ModelEntry): ModelInfo {
  return {
    name: entry.name,
    model: entry.model,
    display_name: entry.display_name ?? entry.name,
    description: entry.description ?? null,
    supports_thinking: entry.supports_thinking === true,
    supports_reasoning_effort: entry.supports_reasoning_effort === true,
    supports_vision: entry.supports_vision === true,
    demo: entry.demo === true,
    ...(entry.context_window === undefined ? {} : { context_window: entry.context_window }),
    ...(entry.pricing === undefined ? {} : { pricing: entry.pricing }),
  };
}
