import type {
  Clock,
  OwnershipStore,
  Sandbox,
  SandboxBackend,
  SandboxIdentity,
  SandboxLifecycle,
  Surroundings,
} from '@reindeer/protocol';
import { ReindeerError } from '@reindeer/protocol';
import { afterEach, expect } from 'vitest';
import { VirtualClock } from '../../clock.ts';
import { flush } from '../../deferred.ts';
import { type Gated, gated } from '../../gates.ts';
import { type SimulatedClient, SimulatedEngine } from '../../sandboxes/simulated-backend.ts';
import { type TestSurroundings, testSurroundings } from '../../surroundings.ts';

/** The settings that the contract depends on, in milliseconds. */
export interface LifecycleContractSettings {
  readonly idleTimeoutMs: number;
  readonly replicas: number;
  readonly renewalIntervalMs: number;
  readonly ttlMultiplier: number;
  readonly sweepMs: number;
  readonly teardownWaitMs: number;
}

/** Ownership stores over the same leases. */
export interface SharedOwnership {
  /** The store of one instance; it sees the others. */
  store(ownerId: string): OwnershipStore;
  /** A store of its own, which sees nobody else. */
  alone(ownerId: string): OwnershipStore;
  /** Forgets every lease, as a server that restarts without a copy. */
  clear(): void;
}

/** What is under test: a provider, an ownership store, or both. */
export interface SandboxLifecycleFactory {
  ownership(parts: { readonly clock: Clock; readonly ttlMs: number }): SharedOwnership;
  provider(parts: {
    readonly backend: SandboxBackend;
    readonly ownership: OwnershipStore;
    readonly surroundings: Surroundings;
    readonly settings: LifecycleContractSettings;
  }): SandboxLifecycle;
  /** The deterministic sandbox id of a thread. */
  idOf(identity: SandboxIdentity): string;
  /** Default: a simulated engine. Another one may do the same with real containers besides. */
  engine?(clock: Clock): SimulatedEngine;
}

export const CONTRACT_SETTINGS: LifecycleContractSettings = {
  idleTimeoutMs: 600_000,
  replicas: 3,
  renewalIntervalMs: 30_000,
  ttlMultiplier: 4,
  sweepMs: 60_000,
  teardownWaitMs: 12_000,
};
export const TTL_MS = CONTRACT_SETTINGS.renewalIntervalMs * CONTRACT_SETTINGS.ttlMultiplier;
export const STORE_DOWN = new ReindeerError('store_unavailable', 'The store does not answer.', { retryable: true });

/** One gateway of the scene. */
export interface Instance {
  readonly provider: SandboxLifecycle;
  readonly store: Gated<OwnershipStore>;
  readonly backend: Gated<SandboxBackend>;
  readonly surroundings: TestSurroundings;
  acquire(identity?: SandboxIdentity): Promise<Sandbox>;
  /** `active`, `warm`, or null when it is not kept. */
  phase(id: string): 'active' | 'warm' | null;
}

export interface SandboxScene {
  readonly clock: VirtualClock;
  readonly engine: SimulatedEngine;
  readonly ownership: SharedOwnership;
  readonly thread: SandboxIdentity;
  readonly other: SandboxIdentity;
  /** Sandbox ids of the two threads. */
  readonly id: string;
  readonly otherId: string;
  instance(
    name: string,
    options?: { readonly alone?: boolean; readonly settings?: Partial<LifecycleContractSettings> },
  ): Instance;
  /** Whoever owns it in the store. */
  owner(id: string): Promise<string | null>;
}

/** Makes scenes; ends every instance after its test. */
export function sandboxScenes(factory: SandboxLifecycleFactory): () => SandboxScene {
  const instances: Instance[] = [];
  const clocks: VirtualClock[] = [];
  afterEach(async () => {
    for (const { provider, store, backend } of instances.splice(0)) {
      store.heal();
      backend.heal();
      // A gate that a failed test left closed must not keep the next test waiting.
      const ended = provider.shutdown().catch(() => {});
      for (let turn = 0; turn < 20; turn += 1) {
        await flush();
        for (const clock of clocks) await clock.advance(20_000);
      }
      await Promise.race([ended, flush(50)]);
    }
    clocks.splice(0);
  });
  return () => {
    const clock = new VirtualClock();
    clocks.push(clock);
    const engine = factory.engine?.(clock) ?? new SimulatedEngine(clock);
    const ownership = factory.ownership({ clock, ttlMs: TTL_MS });
    const observer = ownership.store('observer');
    const thread = { userId: 'user', threadId: 'thread' };
    const other = { userId: 'user', threadId: 'other' };
    const id = factory.idOf(thread);
    let seed = 0;
    return {
      clock,
      engine,
      ownership,
      thread,
      other,
      id,
      otherId: factory.idOf(other),
      owner: (sandboxId) => observer.owner(sandboxId),
      instance: (name, options = {}) => {
        seed += 1;
        const surroundings = testSurroundings({ seed, clock });
        const store = gated(options.alone === true ? ownership.alone(name) : ownership.store(name), [
          'take',
          'claim',
          'renew',
          'release',
          'owner',
        ]);
        const backend = gated(engine.backend(), ['create', 'ready', 'stop', 'isAlive', 'discover', 'listRunning']);
        const provider = factory.provider({
          backend: backend.target,
          ownership: store.target,
          surroundings,
          settings: { ...CONTRACT_SETTINGS, ...options.settings },
        });
        const made: Instance = {
          provider,
          store,
          backend,
          surroundings,
          acquire: (identity = thread) => provider.acquire(identity),
          phase: (sandboxId) => provider.list().find((entry) => entry.id === sandboxId)?.phase ?? null,
        };
        instances.push(made);
        return made;
      },
    };
  };
}

/** Is it settled after everything that is ready has run? */
export async function isPending(promise: Promise<unknown>): Promise<boolean> {
  let pending = true;
  const settle = () => {
    pending = false;
  };
  promise.then(settle, settle);
  await flush();
  return pending;
}

/** Every client that the instances still hold for this id points to a container that runs. */
export function expectWorking(engine: SimulatedEngine, sandbox: Sandbox): void {
  const open: readonly SimulatedClient[] = engine.openClients(sandbox.id);
  const container = engine.containers.get(sandbox.id);
  expect(container?.state).toBe('running');
  expect(open.some((client) => client.info === container?.info)).toBe(true);
}
