import type { JsonObject } from '@reindeer/protocol';

/** What may stand under a keyword, of draft 2020-12 and `definitions`, which many still write. The first four are walked. */
const WORDS = {
  schema: 'not if then else additionalProperties unevaluatedProperties propertyNames items contains unevaluatedItems',
  schemas: 'allOf anyOf oneOf prefixItems',
  'schemas by name': 'properties dependentSchemas $defs definitions',
  reference: '$ref',
  types: 'type',
  names: 'required',
  'names by name': 'dependentRequired',
  list: 'enum',
  number: 'minimum maximum exclusiveMinimum exclusiveMaximum multipleOf',
  count: 'minLength maxLength minItems maxItems minContains maxContains minProperties maxProperties',
  boolean: 'uniqueItems',
  text: 'format title description $comment $schema',
  any: 'const default examples deprecated readOnly writeOnly',
} as const;
type Kind = keyof typeof WORDS;
const KEYWORDS: ReadonlyMap<string, Kind> = new Map(
  Object.entries(WORDS).flatMap(([kind, words]) => words.split(' ').map((word) => [word, kind as Kind] as const)),
);
/** Under these the same value is checked once more. */
const SAME_PLACE = new Set(['allOf', 'anyOf', 'oneOf', 'not', 'if', 'then', 'else', 'dependentSchemas', '$ref']);
/** Whoever writes a regular expression decides how long it runs; a name of one's own makes references that mean something else. */
const REFUSED = new Set([
  'pattern',
  'patternProperties',
  '$dynamicRef',
  '$recursiveRef',
  '$id',
  '$anchor',
  '$dynamicAnchor',
]);
const TYPES = new Set(['null', 'boolean', 'object', 'array', 'number', 'string', 'integer']);
const DEEPEST = 32;

interface Place {
  readonly schema: unknown;
  /** As a JSON Pointer. */
  readonly at: string;
  readonly depth: number;
}

/** What is wrong with a schema, in words that name the place; null = nothing. Looks at everything, also at what an answer might never reach. */
export function problemOfSchema(root: JsonObject): string | null {
  const known = new Set<unknown>();
  /** Schemas that are checked at the place of another. */
  const beside = new Map<unknown, unknown[]>();
  const references: { readonly from: JsonObject; readonly to: string; readonly at: string }[] = [];
  if (Object.keys(root).length > 0 && !Object.keys(root).some((key) => KEYWORDS.has(key) || REFUSED.has(key)))
    return `has no keyword of JSON Schema, only ${named(Object.keys(root).join(', '))}. Begin with "type".`;
  const waiting: Place[] = [{ schema: root, at: '#', depth: 0 }];
  for (let place = waiting.pop(); place !== undefined; place = waiting.pop()) {
    const { schema, at, depth } = place;
    known.add(schema);
    if (typeof schema === 'boolean') continue;
    if (!isObject(schema)) return `${at}: must be a schema: an object, true or false.`;
    if (depth > DEEPEST) return `has more than ${DEEPEST} levels.`;
    for (const [key, value] of Object.entries(schema)) {
      if (REFUSED.has(key)) return `${at}: "${key}" cannot be used. Leave it out.`;
      // What nobody knows is ignored, as the standard says.
      const kind = KEYWORDS.get(key);
      if (kind === undefined) continue;
      const problem = problemOfValue(kind, value);
      if (problem !== null) return `${at}/${key}: ${problem}`;
      if (kind === 'reference') references.push({ from: schema, to: value as string, at });
      const inner = schemasIn(kind, value).map(([name, one]) => ({
        schema: one,
        at: `${at}/${key}${name === '' ? '' : `/${named(name)}`}`,
        depth: depth + 1,
      }));
      waiting.push(...inner);
      if (SAME_PLACE.has(key)) beside.set(schema, [...(beside.get(schema) ?? []), ...inner.map((one) => one.schema)]);
    }
  }
  for (const { from, to, at } of references) {
    const target = resolved(root, to);
    if (target === undefined || !known.has(target)) return `${at}/$ref: nothing of this schema is at "${named(to)}".`;
    beside.set(from, [...(beside.get(from) ?? []), target]);
  }
  return hasCircle(beside) ? 'a "$ref" leads back to itself before anything of a value is looked at.' : null;
}

function problemOfValue(kind: Kind, value: unknown): string | null {
  const names = (list: unknown) => Array.isArray(list) && list.every((name) => typeof name === 'string');
  const types = (one: unknown) => typeof one === 'string' && TYPES.has(one);
  switch (kind) {
    case 'schemas':
      return Array.isArray(value) && value.length > 0 ? null : 'must be a list of schemas.';
    case 'schemas by name':
      return isObject(value) ? null : 'must be an object of schemas.';
    case 'types':
      return types(value) || (Array.isArray(value) && value.length > 0 && value.every(types))
        ? null
        : `must be one of ${[...TYPES].join(', ')}, or a list of them.`;
    case 'names':
      return names(value) ? null : 'must be a list of names.';
    case 'names by name':
      return isObject(value) && Object.values(value).every(names) ? null : 'must be an object of lists of names.';
    case 'list':
      return Array.isArray(value) ? null : 'must be a list.';
    case 'number':
      return typeof value === 'number' ? null : 'must be a number.';
    case 'count':
      return Number.isInteger(value) && (value as number) >= 0 ? null : 'must be a whole number, 0 or more.';
    case 'boolean':
      return typeof value === 'boolean' ? null : 'must be true or false.';
    case 'text':
      return typeof value === 'string' ? null : 'must be text.';
    case 'reference':
      return typeof value === 'string' && /^#(\/|$)/.test(value)
        ? null
        : `only references within the schema can be used, as in "#/$defs/name".`;
    case 'schema':
    case 'any':
      return null;
  }
}

function schemasIn(kind: Kind, value: unknown): readonly (readonly [string, unknown])[] {
  if (kind === 'schema') return [['', value]];
  if (kind === 'schemas' || kind === 'schemas by name') return Object.entries(value as object);
  return [];
}

/** What a JSON Pointer behind `#` leads to. */
function resolved(root: JsonObject, pointer: string): unknown {
  let found: unknown = root;
  for (const part of pointer.split('/').slice(1)) {
    let key: string;
    try {
      key = decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~');
    } catch {
      return undefined;
    }
    if (typeof found !== 'object' || found === null || !Object.hasOwn(found, key)) return undefined;
    found = (found as Readonly<Record<string, unknown>>)[key];
  }
  return found;
}

/** Does a path lead back to where it began? Takes away, again and again, what leads nowhere. */
function hasCircle(edges: ReadonlyMap<unknown, readonly unknown[]>): boolean {
  const open = new Map([...edges].map(([from, to]) => [from, new Set(to)]));
  for (let before = -1; before !== open.size; ) {
    before = open.size;
    for (const [from, to] of open) {
      for (const one of to) if (!open.has(one)) to.delete(one);
      if (to.size === 0) open.delete(from);
    }
  }
  return open.size > 0;
}

const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const named = (text: string): string => text.slice(0, 80).toWellFormed();
