import type { OpenAPIHono } from '@hono/zod-openapi';
import { type JsonObject, ReindeerError } from '@reindeer/protocol';
import type { ContentfulStatusCode } from 'hono/utils/http-status';
import type { LiveSettings } from '../config/reload.ts';
import { METRICS_TYPE } from '../metrics/text.ts';
import { didYouMean } from '../nearest.ts';
import { artifactEditRoute } from './artifact-edit.ts';
import { artifactRoutes } from './artifacts.ts';
import { configurationRoutes } from './configuration.ts';
import { conversationRoutes } from './conversation.ts';
import { errorAnswer } from './errors.ts';
import { feedbackRoutes } from './feedback.ts';
import { API_POLICY, contentTypeGuard, hostGuard, originGuard, SECURITY_HEADERS, tokenGuard } from './guards.ts';
import { identityGuard } from './identity.ts';
import { assistantRoutes, metaRoutes } from './meta.ts';
import { servePage } from './page.ts';
import type { HttpParts } from './parts.ts';
import { replayRoutes } from './replay.ts';
import { type Api, createApi, type Environment, type RequestContext } from './route.ts';
import { runRoutes } from './runs.ts';
import { sandboxRoutes } from './sandboxes.ts';
import { threadRoutes } from './threads.ts';
import { uploadRoutes } from './uploads.ts';

/** The whole HTTP surface: guards, API (at `/api` and `/api/langgraph`), health, documentation, web app. */
export function createApp(parts: HttpParts): OpenAPIHono<Environment> {
  const app = createApi();
  app.onError((error, c) => failed(c, parts, error));
  app.notFound((c) => {
    const answer = errorAnswer(unknownAddress(c, api));
    return c.json(answer.body, answer.status as ContentfulStatusCode);
  });
  app.use(async (c, next) => {
    c.set('requestId', parts.surroundings.random.uuid());
    c.set('userId', parts.userId);
    // On the Node response, so that streams that are written past Hono carry them too.
    for (const [name, value] of Object.entries(SECURITY_HEADERS)) c.env.outgoing.setHeader(name, value);
    c.env.outgoing.setHeader('x-request-id', c.get('requestId'));
    await next();
  });
  app.use(hostGuard(parts.guards), originGuard(parts.guards), contentTypeGuard());
  const identity = identityGuard({
    internalToken: parts.guards.internalToken ?? null,
    userId: parts.userId,
    authorization: () => parts.authorization?.() ?? null,
  });
  app.use('/api/*', identity, tokenGuard(parts.guards));
  app.use('/api/*', async (c, next) => {
    c.env.outgoing.setHeader('content-security-policy', API_POLICY);
    c.env.outgoing.setHeader('cache-control', 'no-store');
    await next();
  });

  const { refresh } = parts;
  if (refresh !== undefined)
    app.use('/api/*', async (c, next) => {
      // What is asked for is checked against the models of now. Reads of threads and streams do not depend on them.
      if (c.req.method !== 'GET' || /\/models(?:\/|$)/.test(c.req.path)) await refresh();
      await next();
    });

  const api = createApi();
  metaRoutes(api, parts);
  configurationRoutes(api, parts);
  assistantRoutes(api, parts);
  threadRoutes(api, parts);
  conversationRoutes(api, parts);
  replayRoutes(api, parts);
  feedbackRoutes(api, parts);
  runRoutes(api, parts);
  uploadRoutes(api, parts);
  artifactRoutes(api, parts);
  artifactEditRoute(api, parts);
  for (const register of parts.modules ?? []) register(api);
  sandboxRoutes(api, parts);
  app.route('/api/langgraph', api);
  app.route('/api', api);

  healthRoutes(app, parts);
  // As private as the API: it tells how much is going on.
  app.use('/metrics', tokenGuard(parts.guards));
  app.get('/metrics', (c) =>
    c.body(parts.metrics(), 200, { 'content-type': METRICS_TYPE, 'cache-control': 'no-store' }),
  );
  let document: object | null = null;
  app.get('/openapi.json', (c) => {
    document ??= api.getOpenAPI31Document({
      openapi: '3.1.0',
      info: {
        title: 'Reindeer',
        version: parts.version,
        description: 'Threads, runs, streams and files. The same routes stand below /api/langgraph.',
      },
      servers: [{ url: '/api' }],
    });
    return c.json(document);
  });
  app.get('*', async (c, next) => {
    if (!c.req.path.startsWith('/api/') && c.req.path !== '/api') {
      const page = servePage(c, parts.page);
      if (page !== null) return page;
    }
    await next();
    return undefined;
  });
  return app;
}

/** Liveness (`/health`) says that the process answers; readiness (`/health/ready`) that it takes work (GW-28). */
function healthRoutes(app: Api, parts: HttpParts): void {
  app.get('/health', (c) => {
    const { ready, stopping } = parts.intake();
    return c.json({
      status: 'healthy',
      service: 'reindeer-gateway',
      version: parts.version,
      ready,
      stopping,
      sandbox: parts.sandboxes.report(),
      ...(parts.configuration === undefined ? {} : { configuration: configurationHealth(parts.configuration) }),
      ...parts.facts?.(),
    });
  });
  app.get('/health/ready', (c) => {
    const { ready, stopping } = parts.intake();
    return c.json({ ready, stopping }, ready && !stopping ? 200 : 503);
  });
}

/** Names of keys, no values and no reasons: this is told to everybody who reaches the port. Looks at the files beside the answer, not before it. */
function configurationHealth(live: LiveSettings): JsonObject {
  void live.refresh();
  const { fault, restart, revision } = live.state;
  return { status: fault === null ? 'ok' : 'faulty', revision, restart: [...restart] };
}

function failed(c: RequestContext, parts: HttpParts, error: unknown): Response {
  const answer = errorAnswer(error);
  const requestId = c.get('requestId');
  const fields = { requestId, method: c.req.method, path: c.req.path, code: answer.body.code };
  if (answer.status >= 500)
    parts.surroundings.logger.error('A request failed', {
      ...fields,
      error: error instanceof Error ? (error.stack ?? error.message) : String(error),
      ...(error instanceof Error && error.cause !== undefined ? { cause: String(error.cause) } : {}),
    });
  else parts.surroundings.logger.debug('A request was refused', { ...fields, status: answer.status });
  if (c.env.outgoing.headersSent) {
    // A stream that was already open: the connection is all that can still say it.
    c.env.outgoing.destroy();
    return c.body(null);
  }
  for (const [name, value] of Object.entries(answer.headers)) c.header(name, value);
  return c.json(answer.body, answer.status as ContentfulStatusCode);
}

/** What LangGraph's SDK can ask for and this version does not do: told apart from a misspelt address. */
const LATER: readonly (readonly [RegExp, string])[] = [
  [/^\/store(?:\/|$)/, 'The key-value store is'],
  [/^\/runs\/batch$/, 'Batches of runs are'],
  [/^\/threads\/prune$/, 'Pruning of threads is'],
  [/^\/threads\/[^/]+\/(?:stream|commands)(?:\/|$)/, 'Streams of whole threads are'],
  [/^\/assistants(?:$|\/[^/]+\/(?:subgraphs|versions|latest))/, 'Assistants of your own are'],
];

function unknownAddress(c: RequestContext, api: Api): ReindeerError {
  const path = c.req.path.replace(/^\/api(?:\/langgraph)?/, '').slice(0, 200);
  if (!c.req.path.startsWith('/api'))
    return new ReindeerError(
      'not_found',
      `There is nothing at ${c.req.path.slice(0, 200)}. The API is below /api; the page is at /.`,
    );
  const later = LATER.find(([pattern]) => pattern.test(path));
  if (later !== undefined)
    return new ReindeerError('not_implemented', `${later[1]} not supported by this version. Leave the call out.`);
  const patterns = [...new Set(api.routes.map((entry) => entry.path))];
  const here = api.routes.filter((entry) => matches(entry.path, path)).map((entry) => entry.method);
  if (here.length > 0)
    return new ReindeerError(
      'not_found',
      `${c.req.method} is not possible at /api${path}. Use ${[...new Set(here)].join(' or ')}.`,
    );
  return new ReindeerError(
    'not_found',
    `There is nothing at /api${path}.${didYouMean(path, patterns)} See /openapi.json for all addresses.`,
  );
}

function matches(pattern: string, path: string): boolean {
  const source = pattern
    .split('/')
    .map((part) =>
      part.startsWith(':') ? (part.endsWith('{.+}') ? '.+' : '[^/]+') : part.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&'),
    )
    .join('/');
  return new RegExp(`^${source}/?$`).test(path);
}
