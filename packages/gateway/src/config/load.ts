import { readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { parseEnv } from 'node:util';
import { PROVIDERS } from '@reindeer/channels';
import { entryOf, ReindeerError } from '@reindeer/protocol';
import { z } from 'zod';
import { didYouMean } from '../nearest.ts';
import { isOwnModule } from './class-path.ts';
import { type ParsedYaml, readYaml } from './read-yaml.ts';
import {
  CONFIG_VERSION,
  type ConfigFile,
  configSchema,
  KEYS_WITHOUT_EFFECT,
  SECTIONS_WITHOUT_EFFECT,
} from './schema.ts';
import { substitute, type Variables } from './substitute.ts';

export interface LoadedConfig {
  /** The file that was read; null = none, everything is default. */
  readonly file: string | null;
  readonly config: ConfigFile;
  /** The environment with the `.env` file below it. */
  readonly variables: Variables;
  /** Absolute path of the project folder: where `config.yaml`, `.env` and the data folder are by default. */
  readonly root: string;
  /** Where a value stands, for messages: `/x/config.yaml, line 3`; null = there is no file. */
  readonly placeOf: (path: readonly PropertyKey[]) => string | null;
  /** For the operator: unknown keys, sections without effect. */
  readonly warnings: readonly string[];
}

export interface LoadOptions {
  /** `--config`: must exist. */
  readonly path?: string | undefined;
  /** What the caller calls `path`, for messages. Default `--config`. */
  readonly pathName?: string;
  readonly cwd: string;
  readonly environment: Variables;
}

/**
 * Finds and reads the configuration (CFG-1): `path`, else `REINDEER_CONFIG_PATH` (or the reference's `DEER_FLOW_CONFIG_PATH`), else
 * `config.yaml` in the project folder (`REINDEER_PROJECT_ROOT` or the working folder), else nothing. `.env` of the project folder
 * is read first and never overrides a variable that is set.
 *
 * @throws ReindeerError `configuration` that names file, line and key, and what is allowed there
 */
export async function loadConfig(options: LoadOptions): Promise<LoadedConfig> {
  const { environment } = options;
  const root = resolve(options.cwd, environment.REINDEER_PROJECT_ROOT ?? '.');
  const variables = { ...(await readEnvironmentFile(join(root, '.env'))), ...environment };
  const demanded = options.path ?? variables.REINDEER_CONFIG_PATH ?? variables.DEER_FLOW_CONFIG_PATH;
  const file = demanded === undefined ? join(root, 'config.yaml') : resolve(options.cwd, demanded);
  const text = await readOptional(file);
  if (text === null) {
    if (demanded !== undefined)
      throw new ReindeerError(
        'configuration',
        `The configuration file ${file} does not exist. Correct ${options.path === undefined ? 'the variable REINDEER_CONFIG_PATH' : (options.pathName ?? '--config')}, or leave it out: everything has a default.`,
      );
    return { file: null, config: {}, variables, root, placeOf: () => null, warnings: [] };
  }
  const warnings: string[] = [];
  const yaml = readYaml(text, file);
  const config = checkConfig(yaml, file, variables, warnings);
  const placeOf = (path: readonly PropertyKey[]) => `${file}, line ${yaml.lineOf(path)}`;
  return { file, config, variables, root, placeOf, warnings };
}

async function readOptional(file: string): Promise<string | null> {
  try {
    return await readFile(file, 'utf8');
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw new ReindeerError(
      'configuration',
      `The file ${file} cannot be read (${(cause as NodeJS.ErrnoException).code}). Make it readable for this user.`,
      {
        cause,
      },
    );
  }
}

async function readEnvironmentFile(file: string): Promise<Variables> {
  const text = await readOptional(file);
  return text === null ? {} : parseEnv(text);
}

function checkConfig(yaml: ParsedYaml, file: string, variables: Variables, warnings: string[]): ConfigFile {
  const at = (path: readonly PropertyKey[]) => `${file}, line ${yaml.lineOf(path)}`;
  const raw = yaml.value ?? {};
  if (typeof raw !== 'object' || Array.isArray(raw))
    throw new ReindeerError('configuration', `${file} must consist of keys and values, such as "log_level: info".`);
  // A section whose body is commented out parses as null and means its defaults.
  const present = Object.fromEntries(Object.entries(raw).filter(([, value]) => value !== null));
  warnAboutKeys(present, yaml, file, warnings);
  warnAboutVersion(present.config_version, at(['config_version']), warnings);
  const used = withoutIdle(Object.fromEntries(Object.entries(present).filter(([key]) => key in configSchema.shape)));
  const filled = substitute(used, variables, (path, name) => {
    throw new ReindeerError(
      'configuration',
      `${at(path)}: ${path.join('.')} asks for the environment variable ${name}, which is not set. Set it in the environment or in .env, or remove the key.`,
    );
  });
  const result = configSchema.safeParse(filled, { reportInput: false });
  if (result.success) return result.data;
  const problems = result.error.issues
    .slice(0, 10)
    .map((issue) => `${at(issue.path)}: ${issue.path.join('.')} ${problemOf(issue)}`);
  throw new ReindeerError('configuration', problems.join('\n'));
}

const isSection = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Without the keys that have no effect, and without what belongs to a bot that is switched off: what is not used may name variables that are not set. */
function withoutIdle(sections: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(sections).map(([name, section]) => {
      if (!isSection(section)) return [name, section];
      const idle = entryOf(KEYS_WITHOUT_EFFECT, name) ?? [];
      const kept = Object.entries(section).filter(([key]) => !idle.includes(key));
      const entries =
        name === 'channels'
          ? kept.map(([key, value]) => [key, isSection(value) && value.enabled === false ? { enabled: false } : value])
          : kept;
      return [name, Object.fromEntries(entries)];
    }),
  );
}

/**
 * What a start would say of this text, without its environment: placeholders stand for right values.
 *
 * @throws ReindeerError `configuration` when it is no YAML
 */
export function examineConfig(text: string, file: string): { readonly warnings: string[]; readonly faults: string[] } {
  const warnings: string[] = [];
  const yaml = readYaml(text, file);
  const present = Object.fromEntries(Object.entries(yaml.value ?? {}).filter(([, value]) => value !== null));
  warnAboutKeys(present, yaml, file, warnings);
  const result = configSchema.safeParse(present, { reportInput: false });
  const valueAt = (path: readonly PropertyKey[]): unknown =>
    path.reduce<unknown>((value, key) => (value as Record<PropertyKey, unknown> | null | undefined)?.[key], present);
  const faults = (result.error?.issues ?? [])
    .filter(({ path }) => !String(valueAt(path)).startsWith('$'))
    .slice(0, 50)
    .map((issue) => `${file}, line ${yaml.lineOf(issue.path)}: ${issue.path.join('.')} ${problemOf(issue)}`);
  return { warnings, faults };
}

const problemOf = (issue: z.core.$ZodIssue) =>
  issue.code === 'invalid_type' && issue.message.startsWith('Invalid input')
    ? `must be ${'expected' in issue ? issue.expected : 'of another type'}.`
    : issue.message.replace(/[^.?]$/, '$&.');

/** Another version is never a reason to refuse: unknown keys are told one by one (CFG-3). A file without one is of any. */
function warnAboutVersion(version: unknown, at: string, warnings: string[]): void {
  if (typeof version !== 'number' || version === CONFIG_VERSION) return;
  warnings.push(
    version < CONFIG_VERSION
      ? `${at}: config_version ${version} is older than ${CONFIG_VERSION}. Everything in the file is read; new keys have their defaults. Compare it with the configuration reference, then set config_version: ${CONFIG_VERSION}.`
      : `${at}: config_version ${version} is newer than ${CONFIG_VERSION}, which this program knows. What it does not know is ignored and named.`,
  );
}

function warnAboutKeys(
  config: Readonly<Record<string, unknown>>,
  yaml: ParsedYaml,
  file: string,
  warnings: string[],
): void {
  const known = [...Object.keys(configSchema.shape), ...SECTIONS_WITHOUT_EFFECT];
  const idle = Object.keys(config).filter((key) => SECTIONS_WITHOUT_EFFECT.includes(key));
  if (idle.length > 0) warnings.push(`${file}: these sections have no effect in this version: ${idle.join(', ')}.`);
  const { channels } = config;
  for (const [name, channel] of Object.entries(isSection(channels) ? channels : {}))
    if (KEYS_WITHOUT_EFFECT.channels?.includes(name) && isSection(channel) && channel.enabled !== false)
      warnings.push(`${file}: channels.${name} has no effect in this version. There is: ${PROVIDERS.join(', ')}.`);
  const walk = (value: unknown, schema: unknown, path: readonly (string | number)[]) => {
    let inner = schema;
    while (inner instanceof z.ZodOptional || inner instanceof z.ZodNullable) inner = inner.unwrap();
    if (inner instanceof z.ZodArray && Array.isArray(value)) {
      value.forEach((item, index) => {
        // Other keys of a model or a tool go to its client.
        if (path[0] !== 'models' && path[0] !== 'tools') walk(item, inner.element, [...path, index]);
      });
      return;
    }
    if (!(inner instanceof z.ZodObject) || typeof value !== 'object' || value === null) return;
    // A section whose keys are somebody else's, such as `extensions`.
    if (Object.keys(inner.shape).length === 0) return;
    // The other keys are for the module that it names.
    const { use, manager_class: manager } = value as { use?: unknown; manager_class?: unknown };
    if ([use, manager].some((name) => typeof name === 'string' && isOwnModule(name))) return;
    const names =
      path.length === 0 ? known : [...Object.keys(inner.shape), ...(KEYS_WITHOUT_EFFECT[String(path[0])] ?? [])];
    for (const [key, item] of Object.entries(value)) {
      const here = [...path, key];
      if (!names.includes(key))
        warnings.push(
          `${file}, line ${yaml.lineOf(here)}: unknown key "${here.join('.')}" is ignored.${didYouMean(key, names)}`,
        );
      else if (key in inner.shape) walk(item, inner.shape[key], here);
    }
  };
  walk(config, configSchema, []);
}
