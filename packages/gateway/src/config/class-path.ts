import { isAbsolute, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ReindeerError } from '@reindeer/protocol';
import { didYouMean } from '../nearest.ts';

/** Makes what a configuration names from a part of it. */
export type Maker = (options: never) => unknown;

/** Is this the path of a module of the operator's own, with one of its exports: `./models/mine.mjs:createModel`? */
export const isOwnModule = (use: string): boolean => /^(?:\.{1,2}\/|\/).*:[\w$]+$/.test(use);

/**
 * The export of a module of the operator's own (CFG-6). The module runs with all rights of this program: only `config.yaml` may name one, never
 * what clients can write.
 *
 * @param use `path:export`; a relative path begins in the project folder
 * @param key where it stands, for the message
 * @throws ReindeerError `configuration`, told apart: the module cannot be loaded, it has no such export, the export is no function
 */
export async function ownMaker(use: string, root: string, key: string): Promise<Maker> {
  const colon = use.lastIndexOf(':');
  const [path, name] = [use.slice(0, colon), use.slice(colon + 1)];
  const file = isAbsolute(path) ? path : resolve(root, path);
  let module: Readonly<Record<string, unknown>>;
  try {
    module = (await import(pathToFileURL(file).href)) as Readonly<Record<string, unknown>>;
  } catch (cause) {
    throw new ReindeerError('configuration', `${key}: ${missing(file, cause)}`, { cause });
  }
  const found = Object.hasOwn(module, name) ? module[name] : undefined;
  const names = Object.keys(module);
  if (found === undefined)
    throw new ReindeerError(
      'configuration',
      `${key}: ${file} exports no "${name}".${didYouMean(name, names)} It exports: ${names.slice(0, 20).join(', ') || 'nothing'}.`,
    );
  if (typeof found !== 'function')
    throw new ReindeerError(
      'configuration',
      `${key}: "${name}" of ${file} is no function but ${typeof found}. It must be a function that makes what is needed.`,
    );
  return found as Maker;
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
