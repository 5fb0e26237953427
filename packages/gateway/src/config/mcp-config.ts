import type { JsonObject } from '@reindeer/protocol';
import { didYouMean } from '../nearest.ts';
import { isObject, kindOf, refuse } from './mcp-masks.ts';
import type { Variables } from './substitute.ts';

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
  if (kindOf(server) === 'remote') return;
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
