import type { JsonObject } from '@reindeer/protocol';

/** The request breaks a rule of the provider: answered with 400 in the provider's own error form. */
export class Refusal extends Error {
  /** The field that is wrong. */
  readonly field: string;

  constructor(message: string, field: string) {
    super(message);
    this.name = 'Refusal';
    this.field = field;
  }
}

/** @throws Refusal unless `value` is a plain object. */
export function asObject(value: unknown, where: string): JsonObject {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new Refusal(`${where} must be an object.`, where);
  return value as JsonObject;
}

/** @throws Refusal unless `value` is an array. */
export function asArray(value: unknown, where: string): readonly unknown[] {
  if (!Array.isArray(value)) throw new Refusal(`${where} must be an array.`, where);
  return value;
}

/** @throws Refusal unless `value` is text that is not empty. */
export function asText(value: unknown, where: string): string {
  if (typeof value !== 'string' || value === '') throw new Refusal(`${where} must be text that is not empty.`, where);
  return value;
}

/** The object in a JSON text; null when it is no JSON or no object. */
export function parseObject(text: string): JsonObject | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as JsonObject) : null;
  } catch {
    return null;
  }
}

/**
 * Real providers refuse a body in which half of a surrogate pair is escaped, although `JSON.parse` of Node takes it.
 *
 * @throws Refusal naming the field
 */
export function checkTexts(value: unknown, where = 'body'): void {
  if (typeof value === 'string' && !value.isWellFormed())
    throw new Refusal(`The request body is not valid JSON: no low surrogate in string (${where}).`, where);
  if (typeof value !== 'object' || value === null) return;
  for (const [key, inner] of Object.entries(value)) checkTexts(inner, `${where}.${key}`);
}
