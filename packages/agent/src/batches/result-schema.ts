import { Validator } from '@cfworker/json-schema';
import { type JsonObject, ReindeerError } from '@reindeer/protocol';

/** A schema that a model or a client gave for results. */
const LONGEST_SCHEMA = 32_000;
const DEEPEST = 32;
/** Whoever writes a regular expression decides how long it runs; a remote reference is a request to somewhere. */
const REFUSED = new Set(['pattern', 'patternProperties', '$dynamicRef', '$recursiveRef']);

/** Throws `validation_failed` for a schema that cannot be used here. */
export function checkSchema(schema: unknown): asserts schema is JsonObject {
  const bad = (message: string) => new ReindeerError('validation_failed', `result_schema: ${message}`);
  if (typeof schema !== 'object' || schema === null || Array.isArray(schema))
    throw bad('must be a JSON Schema object, as in {"type": "object", "properties": {…}}.');
  if (JSON.stringify(schema).length > LONGEST_SCHEMA) throw bad(`is longer than ${LONGEST_SCHEMA} characters.`);
  let level: unknown[] = [schema];
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > DEEPEST) throw bad(`has more than ${DEEPEST} levels.`);
    const below: unknown[] = [];
    for (const value of level) {
      if (typeof value !== 'object' || value === null) continue;
      for (const [key, inner] of Object.entries(value)) {
        if (REFUSED.has(key) && !Array.isArray(value)) throw bad(`"${key}" cannot be used. Leave it out.`);
        if (key === '$ref' && typeof inner === 'string' && !inner.startsWith('#'))
          throw bad(`"$ref": only references within the schema can be used, not "${inner.slice(0, 80)}".`);
        below.push(inner);
      }
    }
    level = below;
  }
  try {
    new Validator(schema as never, '2020-12').validate(null);
  } catch (cause) {
    throw new ReindeerError('validation_failed', `result_schema: ${String(cause).slice(0, 300)}`, { cause });
  }
}

/** What the child is asked for beside its task. */
export const schemaRequest = (schema: JsonObject): string =>
  `Your last message must be one JSON value and nothing else, without a code fence, valid under this JSON Schema:\n${JSON.stringify(schema)}`;

export type Checked =
  | { readonly outcome: 'valid'; readonly json: string }
  | { readonly outcome: 'invalid'; readonly problem: string };

/** Finds the JSON in an answer and checks it. A code fence around it is forgiven. */
export function checkAnswer(answer: string, schema: JsonObject): Checked {
  const text = withoutFence(answer);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return { outcome: 'invalid', problem: `it is not JSON (${(error as Error).message.slice(0, 200)})` };
  }
  const { valid, errors } = new Validator(schema as never, '2020-12', false).validate(value);
  if (valid) return { outcome: 'valid', json: JSON.stringify(value) };
  // The innermost say what is wrong; those around them repeat it.
  const told = errors.slice(-5).map(({ instanceLocation, error }) => `${instanceLocation}: ${error}`);
  return { outcome: 'invalid', problem: told.join('; ').slice(0, 1_000) };
}

function withoutFence(text: string): string {
  const trimmed = text.trim();
  if (!trimmed.startsWith('```') || !trimmed.endsWith('```')) return trimmed;
  const begin = trimmed.indexOf('\n');
  return begin < 0 ? trimmed : trimmed.slice(begin + 1, -3).trim();
}
