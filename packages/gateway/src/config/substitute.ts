import type { Json } from '@reindeer/protocol';

/** Environment variables by name. */
export type Variables = Readonly<Record<string, string | undefined>>;

/**
 * Replaces every text that starts with `$` by the whole variable of that name, at any depth (CFG-2). There is no partial
 * interpolation: `$HOME/x` names the variable `HOME/x`.
 *
 * @param missing called with the path and name of a variable that is not set; what it returns takes its place
 */
export function substitute(
  value: unknown,
  variables: Variables,
  missing: (path: readonly (string | number)[], name: string) => Json,
  path: readonly (string | number)[] = [],
): unknown {
  if (typeof value === 'string') {
    if (!value.startsWith('$') || value.length === 1) return value;
    const name = /^\$\{([^}]+)\}$/.exec(value)?.[1] ?? value.slice(1);
    return variables[name] ?? missing(path, name);
  }
  if (Array.isArray(value)) return value.map((item, index) => substitute(item, variables, missing, [...path, index]));
  if (typeof value === 'object' && value !== null)
    return Object.fromEntries(
      Object.entries(value).map(([key, item]) => [key, substitute(item, variables, missing, [...path, key])]),
    );
  return value;
}
