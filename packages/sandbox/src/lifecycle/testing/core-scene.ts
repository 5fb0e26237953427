import {
  type OwnershipStore,
  reduceSandbox,
  type SandboxBackend,
  type SandboxInfo,
  type SandboxMachine,
} from '@reindeer/protocol';
import { type Gated, gated, SimulatedEngine, type TestSurroundings, testSurroundings } from '@reindeer/testkit';
import { Acquires } from '../acquires.ts';
import { Claims } from '../claims.ts';
import { Maintenance } from '../maintenance.ts';
import { Meters } from '../meters.ts';
import { MemoryLeases, MemoryOwnershipStore } from '../ownership/memory-store.ts';
import type { Core } from '../parts.ts';
import { DEFAULT_LIFECYCLE_SETTINGS, graceMs, type LifecycleSettings } from '../settings.ts';
import { Stops } from '../stops.ts';
import { SandboxTable } from '../table.ts';
import { TeardownLeases } from '../teardown.ts';

export interface CoreScene {
  readonly core: Core;
  readonly table: SandboxTable;
  readonly stops: Stops;
  readonly acquires: Acquires;
  readonly maintenance: Maintenance;
  readonly store: Gated<OwnershipStore>;
  readonly backend: Gated<SandboxBackend>;
  readonly engine: SimulatedEngine;
  readonly surroundings: TestSurroundings;
  /** A container of the engine that is active here. */
  active(id: string): Promise<SandboxInfo>;
}

export const ME = { userId: 'user', threadId: 'thread' };

/** The single paths of one instance, for tests of what cannot be reached through the port. */
export function coreScene(
  part: {
    readonly settings?: Partial<LifecycleSettings>;
    readonly machine?: SandboxMachine;
    /** Is the store one that others can be in? */
    readonly seesPeers?: boolean;
  } = {},
): CoreScene {
  const surroundings = testSurroundings();
  const { clock, logger } = surroundings;
  const settings = { ...DEFAULT_LIFECYCLE_SETTINGS, ...part.settings };
  const engine = new SimulatedEngine(clock);
  const ttlMs = graceMs(settings);
  const leases = part.seesPeers === true ? { leases: new MemoryLeases(clock, ttlMs) } : {};
  const store = gated<OwnershipStore>(new MemoryOwnershipStore({ ownerId: 'a', clock, ttlMs, ...leases }), [
    'take',
    'claim',
    'renew',
    'release',
    'owner',
  ]);
  const backend = gated(engine.backend(), ['create', 'ready', 'stop', 'isAlive', 'discover', 'listRunning']);
  const table = new SandboxTable({ machine: part.machine ?? reduceSandbox, clock, logger });
  const meters = new Meters();
  const core: Core = {
    table,
    claims: new Claims(store.target, table, surroundings, meters, graceMs(settings)),
    teardowns: new TeardownLeases({
      store: store.target,
      surroundings,
      renewalIntervalMs: settings.renewalIntervalMs,
      teardownWaitMs: settings.teardownWaitMs,
    }),
    backend: backend.target,
    settings,
    surroundings,
    meters,
    availableMemory: async () => null,
  };
  const stops = new Stops(core);
  const acquires = new Acquires(core, stops);
  return {
    core,
    table,
    stops,
    acquires,
    maintenance: new Maintenance(core, stops),
    store,
    backend,
    engine,
    surroundings,
    active: async (id) => {
      const info = engine.run(id);
      await acquires.discovered(ME, info);
      return info;
    },
  };
}
