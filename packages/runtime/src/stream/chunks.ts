import { entryOf, type Json, type JsonObject, type WireMessage } from '@reindeer/protocol';

/** Thrown inside this file only: two values that cannot be merged without knowing more. */
class Unmergeable extends Error {}

/** Strings under these keys name something; pieces of them are never put together. */
const NAMES = new Set(['type', 'id', 'name', 'index', 'tool_call_id', 'role', 'status', 'model_provider']);

const isObject = (value: Json | undefined): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isList = (value: Json | undefined): value is readonly Json[] => Array.isArray(value);

/** How numbers and repeated strings behave below a key. */
type Manner = 'deltas' | 'counters' | 'facts';

function mergeValues(key: string, left: Json | undefined, right: Json | undefined, manner: Manner): Json | undefined {
  if (right === undefined || right === null) return left;
  if (left === undefined || left === null) return right;
  if (typeof left === 'string' && typeof right === 'string') return mergeStrings(key, left, right, manner);
  if (typeof left === 'number' && typeof right === 'number') {
    if (manner === 'counters') return left + right;
    if (left === right) return left;
    throw new Unmergeable();
  }
  if (typeof left === 'boolean' && typeof right === 'boolean') return right;
  if (isList(left) && isList(right)) return mergeLists(left, right, manner);
  if (isObject(left) && isObject(right)) return mergeObjects(left, right, manner);
  throw new Unmergeable();
}

function mergeStrings(key: string, left: string, right: string, manner: Manner): string {
  if (left === '' || right === '') return left + right;
  if (manner === 'facts' || NAMES.has(key)) {
    if (left === right) return left;
    throw new Unmergeable();
  }
  return left + right;
}

function mergeObjects(left: JsonObject, right: JsonObject, manner: Manner): JsonObject {
  const merged: Record<string, Json | undefined> = { ...left };
  for (const [key, value] of Object.entries(right)) merged[key] = mergeValues(key, merged[key], value, manner);
  return merged;
}

/** Parts of content and of tool calls continue the part with their index; parts without one stand for themselves. */
function mergeLists(left: readonly Json[], right: readonly Json[], manner: Manner): Json[] {
  const merged = [...left];
  for (const item of right) {
    const index = isObject(item) ? item.index : undefined;
    const at =
      index === undefined || index === null
        ? -1
        : merged.findIndex((other) => isObject(other) && other.index === index && sameType(other, item as JsonObject));
    const other = merged[at];
    if (at >= 0 && isObject(other) && isObject(item)) merged[at] = mergeObjects(other, item, manner);
    else merged.push(item);
  }
  return merged;
}

function sameType(left: JsonObject, right: JsonObject): boolean {
  return left.type === undefined || right.type === undefined || left.type === right.type;
}

function mergeContent(left: Json, right: Json): Json {
  if (left === '' || (isList(left) && left.length === 0)) return right;
  if (right === '' || (isList(right) && right.length === 0)) return left;
  return mergeValues('content', left, right, 'deltas') ?? '';
}

const MANNERS: Readonly<Record<string, Manner>> = { usage_metadata: 'counters', response_metadata: 'facts' };

/**
 * Two consecutive chunks of one message as one chunk that a client appends with the same result; null when that is not certain
 * (then both are sent). Parsed tool calls are left out where raw ones are present: the reader parses the joined text.
 */
export function mergeChunks(left: WireMessage, right: WireMessage): WireMessage | null {
  try {
    const merged: Record<string, Json | undefined> = { ...left };
    for (const [key, value] of Object.entries(right)) {
      merged[key] =
        key === 'content'
          ? mergeContent(left.content, right.content)
          : mergeValues(key, merged[key], value, entryOf(MANNERS, key) ?? 'deltas');
    }
    const raw = merged.tool_call_chunks;
    if (isList(raw) && raw.length > 0) {
      delete merged.tool_calls;
      delete merged.invalid_tool_calls;
    }
    return merged as WireMessage;
  } catch (error) {
    if (error instanceof Unmergeable) return null;
    throw error;
  }
}

/** Merges a list of chunks of one message where it can; the order stays. */
export function mergeAll(chunks: readonly WireMessage[]): WireMessage[] {
  const merged: WireMessage[] = [];
  for (const chunk of chunks) {
    const last = merged.at(-1);
    const joined = last === undefined ? null : mergeChunks(last, chunk);
    if (joined === null) merged.push(chunk);
    else merged[merged.length - 1] = joined;
  }
  return merged;
}
