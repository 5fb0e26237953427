import { type Json, type JsonObject, ReindeerError } from '@reindeer/protocol';
import { looksSecret } from '@reindeer/sandbox';
import { didYouMean } from '../nearest.ts';
import type { Variables } from './substitute.ts';

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

const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
/** A placeholder names a variable; it is no secret. */
const isPlaceholder = (value: unknown): boolean => typeof value === 'string' && /^\$\{?[A-Za-z_]\w*\}?$/.test(value);

/** The servers as a client may see them: no value of `env` and `headers`, no secret of `oauth`, none under a key that sounds like one. */
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
    else if (key === 'url' && typeof value === 'string') masked[key] = withoutPassword(value);
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

const maskedParameters = (name: string, value: Value): Value =>
  name === 'extra_token_params' && isObject(value)
    ? Object.fromEntries(
        Object.entries(value).map(([key, item]) => [key, looksSecret(key) && !isPlaceholder(item) ? MASK : item]),
      )
    : value;

function withoutPassword(url: string): string {
  const parsed = URL.parse(url);
  if (parsed === null || parsed.password === '') return url;
  parsed.password = MASK;
  return parsed.href;
}

/**
 * What a client wrote, with the masks replaced by what is stored. A mask where nothing is stored is refused: it would become the value.
 *
 * @throws ReindeerError `validation_failed` that names server and key
 */
export function unmaskServers(written: JsonObject, stored: unknown): JsonObject {
  const known = isObject(stored) ? stored : {};
  return Object.fromEntries(
    Object.entries(written).map(([name, server]) => {
      if (!isObject(server)) throw refuse(name, 'must be an object');
      const before = known[name];
      return [name, unmaskServer(name, server, isObject(before) ? before : {})];
    }),
  );
}

function unmaskServer(name: string, server: JsonObject, before: JsonObject): JsonObject {
  const result: Record<string, Value> = {};
  // Keys of the file that a page may not know of.
  for (const [key, value] of Object.entries(before))
    if (KEPT.includes(key) || !KNOWN_KEYS.includes(key)) result[key] = value;
  for (const [key, value] of Object.entries(server)) {
    const old = before[key];
    if ((key === 'env' || key === 'headers') && isObject(value))
      result[key] = restore(name, key, value, isObject(old) ? old : {});
    else if (key === 'oauth' && isObject(value)) result[key] = restoreOAuth(name, value, isObject(old) ? old : {});
    else if (key === 'url' && typeof value === 'string' && typeof old === 'string' && value === withoutPassword(old))
      result[key] = old;
    else if (value === MASK) {
      if (old === undefined)
        throw refuse(name, `${key} is "${MASK}", and there is no stored value that it could stand for`);
      result[key] = old;
    } else result[key] = value;
  }
  return result;
}

function restore(server: string, key: string, written: JsonObject, stored: JsonObject): JsonObject {
  return Object.fromEntries(
    Object.entries(written).map(([name, value]) => {
      if (value !== MASK) return [name, value];
      const old = stored[name];
      if (old === undefined)
        throw refuse(server, `${key}.${name} is "${MASK}", and there is no stored value that it could stand for`);
      return [name, old];
    }),
  );
}

function restoreOAuth(server: string, written: JsonObject, stored: JsonObject): JsonObject {
  const result: Record<string, Value> = {};
  for (const [name, value] of Object.entries(written)) {
    const old = stored[name];
    if (OAUTH_SECRETS.includes(name)) {
      // null is how it was shown; empty text takes it away.
      if (value === null || value === MASK) {
        if (old !== undefined) result[name] = old;
      } else if (value !== '') result[name] = value;
    } else if (name === 'extra_token_params' && isObject(value))
      result[name] = restore(server, 'oauth.extra_token_params', value, isObject(old) ? old : {});
    else if (value === MASK) {
      if (old === undefined)
        throw refuse(server, `oauth.${name} is "${MASK}", and there is no stored value that it could stand for`);
      result[name] = old;
    } else result[name] = value;
  }
  // One that is left out is kept too: it was never shown.
  for (const name of OAUTH_SECRETS) if (!(name in written) && stored[name] !== undefined) result[name] = stored[name];
  return result;
}

const refuse = (server: string, why: string): ReindeerError =>
  new ReindeerError('validation_failed', `mcpServers.${server.slice(0, 64)}: ${why}.`);

const REMOTE = ['sse', 'http', 'streamable_http', 'streamable-http'];
/** Programs that fetch and run a server by name. Others the operator writes into the file, or allows by a variable. */
const COMMANDS = ['npx', 'uvx'];
/** Options of these launchers with a value of their own; everything after the first other word belongs to the server. */
const WITH_VALUE = new Set([
  '-p',
  '--package',
  '--from',
  '--with',
  '--python',
  '--registry',
  '--index-url',
  '--index',
  '-w',
  '--workspace',
  '--cache',
  '--loglevel',
  '--prefix',
  '--refresh-package',
  '--default-index',
]);
/** Options without a value. Any other might take the next word with it, and hide what comes behind. */
const PLAIN = new Set([
  '-y',
  '--yes',
  '--no',
  '-q',
  '--quiet',
  '-s',
  '--silent',
  '-v',
  '--verbose',
  '--offline',
  '--prefer-offline',
  '--prefer-online',
  '--isolated',
  '--refresh',
  '--no-cache',
  '--no-config',
  '--no-progress',
  '--no-install',
  '--native-tls',
]);
const EXECUTES = [
  '-c',
  '--call',
  '-e',
  '--eval',
  '--print',
  '--shell',
  '--node-arg',
  '--node-options',
  '-n',
  '--script-shell',
  '--exec',
  '--import',
  '--require',
  '-r',
  '-m',
  '--module',
  '--env-file',
];
const INJECTS =
  /^(LD_|DYLD_|NODE_|NPM_CONFIG_|PYTHON|RUBY|PERL|BASH_|ZDOTDIR$|ENV$|SHELL$|PATH$|UV_|PIP_|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|JDK_JAVA_OPTIONS|GIT_|SSL_|OPENSSL_|PROMPT_COMMAND|IFS$)/i;

/**
 * May a client of the API start this program (SEC-07)? Whoever can call the API could otherwise run anything as the server's user. The
 * operator's own file is not restricted, and a server that is already there may always be switched off.
 *
 * @throws ReindeerError `validation_failed` with what is allowed
 */
export function checkStdioPolicy(name: string, server: JsonObject, variables: Variables): void {
  // Whatever is not surely a web address counts as a program, as the reader of the file decides it: a command beside an address is started.
  const kind = server.type ?? server.transport ?? (server.command == null && server.url != null ? 'http' : 'stdio');
  if (typeof kind === 'string' && REMOTE.includes(kind)) return;
  const more = (variables.REINDEER_MCP_STDIO_COMMAND_ALLOWLIST ?? variables.DEER_FLOW_MCP_STDIO_COMMAND_ALLOWLIST ?? '')
    .split(',')
    .map((word) => word.trim())
    .filter((word) => word !== '');
  const allowed = [...COMMANDS, ...more];
  const { command } = server;
  if (typeof command !== 'string' || !/^[A-Za-z0-9._-]+$/.test(command) || !allowed.includes(command))
    throw refuse(
      name,
      `command may be ${allowed.join(' or ')} when it is set through the API.${typeof command === 'string' ? didYouMean(command, allowed) : ''} Write others into extensions_config.json by hand, or name them in REINDEER_MCP_STDIO_COMMAND_ALLOWLIST`,
    );
  const args = Array.isArray(server.args) ? server.args.map(String) : [];
  const options = launcherOptions(args);
  const bad = options.find(executes);
  if (bad !== undefined)
    throw refuse(
      name,
      `the option ${bad.slice(0, 40)} makes ${command} run code, which is not allowed through the API`,
    );
  const unknown = COMMANDS.includes(command)
    ? options.find((option) => !option.includes('=') && !PLAIN.has(option) && !WITH_VALUE.has(option))
    : undefined;
  if (unknown !== undefined)
    throw refuse(
      name,
      `the option ${unknown.slice(0, 40)} of ${command} is not known here, so what it takes cannot be told; write ${unknown.slice(0, 40)}=value, or put it behind the name of the server`,
    );
  const variable = isObject(server.env) ? Object.keys(server.env).find((key) => INJECTS.test(key)) : undefined;
  if (variable !== undefined)
    throw refuse(
      name,
      `env.${variable.slice(0, 60)} can make a program run other code, which is not allowed through the API`,
    );
}

/** The launcher's own options: those before the name of the server. */
function launcherOptions(args: readonly string[]): string[] {
  const options: string[] = [];
  for (let at = 0; at < args.length; at += 1) {
    const word = args[at] ?? '';
    if (word === '--') break;
    if (!word.startsWith('-')) break;
    options.push(word);
    if (WITH_VALUE.has(word)) at += 1;
  }
  return options;
}

function executes(option: string): boolean {
  const [name = ''] = option.split('=');
  if (EXECUTES.includes(name)) return true;
  // Short ones in one word, or with their value in it: -ce, -c'…'.
  return (
    /^-[A-Za-z]/.test(option) &&
    !option.startsWith('--') &&
    /[cenrm]/.test(option.slice(1).replace(/[^A-Za-z].*$/, '')) &&
    !WITH_VALUE.has(name)
  );
}
