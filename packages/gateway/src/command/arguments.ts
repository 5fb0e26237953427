import { type ParseArgsConfig, parseArgs } from 'node:util';
import { entryOf, ReindeerError } from '@reindeer/protocol';
import { didYouMean } from '../nearest.ts';
import { BATCH_HELP, type BatchAction, batchAction } from './batch-arguments.ts';

/** What was asked for on the command line. */
export type Command =
  | {
      readonly name: 'serve';
      readonly config: string | undefined;
      readonly host: string | undefined;
      readonly port: number | undefined;
      readonly check: boolean;
    }
  | {
      readonly name: 'run';
      readonly config: string | undefined;
      readonly host: string | undefined;
      readonly port: number | undefined;
      readonly prompt: string;
      readonly model: string | undefined;
      readonly thread: string | undefined;
      readonly json: boolean;
      readonly attach: boolean;
    }
  | {
      readonly name: 'doctor';
      readonly config: string | undefined;
      readonly host: string | undefined;
      readonly port: number | undefined;
      readonly json: boolean;
    }
  | ({
      readonly name: 'sandboxes';
      readonly config: string | undefined;
      readonly host: string | undefined;
      readonly port: number | undefined;
    } & SandboxesAction)
  | ({
      readonly name: 'batch';
      readonly config: string | undefined;
      readonly host: string | undefined;
      readonly port: number | undefined;
      readonly json: boolean;
      readonly attach: boolean;
    } & BatchAction)
  | { readonly name: 'config'; readonly action: 'check'; readonly config: string | undefined }
  | {
      readonly name: 'config';
      readonly action: 'convert';
      readonly file: string;
      /** Default: standard output. */
      readonly output: string | undefined;
    }
  | { readonly name: 'backup'; readonly config: string | undefined; readonly file: string }
  | { readonly name: 'provisioner'; readonly host: string | undefined; readonly port: number | undefined }
  | { readonly name: 'help'; readonly topic: string | undefined }
  | { readonly name: 'version' };

export type SandboxesAction =
  | { readonly action: 'list'; readonly json: boolean }
  | { readonly action: 'stop'; readonly id: string; readonly force: boolean }
  /** `idle`: seconds. */
  | { readonly action: 'prune'; readonly idle: number | undefined };

const text = { type: 'string' } as const;
const flag = { type: 'boolean' } as const;
const common = { config: text, help: { type: 'boolean', short: 'h' } } as const;
const address = { host: text, port: text } as const;

const OPTIONS = {
  serve: { ...common, ...address, check: flag },
  run: { ...common, ...address, model: text, thread: text, json: flag, attach: flag },
  doctor: { ...common, ...address, json: flag },
  sandboxes: { ...common, ...address, json: flag, force: flag, idle: text },
  batch: {
    ...common,
    ...address,
    prompt: text,
    title: text,
    concurrency: text,
    attempts: text,
    'key-column': text,
    acceptance: text,
    schema: text,
    agent: text,
    model: text,
    thread: text,
    output: text,
    format: text,
    detach: flag,
    json: flag,
    attach: flag,
  },
  config: { ...common, output: text },
  backup: { ...common },
  provisioner: { ...address, help: common.help },
} as const satisfies Record<string, NonNullable<ParseArgsConfig['options']>>;

export const COMMANDS = Object.keys(OPTIONS) as (keyof typeof OPTIONS)[];

const bad = (message: string) => new ReindeerError('bad_request', message);

/**
 * Reads the command line (without Node and script).
 *
 * @throws ReindeerError `bad_request` that names what is wrong and the nearest valid word
 */
export function parseCommand(words: readonly string[]): Command {
  const [name, ...rest] = words;
  if (name === undefined || name === '--help' || name === '-h' || name === 'help')
    return { name: 'help', topic: rest[0] };
  if (name === '--version' || name === '-v' || name === 'version') return { name: 'version' };
  if (!isCommand(name))
    throw bad(
      name.startsWith('-')
        ? `Options follow a command, as in: reindeer serve ${name}. Commands: ${COMMANDS.join(', ')}.`
        : `There is no command "${name}".${didYouMean(name, COMMANDS)} Commands: ${COMMANDS.join(', ')}; see reindeer --help.`,
    );
  const { values, positionals } = parse(name, rest);
  if (values.help === true) return { name: 'help', topic: name };
  const shared = { config: textOf(values.config), host: textOf(values.host), port: portOf(textOf(values.port)) };
  const spare = (allowed: number) => {
    if (positionals.length > allowed)
      throw bad(
        `"${positionals[allowed]}" is one word too many for reindeer ${name}. ${
          // npm keeps options for itself that stand before "--", and passes their values on.
          /^\d+$/.test(positionals[allowed] ?? '')
            ? 'For a port behind npm: npm start -- --port 3000.'
            : 'Put quotes around text with spaces.'
        }`,
      );
  };
  switch (name) {
    case 'serve':
      spare(0);
      return { name, ...shared, check: values.check === true };
    case 'doctor':
      spare(0);
      return { name, ...shared, json: values.json === true };
    case 'backup': {
      spare(1);
      const [file] = positionals;
      if (file === undefined) throw bad('Say where the backup goes, as in: reindeer backup reindeer-backup.db');
      return { name, config: shared.config, file };
    }
    case 'config':
      return { name, ...configAction(positionals, shared.config, textOf(values.output)) };
    case 'batch':
      return {
        name,
        ...shared,
        json: values.json === true,
        attach: values.attach === true,
        ...batchAction(positionals, values),
      };
    case 'provisioner':
      spare(0);
      return { name, host: shared.host, port: shared.port };
    case 'sandboxes':
      return { name, ...shared, ...sandboxesAction(positionals, values) };
    case 'run': {
      spare(1);
      const prompt = positionals[0]?.trim();
      if (prompt === undefined || prompt === '')
        throw bad('Say what to do, as in: reindeer run "Write a haiku about reindeer to haiku.md"');
      return {
        name,
        ...shared,
        prompt,
        model: textOf(values.model),
        thread: textOf(values.thread),
        json: values.json === true,
        attach: values.attach === true,
      };
    }
  }
}

function sandboxesAction(
  words: readonly string[],
  values: Readonly<Record<string, string | boolean | undefined>>,
): SandboxesAction {
  const [action, id, ...rest] = words;
  const actions = ['list', 'stop', 'prune'];
  if (action === undefined || !actions.includes(action))
    throw bad(
      `Say what to do with the sandboxes: list, stop or prune.${action === undefined ? '' : didYouMean(action, actions)}`,
    );
  const spare = action === 'stop' ? rest[0] : id;
  if (spare !== undefined) throw bad(`"${spare}" is one word too many for reindeer sandboxes ${action}.`);
  if (action === 'list') return { action, json: values.json === true };
  if (action === 'stop') {
    if (id === undefined) throw bad('Say which one, by the id that reindeer sandboxes list shows.');
    return { action, id, force: values.force === true };
  }
  const idle = textOf(values.idle);
  const seconds = Number(idle);
  if (idle !== undefined && !(idle.trim() !== '' && seconds >= 0 && Number.isFinite(seconds)))
    throw bad(`--idle ${idle} is no number of seconds. Use 0 or more.`);
  return { action: 'prune', idle: idle === undefined ? undefined : seconds };
}

function configAction(
  words: readonly string[],
  config: string | undefined,
  output: string | undefined,
):
  | { readonly action: 'check'; readonly config: string | undefined }
  | { readonly action: 'convert'; readonly file: string; readonly output: string | undefined } {
  const [action, file, ...rest] = words;
  const actions = ['check', 'convert'];
  if (action === undefined || !actions.includes(action))
    throw bad(
      `Say what to do with the configuration: check or convert.${action === undefined ? '' : didYouMean(action, actions)}`,
    );
  const spare = action === 'check' ? file : rest[0];
  if (spare !== undefined) throw bad(`"${spare}" is one word too many for reindeer config ${action}.`);
  if (action === 'check') return { action, config };
  if (file === undefined)
    throw bad('Say which file, as in: reindeer config convert ../deer-flow/config.yaml --output config.yaml');
  return { action: 'convert', file, output };
}

const isCommand = (name: string): name is keyof typeof OPTIONS => Object.hasOwn(OPTIONS, name);
const textOf = (value: string | boolean | undefined) => (typeof value === 'string' ? value : undefined);

function parse(
  name: keyof typeof OPTIONS,
  words: readonly string[],
): { values: Record<string, string | boolean | undefined>; positionals: string[] } {
  const options: NonNullable<ParseArgsConfig['options']> = OPTIONS[name];
  try {
    const { values, positionals } = parseArgs({ args: [...words], options, allowPositionals: true, strict: true });
    return { values: values as Record<string, string | boolean | undefined>, positionals };
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    const unknown = /Unknown option '(-+[^']*)'/.exec(message)?.[1];
    if (unknown !== undefined) {
      const known = Object.keys(options).map((option) => `--${option}`);
      throw bad(
        `reindeer ${name} has no option ${unknown}.${didYouMean(unknown, known)} Options: ${known.join(', ')}.`,
      );
    }
    throw bad(`${message.split('\n')[0]?.replace(/\.?$/, '.')} See reindeer ${name} --help.`);
  }
}

function portOf(value: string | undefined): number | undefined {
  if (value === undefined) return undefined;
  const port = Number(value);
  if (value.trim() === '' || !Number.isInteger(port) || port < 0 || port > 65_535)
    throw bad(`--port ${value} is not a port. Use a number from 0 to 65535; 0 takes any free one.`);
  return port;
}

const HELP = `Reindeer: a self-hosted super agent harness.

  reindeer serve               serve the web page and the API
  reindeer run "<what to do>"  run the agent once, here in the terminal
  reindeer doctor              check this machine, and name the command that fixes each problem
  reindeer sandboxes list      the sandboxes that the running server keeps; also stop <id>, prune
  reindeer batch <action>      many items of one kind, each by a sub-agent of its own
  reindeer config check        is config.yaml right? Also convert <file>, for one of DeerFlow
  reindeer backup <file>       copy the database, also while a server runs elsewhere
  reindeer provisioner         start sandboxes as pods of Kubernetes, for servers that ask for them
  reindeer <command> --help    options of a command

Configuration: config.yaml and .env in this folder, or --config <file>. Everything has a default.
`;

const TOPICS: Readonly<Record<string, string>> = {
  serve: `reindeer serve [--host <address>] [--port <number>] [--config <file>] [--check]

  --host    address to listen on; default 127.0.0.1. Any address that others reach needs a token (REINDEER_TOKEN).
  --port    default 2026; 0 takes any free one
  --check   start on a free port, wait until healthy, say how long it took, stop

Ctrl-C stops: running work gets its time to end. Ctrl-\\ leaves at once.
`,
  run: `reindeer run "<what to do>" [--model <name>] [--thread <id>] [--json] [--attach] [--host <address>] [--port <number>]

  --model   name of a configured model
  --thread  continue this thread; a new one otherwise
  --json    one event per line on standard output
  --attach  let the server that is running do it (found by itself; --host and --port name another, REINDEER_TOKEN its token)

Exit code: 0 done, 1 failed, 2 wrong usage, 3 the agent asks something first (answer with --thread).
`,
  doctor: `reindeer doctor [--json] [--config <file>]

Checks Node, the data folder, the port, the models and the sandbox. Exit code 1 when something does not work.
`,
  sandboxes: `reindeer sandboxes list [--json]
reindeer sandboxes stop <id> [--force]
reindeer sandboxes prune [--idle <seconds>]

  list   the sandboxes of the running server that live between turns (containers)
  stop   one that nobody uses; --force: also one in use, whose commands are then cut short
  prune  all that nobody uses; --idle: only those that have been idle for so long

--host and --port say where the server is; REINDEER_TOKEN if it needs one. Files of threads stay.
`,
  config: `reindeer config check [--config <file>]
reindeer config convert <file> [--output <file>]

  check    reads the configuration as a start would, and names what is wrong with its line
  convert  brings a config.yaml of DeerFlow into our shape and lists what differs; on standard output, or into a new file
`,
  batch: BATCH_HELP,
  backup: `reindeer backup <file>

Writes a copy of the database, as of one moment, into a new file. Files of threads are ordinary files in the data folder.
`,
  provisioner: `reindeer provisioner [--host <address>] [--port <number>]

  --host    address to listen on; default 127.0.0.1
  --port    default 8002; 0 takes any free one

Set PROVISIONER_API_KEY, and K8S_NAMESPACE, SANDBOX_IMAGE and the others of docs/provisioner.md as needed. In a pod it uses its service
account, elsewhere the file of KUBECONFIG_PATH. It reads no config.yaml.
`,
};

export const helpText = (topic: string | undefined): string =>
  topic === undefined ? HELP : (entryOf(TOPICS, topic) ?? HELP);
