/** A tool as a server lists it, in a form that providers take. */
export interface ListedTool {
  readonly name: string;
  readonly title?: string;
  readonly description?: string;
  readonly inputSchema: JsonSchema & { readonly type: 'object'; readonly properties: JsonSchema };
}

type JsonSchema = Readonly<Record<string, unknown>>;

const isObject = (value: unknown): value is JsonSchema =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const ALTERNATIVES = ['anyOf', 'oneOf', 'allOf'] as const;

/**
 * Reads one entry of a listing. Servers describe arguments in ways that a provider refuses, and with them the whole request: without a type, as
 * one of several objects, with `true` for "anything". What can be said in the usual way is; the server checks its arguments itself.
 *
 * @returns text for what is no tool: its name where it has one
 */
export function listedTool(entry: unknown): ListedTool | string {
  if (!isObject(entry) || typeof entry.name !== 'string') return '(without a name)';
  const { name, title, description, inputSchema } = entry;
  const schema = objectSchema(inputSchema ?? {});
  if (schema === null) return name.slice(0, 80);
  return {
    name,
    ...(typeof title === 'string' ? { title } : {}),
    ...(typeof description === 'string' ? { description } : {}),
    inputSchema: schema,
  };
}

/** null: its arguments are no object, so that no provider could call it. */
function objectSchema(schema: unknown): ListedTool['inputSchema'] | null {
  if (!isObject(schema)) return null;
  const { type } = schema;
  const isAnObject = type === undefined || type === 'object' || (Array.isArray(type) && type.includes('object'));
  if (!isAnObject) return null;
  const { anyOf: _any, oneOf: _one, allOf: _all, ...rest } = schema;
  const arms = ALTERNATIVES.flatMap((key) => (Array.isArray(schema[key]) ? schema[key] : [])).filter(isObject);
  const properties = [...arms, schema].map((part) => (isObject(part.properties) ? part.properties : {}));
  return { ...rest, type: 'object', properties: Object.fromEntries(properties.flatMap(Object.entries).map(anything)) };
}

/** `true` as a schema means anything, and is refused by some. */
const anything = ([name, value]: [string, unknown]): [string, unknown] => [name, isObject(value) ? value : {}];
