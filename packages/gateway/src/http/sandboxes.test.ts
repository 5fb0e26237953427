import type { ReindeerError, SandboxLifecycle } from '@reindeer/protocol';
import { createLifecycleProvider, MemoryOwnershipStore } from '@reindeer/sandbox';
import { deferred, flush, NO_STORAGE, SimulatedEngine, testSurroundings, verifies } from '@reindeer/testkit';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Fixture, startFixture } from '../testing/http-fixture.ts';

const surroundings = testSurroundings();
const { clock } = surroundings;
let engine: SimulatedEngine;
let current: SandboxLifecycle;
let fixture: Fixture;

/** The fixture has one pool for its life; each test has a provider of its own behind it. */
const lifecycle = new Proxy({} as SandboxLifecycle, {
  get: (_target, name) => {
    const value: unknown = Reflect.get(current, name);
    return typeof value === 'function' ? value.bind(current) : value;
  },
});

beforeAll(async () => {
  fixture = await startFixture({
    surroundings,
    sandboxPool: { lifecycle, ownerId: 'host:1' },
    metrics: () => 'reindeer_test 1\n',
    guards: { allowedHosts: [], allowedOrigins: [], token: 'secret-token-of-sixteen' },
  });
});
afterAll(() => fixture.close());
beforeEach(() => {
  engine = new SimulatedEngine(clock);
  const backend = engine.backend();
  current = createLifecycleProvider({
    backend: { ...backend, memory: async (infos) => new Map(infos.map(({ id }) => [id, 4096])) },
    ownership: new MemoryOwnershipStore({ ownerId: 'host:1', clock, ttlMs: 120_000 }),
    surroundings,
    storage: NO_STORAGE,
  });
});

const authorization = 'Bearer secret-token-of-sixteen';
const ask = async (method: string, path: string, body?: object) => {
  const answer = await fetch(`${fixture.url}${path}`, {
    method,
    headers: { authorization, 'content-type': 'application/json' },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
};

describe('the sandboxes of an instance', () => {
  test('are listed with state, owner, thread, age, last use and memory', async () => {
    const used = await current.acquire({ userId: 'u', threadId: 'busy' });
    const parked = await current.acquire({ userId: 'u', threadId: 'idle' });
    await current.release(parked.id);
    engine.run('orphan', { createdAt: 0 });
    await current.reconcile();
    clock.skip(90_000);
    current.get(used.id);
    const { status, body } = await ask('GET', '/api/sandboxes');
    expect(status).toBe(200);
    expect(body).toMatchObject({ owner: 'host:1' });
    const list = body.sandboxes as Record<string, unknown>[];
    expect(list.find(({ id }) => id === used.id)).toEqual({
      id: used.id,
      state: 'active',
      name: `simulated-${used.id}`,
      owner: 'host:1',
      user_id: 'u',
      thread_id: 'busy',
      created_at: new Date(clock.now() - 90_000).toISOString(),
      age_seconds: 90,
      last_used_at: new Date(clock.now()).toISOString(),
      idle_seconds: 0,
      commands: 0,
      memory_bytes: 4096,
    });
    expect(list.find(({ id }) => id === parked.id)).toMatchObject({
      state: 'warm',
      thread_id: 'idle',
      idle_seconds: 90,
    });
    expect(list.find(({ id }) => id === 'orphan')).toMatchObject({
      state: 'warm',
      thread_id: null,
      user_id: null,
      created_at: null,
      age_seconds: null,
    });
  });

  test('one that nobody uses is stopped; one in use only by force; another is unknown', async () => {
    const { id } = await current.acquire({ userId: 'u', threadId: 't' });
    const refused = await ask('DELETE', `/api/sandboxes/${id}`);
    expect([refused.status, refused.body.code]).toEqual([409, 'conflict']);
    expect(String(refused.body.detail)).toContain('force=true');
    expect(engine.stopped).toEqual([]);
    expect(await ask('DELETE', `/api/sandboxes/${id}?force=true`)).toEqual({
      status: 200,
      body: { id, outcome: 'destroyed' },
    });
    expect(engine.stopped).toEqual([id]);
    expect((await ask('DELETE', `/api/sandboxes/${id}`)).status).toBe(404);
    const again = await current.acquire({ userId: 'u', threadId: 't' });
    await current.release(again.id);
    expect((await ask('DELETE', `/api/sandboxes/${again.id}`)).status).toBe(200);
  });

  test('prune stops what nobody uses, and nothing that somebody takes meanwhile', async () => {
    const busy = await current.acquire({ userId: 'u', threadId: 'busy' });
    const old = await current.acquire({ userId: 'u', threadId: 'old' });
    await current.release(old.id);
    clock.skip(60_000);
    const young = await current.acquire({ userId: 'u', threadId: 'young' });
    // A command that its turn has left running.
    const command = deferred<string>();
    engine.onCommand = () => command.promise;
    const running = young.exec({ command: 'sleep', timeoutMs: 1_000 });
    await current.release(young.id);
    expect((await ask('POST', '/api/sandboxes/prune', { idle_seconds: 60 })).body).toEqual({
      stopped: [old.id],
      kept: [],
    });
    expect((await ask('POST', '/api/sandboxes/prune', {})).body).toEqual({ stopped: [], kept: [young.id] });
    command.resolve('');
    await running;
    expect((await ask('POST', '/api/sandboxes/prune', {})).body).toEqual({ stopped: [young.id], kept: [] });
    expect(current.list().map(({ id }) => id)).toEqual([busy.id]);
    expect(engine.killedUnderCommand).toEqual([]);
    expect((await ask('POST', '/api/sandboxes/prune', { idle: 1 })).status).toBe(422);
  });

  test('the view and the metrics need the token, and only the own origin reads them', verifies('SEC-02'), async () => {
    for (const path of ['/api/sandboxes', '/metrics']) {
      expect((await fetch(`${fixture.url}${path}`)).status).toBe(401);
      const foreign = { authorization, origin: 'https://evil.example' };
      expect((await fetch(`${fixture.url}${path}`, { headers: foreign })).status).toBe(403);
    }
    const answer = await fetch(`${fixture.url}/metrics`, { headers: { authorization } });
    expect(answer.headers.get('content-type')).toContain('text/plain; version=0.0.4');
    expect(await answer.text()).toBe('reindeer_test 1\n');
    await flush();
  });
});

test('where sandboxes last as long as a command there are none to list or stop', async () => {
  const plain = await startFixture();
  try {
    const list = await fetch(`${plain.url}/api/sandboxes`);
    expect(await list.json()).toMatchObject({ owner: null, sandboxes: [] });
    const stop = await fetch(`${plain.url}/api/sandboxes/x`, { method: 'DELETE' });
    expect([stop.status, ((await stop.json()) as ReindeerError).code]).toEqual([501, 'not_implemented']);
  } finally {
    await plain.close();
  }
});
