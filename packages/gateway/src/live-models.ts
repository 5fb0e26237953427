import { DEFAULT_TITLE_SETTINGS, type ModelRegistry, type TitleSettings } from '@reindeer/agent';
import type { LiveSettings } from './config/reload.ts';
import type { Settings } from './config/settings.ts';
import type { Variables } from './config/substitute.ts';
import type { ModelView } from './http/parts.ts';

export interface LiveModelsParts {
  readonly settings: Settings;
  readonly variables: Variables;
  /** null = nothing changes while the process runs. */
  readonly live: LiveSettings | null;
  /** Throws `configuration` for models that cannot be. */
  make(settings: Settings, variables: Variables): ModelRegistry | Promise<ModelRegistry>;
  view(registry: ModelRegistry): readonly ModelView[];
  /** Values that no tool result may show. */
  secrets(settings: Settings, variables: Variables): readonly string[];
}

/** Models and title as the configuration has them now. Those who hold one of these see the next configuration without being told. */
export interface LiveModels {
  readonly models: ModelRegistry;
  readonly views: readonly ModelView[];
  readonly names: readonly string[];
  readonly title: TitleSettings;
  /** Grows only: a key that was taken out of the file is still one. */
  readonly secrets: readonly string[];
}

/**
 * Keeps models and title at what the configuration says (CFG-4a, GW-27). The registry looks for changes whenever a model is chosen, which each run
 * does at its start; a run that has begun goes on with the model it has.
 */
export async function liveModels(parts: LiveModelsParts): Promise<LiveModels> {
  const { live } = parts;
  const made = async (settings: Settings, variables: Variables) => {
    const registry = await parts.make(settings, variables);
    return {
      registry,
      views: parts.view(registry),
      title: await titleOf(settings, registry),
      secrets: parts.secrets(settings, variables),
    };
  };
  const first = await made(parts.settings, parts.variables);
  let { registry } = first;
  const views = [...first.views];
  const names = views.map((view) => view.name);
  const title: { -readonly [Key in keyof TitleSettings]: TitleSettings[Key] } = { ...first.title };
  const secrets = [...first.secrets];
  live?.onChange(async (settings, variables) => {
    const next = await made(settings, variables);
    // From here on nothing fails and nothing waits: it counts whole.
    registry = next.registry;
    views.splice(0, views.length, ...next.views);
    names.splice(0, names.length, ...views.map((view) => view.name));
    Object.assign(title, next.title);
    secrets.push(...next.secrets.filter((secret) => !secrets.includes(secret)));
  });
  return {
    models: {
      list: () => registry.list(),
      choose: async (choice) => {
        await live?.refresh();
        return registry.choose(choice);
      },
    },
    views,
    names,
    title,
    secrets,
  };
}

async function titleOf({ title }: Settings, models: ModelRegistry): Promise<TitleSettings> {
  const name = title.model_name ?? null;
  return {
    ...DEFAULT_TITLE_SETTINGS,
    ...(title.enabled === undefined ? {} : { enabled: title.enabled }),
    ...(title.max_words === undefined ? {} : { maxWords: title.max_words }),
    ...(title.max_chars === undefined ? {} : { maxCharacters: title.max_chars }),
    ...(title.prompt_template == null ? {} : { promptTemplate: title.prompt_template }),
    model: name === null ? null : (await models.choose({ name, thinking: false })).model,
  };
}
