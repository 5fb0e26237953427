import { readFile, stat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { entryOf, type JsonObject, ReindeerError } from '@reindeer/protocol';
import { replaceFile } from '@reindeer/sandbox';
import { substitute, type Variables } from './substitute.ts';

export interface ExtensionsOptions {
  /** Project folder: where the file is looked for, and made when a client writes the first entry. */
  readonly root: string;
  /** Asked each time: `.env` may change. */
  readonly variables: () => Variables;
  /** Section `extensions` of `config.yaml`: its keys stand above those of the file. Asked each time: it may change. */
  readonly overrides: () => Readonly<Record<string, unknown>> | null;
}

const FILE = 'extensions_config.json';
/** The name that earlier versions of the reference used. */
const LEGACY_FILE = 'mcp_config.json';
const MAX_BYTES = 2 * 1024 * 1024;
/** Spellings that mean the same key. */
const SPELLINGS: Readonly<Record<string, string>> = { mcp_servers: 'mcpServers', mcp_interceptors: 'mcpInterceptors' };

/**
 * `extensions_config.json` (CFG-5): MCP servers and switches of skills, in a file of its own that clients may change without touching the
 * operator's `config.yaml`. Read anew each time: it is small, and a hand edit counts at once. Keys that are not known here are kept.
 *
 * Writes come one after another; each replaces the file whole, also behind a link, and keeps its mode. A crash leaves the old or the new file.
 */
export class ExtensionsFile {
  readonly #options: ExtensionsOptions;
  /** Named by the operator: must exist. */
  readonly #demanded: string | null;
  #writing: Promise<unknown> = Promise.resolve();

  constructor(options: ExtensionsOptions) {
    this.#options = options;
    const { REINDEER_EXTENSIONS_CONFIG_PATH: own, DEER_FLOW_EXTENSIONS_CONFIG_PATH: carriedOver } = options.variables();
    const named = own ?? carriedOver;
    this.#demanded = named === undefined || named === '' ? null : resolve(options.root, named);
  }

  /** @throws ReindeerError `configuration` when the operator named a file that does not exist, or it is no JSON object */
  async check(): Promise<void> {
    await this.raw();
  }

  /** The file as it is written, placeholders such as `$TOKEN` included; empty without a file. */
  async raw(): Promise<JsonObject> {
    const file = await this.#find();
    return file === null ? {} : await readObject(file);
  }

  /** With `config.yaml` on top and placeholders filled in; a variable that is not set becomes empty text. */
  async resolved(): Promise<Readonly<Record<string, unknown>>> {
    const overrides = spelled(this.#options.overrides() ?? {});
    const filled = substitute({ ...(await this.raw()), ...overrides }, this.#options.variables(), () => '');
    return filled as Readonly<Record<string, unknown>>;
  }

  /** Keys that `config.yaml` decides: a client cannot change them here. */
  overridden(key: string): boolean {
    return key in spelled(this.#options.overrides() ?? {});
  }

  /**
   * Changes the file. `change` gets what it holds now and answers what it should hold; what it throws leaves the file alone.
   *
   * @throws ReindeerError `conflict` for a key that `config.yaml` decides
   */
  update(key: string, change: (section: unknown) => JsonObject): Promise<JsonObject> {
    if (this.overridden(key))
      return Promise.reject(
        new ReindeerError(
          'conflict',
          `extensions.${key} is set in config.yaml, which stands above this file. Change it there.`,
        ),
      );
    const written = this.#writing.then(async () => {
      const file = (await this.#find()) ?? join(this.#options.root, FILE);
      const before: JsonObject = await readObject(file).catch((error: unknown) => {
        if ((error as { cause?: { code?: string } }).cause?.code === 'ENOENT') return {};
        throw error;
      });
      const after = { ...before, [key]: change(before[key]) };
      const text = `${JSON.stringify(after, null, 2)}\n`;
      // What could not be read again must not be written: the next start would fail.
      if (Buffer.byteLength(text) > MAX_BYTES)
        throw new ReindeerError('too_large', `The file would have more than ${MAX_BYTES / 1024 / 1024} MiB.`);
      await replaceFile(file, text);
      return after;
    });
    this.#writing = written.catch(() => {});
    return written;
  }

  async #find(): Promise<string | null> {
    const { root } = this.#options;
    if (this.#demanded !== null) return this.#demanded;
    for (const file of [join(root, FILE), join(dirname(root), FILE), join(root, LEGACY_FILE)])
      if ((await stat(file).catch(() => null))?.isFile() === true) return file;
    return null;
  }
}

const spelled = (object: Readonly<Record<string, unknown>>): Record<string, unknown> =>
  Object.fromEntries(Object.entries(object).map(([key, value]) => [entryOf(SPELLINGS, key) ?? key, value]));

async function readObject(file: string): Promise<JsonObject> {
  let text: string;
  try {
    if ((await stat(file)).size > MAX_BYTES)
      throw new ReindeerError('configuration', `${file} has more than ${MAX_BYTES / 1024 / 1024} MiB.`);
    text = await readFile(file, 'utf8');
  } catch (cause) {
    if (ReindeerError.is(cause)) throw cause;
    throw new ReindeerError(
      'configuration',
      `The file ${file} cannot be read (${(cause as NodeJS.ErrnoException).code}).`,
      { cause },
    );
  }
  let value: unknown;
  try {
    value = JSON.parse(text.replace(/^\uFEFF/, ''));
  } catch (cause) {
    throw new ReindeerError('configuration', `${file} is no JSON: ${placeOf(cause, text)}.`, { cause });
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new ReindeerError('configuration', `${file} must hold one JSON object, such as {"mcpServers": {}}.`);
  return spelled(value as Record<string, unknown>) as JsonObject;
}

/** The line of a mistake; never the text around it, which may hold a secret. */
function placeOf(error: unknown, text: string): string {
  const message = String((error as Error).message);
  const position = /position (\d+)/.exec(message)?.[1];
  if (position === undefined) return /end of JSON/i.test(message) ? 'it ends too early' : 'it cannot be read';
  const line = text.slice(0, Number(position)).split('\n').length;
  return `line ${line} has a mistake`;
}
