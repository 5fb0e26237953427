import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type Logger, ReindeerError } from '@reindeer/protocol';
import { addressOf, digest, readJson, sameDigest, sendError, sendJson } from '../server/http.ts';
import type { ProvisionedSandbox, Provisioner } from './provisioner.ts';
import { SANDBOX_ID, sandboxRequest } from './request.ts';
import type { ProvisionerSettings } from './settings.ts';

export interface ProvisionerServerParts {
  readonly provisioner: Provisioner;
  readonly settings: ProvisionerSettings;
  readonly logger: Logger;
  readonly version: string;
}

const MAX_BODY_BYTES = 64 * 1024;
/** Requests under way; more are told to come back. */
const MAX_REQUESTS = 256;

/** The provisioner over HTTP: `/health` for everybody, `/api/` for whoever has the key in `X-API-Key` (SX-12). */
export function createProvisionerServer(parts: ProvisionerServerParts): Server {
  const { provisioner, settings, logger } = parts;
  const key = digest(settings.apiKey);
  let running = 0;
  const handle = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const { pathname, searchParams } = addressOf(request);
    const route = `${request.method} ${pathname}`;
    if (route === 'GET /health') return sendJson(response, 200, { status: 'healthy', service: 'reindeer-provisioner' });
    const given = request.headers['x-api-key'];
    const fits = sameDigest(digest(typeof given === 'string' ? given : ''), key);
    // Compared also when there is none, so that the time tells nothing.
    if (!fits || settings.apiKey === '')
      throw new ReindeerError('unauthorized', 'The provisioner wants its key as X-API-Key (PROVISIONER_API_KEY).');
    if (running >= MAX_REQUESTS)
      throw new ReindeerError('over_capacity', `${MAX_REQUESTS} requests are under way.`, { retryable: true });
    running += 1;
    try {
      if (route === 'GET /api/capabilities')
        return sendJson(response, 200, {
          version: parts.version,
          image: settings.image,
          mounts: settings.stateBase !== null,
          limits: settings.limits,
        });
      if (route === 'POST /api/sandboxes') {
        const wanted = sandboxRequest(await readJson(request, MAX_BODY_BYTES), settings.stateBase);
        const { created, sandbox } = await provisioner.create(wanted);
        return sendJson(response, created ? 201 : 200, { ...told(sandbox), created });
      }
      if (route === 'GET /api/sandboxes') {
        const sandboxes = (await provisioner.list(searchParams.get('home'))).map(told);
        return sendJson(response, 200, { sandboxes, count: sandboxes.length });
      }
      const id = /^\/api\/sandboxes\/([^/]+)$/.exec(pathname)?.[1];
      if (id === undefined) throw new ReindeerError('not_found', 'There is no such route.');
      if (!SANDBOX_ID.test(id))
        throw new ReindeerError('bad_request', 'A sandbox id has 1 to 64 letters, digits, "_" or "-".', {
          detail: { field: 'sandbox_id' },
        });
      if (request.method === 'GET') {
        const found = await provisioner.get(id);
        if (found !== null) return sendJson(response, 200, told(found));
        return sendJson(response, 404, { sandbox_id: id, status: 'NotFound', message: 'There is no such sandbox.' });
      }
      if (request.method !== 'DELETE') throw new ReindeerError('not_found', 'There is no such route.');
      const [uid, nonce] = [searchParams.get('uid'), searchParams.get('nonce')];
      await provisioner.remove(id, { ...(uid === null ? {} : { uid }), ...(nonce === null ? {} : { nonce }) });
      return sendJson(response, 200, { ok: true, sandbox_id: id });
    } finally {
      running -= 1;
    }
  };
  return createServer({ headersTimeout: 10_000, requestTimeout: 30_000 }, (request, response) => {
    handle(request, response).catch((error: unknown) => {
      if (!ReindeerError.is(error)) logger.error('A request failed', { cause: String(error) });
      sendError(response, error);
    });
  });
}

function told(sandbox: ProvisionedSandbox): Readonly<Record<string, unknown>> {
  return {
    sandbox_id: sandbox.id,
    sandbox_url: sandbox.url,
    status: sandbox.status,
    ready: sandbox.ready,
    terminating: sandbox.terminating,
    uid: sandbox.uid,
    name: sandbox.name,
    nonce: sandbox.nonce,
    home: sandbox.home,
    user_id: sandbox.userId,
    thread_id: sandbox.threadId,
    created_at: sandbox.createdAt,
  };
}
