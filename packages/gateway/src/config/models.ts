import { isModelProvider, MODEL_PROVIDERS } from '@reindeer/agent';
import { ReindeerError } from '@reindeer/protocol';
import { isOwnModule } from './class-path.ts';
import { type KeyPath, unknownName } from './readers.ts';
import type { ConfigFile, ModelEntry } from './schema.ts';
import type { Variables } from './substitute.ts';

/** Value of `use` of the scripted model. */
export const DEMO_USE = 'demo';

const DEMO: ModelEntry = {
  name: 'demo',
  use: DEMO_USE,
  model: 'demo',
  display_name: 'Demo model (scripted, not a real AI)',
  description:
    'Shows how Reindeer works without a key. Set OPENAI_API_KEY or ANTHROPIC_API_KEY, or add a model to config.yaml, for real answers.',
};

/** Without the class names, which only files that are carried over have. */
const PROVIDERS_IN_WORDS = `one of: ${MODEL_PROVIDERS.filter((name) => name === name.toLowerCase()).join(', ')}`;

/**
 * The models to offer, the first one as default: those of the file; without any, those that the environment has keys for; without
 * those, the demo model.
 *
 * @throws ReindeerError `configuration` for a provider that there is not
 */
export function modelsOf(config: ConfigFile, variables: Variables): readonly ModelEntry[] {
  const configured = config.models ?? [];
  if (configured.length > 0) {
    for (const [index, { use }] of configured.entries())
      if (use !== undefined && use !== DEMO_USE && !isOwnModule(use) && !isModelProvider(use))
        throw unknownName(['models', index, 'use'], 'model provider', use, MODEL_PROVIDERS, PROVIDERS_IN_WORDS);
    const names = new Set<string>();
    // The first of one name wins.
    return configured.filter((entry) => !names.has(entry.name) && names.add(entry.name));
  }
  const found = [...openAi(variables), ...anthropic(variables)];
  return found.length > 0 ? found : [DEMO];
}

const set = (value: string | undefined) => (value === undefined || value.trim() === '' ? null : value.trim());

function openAi(variables: Variables): ModelEntry[] {
  const key = set(variables.OPENAI_API_KEY);
  const address = set(variables.OPENAI_BASE_URL);
  const model = set(variables.OPENAI_MODEL);
  if (key === null && (address === null || model === null)) return [];
  if (address !== null && model === null)
    throw new ReindeerError(
      'configuration',
      'OPENAI_BASE_URL is set, but not which model to ask there. Set OPENAI_MODEL as well, for example OPENAI_MODEL=llama3.',
    );
  const name = model ?? 'gpt-5.1';
  return [
    {
      name,
      use: 'openai',
      model: name,
      display_name: name,
      // Local servers want a key to be there and do not look at it.
      api_key: key ?? 'none',
      ...(address === null ? {} : { base_url: address }),
    },
  ];
}

function anthropic(variables: Variables): ModelEntry[] {
  const key = set(variables.ANTHROPIC_API_KEY);
  if (key === null) return [];
  const name = set(variables.ANTHROPIC_MODEL) ?? 'claude-sonnet-4-5';
  const address = set(variables.ANTHROPIC_BASE_URL);
  return [
    {
      name,
      use: 'anthropic',
      model: name,
      display_name: name,
      api_key: key,
      supports_thinking: true,
      ...(address === null ? {} : { base_url: address }),
    },
  ];
}

/** The word for "the model of the run that delegates". */
export const INHERIT = 'inherit';

/** Models that other sections name; one that there is not is told, and the default takes its place. */
export function modelsNamedIn(config: ConfigFile): { readonly path: KeyPath; readonly name: string }[] {
  const { summarization, suggestions, title, memory, skill_evolution: skills, subagents } = config;
  const named: readonly (readonly [KeyPath, string | null | undefined])[] = [
    [['summarization', 'model_name'], summarization?.model_name],
    [['suggestions', 'model_name'], suggestions?.model_name],
    [['title', 'model_name'], title?.model_name],
    [['memory', 'model'], memory?.model],
    [['memory', 'model_name'], memory?.model_name],
    [['memory', 'backend_config', 'model'], memory?.backend_config?.model],
    [['memory', 'backend_config', 'model_name'], memory?.backend_config?.model_name],
    [['skill_evolution', 'moderation_model_name'], skills?.moderation_model_name],
    ...(['agents', 'custom_agents'] as const).flatMap((section) =>
      Object.entries(subagents?.[section] ?? {}).map(
        ([type, { model }]) => [['subagents', section, type, 'model'], model === INHERIT ? null : model] as const,
      ),
    ),
  ];
  return named.flatMap(([path, name]) => (name == null ? [] : [{ path, name }]));
}
