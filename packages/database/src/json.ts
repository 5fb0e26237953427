import type { Json } from '@reindeer/protocol';

/** JSON text with sorted keys, so that equal values have equal texts. */
export function canonicalJson(value: Json | undefined): string {
  return JSON.stringify(sorted(value ?? null));
}

function sorted(value: Json): Json {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(sorted);
  const record = value as { readonly [key: string]: Json | undefined };
  const copy: Record<string, Json> = {};
  for (const key of Object.keys(record).sort()) {
    const entry = record[key];
    // `defineProperty`, because a key may be called `__proto__`.
    if (entry !== undefined)
      Object.defineProperty(copy, key, { value: sorted(entry), enumerable: true, configurable: true, writable: true });
  }
  return copy;
}
