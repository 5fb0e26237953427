import { MemoryDatabase, openMemory } from '@reindeer/database';
import { type MemoryStore, ReindeerError } from '@reindeer/protocol';
import { testSurroundings, verifies } from '@reindeer/testkit';
import { afterEach, describe, expect, test } from 'vitest';
import { memoryOf } from '../config/memory.ts';
import { createMemory, type OwnMemory } from '../memory.ts';
import { type Fixture, startFixture } from '../testing/http-fixture.ts';

const open: Fixture[] = [];
afterEach(async () => {
  for (const fixture of open.splice(0)) await fixture.close();
});

async function server(
  section: Parameters<typeof memoryOf>[0],
  options: { learns?: boolean; store?: (inner: MemoryStore) => MemoryStore; own?: OwnMemory } = {},
) {
  const surroundings = testSurroundings();
  const inner = openMemory({ surroundings, database: new MemoryDatabase(surroundings.random) }).memory;
  const configuration = memoryOf(section);
  const service = createMemory({
    store: options.store?.(inner) ?? inner,
    configuration: () => configuration,
    ask: () => (options.learns === false ? null : async () => '{}'),
    modelName: () => 'quick',
    surroundings,
    own: options.own ?? null,
  });
  const fixture = await startFixture({ surroundings, modules: service.modules });
  open.push(fixture);
  const ask = async (method: string, path: string, body?: object) => {
    const answer = await fetch(`${fixture.url}/api${path}`, {
      method,
      ...(body === undefined ? {} : { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
    });
    return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
  };
  return { ask, service };
}

const OPERATIONS: readonly (readonly [method: string, path: string, body?: object])[] = [
  ['GET', '/memory'],
  ['GET', '/memory/export'],
  ['POST', '/memory/reload'],
  ['POST', '/memory/import', {}],
  ['POST', '/memory/facts', { content: 'Drinks tea' }],
  ['PATCH', '/memory/facts/one', {}],
  ['DELETE', '/memory/facts/one'],
  ['GET', '/memory/search?query=tea'],
  ['DELETE', '/memory'],
];

describe('a memory of the operator’s own', () => {
  const port = { context: async () => null, capture: async () => {} };
  const use = { manager_class: './mine.mjs:create' };

  test('what it lacks is answered 501 with its name, and nothing is changed by half', verifies('MEM-8'), async () => {
    const bare = await server(use, { own: port });
    for (const [method, path, body] of OPERATIONS)
      expect(await bare.ask(method, path, body)).toMatchObject({ status: 501, body: { code: 'not_implemented' } });
    expect((await bare.ask('GET', '/memory/search?query=tea')).body).toMatchObject({
      detail: expect.stringContaining('"find"'),
    });
    expect(await bare.ask('GET', '/memory/status')).toMatchObject({ status: 200, body: { facts: 0, pending: 0 } });
    let cleared = 0;
    const own = {
      ...port,
      clear: async () => {
        cleared += 1;
      },
    };
    const { ask, service } = await server(use, { own });
    // Its answer would be the document, which cannot be shown.
    expect((await ask('DELETE', '/memory')).body).toMatchObject({ detail: expect.stringContaining('"document"') });
    expect([cleared, service.learner]).toEqual([0, null]);
  });

  test('what it can do is done for the user who asks, and it ends at the stop', verifies('MEM-8'), async () => {
    const done: unknown[] = [];
    const fact = {
      id: 'f',
      content: 'Drinks tea',
      category: 'preference',
      confidence: 0.9,
      createdAt: 1_000,
      confirmedAt: 1_000,
      source: 'mine',
      sourceError: null,
      consolidatedFrom: [],
      revision: 1,
    };
    class Mine {
      readonly context = port.context;
      readonly capture = port.capture;
      readonly facts = [fact];
      async document(owner: unknown) {
        done.push(owner);
        return { revision: 7, updatedAt: null, sections: {}, facts: this.facts };
      }
      async delete(_owner: unknown, id: string) {
        this.facts.splice(
          this.facts.findIndex((one) => one.id === id),
          1,
        );
      }
      async flush(timeoutMs: number) {
        done.push(timeoutMs);
      }
    }
    const { ask, service } = await server(use, { own: new Mine() as unknown as OwnMemory });
    expect((await ask('GET', '/memory?agent_name=Writer')).body).toMatchObject({
      revision: 7,
      facts: [{ id: 'f', content: 'Drinks tea' }],
    });
    expect(done).toEqual([{ userId: 'default', agentName: 'writer' }]);
    expect((await ask('DELETE', '/memory/facts/f')).body).toMatchObject({ facts: [] });
    expect((await ask('POST', '/memory/facts', { content: 'x' })).status).toBe(501);
    expect(await service.learner?.flush(5_000)).toEqual({ complete: true, waiting: null });
    await service.learner?.close();
    expect(done.at(-1)).toBe(5_000);
  });
});

describe('the memory over HTTP', () => {
  test('a server that remembers nothing says so to each operation', verifies('MEM-7', 'MEM-1'), async () => {
    const { ask, service } = await server({ manager_class: 'noop' });
    for (const [method, path, body] of OPERATIONS)
      expect(await ask(method, path, body)).toMatchObject({ status: 501, body: { code: 'not_implemented' } });
    expect(await ask('GET', '/memory/config')).toMatchObject({ status: 200, body: { manager_class: 'noop' } });
    expect(await ask('GET', '/memory/status')).toMatchObject({ status: 200, body: { enabled: false, facts: 0 } });
    expect(service).toMatchObject({ memory: null, learner: null });
  });

  test(
    'with the demo model, and switched off, nothing is learned, and the state says why',
    verifies('MEM-7'),
    async () => {
      const demo = await server({}, { learns: false });
      expect((await demo.ask('GET', '/memory/status')).body.learning).toMatchObject({
        enabled: false,
        model: null,
        reason: expect.stringContaining('demo model'),
      });
      // What users add themselves is kept all the same.
      expect(await demo.ask('POST', '/memory/facts', { content: 'Drinks tea' })).toMatchObject({ status: 201 });
      const off = await server({ enabled: false });
      const added = await off.ask('POST', '/memory/facts', { content: 'Drinks tea' });
      expect(added.status).toBe(201);
      expect((await off.ask('GET', '/memory/status')).body).toMatchObject({
        facts: 1,
        learning: { enabled: false, reason: 'The memory is switched off.' },
      });
      const told = { userId: 'default', threadId: 't', agentName: 'Reindeer', signal: new AbortController().signal };
      expect(await off.service.memory?.context(told)).toBeNull();
      expect(await demo.service.memory?.context(told)).toContain('Drinks tea');
    },
  );

  test('a damaged memory is 500, one that cannot be asked 503', verifies('MEM-7', 'MEM-5'), async () => {
    for (const [code, status] of [
      ['internal', 500],
      ['store_unavailable', 503],
    ] as const) {
      const fail = (): Promise<never> => Promise.reject(new ReindeerError(code, 'secret detail'));
      const { ask } = await server({}, { store: (store) => ({ ...store, read: fail, change: fail, clear: fail }) });
      for (const [method, path, body] of OPERATIONS) {
        const answer = await ask(method, path, body);
        expect(answer).toMatchObject({ status, body: { code } });
        expect(JSON.stringify(answer.body)).not.toContain('secret detail');
      }
    }
  });

  test('unknown fields and agents are refused by name', async () => {
    const { ask } = await server({});
    expect(await ask('POST', '/memory/facts', { contents: 'x' })).toMatchObject({
      status: 422,
      body: { detail: [{ msg: expect.stringContaining('Did you mean "content"?') }] },
    });
    expect((await ask('GET', '/memory?agent_name=_default')).status).toBe(422);
  });
});
