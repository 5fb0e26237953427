import type { HttpBindings } from '@hono/node-server';
import { OpenAPIHono, z } from '@hono/zod-openapi';
import { type Json, ReindeerError } from '@reindeer/protocol';
import type { Context } from 'hono';
import { didYouMean } from '../nearest.ts';
import { invalid, MAX_PROBLEMS, type Problem } from './errors.ts';
import { checkPermission } from './identity.ts';

export interface RequestVariables {
  /** Id of this request in the log; sent back as `x-request-id`. */
  requestId: string;
  /** For whom the request is; the id under which everything of that person is kept. */
  userId: string;
  /** Did the caller show the internal token? */
  internal: boolean;
  /** The user's role where roles count, or where a trusted caller named one; null = no role is known. */
  role: string | null;
  /** May the user do this? Absent = everybody may do everything. */
  permits?: (resource: 'routes' | 'models', name: string) => Promise<boolean>;
}
export type Environment = { Bindings: HttpBindings; Variables: RequestVariables };
export type RequestContext = Context<Environment>;
export type Api = OpenAPIHono<Environment>;

export const createApi = (): Api => new OpenAPIHono<Environment>();

type Shape = z.ZodType;
type Parsed<S> = S extends z.ZodType ? z.output<S> : undefined;

export interface RouteDefinition<
  P extends Shape | undefined,
  Q extends Shape | undefined,
  B extends Shape | undefined,
> {
  readonly method: 'get' | 'post' | 'put' | 'patch' | 'delete';
  /** Hono form: `/threads/:thread_id/runs`. */
  readonly path: string;
  readonly summary: string;
  readonly tag: string;
  readonly params?: P;
  readonly query?: Q;
  /** A JSON body; an absent body is `{}`. */
  readonly body?: B;
  /** Answers for the documentation: status → what it means. */
  readonly answers: Readonly<Record<number, string>>;
  /** Media type of the good answer in the documentation. Default application/json. */
  readonly produces?: string;
}

/** How deep arrays and objects of a body may stand in one another: everything that walks them later recurses. */
export const JSON_DEPTH_LIMIT = 128;
/** Bytes of a JSON body that are accepted (the reference's limit of its LangGraph routes). */
const JSON_BODY_LIMIT = 20 * 1024 * 1024;

/**
 * Registers a route and its documentation in one place. Parameters, query and body are checked before `handle` runs; what is
 * wrong is answered as 422 with one entry per problem, unknown fields with the nearest valid name.
 */
export function route<
  P extends Shape | undefined = undefined,
  Q extends Shape | undefined = undefined,
  B extends Shape | undefined = undefined,
>(
  api: Api,
  definition: RouteDefinition<P, Q, B>,
  handle: (input: {
    c: RequestContext;
    params: Parsed<P>;
    query: Parsed<Q>;
    body: Parsed<B>;
  }) => Promise<Response> | Response,
): void {
  document(api, definition);
  const run = async (c: RequestContext): Promise<Response> => {
    await checkPermission(c, definition);
    const params = check(definition.params, c.req.param(), 'path');
    const query = check(definition.query, queryOf(c), 'query');
    const body = definition.body === undefined ? undefined : check(definition.body, await readJson(c), 'body');
    return await handle({ c, params: params as Parsed<P>, query: query as Parsed<Q>, body: body as Parsed<B> });
  };
  api.on([definition.method.toUpperCase()], definition.path, run);
}

function document(
  api: Api,
  definition: RouteDefinition<Shape | undefined, Shape | undefined, Shape | undefined>,
): void {
  const responses: Record<string, { description: string; content?: Record<string, { schema: z.ZodType }> }> = {};
  for (const [status, description] of Object.entries(definition.answers)) {
    const good = status.startsWith('2') && status !== '204';
    responses[status] = good
      ? { description, content: { [definition.produces ?? 'application/json']: { schema: z.unknown() } } }
      : { description };
  }
  api.openAPIRegistry.registerPath({
    method: definition.method,
    path: definition.path.replaceAll(/:([a-z_]+)(\{[^}]*\})?/g, '{$1}'),
    summary: definition.summary,
    tags: [definition.tag],
    request: {
      ...(definition.params === undefined ? {} : { params: definition.params as z.ZodObject }),
      ...(definition.query === undefined ? {} : { query: definition.query as z.ZodObject }),
      ...(definition.body === undefined
        ? {}
        : { body: { content: { 'application/json': { schema: definition.body } } } }),
    },
    responses,
  });
}

function queryOf(c: RequestContext): Record<string, string | string[]> {
  const result: Record<string, string | string[]> = {};
  for (const [name, values] of Object.entries(c.req.queries()))
    result[name] = values.length === 1 ? (values[0] ?? '') : values;
  return result;
}

/** Validates `value`; throws the 422 that lists every problem. */
export function check<S extends Shape | undefined>(schema: S, value: unknown, place: string): Parsed<S> {
  if (schema === undefined) return undefined as Parsed<S>;
  const result = schema.safeParse(value, { reportInput: false });
  if (result.success) return result.data as Parsed<S>;
  const issues = result.error.issues.slice(0, MAX_PROBLEMS);
  throw invalid(issues.flatMap((issue) => problemsOf(issue, schema, place)).slice(0, MAX_PROBLEMS));
}

function problemsOf(issue: z.core.$ZodIssue, schema: z.ZodType, place: string): Problem[] {
  const loc = [place, ...issue.path.map((part) => (typeof part === 'symbol' ? String(part) : part))];
  if (issue.code === 'unrecognized_keys') {
    const known = knownKeys(schema, issue.path);
    return issue.keys.slice(0, MAX_PROBLEMS).map((key) => ({
      loc: [...loc, key.slice(0, 80)],
      msg: `Unknown field "${key.slice(0, 80)}".${didYouMean(key, known) || ` Known fields: ${known.join(', ')}.`}`,
      type: 'unknown_field',
    }));
  }
  return [{ loc, msg: issue.message, type: issue.code }];
}

function knownKeys(schema: z.ZodType, path: readonly PropertyKey[]): string[] {
  let current: unknown = schema;
  for (const part of [...path, null]) {
    while (
      current instanceof z.ZodOptional ||
      current instanceof z.ZodNullable ||
      current instanceof z.ZodDefault ||
      current instanceof z.ZodPipe
    )
      current = current instanceof z.ZodPipe ? current.in : current.unwrap();
    if (!(current instanceof z.ZodObject)) return [];
    if (part === null) return Object.keys(current.shape);
    current = current.shape[String(part)];
  }
  return [];
}

/** Reads a JSON body within `JSON_BODY_LIMIT`; an empty body is `{}`. The content type was checked by the guard. */
export async function readJson(c: RequestContext): Promise<Json> {
  const text = new TextDecoder('utf-8', { fatal: true });
  const tooLarge = () =>
    new ReindeerError(
      'too_large',
      `The body is larger than ${JSON_BODY_LIMIT} bytes. Upload large content as a file instead.`,
    );
  if (Number(c.req.header('content-length') ?? 0) > JSON_BODY_LIMIT) throw tooLarge();
  const body = c.req.raw.body;
  if (body === null) return {};
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of body) {
    size += part.byteLength;
    if (size > JSON_BODY_LIMIT) throw tooLarge();
    parts.push(part);
  }
  if (size === 0) return {};
  let source: string;
  try {
    source = text.decode(parts.length === 1 ? parts[0] : Buffer.concat(parts));
  } catch (cause) {
    throw new ReindeerError('bad_request', 'The body is not valid UTF-8. Send JSON in UTF-8.', { cause });
  }
  let value: Json;
  try {
    value = JSON.parse(source) as Json;
  } catch (cause) {
    const where = cause instanceof Error ? (/position \d+.*$/.exec(cause.message)?.[0] ?? '') : '';
    throw new ReindeerError(
      'bad_request',
      `The body is not valid JSON${where === '' ? '' : ` (${where})`}. Correct it and send it again.`,
      {
        cause,
      },
    );
  }
  if (isDeeperThan(value, JSON_DEPTH_LIMIT))
    throw new ReindeerError(
      'bad_request',
      `The body has more than ${JSON_DEPTH_LIMIT} levels of lists and objects in one another. Send it flatter, or as text.`,
    );
  return value;
}

/** Level by level, without recursion: the parser takes any depth, the stack does not. */
function isDeeperThan(value: Json, limit: number): boolean {
  let level: readonly object[] = isContainer(value) ? [value] : [];
  for (let depth = 1; level.length > 0; depth += 1) {
    if (depth > limit) return true;
    const below: object[] = [];
    for (const container of level)
      for (const item of Array.isArray(container) ? container : Object.values(container))
        if (isContainer(item)) below.push(item);
    level = below;
  }
  return false;
}

const isContainer = (value: unknown): value is object => typeof value === 'object' && value !== null;
