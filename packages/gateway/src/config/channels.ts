import {
  type ChannelSettings,
  CREDENTIALS,
  DEFAULT_CHANNEL_SETTINGS,
  PROVIDERS,
  type Provider,
  type ProviderSettings,
  type SessionLayer,
} from '@reindeer/channels';
import { milliseconds } from './readers.ts';
import type { ConfigFile } from './schema.ts';

type Section = NonNullable<ConfigFile['channels']>;
type Session = NonNullable<Section['session']>;

/** The settings of channels; what the file leaves out has its default. */
export function channelsOf(section: Section = {}): ChannelSettings {
  const base = DEFAULT_CHANNEL_SETTINGS;
  const providers = PROVIDERS.map((provider) => [provider, providerOf(provider, section[provider])] as const);
  return {
    maxQueued: section.inbound_queue_maxsize ?? base.maxQueued,
    maxConcurrent: section.max_concurrency ?? base.maxConcurrent,
    graceMs: milliseconds(section.shutdown_grace_period_seconds, base.graceMs),
    session: layerOf(section.session),
    providers: Object.fromEntries(providers) as Record<Provider, ProviderSettings>,
  };
}

function providerOf(provider: Provider, section: Section[Provider]): ProviderSettings {
  const given = section ?? {};
  const credentials = CREDENTIALS[provider].fields.flatMap(({ name }) => {
    const value = given[name as keyof typeof given];
    return typeof value === 'string' && value !== '' ? [[name, value.trim()] as const] : [];
  });
  return {
    enabled: given.enabled ?? null,
    credentials: Object.fromEntries(credentials),
    allowedUsers: (given.allowed_users ?? []).map(String),
    apiUrl: given.api_url ?? null,
    session: layerOf(given.session),
    users: Object.fromEntries(
      Object.entries(given.session?.users ?? {}).map(([account, session]) => [account, layerOf(session)]),
    ),
  };
}

function layerOf(session: Session | null | undefined): SessionLayer {
  const { assistant_id: assistantId, config, context } = session ?? {};
  const known = ['thinking_enabled', 'is_plan_mode', 'subagent_enabled', 'model_name'] as const;
  const options = known.flatMap((key) => {
    const value = context?.[key];
    return value == null ? [] : [[key, value] as const];
  });
  return {
    ...(assistantId == null ? {} : { assistantId }),
    ...(config?.recursion_limit == null ? {} : { recursionLimit: config.recursion_limit }),
    ...(options.length === 0 ? {} : { context: Object.fromEntries(options) }),
  };
}
