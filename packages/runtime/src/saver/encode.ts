import { type BaseMessage, isBaseMessage } from '@langchain/core/messages';
import { type Json, ReindeerError } from '@reindeer/protocol';

/**
 * Turns a value into a JSON tree. Two forms:
 *
 * - `stored` loses nothing: what JSON cannot say stands as `{"$x": [kind, …]}` (undefined, Set, Map, bytes, dates, errors, …),
 *   and a plain object that itself has a key `$m` or `$x` is wrapped, so that `{"$m": hash}` always is a message;
 * - `wire` is what a client sees: undefined is left out, a Set is a list, bytes are base64 text.
 *
 * `body` is `stored` without undefined fields: the inside of a message is JSON on every wire.
 */
export interface EncodeOptions {
  readonly form: 'stored' | 'body' | 'wire';
  /** What stands for a message, usually `{"$m": hash}`. */
  readonly message: (message: BaseMessage) => Json;
}

/** Deeper values are refused; a value that refers to itself is one of them. */
const MAX_DEPTH = 200;

/** A tree that `JSON.stringify` writes without calling anything. Parts without special values are passed through uncopied. */
export function encodeValue(value: unknown, options: EncodeOptions): Json {
  const encoded = encode(value, options, 0);
  return encoded === undefined ? null : (encoded as Json);
}

/** Special value in the `stored` form. */
function special(kind: string, ...parts: unknown[]): unknown {
  return { $x: [kind, ...parts] };
}

function encode(value: unknown, options: EncodeOptions, depth: number): unknown {
  const stored = options.form !== 'wire';
  switch (typeof value) {
    case 'string':
    case 'boolean':
      return value;
    case 'number':
      return Number.isFinite(value) ? value : stored ? special('number', String(value)) : null;
    case 'bigint':
      return stored ? special('bigint', String(value)) : String(value);
    case 'undefined':
    case 'function':
    case 'symbol':
      return options.form === 'stored' ? special('undefined') : undefined;
    default:
  }
  if (value === null) return null;
  if (depth > MAX_DEPTH) {
    throw new ReindeerError(
      'validation_failed',
      `A state value is nested more than ${MAX_DEPTH} levels deep or refers to itself; store a flat value.`,
    );
  }
  return encodeObject(value as object, options, depth);
}

function encodeObject(value: object, options: EncodeOptions, depth: number): unknown {
  const stored = options.form !== 'wire';
  if (Array.isArray(value)) return encodeArray(value, options, depth);
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype === Object.prototype || prototype === null) return encodeRecord(value, options, depth);
  if (isBaseMessage(value as Parameters<typeof isBaseMessage>[0])) return options.message(value as BaseMessage);
  if (value instanceof Uint8Array) {
    const base64 = Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('base64');
    return stored ? special('bytes', base64) : base64;
  }
  if (value instanceof Date) {
    const time = value.getTime();
    return stored ? special('date', Number.isNaN(time) ? null : time) : Number.isNaN(time) ? null : value.toISOString();
  }
  if (value instanceof Set) {
    const items = [...value].map((item) => encode(item, options, depth + 1) ?? null);
    return stored ? special('set', items) : items;
  }
  if (value instanceof Map) {
    const items = [...value].map((pair) => pair.map((item: unknown) => encode(item, options, depth + 1) ?? null));
    return stored ? special('map', items) : items;
  }
  if (value instanceof RegExp) return stored ? special('regexp', value.source, value.flags) : String(value);
  if (value instanceof Error) {
    return stored
      ? special('error', value.name, value.message)
      : { error: value.name || 'Error', message: value.message };
  }
  return encodeTagged(value, options, depth);
}

/** Objects of LangGraph and LangChain, recognised by their markers (several copies of a package may be loaded), and any other class. */
function encodeTagged(value: object, options: EncodeOptions, depth: number): unknown {
  const tagged = value as {
    lg_name?: unknown;
    lc_serializable?: unknown;
    toJSON?: unknown;
    node?: unknown;
    args?: unknown;
    timeout?: unknown;
    value?: unknown;
  };
  const stored = options.form !== 'wire';
  if (tagged.lg_name === 'Send') {
    // LangGraph accepts this plain form wherever it reads a stored Send.
    const timeout = tagged.timeout === undefined ? {} : { timeout: encode(tagged.timeout, options, depth + 1) };
    return { node: tagged.node, args: encode(tagged.args, options, depth + 1) ?? null, ...timeout };
  }
  if (tagged.lg_name === 'DeltaSnapshot') {
    const inner = encode(tagged.value, options, depth + 1) ?? null;
    return stored ? special('delta', inner) : inner;
  }
  if (tagged.lc_serializable === true && typeof tagged.toJSON === 'function') {
    const json = (tagged.toJSON as () => unknown).call(value);
    return stored ? special('lc', encode(json, options, depth + 1)) : encode(json, options, depth + 1);
  }
  if (tagged.lg_name === 'Command') {
    const { graph, update, resume, goto } = value as Record<string, unknown>;
    const fields: Record<string, unknown> = stored ? {} : { lg_name: 'Command' };
    for (const [key, field] of Object.entries({ graph, update, resume, goto })) {
      if (field !== undefined) fields[key] = encode(field, options, depth + 1);
    }
    return stored ? special('command', fields) : fields;
  }
  if (typeof tagged.toJSON === 'function') {
    return encode((tagged.toJSON as () => unknown).call(value), options, depth + 1);
  }
  return encodeRecord(value, options, depth);
}

function encodeArray(value: readonly unknown[], options: EncodeOptions, depth: number): unknown {
  let copy: unknown[] | undefined;
  for (let index = 0; index < value.length; index += 1) {
    const item = value[index];
    const encoded = encode(item, options, depth + 1) ?? null;
    if (copy === undefined && encoded !== item) copy = value.slice(0, index);
    copy?.push(encoded);
  }
  return copy ?? value;
}

function encodeRecord(value: object, options: EncodeOptions, depth: number): unknown {
  const record = value as Record<string, unknown>;
  const keys = Object.keys(record);
  const stored = options.form !== 'wire';
  if (stored && ('$m' in record || '$x' in record)) {
    return special(
      'object',
      keys.map((key) => [key, encode(record[key], options, depth + 1) ?? null]),
    );
  }
  const plain = Object.getPrototypeOf(value) === Object.prototype;
  let copy: Record<string, unknown> | undefined;
  for (let index = 0; index < keys.length; index += 1) {
    const key = keys[index] as string;
    const item = record[key];
    const encoded = encode(item, options, depth + 1);
    if (copy === undefined && (!plain || encoded === undefined || encoded !== item)) {
      copy = {};
      for (let before = 0; before < index; before += 1)
        assign(copy, keys[before] as string, record[keys[before] as string]);
    }
    if (copy !== undefined && encoded !== undefined) assign(copy, key, encoded);
  }
  return copy ?? (plain ? value : {});
}

/** Plain assignment would call the setter of `__proto__`. */
function assign(target: Record<string, unknown>, key: string, value: unknown): void {
  if (key === '__proto__')
    Object.defineProperty(target, key, { value, enumerable: true, writable: true, configurable: true });
  else target[key] = value;
}
