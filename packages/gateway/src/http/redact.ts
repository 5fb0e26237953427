import type { Json, JsonObject } from '@reindeer/protocol';

const SECRET_NAME =
  /(?:^|[_-])(?:api[_-]?keys?|access[_-]?keys?|secrets?|tokens?|passwords?|passwd|credentials?|authorization|dsn|private[_-]?key)$/i;
/** Counters and limits that only look like secrets. */
const HARMLESS = /^(?:max|min|input|output|total|num|count|prompt|completion|reasoning|cache[a-z]*)[_-]?.*tokens?$/i;

const MASK = '***';
const DEPTH = 40;

const foldName = (name: string) => name.replaceAll(/([a-z0-9])([A-Z])/g, '$1_$2');

/** Does the name of a field say that its value is a secret? */
function isSecretName(name: string): boolean {
  const folded = foldName(name);
  return SECRET_NAME.test(folded) && !HARMLESS.test(folded);
}

/** Masks the values of fields with secret-looking names, at any depth (SEC-05). Values that are null or empty stay. */
export function redactSecrets<T extends Json | undefined>(value: T, depth = 0): T {
  if (value === null || typeof value !== 'object') return value;
  if (depth > DEPTH) return MASK as T;
  if (Array.isArray(value)) return value.map((item: Json) => redactSecrets(item, depth + 1)) as unknown as T;
  const result: Record<string, Json | undefined> = {};
  for (const [name, item] of Object.entries(value as JsonObject)) {
    const masked =
      isSecretName(name) && item !== null && item !== '' && typeof item !== 'boolean' && typeof item !== 'number';
    result[name] = masked ? MASK : redactSecrets(item, depth + 1);
  }
  return result as T;
}

/** Path of the first field with a secret-looking name and a value, or null. */
export function findSecret(value: Json | undefined, path: readonly string[] = []): readonly string[] | null {
  if (value === null || value === undefined || typeof value !== 'object' || path.length > DEPTH) return null;
  for (const [name, item] of Object.entries(value)) {
    const here = [...path, name];
    if (isSecretName(name) && typeof item === 'string' && item !== '' && item !== MASK) return here;
    const inside = findSecret(item as Json, here);
    if (inside !== null) return inside;
  }
  return null;
}
