import { Authorization, type AuthorizationProvider, NO_AUTHORIZATION, rbacProvider } from '@reindeer/agent';
import { NO_LOG } from '@reindeer/protocol';
import { safeUserId } from '@reindeer/sandbox';
import { verifies } from '@reindeer/testkit';
import { afterEach, describe, expect, test } from 'vitest';
import { type Fixture, rawRequest, startFixture } from '../testing/http-fixture.ts';
import { permissionOf } from './identity.ts';
import type { HttpParts } from './parts.ts';

const INTERNAL = 'internal-token-of-the-proxy';
const TOKEN = 'secret-token-of-sixteen';
const GUARDS = { allowedHosts: [], allowedOrigins: [], token: TOKEN, internalToken: INTERNAL };

let fixture: Fixture | null = null;
afterEach(async () => {
  await fixture?.close();
  fixture = null;
});
async function started(part: Partial<HttpParts> = {}) {
  const server = await startFixture({ guards: GUARDS, ...part });
  fixture = server;
  const ask = async (
    method: string,
    path: string,
    headers: Record<string, string> = {},
    body?: unknown,
  ): Promise<{ status: number; body: Record<string, unknown> }> => {
    const answer = await rawRequest(server.port, {
      method,
      path: `/api${path}`,
      headers: {
        host: `127.0.0.1:${server.port}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return { status: answer.status, body: JSON.parse(answer.body === '' ? '{}' : answer.body) };
  };
  return { server, ask };
}
const as = (owner: string, role?: string): Record<string, string> => ({
  'x-reindeer-internal-token': INTERNAL,
  'x-reindeer-owner-user-id': owner,
  ...(role === undefined ? {} : { 'x-reindeer-user-role': role }),
});
const bearer = { authorization: `Bearer ${TOKEN}` };

describe('for whom a request is', () => {
  test('one person has one id, however the trusted program writes it', verifies('ID-2', 'SEC-06'), async () => {
    const { server, ask } = await started();
    const made = await ask('POST', '/threads', as(' Ann@Example.org'), {});
    expect(made.status).toBe(200);
    const id = String(made.body.thread_id);
    const bucket = safeUserId('Ann@Example.org');
    expect(bucket).toMatch(/^ann-example-org--[0-9a-f]{16}$/);
    expect(server.threads.rows.get(id)?.userId).toBe(bucket);
    // Files, runs and everything else go by the same id.
    expect((await ask('GET', `/threads/${id}`, as('Ann@Example.org'))).status).toBe(200);
    // Somebody who has chosen that very id as a name elsewhere is somebody else.
    for (const headers of [as(bucket), as('bob@example.org'), as('ann@example.org'), bearer])
      expect((await ask('GET', `/threads/${id}`, headers)).status).toBe(404);
    await ask('POST', `/threads/${id}/runs`, as('Ann@Example.org'), {
      input: { messages: [] },
      context: { user_id: 'bob' },
    });
    expect(server.runs.created[0]).toMatchObject({ userId: bucket });
    expect(JSON.stringify(server.runs.created[0]?.request)).not.toContain('bob');
  });

  test('an id is never a path', verifies('ID-2'), async () => {
    const { server, ask } = await started();
    for (const owner of ['../../etc', '..', 'a/b', 'CON', 'ann\\bob', `${'x'.repeat(200)}`]) {
      const { body } = await ask('POST', '/threads', as(owner), {});
      expect(server.threads.rows.get(String(body.thread_id))?.userId).toMatch(/^[a-z0-9_-]{1,64}$/);
    }
    expect((await ask('POST', '/threads', as('x'.repeat(300)), {})).status).toBe(400);
    expect((await ask('POST', '/threads', as('  '), {})).status).toBe(400);
  });

  test(
    'nobody else may say so: no token, a wrong one, or the token of clients',
    verifies('ID-2', 'SEC-06'),
    async () => {
      const { server, ask } = await started();
      const owner = { 'x-reindeer-owner-user-id': 'ann' };
      for (const headers of [
        owner,
        { ...bearer, ...owner },
        { ...bearer, ...owner, 'x-reindeer-internal-token': TOKEN },
        { ...bearer, 'x-deerflow-owner-user-id': 'ann' },
        { ...bearer, 'x-reindeer-user-role': 'admin' },
        { 'x-reindeer-internal-token': `${INTERNAL}x` },
      ])
        expect((await ask('POST', '/threads', headers, {})).status).toBe(401);
      expect(server.threads.rows.size).toBe(0);
      expect((await ask('POST', '/threads', bearer, {})).status).toBe(200);
      expect([...server.threads.rows.values()].map((row) => row.userId)).toEqual(['default']);
    },
  );

  test('a server without an internal token has no such programs', verifies('SEC-06'), async () => {
    const { ask } = await started({ guards: { ...GUARDS, internalToken: null } });
    expect((await ask('GET', '/models', { ...bearer, ...as('ann') })).status).toBe(401);
    expect((await ask('GET', '/models', { ...bearer, 'x-reindeer-internal-token': '' })).status).toBe(401);
  });

  test('only such a program says which channel a run comes from', verifies('SAFE-5', 'AG-1'), async () => {
    const { server, ask } = await started();
    const thread = String((await ask('POST', '/threads', as('ann'), {})).body.thread_id);
    const body = { input: { messages: [] }, context: { channel_name: 'github', non_interactive: true } };
    expect((await ask('POST', `/threads/${thread}/runs`, as('ann'), body)).status).toBe(200);
    expect(server.runs.created[0]?.request.context).toEqual({ channel_name: 'github', non_interactive: true });
    const own = String((await ask('POST', '/threads', bearer, {})).body.thread_id);
    expect((await ask('POST', `/threads/${own}/runs`, bearer, body)).status).toBe(422);
    const hidden = { input: { messages: [] }, config: { configurable: { channel_name: 'web', user_role: 'admin' } } };
    expect((await ask('POST', `/threads/${own}/runs`, bearer, hidden)).status).toBe(200);
    expect(JSON.stringify(server.runs.created[1]?.request)).not.toMatch(/channel_name|user_role/);
  });
});

describe('what a role may do', () => {
  const roles = {
    admin: {},
    reader: {
      routes: { allow: ['*'], deny: ['threads:delete', 'runs:create', 'skills:*'] },
      models: { allow: ['small*'], deny: [] },
    },
    user: { routes: { allow: ['threads:*', 'models:read'], deny: [] } },
  };
  const parts = (provider: AuthorizationProvider = rbacProvider(roles), failClosed = true): Partial<HttpParts> => {
    const settings = { ...NO_AUTHORIZATION, provider, failClosed, users: { ann: 'reader', carl: 'admin' } };
    const authorization = new Authorization(settings, NO_LOG);
    const model = { model: 'm', display_name: '', description: '', demo: false };
    const off = { supports_thinking: false, supports_reasoning_effort: false, supports_vision: false };
    return {
      authorization: () => authorization,
      models: [
        { ...model, ...off, name: 'large' },
        { ...model, ...off, name: 'small-1' },
      ],
      limits: { defaultRecursionLimit: 100, maxRecursionLimit: 1000, models: ['large', 'small-1'] },
    };
  };

  test(
    'routes: denied wins, the rest as allowed; the role is the user’s, or the default',
    verifies('SAFE-2'),
    async () => {
      const { server, ask } = await started(parts());
      const thread = String((await ask('POST', '/threads', as('ann'), {})).body.thread_id);
      const run = { input: { messages: [] } };
      const denied = await ask('POST', `/threads/${thread}/runs`, as('ann'), run);
      expect([denied.status, denied.body.code]).toEqual([403, 'forbidden']);
      expect(String(denied.body.detail)).toContain('runs:create');
      expect((await ask('POST', `/threads/${thread}/runs/stream`, as('ann'), run)).status).toBe(403);
      expect((await ask('POST', '/runs/wait', as('ann'), run)).status).toBe(403);
      expect((await ask('DELETE', `/threads/${thread}`, as('ann'))).status).toBe(403);
      expect((await ask('GET', `/threads/${thread}/runs`, as('ann'))).status).toBe(200);
      expect((await ask('POST', '/threads/search', as('ann'), {})).status).toBe(200);
      expect(server.runs.created).toHaveLength(0);
      // Everybody else has the default role, of which nothing but threads and models is said.
      expect((await ask('DELETE', `/threads/${thread}`, as('bob'))).status).toBe(404);
      expect((await ask('GET', `/threads/${thread}/runs`, bearer)).status).toBe(403);
      expect((await ask('GET', '/langgraph/info', bearer)).status).toBe(403);
      // A trusted program may name another; one that is not there may do nothing.
      expect((await ask('POST', `/threads/${thread}/runs`, as('ann', 'admin'), run)).status).toBe(200);
      expect(server.runs.created[0]?.request.context).toEqual({ user_role: 'admin' });
      // The configuration's own goes along with nothing: once it is taken away there, it is gone.
      expect((await ask('POST', '/runs', as('carl'), run)).status).toBe(200);
      expect(server.runs.created[1]?.request.context).toEqual({});
      expect((await ask('GET', `/threads/${thread}`, as('ann', 'root'))).status).toBe(403);
    },
  );

  test('models that a role may not use are not shown', verifies('SAFE-2'), async () => {
    const { ask } = await started(parts());
    const names = async (headers: Record<string, string>) =>
      ((await ask('GET', '/models', headers)).body.models as { name: string }[]).map(({ name }) => name);
    expect(await names(as('ann'))).toEqual(['small-1']);
    expect(await names(bearer)).toEqual(['large', 'small-1']);
    expect((await ask('GET', '/models/large', as('ann'))).status).toBe(403);
    expect((await ask('GET', '/models/small-1', as('ann'))).status).toBe(200);
  });

  test('a provider that fails: closed refuses, open lets through', verifies('SAFE-2'), async () => {
    const broken: AuthorizationProvider = {
      name: 'broken',
      permits: () => Promise.reject(new Error('down')),
    };
    for (const [failClosed, status] of [
      [true, 403],
      [false, 200],
    ] as const) {
      const { ask } = await started(parts(broken, failClosed));
      expect((await ask('GET', '/models', bearer)).status).toBe(status);
      await fixture?.close();
      fixture = null;
    }
  });

  test.each([
    ['get', '/threads/:thread_id', 'threads:read'],
    ['post', '/threads', 'threads:write'],
    ['post', '/threads/search', 'threads:read'],
    ['post', '/threads/messages/search', 'threads:read'],
    ['post', '/threads/:thread_id/history', 'threads:read'],
    ['post', '/threads/:thread_id/state', 'threads:write'],
    ['delete', '/threads/:thread_id', 'threads:delete'],
    ['post', '/threads/:thread_id/runs', 'runs:create'],
    ['post', '/threads/:thread_id/runs/stream', 'runs:create'],
    ['post', '/runs/wait', 'runs:create'],
    ['post', '/threads/:thread_id/runs/:run_id/cancel', 'runs:cancel'],
    ['post', '/runs/cancel', 'runs:cancel'],
    ['delete', '/threads/:thread_id/runs/:run_id', 'runs:cancel'],
    ['get', '/threads/:thread_id/runs/:run_id/stream', 'runs:read'],
    ['put', '/threads/:thread_id/runs/:run_id/feedback', 'threads:write'],
    ['put', '/skills/:name/secrets', 'skills:write'],
    ['get', '/mcp/config', 'mcp:read'],
  ])('%s %s needs %s', verifies('SAFE-2'), (method, path, permission) => {
    expect(permissionOf({ method, path })).toBe(permission);
  });
});
