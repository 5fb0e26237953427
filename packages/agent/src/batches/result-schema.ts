import { createContext, Script } from 'node:vm';
import { type ValidationResult, Validator } from '@cfworker/json-schema';
import { type JsonObject, ReindeerError } from '@reindeer/protocol';
import { problemOfSchema } from './schema-shape.ts';

/** A schema that a model or a client gave for results. */
const LONGEST_SCHEMA = 32_000;
/** One answer. A schema may ask for more work than its length tells, and an answer too. */
const CHECK_MS = 500;

/** Throws `validation_failed` for a schema that cannot be used here. */
export function checkSchema(schema: unknown): asserts schema is JsonObject {
  const bad = (message: string) => new ReindeerError('validation_failed', `result_schema: ${message}`);
  if (typeof schema !== 'object' || schema === null || Array.isArray(schema))
    throw bad('must be a JSON Schema object, as in {"type": "object", "properties": {…}}.');
  if (lengthOf(schema) > LONGEST_SCHEMA) throw bad(`is longer than ${LONGEST_SCHEMA} characters.`);
  const problem = problemOfSchema(schema as JsonObject);
  if (problem !== null) throw bad(problem);
}

/** Characters as JSON; what is nested too deeply for that is too long. */
function lengthOf(schema: object): number {
  try {
    return JSON.stringify(schema).length;
  } catch {
    return Number.POSITIVE_INFINITY;
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
  let json: string;
  let found: ValidationResult;
  try {
    json = JSON.stringify(value);
    found = withinTime(() => new Validator(schema as never, '2020-12', false).validate(value));
  } catch (error) {
    return { outcome: 'invalid', problem: `it cannot be checked (${(error as Error).message.slice(0, 200)})` };
  }
  const { valid, errors } = found;
  if (valid) return { outcome: 'valid', json };
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

const BOUNDED = new Script('work()');

/** Ends work that takes too long, which nothing else can do while it runs. Throws then. */
function withinTime<T>(work: () => T): T {
  return BOUNDED.runInContext(createContext({ work }), { timeout: CHECK_MS }) as T;
}
