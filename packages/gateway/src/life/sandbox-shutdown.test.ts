import { EventEmitter } from 'node:events';
import { type SandboxLifecycle, ShutdownOwnership } from '@reindeer/protocol';
import {
  createLifecycleProvider,
  type HeldProvider,
  MemoryOwnershipStore,
  ProviderHolder,
  SharedLeases,
  stopWithProcess,
} from '@reindeer/sandbox';
import { deferred, flush, NO_STORAGE, SimulatedEngine, testSurroundings, verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { Lifecycle } from './lifecycle.ts';
import { sandboxesStep, sessionsStep } from './sandbox-steps.ts';
import { connectSignals } from './signals.ts';

/** The gateway's steps around sandboxes, in its order, with recorders in place of runs and sessions. */
function gateway<P extends HeldProvider>(
  part: {
    readonly make?: () => Promise<P>;
    readonly drain?: () => Promise<void>;
    readonly closeSessions?: () => Promise<void>;
  } = {},
) {
  const events: string[] = [];
  const surroundings = testSurroundings();
  const { clock, logger } = surroundings;
  const life = new Lifecycle({ clock, logger });
  const unexpected = async (): Promise<P> => {
    events.push('provider_made');
    throw new Error('a stop makes no provider');
  };
  const holder = new ProviderHolder<P>(part.make ?? unexpected, logger);
  const pool = {
    closed: 0,
    closeAll: async () => {
      pool.closed += 1;
      await part.closeSessions?.();
      events.push('mcp_closed');
    },
  };
  const start = async (): Promise<void> => {
    await life.start(sandboxesStep(holder, 60_000));
    await life.start(sessionsStep(() => pool));
    await life.start({
      name: 'runs',
      boundMs: 60_000,
      start: async () => {},
      stop: async () => {
        await part.drain?.();
        events.push('runs_drained');
      },
    });
  };
  return { events, life, holder, pool, start, clock, logger };
}

const REASON = new Error('the host is told to end');

describe('the stop of sandboxes', () => {
  test(
    'a provider that the first write of a draining run has made is closed after the drain',
    verifies('SEED-002-01', 'GW-10', 'GW-11'),
    async () => {
      const written = deferred();
      const surroundings = testSurroundings();
      const engine = new SimulatedEngine(surroundings.clock);
      const make = async (): Promise<SandboxLifecycle> => {
        events.push('provider_made');
        const provider = lifecycleOver(engine, surroundings);
        const { shutdown } = provider;
        provider.shutdown = async () => {
          await shutdown.call(provider);
          events.push('sandbox_closed');
        };
        return provider;
      };
      const { events, life, holder, pool, start } = gateway<SandboxLifecycle>({ make, drain: () => written.promise });
      await start();
      expect(holder.current).toBeNull();
      const stopping = life.stop();
      await flush();
      // The run that is still going on writes its first file: only now does it need a sandbox.
      const provider = await holder.get();
      const leases = new SharedLeases(provider, surroundings.logger);
      const sandbox = await leases.hold({ userId: 'u', threadId: 't', owner: 'run' });
      expect((await sandbox.exec({ command: 'write', timeoutMs: 1_000 })).exitCode).toBe(0);
      await leases.leave('run');
      expect(engine.containers.size).toBe(1);
      written.resolve();
      expect(await stopping).toEqual({ unfinished: [], failed: [] });
      expect(events).toEqual(['provider_made', 'runs_drained', 'mcp_closed', 'sandbox_closed']);
      expect([holder.current, pool.closed, engine.containers.size]).toEqual([null, 1, 0]);
    },
  );

  test('without a provider none is made', verifies('SEED-002-02'), async () => {
    const { events, life, holder, start } = gateway();
    await start();
    expect(await life.stop()).toEqual({ unfinished: [], failed: [] });
    expect(holder.current).toBeNull();
    expect(events).toEqual(['runs_drained', 'mcp_closed']);
  });

  test('a failure is logged, hides nothing, and can be tried again', verifies('SEED-002-03', 'GW-13'), async () => {
    let fails = true;
    const provider = {
      shutdown: async () => {
        if (fails) throw new Error('sandbox close failed');
      },
    };
    const { life, holder, pool, start, logger } = gateway({ make: async () => provider });
    await start();
    await holder.get();
    expect(await life.stop()).toEqual({ unfinished: [], failed: ['sandboxes'] });
    expect(holder.current).toBe(provider);
    expect(pool.closed).toBe(1);
    expect(logger.lines).toContainEqual(
      expect.objectContaining({ level: 'error', message: 'Failed to shut down sandbox provider' }),
    );
    fails = false;
    expect(await holder.shutdown()).toBe(true);
    expect(holder.current).toBeNull();
  });

  test.each(['mcp', 'sandbox'])(
    'an abort during the step "%s", once or again, waits for the sandboxes and is thrown afterwards',
    verifies('SEED-002-04', 'GW-14'),
    async (during) => {
      const sessions = deferred();
      const sandboxes = deferred();
      const began: string[] = [];
      let finished = false;
      const provider = {
        shutdown: async () => {
          began.push('sandbox');
          await sandboxes.promise;
          finished = true;
        },
      };
      const { life, holder, start } = gateway({
        make: async () => provider,
        closeSessions: async () => {
          began.push('mcp');
          // Never ends by itself.
          if (during === 'mcp') await sessions.promise;
        },
      });
      await start();
      await holder.get();
      const first = new AbortController();
      const stopping = life.stop(first.signal);
      let settled = false;
      const watch = stopping.then(
        () => (settled = true),
        () => (settled = true),
      );
      await flush();
      expect(began.at(-1)).toBe(during);
      first.abort(REASON);
      await flush();
      expect(began.at(-1)).toBe('sandbox');
      // Others who are told to end ask for the same stop.
      const again = [AbortSignal.abort(REASON), AbortSignal.abort(REASON)].map((signal) => life.stop(signal));
      for (const one of again) one.catch(() => {});
      await flush();
      expect([settled, finished]).toEqual([false, false]);
      sandboxes.resolve();
      await expect(stopping).rejects.toBe(REASON);
      for (const one of again) await expect(one).rejects.toBe(REASON);
      await watch;
      expect([finished, holder.current]).toEqual([true, null]);
      expect((await life.stop()).unfinished).toEqual(during === 'mcp' ? ['mcp'] : []);
    },
  );

  test.each(['SIGTERM', 'SIGINT'])(
    '%s reaches the server first; the provider’s own handler stops nothing, and containers go after the drain',
    verifies('SEED-002-05', 'GW-11'),
    async (signal) => {
      const surroundings = testSurroundings();
      const engine = new SimulatedEngine(surroundings.clock);
      const provider = lifecycleOver(engine, surroundings);
      const events: string[] = [];
      const process = Object.assign(new EventEmitter(), { pid: 1, kill: () => events.push('killed') });
      const ownership = new ShutdownOwnership();
      const withdraw = ownership.declare();
      const sandboxes = await Promise.all(
        ['a', 'b', 'c'].map((threadId) => provider.acquire({ userId: 'u', threadId })),
      );
      const world = gateway<SandboxLifecycle>({
        make: async () => provider,
        // The run that is in flight still reaches its sandbox.
        drain: async () => {
          // A drain takes its time: a handler that stopped containers by itself would be faster.
          await flush(20);
          const reached = provider.get(sandboxes[0]?.id ?? '') === sandboxes[0] && engine.containers.size === 3;
          events.push(reached ? 'drained with sandbox' : 'drained without');
        },
        closeSessions: async () => void events.push('mcp'),
      });
      // As in the product: the server's handlers stand before the provider is made.
      const stopped = deferred<unknown>();
      const disconnect = connectSignals({
        process,
        logger: surroundings.logger,
        begin: () => {
          events.push(`server ${signal}`);
          world.life.stop().then(stopped.resolve, stopped.reject);
        },
        unfinished: () => world.life.unfinished,
        exit: () => {},
        say: () => {},
      });
      await world.start();
      await world.holder.get();
      const remove = stopWithProcess({
        process,
        ownership,
        logger: surroundings.logger,
        shutdown: () => world.holder.shutdown(),
      });
      process.emit(signal);
      expect([events, engine.stopped]).toEqual([[`server ${signal}`], []]);
      expect(await stopped.promise).toEqual({ unfinished: [], failed: [] });
      expect(events).toEqual([`server ${signal}`, 'drained with sandbox', 'mcp']);
      expect(engine.stopped.toSorted()).toEqual(sandboxes.map(({ id }) => id).toSorted());
      expect(world.holder.current).toBeNull();
      remove();
      disconnect();
      withdraw();
      expect(process.eventNames()).toEqual([]);
    },
  );
});

function lifecycleOver(engine: SimulatedEngine, surroundings: ReturnType<typeof testSurroundings>): SandboxLifecycle {
  const { clock } = surroundings;
  return createLifecycleProvider({
    backend: engine.backend(),
    ownership: new MemoryOwnershipStore({ ownerId: 'a', clock, ttlMs: 120_000 }),
    surroundings,
    storage: NO_STORAGE,
  });
}
