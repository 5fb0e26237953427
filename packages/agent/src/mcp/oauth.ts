import { type Clock, ReindeerError } from '@reindeer/protocol';
import type { OAuthSettings } from './settings.ts';

const TIMEOUT_MS = 15_000;
const MAX_BYTES = 256 * 1024;
/** For servers that do not say how long a token lasts. */
const DEFAULT_LIFE_MS = 3_600_000;

interface Token {
  readonly header: string;
  /** Monotonic milliseconds at which it is replaced. */
  readonly until: number;
}

/**
 * The token of one protected server (MCP-6). Kept until shortly before it ends. Several callers share one request, which belongs to none of them, so
 * that one who gives up does not fail the others. A refresh token that was replaced is used from then on, in memory.
 */
export class OAuthToken {
  readonly #settings: OAuthSettings;
  readonly #clock: Clock;
  readonly #fetch: typeof fetch;
  #refreshToken: string | null;
  #token: Token | null = null;
  #asking: Promise<Token> | null = null;

  constructor(settings: OAuthSettings, clock: Clock, fetcher: typeof fetch = fetch) {
    this.#settings = settings;
    this.#clock = clock;
    this.#fetch = fetcher;
    this.#refreshToken = settings.refreshToken;
  }

  /** Value of the `authorization` header. @throws ReindeerError `tool_failed` without a secret in it */
  async header(): Promise<string> {
    const known = this.#token;
    if (known !== null && this.#clock.monotonic() < known.until) return known.header;
    this.#asking ??= this.#ask().finally(() => {
      this.#asking = null;
    });
    return (await this.#asking).header;
  }

  /** The server refused the token: the next use asks for a new one. */
  forget(header: string): void {
    if (this.#token?.header === header) this.#token = null;
  }

  async #ask(): Promise<Token> {
    const settings = this.#settings;
    const form = new URLSearchParams(settings.extra as Record<string, string>);
    // Last, so that no further parameter can take its place.
    form.set('grant_type', settings.grantType);
    const set = (name: string, value: string | null): void => {
      if (value !== null && value !== '') form.set(name, value);
    };
    set('client_id', settings.clientId);
    set('client_secret', settings.clientSecret);
    set('scope', settings.scope);
    set('audience', settings.audience);
    if (settings.grantType === 'refresh_token') set('refresh_token', this.#refreshToken);
    const answer = await this.#post(form);
    const value = answer[settings.tokenField];
    if (typeof value !== 'string' || value === '') throw failure(`answered without "${settings.tokenField}"`);
    const type = answer[settings.tokenTypeField];
    const seconds = Number(answer[settings.expiresInField]);
    const life = Number.isFinite(seconds) && seconds > 0 ? seconds * 1000 : DEFAULT_LIFE_MS;
    const rotated = answer.refresh_token;
    if (typeof rotated === 'string' && rotated !== '') this.#refreshToken = rotated;
    const word = typeof type === 'string' && type !== '' ? type : settings.defaultTokenType;
    // Written as `bearer` by some; servers compare it with a capital.
    const header = `${/^bearer$/i.test(word) ? 'Bearer' : word} ${value}`;
    // A token that lives shorter than the margin is still used for half of its life.
    const margin = Math.min(settings.refreshSkewMs, life / 2);
    this.#token = { header, until: this.#clock.monotonic() + life - margin };
    return this.#token;
  }

  async #post(form: URLSearchParams): Promise<Record<string, unknown>> {
    let answer: Response;
    let text: string;
    try {
      answer = await this.#fetch(this.#settings.tokenUrl, {
        method: 'POST',
        headers: { accept: 'application/json', 'content-type': 'application/x-www-form-urlencoded' },
        body: form.toString(),
        redirect: 'error',
        signal: AbortSignal.timeout(TIMEOUT_MS),
      });
      text = await textOf(answer);
    } catch (cause) {
      if (ReindeerError.is(cause)) throw cause;
      throw failure('cannot be reached, or does not answer', cause);
    }
    if (!answer.ok) throw failure(`answered with status ${answer.status}`);
    try {
      const value: unknown = JSON.parse(text);
      if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
    } catch {
      // Said below.
    }
    throw failure('sent an answer that makes no sense');
  }
}

/** Not a byte more than the bound is kept. */
async function textOf(answer: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of answer.body ?? []) {
    size += chunk.length;
    if (size > MAX_BYTES) throw failure('sent too much');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

const failure = (why: string, cause?: unknown): ReindeerError =>
  new ReindeerError('tool_failed', `The token address of the MCP server ${why}.`, { cause });
