import { load } from '@langchain/core/load';
import { Command } from '@langchain/langgraph';
import { DeltaSnapshot } from '@langchain/langgraph-checkpoint';
import { ReindeerError, type WireMessage } from '@reindeer/protocol';
import { reviveMessage } from './message-body.ts';

export interface DecodeOptions {
  /** Answers the live message of a content address. */
  readonly message: (hash: string) => object;
  /** Collects objects whose class only LangChain's asynchronous loader knows; without it such a value is refused. */
  readonly later?: Promise<void>[];
}

/**
 * The inverse of `encodeValue` in its `stored` form. Works in place on a freshly parsed tree.
 * Unknown special kinds stay as they are: data of a newer version is not destroyed by reading it.
 */
export function decodeValue(value: unknown, options: DecodeOptions): unknown {
  if (value === null || typeof value !== 'object') return value;
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index += 1) {
      const item: unknown = value[index];
      if (item !== null && typeof item === 'object') place(value, index, decodeValue(item, options), options);
    }
    return value;
  }
  const record = value as Record<string, unknown>;
  if (typeof record.$m === 'string') return options.message(record.$m);
  if (Array.isArray(record.$x)) return decodeSpecial(record, record.$x as unknown[], options);
  for (const key in record) {
    const item = record[key];
    if (item !== null && typeof item === 'object') place(record, key, decodeValue(item, options), options);
  }
  return record;
}

/** A value that is still being loaded; replaced where it stands. */
class Pending {
  readonly promise: Promise<unknown>;
  constructor(promise: Promise<unknown>) {
    this.promise = promise;
  }
}

function place(target: object, key: string | number, value: unknown, options: DecodeOptions): void {
  const slots = target as Record<string | number, unknown>;
  if (value instanceof Pending) {
    options.later?.push(
      value.promise.then((loaded) => {
        slots[key] = loaded;
      }),
    );
  } else slots[key] = value;
}

/** Like `decodeValue`, and waits for objects that only LangChain's loader knows. */
export async function decodeLater(value: unknown, options: DecodeOptions): Promise<unknown> {
  const later: Promise<void>[] = [];
  const box = [value];
  decodeValue(box, { ...options, later });
  await Promise.all(later);
  return box[0];
}

function decodeSpecial(record: Record<string, unknown>, parts: unknown[], options: DecodeOptions): unknown {
  const [kind, first, second] = parts;
  switch (kind) {
    case 'undefined':
      return undefined;
    case 'number':
      return Number(first);
    case 'bigint':
      return BigInt(String(first));
    case 'bytes':
      return new Uint8Array(Buffer.from(String(first), 'base64'));
    case 'date':
      return new Date(first === null ? Number.NaN : Number(first));
    case 'set':
      return new Set(decodeValue(first, options) as unknown[]);
    case 'map':
      return new Map(decodeValue(first, options) as [unknown, unknown][]);
    case 'regexp':
      return new RegExp(String(first), String(second));
    case 'error':
      return makeError(String(first), String(second));
    case 'delta':
      return new DeltaSnapshot(decodeValue(first, options));
    case 'object': {
      const object: Record<string, unknown> = {};
      for (const [key, item] of first as [string, unknown][]) {
        Object.defineProperty(object, key, {
          value: decodeValue(item, options),
          enumerable: true,
          writable: true,
          configurable: true,
        });
      }
      return object;
    }
    case 'message':
      return reviveMessage(decodeValue(first, options) as WireMessage) ?? first;
    case 'command':
      return new Command(decodeValue(first, options) as ConstructorParameters<typeof Command>[0]);
    case 'lc': {
      if (options.later === undefined) {
        throw new ReindeerError(
          'validation_failed',
          'A stored value holds a LangChain object that can only be loaded asynchronously; return messages or plain values.',
        );
      }
      return new Pending(load(JSON.stringify(decodeValue(first, options))));
    }
    default:
      return record;
  }
}

const ERRORS: ReadonlyMap<string, ErrorConstructor> = new Map(
  [EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError].map((made) => [made.name, made]),
);

function makeError(name: string, message: string): Error {
  const error = new (ERRORS.get(name) ?? Error)(message);
  if (error.name !== name) Object.defineProperty(error, 'name', { value: name, writable: true, configurable: true });
  return error;
}
