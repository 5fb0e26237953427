import { openMemory } from '@reindeer/database';
import type { Graph, GraphFactory, SandboxLifecycle } from '@reindeer/protocol';
import { EMPTY_REQUEST } from '@reindeer/protocol';
import { createRuntime } from '@reindeer/runtime';
import { createLifecycleProvider, MemoryOwnershipStore, SharedLeases } from '@reindeer/sandbox';
import { deferred, flush, gated, NO_STORAGE, SimulatedEngine, testSurroundings } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { Prewarming } from './prewarm.ts';

const RUN = { runId: 'r', threadId: 't', userId: 'u' };

function scene(part: { readonly replicas?: number } = {}) {
  const surroundings = testSurroundings();
  const { clock, logger } = surroundings;
  const engine = new SimulatedEngine(clock);
  const backend = gated(engine.backend(), ['create', 'ready']);
  const { replicas = 3 } = part;
  const lifecycle: SandboxLifecycle = createLifecycleProvider({
    backend: backend.target,
    ownership: new MemoryOwnershipStore({ ownerId: 'a', clock, ttlMs: 120_000 }),
    surroundings,
    storage: NO_STORAGE,
    settings: { replicas },
  });
  const leases = new SharedLeases(lifecycle, logger);
  const prewarming = new Prewarming({ lifecycle, leases, replicas: () => replicas, logger });
  return { surroundings, engine, backend, lifecycle, leases, prewarming };
}

describe('starting a sandbox ahead', () => {
  test('it is warm before anybody asks for it, and in nobody’s hands', async () => {
    const { prewarming, lifecycle, leases, engine } = scene();
    prewarming.admitted(RUN);
    await prewarming.settled();
    expect(lifecycle.list()).toMatchObject([{ phase: 'warm', identity: { userId: 'u', threadId: 't' } }]);
    expect(leases.sizes()).toEqual({ bindings: 0, shared: 0, sections: 0 });
    const sandbox = await leases.hold({ ...RUN, owner: 'run' });
    expect(engine.created).toEqual([sandbox.id]);
  });

  test('a run that uses it while it is being started keeps it', async () => {
    const { prewarming, lifecycle, leases, backend, engine } = scene();
    const ready = backend.hold('ready', 'before');
    prewarming.admitted(RUN);
    await ready.reached;
    const using = leases.hold({ ...RUN, owner: 'run' });
    ready.open();
    const sandbox = await using;
    await prewarming.settled();
    expect(lifecycle.list()).toMatchObject([{ id: sandbox.id, phase: 'active' }]);
    expect(engine.created).toEqual([sandbox.id]);
    await leases.leave('run');
    expect(lifecycle.list()).toMatchObject([{ phase: 'warm' }]);
  });

  test('a thread that has one gets no other; nothing is given up and no limit passed for it', async () => {
    const { prewarming, lifecycle, engine } = scene({ replicas: 2 });
    const first = await lifecycle.acquire({ userId: 'u', threadId: 't' });
    prewarming.admitted(RUN);
    await prewarming.settled();
    expect(engine.created).toEqual([first.id]);
    const second = await lifecycle.acquire({ userId: 'u', threadId: 'other' });
    await lifecycle.release(second.id);
    prewarming.admitted({ ...RUN, threadId: 'third' });
    await prewarming.settled();
    expect([engine.created, engine.stopped]).toEqual([[first.id, second.id], []]);
    // Those that are being started count as well.
    const many = scene({ replicas: 2 });
    for (const threadId of ['a', 'b', 'c', 'd']) many.prewarming.admitted({ ...RUN, threadId });
    await many.prewarming.settled();
    expect(many.engine.created).toHaveLength(2);
  });

  test('a failure is no failure of the run; after the stop nothing begins', async () => {
    const { prewarming, lifecycle, leases, backend, engine } = scene();
    backend.break(new Error('no engine'), 'create');
    prewarming.admitted(RUN);
    await prewarming.settled();
    expect([lifecycle.list(), leases.sizes().bindings]).toEqual([[], 0]);
    backend.heal();
    prewarming.stop();
    prewarming.stop();
    prewarming.admitted(RUN);
    await prewarming.settled();
    expect(engine.created).toEqual([]);
  });

  test('an admitted run gets one at once; a run that is rejected starts nothing', async () => {
    const { surroundings, prewarming, lifecycle, engine } = scene();
    const over = deferred();
    const unused = () => Promise.reject(new Error('not used here'));
    const graph: Graph = {
      stateKeys: [],
      stream: async () => ({
        async *[Symbol.asyncIterator]() {
          await over.promise;
          yield* [];
        },
      }),
      getState: unused,
      updateState: unused,
      // biome-ignore lint/correctness/useYield: nobody reads the history of this thread
      async *getStateHistory() {
        throw new Error('not used here');
      },
    };
    const factory: GraphFactory = {
      assistantId: 'a',
      name: 'a',
      description: '',
      forAttempt: async () => graph,
      forState: async () => graph,
    };
    const runtime = createRuntime({
      stores: openMemory({ surroundings }),
      graphs: new Map([['a', factory]]),
      surroundings,
      hooks: { onAdmitted: (run) => prewarming.admitted(run) },
    });
    await runtime.start();
    const create = () =>
      runtime.runs.create({
        threadId: 'one',
        userId: 'u',
        assistantId: 'a',
        request: {
          ...EMPTY_REQUEST,
          streamModes: ['values'],
        },
        metadata: {},
        multitaskStrategy: 'reject',
        onDisconnect: 'continue',
        crashPolicy: null,
        createThread: true,
        idempotencyKey: null,
      });
    expect(await create()).toMatchObject({ outcome: 'admitted' });
    await flush();
    await prewarming.settled();
    const [sandbox] = lifecycle.list();
    expect(sandbox).toMatchObject({ phase: 'warm', identity: { threadId: 'one' } });
    // Gone again: whoever is admitted now would start another.
    await lifecycle.destroy(sandbox?.id ?? '');
    expect((await create()).outcome).not.toBe('admitted');
    await flush();
    await prewarming.settled();
    expect([engine.created, lifecycle.list()]).toEqual([[sandbox?.id], []]);
    over.resolve();
    await runtime.stop({ drainMs: 0, hardMs: 0 });
  });
});
