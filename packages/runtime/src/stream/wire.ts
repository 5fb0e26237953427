import type { Json, JsonObject } from '@reindeer/protocol';
import { encodeValue } from '../saver/encode.ts';
import { wireMessage } from '../saver/message-body.ts';

/** A value as clients see it: plain JSON, messages in LangChain's dictionary form. */
export function toWire(value: unknown): Json {
  return encodeValue(value, { form: 'wire', message: (message) => wireMessage(message) as Json });
}

/** An object as clients see it; anything else becomes `{}`. */
export function toWireObject(value: unknown): JsonObject {
  const wire = toWire(value);
  return typeof wire === 'object' && wire !== null && !Array.isArray(wire) ? (wire as JsonObject) : {};
}
