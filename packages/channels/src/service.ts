import { createHash, randomBytes } from 'node:crypto';
import { type ChannelConnection, type ChannelStore, ReindeerError, type Surroundings } from '@reindeer/protocol';
import type { ChannelAdapter } from './adapter.ts';
import type { ChannelHost } from './host.ts';
import { ChannelRunner, type RunnerStatus } from './runner.ts';
import { type ChannelSettings, CREDENTIALS, isConfigured, PROVIDERS, type Provider } from './settings.ts';

/** What was entered in the page, by provider; it stands above the configuration. */
export interface CredentialStore {
  read(provider: Provider): Promise<Readonly<Record<string, string>> | null>;
  /** null takes it away. */
  write(provider: Provider, values: Readonly<Record<string, string>> | null): Promise<void>;
}

/** Makes an adapter; its code is loaded when one is made. */
export type MakeAdapter = (
  provider: Provider,
  options: {
    readonly credentials: Readonly<Record<string, string>>;
    readonly apiUrl: string | null;
    readonly surroundings: Surroundings;
  },
) => Promise<ChannelAdapter>;

export interface ServiceParts {
  readonly store: ChannelStore;
  readonly host: ChannelHost;
  readonly settings: ChannelSettings;
  readonly surroundings: Surroundings;
  readonly owner: string;
  readonly credentials: CredentialStore;
  readonly make?: MakeAdapter;
}

/** Milliseconds that a code is good for, and codes that a user may have at once for a provider. */
export const CODE_MS = 600_000;
const MOST_CODES = 5;
const CODE_BYTES = 16;
const MOST_VALUE = 512;
/** What a secret is shown as; written back it keeps what is stored. */
export const CREDENTIAL_MASK = '********';

export interface ProviderView {
  readonly provider: Provider;
  readonly title: string;
  readonly enabled: boolean;
  readonly configured: boolean;
  readonly status: RunnerStatus;
  /** Secrets masked. */
  readonly values: Readonly<Record<string, string>>;
}

export interface ConnectOffer {
  readonly provider: Provider;
  readonly mode: 'deep_link' | 'binding_code';
  readonly url: string | null;
  readonly code: string;
  readonly instruction: string;
  readonly expiresInMs: number;
}

/** All channels of one process: started, stopped, asked about, and connected with users. */
export class ChannelService {
  readonly #parts: ServiceParts;
  readonly #runners: ReadonlyMap<Provider, ChannelRunner>;
  #running = false;

  constructor(parts: ServiceParts) {
    this.#parts = parts;
    const make: MakeAdapter = parts.make ?? makeAdapter;
    this.#runners = new Map(
      PROVIDERS.map((provider) => {
        const runner = new ChannelRunner({
          ...parts,
          provider,
          revision: async () => revisionOf(await this.#effective(provider)),
          open: async () => {
            const credentials = await this.#effective(provider);
            const revision = revisionOf(credentials);
            if (credentials === null || revision === null) return null;
            const { apiUrl } = parts.settings.providers[provider];
            const { surroundings } = parts;
            return { adapter: await make(provider, { credentials, apiUrl, surroundings }), revision };
          },
        });
        return [provider, runner];
      }),
    );
  }

  get running(): boolean {
    return this.#running;
  }

  /** Starts what is configured; waits for nothing, and nothing that fails there is in the way of anything else. */
  start(): void {
    this.#running = true;
    for (const runner of this.#runners.values()) runner.start();
  }

  /** No message is begun any more, from this moment on. */
  refuse(): void {
    this.#running = false;
    for (const runner of this.#runners.values()) runner.refuse();
  }

  /** Idempotent, never rejects. */
  async stop(): Promise<void> {
    this.#running = false;
    await Promise.all([...this.#runners.values()].map((runner) => runner.stop(this.#parts.settings.graceMs)));
  }

  restart(provider: Provider): void {
    if (this.#running) this.#runners.get(provider)?.restart();
  }

  async views(): Promise<readonly ProviderView[]> {
    return await Promise.all(
      PROVIDERS.map(async (provider) => {
        const values = await this.#values(provider);
        const { fields, title } = CREDENTIALS[provider];
        const configured = isConfigured(provider, values);
        return {
          provider,
          title,
          enabled: this.#isEnabled(provider, configured),
          configured,
          status: this.#runners.get(provider)?.status ?? { state: 'off', reason: null, username: null },
          values: Object.fromEntries(
            fields.flatMap(({ name, secret }) => {
              const value = values[name] ?? '';
              return value === '' ? [] : [[name, secret ? CREDENTIAL_MASK : value]];
            }),
          ),
        };
      }),
    );
  }

  connections(userId: string): Promise<readonly ChannelConnection[]> {
    return this.#parts.store.connections({ userId });
  }

  disconnect(userId: string, connectionId: string): Promise<boolean> {
    return this.#parts.store.disconnect({ userId, connectionId });
  }

  /** A code by which an account of the user's becomes connected. @throws ReindeerError `queue_full` past five that are good */
  async connect(userId: string, provider: Provider): Promise<ConnectOffer> {
    const { store, surroundings } = this.#parts;
    const values = await this.#values(provider);
    const { title } = CREDENTIALS[provider];
    if (!this.#isEnabled(provider, isConfigured(provider, values)))
      throw new ReindeerError(
        'conflict',
        `${title} is not set up on this server. Its operator enters the bot's token first.`,
      );
    const code = randomBytes(CODE_BYTES).toString('base64url');
    const now = surroundings.clock.now();
    const issued = await store.issueCode({
      provider,
      userId,
      codeHash: createHash('sha256').update(code).digest('hex'),
      expiresAt: now + CODE_MS,
      limit: MOST_CODES,
      now,
    });
    if (issued === 'full')
      throw new ReindeerError(
        'queue_full',
        `You have ${MOST_CODES} codes for ${title} that are not used yet. Use one of them, or wait up to 10 minutes until they are over.`,
      );
    const username = this.#runners.get(provider)?.status.username ?? usernameOf(values.bot_username);
    const command = `/connect ${code}`;
    return {
      provider,
      mode: username === null ? 'binding_code' : 'deep_link',
      url: username === null ? null : `https://t.me/${username}?start=${code}`,
      code,
      instruction: `Send this to the bot: ${command}`,
      expiresInMs: CODE_MS,
    };
  }

  /** Keeps what was entered in the page, and connects with it. A mask stands for what is stored. @throws ReindeerError `validation_failed` */
  async configure(provider: Provider, given: Readonly<Record<string, string>>): Promise<void> {
    const { fields } = CREDENTIALS[provider];
    const stored = await this.#values(provider);
    const values: Record<string, string> = {};
    for (const [name, value] of Object.entries(given)) {
      const field = fields.find((known) => known.name === name);
      if (field === undefined)
        throw invalid(
          `values.${name.slice(0, 60)} is unknown. Known: ${fields.map((known) => known.name).join(', ')}.`,
        );
      const wanted = field.secret && value === CREDENTIAL_MASK ? (stored[name] ?? '') : value.trim();
      if (field.secret && value === CREDENTIAL_MASK && wanted === '')
        throw invalid(
          `values.${name} is "${CREDENTIAL_MASK}", and nothing is stored that it could stand for. Enter the value.`,
        );
      if (wanted.length > MOST_VALUE || !/^[\x21-\x7e]*$/.test(wanted))
        throw invalid(`values.${name} must be one word of at most ${MOST_VALUE} visible characters. Copy it again.`);
      if (wanted !== '') values[name] = wanted;
    }
    if (!isConfigured(provider, values)) {
      const missing = fields.filter(({ name, required }) => required && (values[name] ?? '') === '');
      throw invalid(`${missing.map(({ name }) => `values.${name}`).join(', ')} must be there.`);
    }
    await this.#parts.credentials.write(provider, values);
    this.restart(provider);
  }

  /** Forgets what was entered in the page; what the configuration says counts again. */
  async forget(provider: Provider): Promise<void> {
    await this.#parts.credentials.write(provider, null);
    this.restart(provider);
  }

  /** As they count now. */
  async #values(provider: Provider): Promise<Readonly<Record<string, string>>> {
    const entered = await this.#parts.credentials.read(provider);
    return { ...this.#parts.settings.providers[provider].credentials, ...entered };
  }

  #isEnabled(provider: Provider, configured: boolean): boolean {
    return configured && (this.#parts.settings.providers[provider].enabled ?? true);
  }

  /** null = there is nothing to connect with. */
  async #effective(provider: Provider): Promise<Readonly<Record<string, string>> | null> {
    const values = await this.#values(provider);
    return this.#isEnabled(provider, isConfigured(provider, values)) ? values : null;
  }
}

const invalid = (message: string): ReindeerError => new ReindeerError('validation_failed', message);

/** Part of an address: nothing else than what a name may be. */
const usernameOf = (given: string | undefined): string | null => {
  const name = given?.replace(/^@/, '') ?? '';
  return /^[A-Za-z0-9_]{3,64}$/.test(name) ? name : null;
};

const revisionOf = (credentials: Readonly<Record<string, string>> | null): string | null =>
  credentials === null
    ? null
    : createHash('sha256')
        .update(JSON.stringify(Object.entries(credentials).sort()))
        .digest('hex');

const makeAdapter: MakeAdapter = async (provider, options) => {
  switch (provider) {
    case 'telegram': {
      const { TelegramAdapter } = await import('./telegram/adapter.ts');
      return new TelegramAdapter(options);
    }
  }
};
