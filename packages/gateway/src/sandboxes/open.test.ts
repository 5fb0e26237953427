import { EventEmitter } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { NO_LOG, type OwnershipStore, offersCommands, ShutdownOwnership } from '@reindeer/protocol';
import { type createContainerProvider, createLifecycleProvider } from '@reindeer/sandbox';
import { flush, NO_STORAGE, SimulatedEngine, testSurroundings, verifies } from '@reindeer/testkit';
import { expect, onTestFinished, test } from 'vitest';
import { resolveSettings } from '../config/settings.ts';
import { Lifecycle } from '../life/lifecycle.ts';
import { startSandboxes } from './start.ts';

type Input = Parameters<typeof createContainerProvider>[0];

function scene(sandbox: object) {
  const surroundings = { ...testSurroundings(), logger: NO_LOG };
  const { clock } = surroundings;
  const engine = new SimulatedEngine(clock);
  const seen: Input[] = [];
  const life = new Lifecycle({ clock, logger: NO_LOG });
  const config = { sandbox: { use: 'container', ...sandbox } };
  const settings = resolveSettings(
    { file: null, config, variables: {}, root: '/nowhere', placeOf: () => null, warnings: [] },
    {},
  );
  const containers: typeof createContainerProvider = async (input) => {
    seen.push(input);
    return createLifecycleProvider({
      backend: engine.backend(),
      ownership: input.ownership,
      surroundings,
      storage: NO_STORAGE,
      ...(input.lifecycle === undefined ? {} : { settings: input.lifecycle }),
    });
  };
  const process = Object.assign(new EventEmitter(), { pid: 1, kill: () => {} });
  const ownership = new ShutdownOwnership();
  const parts = { settings, surroundings, variables: {}, containers, exit: { process, ownership } };
  return { engine, seen, life, parts, process, ownership, clock };
}

test('what the operator set reaches the provider, and what runs already is adopted at the start', async () => {
  const { engine, seen, life, parts } = scene({
    image: 'mine:1',
    container_prefix: 'mine',
    memory_limit: 256 * 1024 ** 2,
    network: 'bridge',
    replicas: 7,
    idle_timeout: 20,
    overflow_policy: 'wait',
    memory_reserve: 5,
    mounts: [{ host_path: '/data', container_path: '/mnt/data', read_only: false }],
  });
  engine.run('orphan');
  const started = await startSandboxes(life, parts);
  expect(seen[0]?.settings).toEqual({
    image: 'mine:1',
    containerPrefix: 'mine',
    memoryBytes: 256 * 1024 ** 2,
    network: 'bridge',
    mounts: [{ hostPath: '/data', containerPath: '/mnt/data', readOnly: false }],
  });
  expect(seen[0]?.lifecycle).toEqual({
    replicas: 7,
    idleTimeoutMs: 20_000,
    overflow: 'wait',
    memoryReserveBytes: 5,
    renewalIntervalMs: 30_000,
    ttlMultiplier: 4,
    sweepMs: 10_000,
  });
  expect(started.lifecycle?.list()).toMatchObject([{ id: 'orphan', phase: 'warm' }]);
  expect(started.ownerId).toMatch(/^.+:[0-9a-f]{32}$/);
  expect(started.prewarming).not.toBeNull();
  expect(await life.stop()).toEqual({ unfinished: [], failed: [] });
  expect(engine.containers.size).toBe(0);
});

test('an address of a provisioner, and not the engine of this machine, starts the sandboxes', async () => {
  const { seen, life, parts } = scene({
    provisioner_url: 'http://127.0.0.1:1',
    provisioner_api_key: 'of-the-provisioner',
  });
  const home = await mkdtemp(`${tmpdir()}/reindeer-remote-`);
  onTestFinished(() => rm(home, { recursive: true, force: true }));
  const started = await startSandboxes(life, { ...parts, settings: { ...parts.settings, home } });
  expect(seen).toEqual([]);
  // It is away: that is said, and commands are offered all the same.
  expect(started.provider.report()).toMatchObject({
    provider: 'remote',
    canExecute: false,
    reason: expect.stringContaining('http://127.0.0.1:1'),
  });
  expect(offersCommands(started.provider.report())).toBe(true);
  expect(JSON.stringify(started.provider.report())).not.toContain('of-the-provisioner');
  await life.stop();
  const keyless = scene({ provisioner_url: 'http://127.0.0.1:1' });
  await expect(
    startSandboxes(keyless.life, { ...keyless.parts, settings: { ...keyless.parts.settings, home } }),
  ).rejects.toThrow('sandbox.provisioner_api_key');
  expect(() => scene({ use: 'bubblewrap', provisioner_url: 'http://127.0.0.1:1' })).toThrow('sandbox.use: container');
});

test(
  'a provider that cannot be made lets go of its ownership store, and the reason surfaces',
  verifies('GW-03'),
  async () => {
    const { life, parts } = scene({});
    let store: OwnershipStore | null = null;
    const containers: typeof createContainerProvider = async ({ ownership }) => {
      store = ownership;
      const close = ownership.close.bind(ownership);
      Object.assign(ownership, {
        closed: false,
        close: async () => {
          Object.assign(ownership, { closed: true });
          await close();
        },
      });
      throw new Error('no such image');
    };
    await expect(startSandboxes(life, { ...parts, containers })).rejects.toThrow('no such image');
    expect(store).toMatchObject({ closed: true });
  },
);

test(
  'without a host that declares the stop a signal ends the sandboxes; with one it does not',
  verifies('SB-68', 'SEED-002-05'),
  async () => {
    for (const declared of [false, true]) {
      const { engine, life, parts, process, ownership } = scene({});
      const withdraw = declared ? ownership.declare() : () => {};
      const { lifecycle } = await startSandboxes(life, parts);
      await lifecycle?.acquire({ userId: 'u', threadId: 't' });
      process.emit('SIGTERM');
      while (!declared && engine.containers.size > 0) await flush();
      await flush();
      expect(engine.containers.size).toBe(declared ? 1 : 0);
      expect(await life.stop()).toEqual({ unfinished: [], failed: [] });
      expect(engine.containers.size).toBe(0);
      withdraw();
      expect(process.eventNames()).toEqual([]);
    }
  },
);

test('the provider is made when what it needs is there; what starts beside it has to succeed as well', async () => {
  const { seen, life, parts } = scene({});
  const [begin, end] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const starting = startSandboxes(life, { ...parts, begin: begin.promise, end: end.promise });
  const outcome = starting.then(
    () => 'started',
    (error: unknown) => error,
  );
  await flush();
  expect(seen).toEqual([]);
  begin.resolve();
  await expect.poll(() => seen.length).toBe(1);
  await flush();
  const fault = new Error('the database is damaged');
  end.reject(fault);
  expect(await outcome).toBe(fault);
  expect(life.phase).toBe('stopped');
});
