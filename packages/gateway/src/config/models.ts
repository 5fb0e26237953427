import { ReindeerError } from '@reindeer/protocol';
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

/**
 * The models to offer, the first one as default: those of the file; without any, those that the environment has keys for; without
 * those, the demo model.
 */
export function modelsOf(config: ConfigFile, variables: Variables): readonly ModelEntry[] {
  const configured = config.models ?? [];
  if (configured.length > 0) {
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
