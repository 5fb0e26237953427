import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { type Logger, ReindeerError } from '@reindeer/protocol';
import { type ModelEntry, type ModelFactory, type ModelInfo, modelInfo } from './entry.ts';
import type { Family } from './openai.ts';
import { thinkingSettings } from './thinking.ts';

export interface ModelChoice {
  /** null = the first entry. */
  readonly name: string | null;
  /** Default true, where the model supports it. */
  readonly thinking?: boolean;
  readonly reasoningEffort?: string | null;
  /** Laid over the entry's settings: those of a custom agent. null = as the entry says. */
  readonly settings?: { readonly temperature: number | null; readonly max_tokens: number | null } | null;
  /** May this model be used (SAFE-2)? The first that may takes the place of one that may not. Absent = every one may. */
  readonly permits?: (model: string) => Promise<boolean>;
}

export interface ChosenModel {
  readonly model: BaseChatModel;
  readonly entry: ModelEntry;
  readonly thinking: boolean;
  readonly reasoningEffort: string | null;
}

export interface ModelRegistry {
  /** In configured order; the first is the default. */
  list(): readonly ModelInfo[];
  /** The client for a choice, made at first use and kept. An unknown name falls back to the default with a warning. Throws `configuration`. */
  choose(choice: ModelChoice): Promise<ChosenModel>;
}

export interface RegistryOptions {
  readonly entries: readonly ModelEntry[];
  /** Environment for keys and addresses that entries leave out: `OPENAI_API_KEY`, `OPENAI_BASE_URL`, `ANTHROPIC_API_KEY`, … */
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly logger: Logger;
  /** Offered when nothing else is: a scripted model that is labelled as such. */
  readonly demo?: { readonly entry: ModelEntry; readonly factory: ModelFactory };
  /** Adapters by `use` name, beside the built-in ones. */
  readonly factories?: Readonly<Record<string, ModelFactory>>;
}

const DEFAULT_OPENAI_MODEL = 'gpt-5';
const DEFAULT_ANTHROPIC_MODEL = 'claude-sonnet-4-5';
const MAX_CLIENTS = 64;

interface Adapter {
  /** Variables of the environment with a key, the first that is set counts; empty = no key is needed. */
  readonly keyVariables: readonly string[];
  readonly urlVariables: readonly string[];
  /** Where the provider is when nothing else says so; null = its client knows. */
  readonly url: string | null;
  readonly create: ModelFactory;
}

const compatible = (family: Family, url: string | null, keys: readonly string[], urls: readonly string[]): Adapter => ({
  keyVariables: keys,
  urlVariables: urls,
  url,
  create: async (options) => (await import('./openai.ts')).createOpenAi(options, family),
});

/** Provider adapters load their packages at first use: a server without that provider never pays for them. */
const OPENAI = compatible('openai', null, ['OPENAI_API_KEY'], ['OPENAI_BASE_URL', 'OPENAI_API_BASE']);
const DEEPSEEK = compatible(
  'deepseek',
  'https://api.deepseek.com/v1',
  ['DEEPSEEK_API_KEY'],
  ['DEEPSEEK_BASE_URL', 'DEEPSEEK_API_BASE'],
);
const GEMINI = compatible(
  'gemini',
  'https://generativelanguage.googleapis.com/v1beta/openai',
  ['GEMINI_API_KEY', 'GOOGLE_API_KEY'],
  ['GEMINI_BASE_URL'],
);
const MISTRAL = compatible('mistral', 'https://api.mistral.ai/v1', ['MISTRAL_API_KEY'], ['MISTRAL_BASE_URL']);
/** Servers of one's own: mostly without a key. */
const VLLM = compatible('vllm', 'http://127.0.0.1:8000/v1', [], ['VLLM_BASE_URL']);
const OLLAMA_SERVER = compatible('ollama', 'http://127.0.0.1:11434/v1', [], ['OLLAMA_BASE_URL']);
const OLLAMA: Adapter = {
  ...OLLAMA_SERVER,
  // Addresses of its own interface have no /v1.
  create: (options) =>
    OLLAMA_SERVER.create({ ...options, baseUrl: `${options.baseUrl?.replace(/\/+$|\/v1\/*$/g, '') ?? ''}/v1` }),
};
const ANTHROPIC: Adapter = {
  keyVariables: ['ANTHROPIC_API_KEY', 'CLAUDE_CODE_OAUTH_TOKEN'],
  urlVariables: ['ANTHROPIC_BASE_URL'],
  url: null,
  create: async (options) => (await import('./anthropic.ts')).createAnthropic(options),
};

/** Names under which the adapters are known: ours, and the class names in configurations that are carried over. */
const ADAPTERS: Readonly<Record<string, Adapter>> = {
  openai: OPENAI,
  ChatOpenAI: OPENAI,
  PatchedChatOpenAI: OPENAI,
  deepseek: DEEPSEEK,
  ChatDeepSeek: DEEPSEEK,
  PatchedChatDeepSeek: DEEPSEEK,
  gemini: GEMINI,
  ChatGoogleGenerativeAI: GEMINI,
  mistral: MISTRAL,
  ChatMistralAI: MISTRAL,
  vllm: VLLM,
  VllmChatModel: VLLM,
  ollama: OLLAMA,
  ChatOllama: OLLAMA,
  anthropic: ANTHROPIC,
  ChatAnthropic: ANTHROPIC,
  ClaudeChatModel: ANTHROPIC,
};

/** What `use` of a model may be, class names of files that are carried over among it. */
export const MODEL_PROVIDERS: readonly string[] = Object.keys(ADAPTERS);

/** The name of an adapter in `use`, which may be a class path that ends with it. */
const adapterNameIn = (use: string, adapters: Readonly<Record<string, unknown>>): string | undefined =>
  [use, use.split(/[:./]/).findLast((part) => part !== '') ?? ''].find((name) => Object.hasOwn(adapters, name));

/** Is there an adapter of ours for this `use`? */
export const isModelProvider = (use: string): boolean => adapterNameIn(use, ADAPTERS) !== undefined;

/** The efforts that providers know. What a client sends goes into a request of the operator's: nothing else passes. */
const EFFORTS: ReadonlySet<string> = new Set(['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max']);

const NO_SERVER = { keyVariables: [], urlVariables: [], url: null } as const;

/** Throws `configuration` for two entries of one name, an unknown `use`, or an entry without a model. */
export function createModelRegistry(options: RegistryOptions): ModelRegistry {
  const adapters: Record<string, Adapter> = { ...ADAPTERS };
  for (const [use, create] of Object.entries(options.factories ?? {})) adapters[use] = { ...NO_SERVER, create };
  const entries = options.entries.length > 0 ? options.entries : entriesFromEnvironment(options);
  if (options.demo !== undefined) adapters[options.demo.entry.use] = { ...NO_SERVER, create: options.demo.factory };
  const byName = new Map<string, ModelEntry>();
  for (const entry of entries) {
    if (byName.has(entry.name))
      throw new ReindeerError('configuration', `models: two entries are named "${entry.name}"; names must differ.`);
    adapterOf(adapters, entry);
    byName.set(entry.name, entry);
  }
  const clients = new Map<string, Promise<BaseChatModel>>();

  const find = (name: string | null): ModelEntry => {
    const known = name === null ? undefined : byName.get(name);
    const entry = known ?? entries[0];
    if (entry === undefined)
      throw new ReindeerError(
        'configuration',
        'No model is configured. Set OPENAI_API_KEY or ANTHROPIC_API_KEY, or add an entry to models: in the configuration.',
      );
    if (name !== null && known === undefined)
      options.logger.warn('Unknown model, using the default', { asked: name.slice(0, 100), used: entry.name });
    return entry;
  };

  const permitted = async (wanted: ModelEntry, permits: ModelChoice['permits']): Promise<ModelEntry> => {
    if (permits === undefined) return wanted;
    for (const entry of [wanted, ...entries]) {
      if (!(await permits(entry.name))) continue;
      if (entry !== wanted)
        options.logger.warn('A model is not permitted, using another', { asked: wanted.name, used: entry.name });
      return entry;
    }
    throw new ReindeerError('forbidden', 'None of the configured models may be used here.');
  };

  return {
    list: () => entries.map(modelInfo),
    async choose(choice) {
      const entry = await permitted(find(choice.name), choice.permits);
      const wanted = choice.thinking ?? true;
      const thinking = wanted && entry.supports_thinking === true;
      if (choice.thinking === true && !thinking)
        options.logger.warn('The model does not support thinking; it is off', { model: entry.name });
      const effort = effortOf(entry, choice, options.logger);
      const overlay = Object.fromEntries(Object.entries(choice.settings ?? {}).filter(([, value]) => value != null));
      const key = JSON.stringify([entry.name, thinking, effort, overlay.temperature, overlay.max_tokens]);
      const client =
        clients.get(key) ?? create(adapters, { ...entry, ...overlay }, thinking, effort, options.environment);
      clients.delete(key);
      clients.set(key, client);
      // The oldest client goes when clients ask with ever new efforts.
      for (const old of clients.keys()) if (clients.size > MAX_CLIENTS) clients.delete(old);
      try {
        return { model: await client, entry, thinking, reasoningEffort: effort };
      } catch (error) {
        clients.delete(key);
        throw error;
      }
    },
  };
}

/** Only where the model supports it, and not over the effort that turns its thinking off (MOD-3). */
function effortOf(entry: ModelEntry, choice: ModelChoice, logger: Logger): string | null {
  const asked = choice.reasoningEffort ?? null;
  if (asked === null || entry.supports_reasoning_effort !== true) return null;
  if (choice.thinking === false && thinkingSettings(entry, false).reasoning_effort !== entry.reasoning_effort)
    return null;
  if (EFFORTS.has(asked)) return asked;
  logger.warn('Unknown reasoning effort, using the default', { asked: asked.slice(0, 50), model: entry.name });
  return null;
}

async function create(
  adapters: Readonly<Record<string, Adapter>>,
  entry: ModelEntry,
  thinking: boolean,
  effort: string | null,
  environment: RegistryOptions['environment'],
): Promise<BaseChatModel> {
  const adapter = adapterOf(adapters, entry);
  // The key of the environment belongs to the provider's own address, never to one that an entry names. Servers of one's own
  // mostly want none.
  const [keyVariable] = adapter.keyVariables;
  const ambient = adapter.keyVariables.map((name) => environment[name]).find(isSet);
  const free = keyVariable === undefined && adapter.url !== null;
  const apiKey = entry.api_key ?? (entry.base_url === undefined && !free ? ambient : 'none');
  if (keyVariable !== undefined && (apiKey === undefined || apiKey === ''))
    throw new ReindeerError(
      'configuration',
      `The model "${entry.name}" has no key. Set ${keyVariable} in the environment, or api_key in its entry.`,
    );
  const fromEnvironment = adapter.urlVariables
    .map((name) => environment[name])
    .find((url) => url !== undefined && url !== '');
  return adapter.create({
    model: entry.model,
    apiKey: apiKey ?? null,
    baseUrl: entry.base_url ?? fromEnvironment ?? adapter.url,
    settings: { ...thinkingSettings(entry, thinking), ...(effort === null ? {} : { reasoning_effort: effort }) },
  });
}

function adapterOf(adapters: Readonly<Record<string, Adapter>>, entry: ModelEntry): Adapter {
  const name = adapterNameIn(entry.use, adapters);
  const adapter = name === undefined ? undefined : adapters[name];
  if (adapter !== undefined && entry.model !== '') return adapter;
  throw new ReindeerError(
    'configuration',
    adapter === undefined
      ? `models: entry "${entry.name}" uses "${entry.use}", which is not known. Known: ${Object.keys(adapters).join(', ')}.`
      : `models: entry "${entry.name}" names no model.`,
    { detail: { model: entry.name } },
  );
}

/** What the environment alone offers; the demo model when it offers nothing. */
function entriesFromEnvironment({ environment, demo }: RegistryOptions): readonly ModelEntry[] {
  const entries: ModelEntry[] = [];
  if (isSet(environment.OPENAI_API_KEY)) {
    const model = environment.OPENAI_MODEL ?? DEFAULT_OPENAI_MODEL;
    entries.push({ name: model, use: 'openai', model });
  }
  if (isSet(environment.ANTHROPIC_API_KEY)) {
    const model = environment.ANTHROPIC_MODEL ?? DEFAULT_ANTHROPIC_MODEL;
    entries.push({ name: model, use: 'anthropic', model, supports_vision: true });
  }
  if (entries.length === 0 && demo !== undefined) entries.push({ ...demo.entry, demo: true });
  return entries;
}

const isSet = (value: string | undefined): boolean => value !== undefined && value.trim() !== '';
