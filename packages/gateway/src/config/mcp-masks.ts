import { type Json, type JsonObject, ReindeerError } from '@reindeer/protocol';
import { looksSecret } from '@reindeer/sandbox';

type Value = Json | undefined;

/** What a secret is shown as; writing it back keeps the stored value (MCP-10). */
export const MASK = '***';

const OAUTH_SECRETS = ['client_secret', 'refresh_token', 'password'];
const KNOWN_KEYS = [
  'enabled',
  'type',
  'transport',
  'command',
  'args',
  'env',
  'url',
  'headers',
  'oauth',
  'description',
  'routing',
  'tools',
  'tool_name_prefix',
  'tool_call_timeout',
  'session_init_timeout',
  'task_toolsets',
];
/** Kept when a client leaves them out: pages that do not know them must not lose them. */
const KEPT = ['routing', 'tools', 'task_toolsets'];
const REMOTE = ['sse', 'http', 'streamable_http', 'streamable-http'];

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
/** A placeholder names a variable; it is no secret. */
const isPlaceholder = (value: unknown): boolean => typeof value === 'string' && /^\$\{?[A-Za-z_]\w*\}?$/.test(value);
const isSame = (one: Value, other: Value): boolean => JSON.stringify(one ?? null) === JSON.stringify(other ?? null);

export const refuse = (server: string, why: string): ReindeerError =>
  new ReindeerError('validation_failed', `mcpServers.${server.slice(0, 64)}: ${why}.`);

/**
 * Whatever is not surely a web address counts as a program, as the reader of the file decides it: a command beside an address is started.
 */
export function kindOf(server: JsonObject): 'remote' | 'program' {
  const kind = server.type ?? server.transport ?? (server.command == null && server.url != null ? 'http' : 'stdio');
  return typeof kind === 'string' && REMOTE.includes(kind) ? 'remote' : 'program';
}

/**
 * The servers as a client may see them: no value of `env` and `headers`, no secret of `oauth`, none under a key that sounds like one, none in
 * an address or among the arguments of a program.
 */
export function maskServers(section: unknown): JsonObject {
  if (!isObject(section)) return {};
  return Object.fromEntries(
    Object.entries(section).map(([name, server]) => [name, isObject(server) ? maskServer(server) : server]),
  );
}

function maskServer(server: JsonObject): JsonObject {
  const masked: Record<string, Value> = {};
  for (const [key, value] of Object.entries(server)) {
    if ((key === 'env' || key === 'headers') && isObject(value))
      masked[key] = Object.fromEntries(
        Object.entries(value).map(([name, secret]) => [name, isPlaceholder(secret) ? secret : MASK]),
      );
    else if (key === 'oauth' && isObject(value))
      masked[key] = Object.fromEntries(
        Object.entries(value).map(([name, secret]) => [
          name,
          OAUTH_SECRETS.includes(name) || (looksSecret(name) && !PUBLIC_OAUTH.has(name))
            ? isPlaceholder(secret)
              ? secret
              : null
            : maskedParameters(name, secret),
        ]),
      );
    else if (key === 'url' && typeof value === 'string') masked[key] = maskUrl(value);
    else if (key === 'args' && Array.isArray(value)) masked[key] = maskArguments(value);
    else masked[key] = !KNOWN_KEYS.includes(key) && looksSecret(key) && value !== null ? MASK : value;
  }
  return masked;
}
/** Names with a word like "token" in them that hold none. */
const PUBLIC_OAUTH = new Set([
  'token_url',
  'token_field',
  'token_type_field',
  'default_token_type',
  'extra_token_params',
]);

const maskedParameters = (name: string, value: Value): Value => {
  if (name === 'token_url' && typeof value === 'string') return maskUrl(value);
  return name === 'extra_token_params' && isObject(value)
    ? Object.fromEntries(
        Object.entries(value).map(([key, item]) => [key, looksSecret(key) && !isPlaceholder(item) ? MASK : item]),
      )
    : value;
};

/** Without the password, a name that stands alone where a token may, and parameters that sound like a secret: hosted servers take keys so. */
function maskUrl(url: string): string {
  const parsed = URL.parse(url);
  if (parsed === null) return url;
  const secrets = [...parsed.searchParams].filter(([name, value]) => looksSecret(name) && !isPlaceholder(value));
  if (parsed.username === '' && parsed.password === '' && secrets.length === 0) return url;
  if (parsed.password !== '') parsed.password = MASK;
  else if (parsed.username !== '') parsed.username = MASK;
  for (const [name] of secrets) parsed.searchParams.set(name, MASK);
  return parsed.href;
}

/** `--api-key x`, `--api-key=x`, `TOKEN=x`, `Authorization: Bearer x`, and addresses with a secret in them. */
function maskArguments(words: readonly Json[]): Json[] {
  let isNext = false;
  return words.map((word) => {
    const wasNext = isNext;
    isNext = false;
    if (typeof word !== 'string') return word;
    if (wasNext && !word.startsWith('-')) return isPlaceholder(word) ? word : MASK;
    isNext = word.startsWith('-') && !word.includes('=') && soundsSecret(word);
    const [, name, between, value] = /^([\w-]+)(=|:\s*)(?!\/\/)(.+)$/s.exec(word) ?? [];
    if (name !== undefined && soundsSecret(name)) return isPlaceholder(value) ? word : `${name}${between}${MASK}`;
    return /^[a-z]+:\/\//i.test(word) ? maskUrl(word) : word;
  });
}

const soundsSecret = (name: string): boolean =>
  looksSecret(name.replace(/^-+/, '').replaceAll('-', '_')) || /auth|bearer|^-+pat$/i.test(name);

/**
 * What a client wrote, with the masks replaced by what is stored. A mask where nothing is stored is refused: it would become the value. So is
 * one of a server that now leads elsewhere: who may change the address, and not read the secret, would have it sent to where he reads it.
 *
 * @throws ReindeerError `validation_failed` that names server and key
 */
export function unmaskServers(written: JsonObject, stored: unknown): JsonObject {
  const known = isObject(stored) ? stored : {};
  return Object.fromEntries(
    Object.entries(written).map(([name, server]) => {
      if (!isObject(server)) throw refuse(name, 'must be an object');
      const before = Object.hasOwn(known, name) ? known[name] : undefined;
      return [name, unmaskServer(name, server, isObject(before) ? before : {})];
    }),
  );
}

function unmaskServer(name: string, server: JsonObject, before: JsonObject): JsonObject {
  const where: Record<string, Value> = {};
  for (const key of ['url', 'command', 'args'])
    if (key in server) where[key] = restoreShown(name, key, server[key], before[key]);
  const masks = new Masks(name, changeOf({ ...server, ...where }, before));
  const result: Record<string, Value> = {};
  // Keys of the file that a page may not know of. A secret among them goes nowhere else.
  for (const [key, value] of Object.entries(before))
    if (KEPT.includes(key) || (!KNOWN_KEYS.includes(key) && !(masks.moved && looksSecret(key)))) result[key] = value;
  for (const [key, value] of Object.entries(server)) {
    const old = before[key];
    if (key in where) result[key] = where[key];
    else if ((key === 'env' || key === 'headers') && isObject(value))
      result[key] = restore(key, value, isObject(old) ? old : {}, masks);
    else if (key === 'oauth' && isObject(value))
      result[key] = restoreOAuth(name, value, isObject(old) ? old : {}, masks.moved);
    else result[key] = value === MASK ? masks.stored(key, old) : value;
  }
  return result;
}

/** Gives stored values back for masks, as long as they stay where they were. */
class Masks {
  readonly #server: string;
  readonly #change: string | null;

  /** @param change what makes the server lead elsewhere; null = nothing */
  constructor(server: string, change: string | null) {
    this.#server = server;
    this.#change = change;
  }

  get moved(): boolean {
    return this.#change !== null;
  }

  stored(key: string, old: Value): Value {
    if (old === undefined)
      throw refuse(this.#server, `${key} is "${MASK}", and there is no stored value that it could stand for`);
    if (this.#change === null || isPlaceholder(old)) return old;
    throw refuse(
      this.#server,
      `${key} stands for a stored value, and ${this.#change} is another one now: a stored secret is not sent to a new place. Write the value of ${key} again, or ${key.startsWith('oauth.') ? '"" to do without' : 'leave it out'}`,
    );
  }
}

/** Names the first key that changes to whom the server's secrets go; null = none does. */
function changeOf(server: JsonObject, before: JsonObject): string | null {
  if (kindOf(server) !== kindOf(before)) return 'type';
  const keys = kindOf(server) === 'remote' ? ['url'] : ['command', 'args'];
  const changed = keys.find((key) => !isSame(server[key], before[key]));
  if (changed !== undefined) return changed;
  for (const key of ['env', 'headers']) {
    const old = isObject(before[key]) ? before[key] : {};
    const named = isObject(server[key]) ? Object.entries(server[key]) : [];
    const leads = named.find(([name, value]) => value !== MASK && !isSame(value, old[name]) && mayLead(name, value));
    if (leads !== undefined) return `${key}.${leads[0].slice(0, 60)}`;
  }
  return null;
}

/** May this value name a place, such as `API_BASE_URL`, a proxy or a file with settings? A new secret may look like one, but is no address. */
const mayLead = (name: string, value: Value): boolean => {
  const text = String(value);
  return looksSecret(name) && !/url|uri|proxy|host|endpoint/i.test(name) ? /:\/\//.test(text) : /[.:/@\\]/.test(text);
};

/** An address or arguments: as they were shown, they are what is stored. */
function restoreShown(server: string, key: string, value: Value, old: Value): Value {
  const shown = typeof old === 'string' ? maskUrl(old) : Array.isArray(old) ? maskArguments(old) : old;
  if (old !== undefined && isSame(value, shown)) return old;
  if (!JSON.stringify(value ?? null).includes(MASK)) return value;
  throw refuse(server, `${key} has a "${MASK}" in it and is not as it was shown; write the secret itself`);
}

function restore(key: string, written: JsonObject, stored: JsonObject, masks: Masks): JsonObject {
  return Object.fromEntries(
    Object.entries(written).map(([name, value]) => [
      name,
      value === MASK ? masks.stored(`${key}.${name}`, Object.hasOwn(stored, name) ? stored[name] : undefined) : value,
    ]),
  );
}

function restoreOAuth(server: string, written: JsonObject, stored: JsonObject, moved: boolean): JsonObject {
  const tokenUrl = restoreShown(server, 'oauth.token_url', written.token_url, stored.token_url);
  const tokenMoved = !isSame(tokenUrl, stored.token_url);
  // The token that it buys goes to the server's own address.
  const masks = new Masks(server, tokenMoved ? 'oauth.token_url' : moved ? 'the address of the server' : null);
  const result: Record<string, Value> = {};
  for (const [name, value] of Object.entries(written)) {
    const old = Object.hasOwn(stored, name) ? stored[name] : undefined;
    if (name === 'token_url') result[name] = tokenUrl;
    else if (OAUTH_SECRETS.includes(name)) {
      // null is how it was shown; empty text takes it away.
      if (value === null || value === MASK) {
        if (old !== undefined && old !== null && old !== '') result[name] = masks.stored(`oauth.${name}`, old);
      } else if (value !== '') result[name] = value;
    } else if (name === 'extra_token_params' && isObject(value))
      result[name] = restore('oauth.extra_token_params', value, isObject(old) ? old : {}, masks);
    else result[name] = value === MASK ? masks.stored(`oauth.${name}`, old) : value;
  }
  // One that is left out is kept too: it was never shown.
  for (const name of OAUTH_SECRETS) {
    const old = stored[name];
    if (!(name in written) && old !== undefined && old !== null && old !== '')
      result[name] = masks.stored(`oauth.${name}`, old);
  }
  return result;
}
