import { createHash, timingSafeEqual } from 'node:crypto';
import type { Authorization } from '@reindeer/agent';
import { ReindeerError } from '@reindeer/protocol';
import { foreignUserId } from '@reindeer/sandbox';
import type { MiddlewareHandler } from 'hono';
import type { Environment, RequestContext, RouteDefinition } from './route.ts';

/** Headers of programs that act for users: a proxy that logs people in, a worker of a channel. The second name of each is the reference's. */
const HEADERS = {
  token: ['x-reindeer-internal-token', 'x-deerflow-internal-token'],
  owner: ['x-reindeer-owner-user-id', 'x-deerflow-owner-user-id'],
  role: ['x-reindeer-user-role'],
} as const;
const MAX_OWNER = 256;

export interface IdentitySettings {
  /** Token of programs that may say for whom they ask; null = there are none. */
  readonly internalToken: string | null;
  /** Whose requests those are that say nothing. */
  readonly userId: string;
  readonly authorization: () => Authorization | null;
}

/**
 * Says for whom a request is (ID-2, SEC-06). A program that shows the internal token may name the user, in whatever form it knows the person; here, once,
 * that becomes the id under which everything of that person is kept, so that there is one of each. Whoever names a user without the token is refused:
 * answering for somebody else than was meant would be worse.
 *
 * With authorization each route asks whether the role may use it (SAFE-2).
 */
export function identityGuard(settings: IdentitySettings): MiddlewareHandler<Environment> {
  return async (c, next) => {
    const given = headerOf(c, HEADERS.token);
    const owner = headerOf(c, HEADERS.owner);
    const role = headerOf(c, HEADERS.role);
    const internal = given !== null && settings.internalToken !== null && isSame(given, settings.internalToken);
    if (!internal && (given !== null || owner !== null || role !== null))
      throw new ReindeerError(
        'unauthorized',
        settings.internalToken === null
          ? 'This server lets no program act for users. Set server.internal_token, or leave the X-Reindeer-* headers out.'
          : 'Acting for a user needs the internal token in X-Reindeer-Internal-Token; it is missing or wrong.',
      );
    const userId = owner === null ? settings.userId : ownerId(owner);
    c.set('userId', userId);
    c.set('internal', internal);
    const authorization = settings.authorization();
    const principal = authorization?.principal(userId, role, null) ?? null;
    // Only what the program says goes along with a run or a schedule. A role of the configuration is looked up whenever it is asked for, so that one
    // that is taken away is gone for what was begun or planned before, too.
    c.set('role', role);
    if (authorization !== null && principal !== null) {
      c.set('permits', (resource, name) => authorization.permits(principal, resource, name));
    }
    await next();
  };
}

/** @throws ReindeerError `bad_request` for what can be no id */
function ownerId(given: string): string {
  const id = given.trim();
  if (id === '' || id.length > MAX_OWNER || [...id].some((character) => character < ' ' || character === '\u007f'))
    throw new ReindeerError('bad_request', `The owner's id must have 1 to ${MAX_OWNER} visible characters.`);
  return foreignUserId(id);
}

function headerOf(c: RequestContext, names: readonly string[]): string | null {
  for (const name of names) {
    const value = c.req.header(name);
    if (value !== undefined) return value;
  }
  return null;
}

const digest = (text: string): Buffer => createHash('sha256').update(text).digest();
const isSame = (a: string, b: string): boolean => timingSafeEqual(digest(a), digest(b));

/** Refuses a route that the user's role may not use. */
export async function checkPermission(
  c: RequestContext,
  definition: Pick<RouteDefinition<undefined, undefined, undefined>, 'method' | 'path'>,
): Promise<void> {
  const permits = c.get('permits');
  if (permits === undefined) return;
  const permission = permissionOf(definition);
  if (!(await permits('routes', permission)))
    throw new ReindeerError('forbidden', `Your role may not do this: it needs the permission ${permission}.`, {
      detail: { permission },
    });
}

/** Words at the end of a path under which a POST only reads. */
const READING = ['search', 'count', 'history', 'checkpoint', 'prepare'];
/** … and under which one starts a run, unless a run is named before. */
const STARTING = ['runs', 'stream', 'wait'];

/**
 * The permission of a route, from its template: `runs:create`, `runs:read` and `runs:cancel`; for everything else the first word of the path with
 * `:read`, `:write` or `:delete`, such as `threads:read` or `skills:write`.
 */
export function permissionOf({ method, path }: { readonly method: string; readonly path: string }): string {
  const words = path.split('/').filter((word) => word !== '');
  const [first = '', , third] = words;
  const last = words.at(-1) ?? '';
  if ((first === 'runs' || (first === 'threads' && third === 'runs')) && !words.includes('feedback')) {
    if (method === 'delete' || last === 'cancel') return 'runs:cancel';
    if (method === 'get') return 'runs:read';
    if (STARTING.includes(last) && !words.includes(':run_id')) return 'runs:create';
    return READING.includes(last) ? 'runs:read' : 'runs:create';
  }
  if (method === 'get' || (method === 'post' && READING.includes(last))) return `${first}:read`;
  return `${first}:${method === 'delete' ? 'delete' : 'write'}`;
}
