/** How a conversation's runs are made; each layer stands above the one before. */
export interface SessionLayer {
  readonly assistantId?: string;
  readonly recursionLimit?: number;
  readonly context?: Readonly<Record<string, string | boolean>>;
}

export interface ProviderSettings {
  /** null = as there are credentials. */
  readonly enabled: boolean | null;
  /** As the configuration gives them; what was entered in the page stands above. */
  readonly credentials: Readonly<Record<string, string>>;
  /** Accounts that may speak at all; empty = every one that is connected. */
  readonly allowedUsers: readonly string[];
  /** Where the provider's API is; null = its own address. */
  readonly apiUrl: string | null;
  readonly session: SessionLayer;
  /** By the account's id at the provider. */
  readonly users: Readonly<Record<string, SessionLayer>>;
}

export interface ChannelSettings {
  /** Messages that may wait per channel. */
  readonly maxQueued: number;
  /** Messages that are worked on at once per channel. */
  readonly maxConcurrent: number;
  /** What is being sent gets this long when the server stops. */
  readonly graceMs: number;
  readonly session: SessionLayer;
  readonly providers: Readonly<Record<Provider, ProviderSettings>>;
}

export const PROVIDERS = ['telegram'] as const;
export type Provider = (typeof PROVIDERS)[number];
export const isProvider = (name: string): name is Provider => (PROVIDERS as readonly string[]).includes(name);

const NO_PROVIDER: ProviderSettings = {
  enabled: null,
  credentials: {},
  allowedUsers: [],
  apiUrl: null,
  session: {},
  users: {},
};
export const DEFAULT_CHANNEL_SETTINGS: ChannelSettings = {
  maxQueued: 1_000,
  maxConcurrent: 5,
  graceMs: 3_000,
  session: {},
  providers: { telegram: NO_PROVIDER },
};

export interface Session {
  /** null = the default agent. */
  readonly assistantId: string | null;
  readonly recursionLimit: number;
  readonly context: Readonly<Record<string, string | boolean>>;
}

/** The settings of one account's runs: built in, for all channels, for the provider, for the account. */
export function sessionOf(settings: ChannelSettings, provider: Provider, account: string): Session {
  const { session, users } = settings.providers[provider];
  const own = Object.hasOwn(users, account) ? users[account] : undefined;
  let merged: Session = {
    assistantId: null,
    recursionLimit: 100,
    context: { thinking_enabled: true, is_plan_mode: false, subagent_enabled: false },
  };
  for (const layer of [settings.session, session, own ?? {}])
    merged = {
      assistantId: layer.assistantId ?? merged.assistantId,
      recursionLimit: layer.recursionLimit ?? merged.recursionLimit,
      context: { ...merged.context, ...layer.context },
    };
  return merged;
}

/** What a provider needs to be told, for the page and the file. */
export interface CredentialField {
  readonly name: string;
  readonly label: string;
  readonly secret: boolean;
  readonly required: boolean;
}
export const CREDENTIALS: Readonly<
  Record<Provider, { readonly title: string; readonly fields: readonly CredentialField[] }>
> = {
  telegram: {
    title: 'Telegram',
    fields: [
      { name: 'bot_token', label: 'Bot token', secret: true, required: true },
      { name: 'bot_username', label: 'Bot username', secret: false, required: false },
    ],
  },
};

export const isConfigured = (provider: Provider, credentials: Readonly<Record<string, string>>): boolean =>
  CREDENTIALS[provider].fields.every(({ name, required }) => !required || (credentials[name] ?? '') !== '');
