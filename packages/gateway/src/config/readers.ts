import { ReindeerError } from '@reindeer/protocol';
import { didYouMean } from '../nearest.ts';
import { isOwnModule } from './class-path.ts';

/** Seconds of the file as milliseconds; what is left out (or null) is `otherwise`, which is in milliseconds. */
export const milliseconds = <T>(seconds: number | null | undefined, otherwise: T): number | T =>
  seconds == null ? otherwise : seconds * 1000;

/** `[key]: value` for what has one; the settings it is spread into keep their default otherwise. */
export const defined = <K extends string, V>(key: K, value: V | null | undefined): { readonly [P in K]?: V } =>
  value == null ? {} : ({ [key]: value } as { readonly [P in K]: V });

/** Names a value in the file: keys, and places in lists. */
export type KeyPath = readonly (string | number)[];

/** `configuration`: a value that cannot be, of which `located` can say where it stands. */
export const wrongValue = (path: KeyPath, message: string) =>
  new ReindeerError('configuration', message, { detail: { path } });

/** `configuration`: a name that is none of those that are here. */
export const unknownName = (path: KeyPath, what: string, name: string, known: readonly string[], use: string) =>
  wrongValue(
    path,
    `${path.join('.')}: there is no ${what} "${name.slice(0, 200)}" in this version.${didYouMean(name, known)} Use ${use}.`,
  );

/** What `read` answers; a value that it refuses is told with its file and line. */
export function located<T>(placeOf: (path: readonly PropertyKey[]) => string | null, read: () => T): T {
  try {
    return read();
  } catch (error) {
    const path = ReindeerError.is(error) ? error.detail?.path : undefined;
    const place = Array.isArray(path) ? placeOf(path as KeyPath) : null;
    if (place === null) throw error;
    throw new ReindeerError('configuration', `${place}: ${(error as ReindeerError).message}`, { cause: error });
  }
}

/** A module of the operator's own, and what it gets. */
export interface OwnModule {
  readonly use: string;
  readonly config: Readonly<Record<string, unknown>>;
}

/** A section that names who decides, and may be switched off. */
interface ProviderSection<C> {
  readonly enabled?: boolean | undefined;
  readonly provider?: { readonly use: string; readonly config?: C | null | undefined } | null | undefined;
}

/** The operator's own module that a section names; null = it is off, or names one of ours. */
export function ownModuleOf(section: ProviderSection<Readonly<Record<string, unknown>>> = {}): OwnModule | null {
  const { enabled, provider } = section;
  if (enabled !== true || provider == null || !isOwnModule(provider.use)) return null;
  return { use: provider.use, config: provider.config ?? {} };
}

/**
 * Is one of ours asked for? Not when the section is off, or names a module of the operator's own.
 *
 * @param key the section's
 * @param ours short name, then the last words of class paths in files that are carried over
 * @param set what to set when the provider is missing
 * @throws ReindeerError `configuration` for a provider that is missing or unknown
 */
export function isOurs(
  key: string,
  section: ProviderSection<unknown> = {},
  ours: { readonly what: string; readonly names: readonly [string, ...string[]]; readonly set: string },
): boolean {
  const { enabled, provider } = section;
  if (enabled !== true) return false;
  if (provider == null)
    throw wrongValue(
      [key, 'enabled'],
      `${key}.enabled is true, but ${key}.provider is missing. Set ${ours.set}, or enabled to false.`,
    );
  const { use } = provider;
  if (isOwnModule(use)) return false;
  if (ours.names.includes(use) || ours.names.includes(use.split(/[:./]/).at(-1) ?? '')) return true;
  throw unknownName([key, 'provider', 'use'], ours.what, use, ours.names, ours.names[0]);
}
