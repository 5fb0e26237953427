import { readFile } from 'node:fs/promises';
import { createRequire, findPackageJSON } from 'node:module';
import { dirname, isAbsolute, join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { ReindeerError } from '@reindeer/protocol';
import { didYouMean } from '../nearest.ts';

/** Makes what a configuration names from a part of it. */
export type Maker = (options: never) => unknown;

/** Does this name an export of a module of the operator's own: `./models/mine.mjs:createModel`, or `npm:a-package:createModel`? */
export const isOwnModule = (use: string): boolean => /^(?:(?:\.{1,2}\/|\/).*|npm:.+):[\w$]+$/.test(use);

/** An export, and where it was found. */
export interface OwnExport {
  readonly value: unknown;
  readonly url: string;
  readonly name: string;
}

/**
 * The export of a module of the operator's own (CFG-6). The module runs with all rights of this program: only `config.yaml` may name one, never
 * what clients can write. It is read once; a change of it counts after a restart.
 *
 * @param use `path:export`, a relative path begins in the project folder; or `npm:package:export`, a package that is installed there
 * @param key where it stands, for the message
 * @throws ReindeerError `configuration`, told apart: the module cannot be loaded, it has no such export
 */
export async function ownExport(use: string, root: string, key: string): Promise<OwnExport> {
  const colon = use.lastIndexOf(':');
  const [path, name] = [use.slice(0, colon), use.slice(colon + 1)];
  const file = path.startsWith('npm:')
    ? await packageFile(path.slice(4), root, key)
    : isAbsolute(path)
      ? path
      : resolve(root, path);
  const url = pathToFileURL(file).href;
  let module: Readonly<Record<string, unknown>>;
  try {
    module = (await import(url)) as Readonly<Record<string, unknown>>;
  } catch (cause) {
    throw new ReindeerError('configuration', `${key}: ${missing(file, cause)}`, { cause });
  }
  const value = Object.hasOwn(module, name) ? module[name] : undefined;
  const names = Object.keys(module);
  if (value !== undefined) return { value, url, name };
  throw new ReindeerError(
    'configuration',
    `${key}: ${file} exports no "${name}".${didYouMean(name, names)} It exports: ${names.slice(0, 20).join(', ') || 'nothing'}.`,
  );
}

/** The same, where it must be a function. @throws ReindeerError `configuration`, also when the export is no function */
export async function ownMaker(use: string, root: string, key: string): Promise<Maker> {
  const { value, url, name } = await ownExport(use, root, key);
  if (typeof value === 'function') return value as Maker;
  throw new ReindeerError(
    'configuration',
    `${key}: "${name}" of ${fileURLToPath(url)} is no function but ${typeof value}. It must be a function that makes what is needed.`,
  );
}

/**
 * What the function of a module makes, when it can do what is needed.
 *
 * @param methods names of functions that it must have
 * @throws ReindeerError `configuration`, also for what the function throws
 */
export async function ownPart<T>(
  use: string,
  root: string,
  key: string,
  methods: readonly string[],
  given: object,
): Promise<T> {
  const maker = await ownMaker(use, root, key);
  let made: unknown;
  try {
    made = await maker(given as never);
  } catch (cause) {
    if (ReindeerError.is(cause)) throw cause;
    const reason = String((cause as Error | null)?.message ?? cause).slice(0, 300);
    throw new ReindeerError('configuration', `${key}: ${use} failed: ${reason}`, { cause });
  }
  const object = typeof made === 'object' && made !== null ? (made as Readonly<Record<string, unknown>>) : {};
  const absent = methods.filter((name) => typeof object[name] !== 'function');
  if (absent.length === 0) return made as T;
  throw new ReindeerError(
    'configuration',
    `${key}: what ${use} made is not what is needed: it has no ${absent.map((name) => `${name}()`).join(', ')}.`,
  );
}

/** The entry of a package that is installed in the project folder. */
async function packageFile(name: string, root: string, key: string): Promise<string> {
  const from = createRequire(join(root, 'package.json'));
  try {
    return from.resolve(name);
  } catch (cause) {
    if ((cause as { code?: string }).code === 'ERR_PACKAGE_PATH_NOT_EXPORTED') {
      // Only for `import`, which `require` does not look at.
      const manifest = findPackageJSON(name, pathToFileURL(join(root, 'package.json')));
      const entry = manifest === undefined ? null : importEntry(JSON.parse(await readFile(manifest, 'utf8')));
      if (manifest !== undefined && entry !== null) return resolve(dirname(manifest), entry);
    }
    throw new ReindeerError(
      'configuration',
      `${key}: the package ${name} is not installed in ${root}. Install it there: npm install ${name}`,
      { cause },
    );
  }
}

/** The main entry of a manifest whose `exports` are for `import`. */
function importEntry({ exports }: { readonly exports?: unknown }): string | null {
  let found: unknown = exports;
  for (let depth = 0; depth < 5 && typeof found === 'object' && found !== null; depth += 1) {
    const conditions = found as Readonly<Record<string, unknown>>;
    found = conditions['.'] ?? conditions.node ?? conditions.import ?? conditions.default;
  }
  return typeof found === 'string' ? found : null;
}

function missing(file: string, cause: unknown): string {
  const { code, message } = cause as { code?: string; message?: string };
  const needed = /Cannot find package '([^']+)'/.exec(message ?? '')?.[1];
  if (needed !== undefined)
    return `${file} needs the package ${needed}, which is not installed. Install it where the file is: npm install ${needed}`;
  if (code === 'ERR_MODULE_NOT_FOUND')
    return `the module ${file}, or one that it imports, does not exist. Correct the path; a relative one begins in the project folder.`;
  return `the module ${file} cannot be loaded: ${(message ?? String(cause)).split('\n')[0]?.slice(0, 300)}.`;
}
