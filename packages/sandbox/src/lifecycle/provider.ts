import {
  type DestroyOutcome,
  type IsolationReport,
  ReindeerError,
  reduceSandbox,
  type Sandbox,
  type SandboxFiles,
  type SandboxIdentity,
  type SandboxLifecycle,
  type SandboxStats,
  type SandboxSummary,
} from '@reindeer/protocol';
import { KeyedLock } from '../keyed-lock.ts';
import { within } from '../process/supervise.ts';
import { changesOf } from '../settings.ts';
import { Acquires } from './acquires.ts';
import { Claims } from './claims.ts';
import { aborted, closed } from './errors.ts';
import { identityKey, sandboxIdOf } from './identity.ts';
import { each, Maintenance } from './maintenance.ts';
import { availableMemory } from './memory.ts';
import { Meters } from './meters.ts';
import type { Core, LifecycleParts, ThreadStorage } from './parts.ts';
import {
  checkLifecycleSettings,
  DEFAULT_LIFECYCLE_SETTINGS,
  graceMs,
  LIVE_LIFECYCLE_SETTINGS,
  STORE_OPERATION_MS,
} from './settings.ts';
import { Stops } from './stops.ts';
import { SandboxTable } from './table.ts';
import { TeardownLeases } from './teardown.ts';

const STOPS_AT_ONCE = 8;

/**
 * Sandboxes that live between turns, over any backend and ownership store.
 *
 * One sandbox: see `reduceSandbox`. The provider itself: *open* → `start` → *maintaining* → `shutdown` (nothing new is acquired, loops
 * end, acquires that run are awaited, everything of ours is stopped, the store is closed last) → *closed*.
 */
export class LifecycleProvider implements SandboxLifecycle {
  readonly #core: Core;
  readonly #parts: LifecycleParts;
  readonly #storage: ThreadStorage;
  readonly #lock = new KeyedLock();
  readonly #stops: Stops;
  readonly #acquires: Acquires;
  readonly #maintenance: Maintenance;
  readonly #running = new Set<Promise<unknown>>();
  /** Ends the waits of acquires when the provider closes. */
  readonly #over = new AbortController();
  #started: Promise<void> | null = null;
  #closing: Promise<void> | null = null;

  constructor(parts: LifecycleParts) {
    const settings = { ...DEFAULT_LIFECYCLE_SETTINGS, ...parts.settings };
    checkLifecycleSettings(settings);
    parts.onChanges?.(changesOf(settings, DEFAULT_LIFECYCLE_SETTINGS, LIVE_LIFECYCLE_SETTINGS, checkLifecycleSettings));
    const { backend, ownership, surroundings } = parts;
    const { clock, logger } = surroundings;
    const meters = new Meters();
    const table = new SandboxTable({ machine: parts.machine ?? reduceSandbox, clock, logger });
    this.#parts = parts;
    this.#storage = parts.storage;
    this.#core = {
      table,
      claims: new Claims(ownership, table, surroundings, meters, graceMs(settings)),
      teardowns: new TeardownLeases({
        store: ownership,
        surroundings,
        renewalIntervalMs: settings.renewalIntervalMs,
        teardownWaitMs: settings.teardownWaitMs,
      }),
      backend,
      settings,
      surroundings,
      meters,
      availableMemory: parts.availableMemory ?? (() => availableMemory()),
    };
    this.#stops = new Stops(this.#core);
    this.#acquires = new Acquires(this.#core, this.#stops);
    this.#maintenance = new Maintenance(this.#core, this.#stops);
  }

  report(): IsolationReport {
    return this.#core.backend.report();
  }

  start(): Promise<void> {
    this.#started ??= (async () => {
      await this.#maintenance.reconcile();
      this.#maintenance.start();
    })();
    return this.#started;
  }

  async acquire(input: {
    readonly userId: string;
    readonly threadId: string;
    readonly signal?: AbortSignal;
  }): Promise<Sandbox> {
    const identity = { userId: input.userId, threadId: input.threadId };
    this.#refuseWhenClosing();
    const { signal } = this.#over;
    const either = input.signal === undefined ? signal : AbortSignal.any([signal, input.signal]);
    const acquiring = this.#lock.run(identityKey(identity), () => this.#acquire(identity, either), input.signal);
    this.#running.add(acquiring);
    try {
      return await acquiring;
    } finally {
      this.#running.delete(acquiring);
    }
  }

  get(sandboxId: string): Sandbox | undefined {
    const { table } = this.#core;
    const client = table.client(sandboxId);
    if (client !== undefined) table.apply(sandboxId, { type: 'touch', now: table.now });
    return client;
  }

  async release(sandboxId: string): Promise<void> {
    const { table, claims, surroundings } = this.#core;
    const { epoch } = table.state(sandboxId);
    if (table.apply(sandboxId, { type: 'park', now: table.now }).outcome === 'refused') return;
    if ((await claims.refresh(sandboxId)) === 'kept') return;
    await surroundings.probe.at('sandbox.before-forget', { id: sandboxId });
    // Void when the next turn has acquired it again meanwhile (SB-63).
    if (table.apply(sandboxId, { type: 'forget', epoch }).outcome === 'changed') this.#core.meters.forgotten += 1;
  }

  async destroy(sandboxId: string, options: { readonly unused?: boolean } = {}): Promise<DestroyOutcome> {
    const { phase, info } = this.#core.table.state(sandboxId);
    if (phase === 'absent' || info === null) return 'unknown_id';
    const outcome = await this.#stops.destroyTracked(
      sandboxId,
      options.unused === true ? { kind: 'warm', info } : { kind: 'tracked' },
    );
    return outcome === 'destroyed' ? 'destroyed' : 'refused';
  }

  renew(): Promise<void> {
    return this.#maintenance.renew();
  }

  reconcile(): Promise<void> {
    return this.#maintenance.reconcile();
  }

  reap(): Promise<void> {
    return this.#maintenance.reap();
  }

  list(): readonly SandboxSummary[] {
    const { table } = this.#core;
    return table.ids('active', 'warm').map((id) => {
      const { phase, identity, reserved, info, parkedAt, activeAt, commands } = table.state(id);
      return {
        id,
        phase: phase === 'active' ? 'active' : 'warm',
        identity,
        stopping: reserved,
        name: info?.name ?? '',
        createdAt: info?.createdAt ?? 0,
        idleMs: Math.max(0, table.now - (phase === 'active' ? activeAt : parkedAt)),
        commands,
      };
    });
  }

  stats(): SandboxStats {
    const { table, meters } = this.#core;
    const active = table.ids('active').length;
    const warm = table.ids('warm').length;
    return meters.read({ active, warm, starting: table.starting });
  }

  async memory(): Promise<ReadonlyMap<string, number>> {
    const { table, backend, surroundings } = this.#core;
    const infos = table.ids('active', 'warm').flatMap((id) => table.state(id).info ?? []);
    if (backend.memory === undefined || infos.length === 0) return new Map();
    try {
      return await backend.memory(infos);
    } catch (error) {
      surroundings.logger.warn('The memory of the sandboxes could not be asked', { cause: String(error) });
      return new Map();
    }
  }

  files(input: SandboxIdentity): SandboxFiles {
    return this.#storage.files({ userId: input.userId, threadId: input.threadId });
  }

  async removeThread(input: SandboxIdentity): Promise<void> {
    const identity = { userId: input.userId, threadId: input.threadId };
    await this.#lock.run(identityKey(identity), async () => {
      // What cannot be stopped here is a peer's or is adopted later; the files go either way.
      await this.#stopLogged(sandboxIdOf(identity));
      await this.#storage.remove(identity);
    });
  }

  /** Rows, clients, threads, sections and heartbeats that are kept; all 0 when nothing is going on (ND-05). */
  sizes(): Readonly<Record<string, number>> {
    return {
      ...this.#core.table.sizes(),
      sections: this.#lock.size,
      heartbeats: this.#core.teardowns.size,
      acquires: this.#running.size,
    };
  }

  shutdown(): Promise<void> {
    this.#closing ??= this.#shutdown().catch((error: unknown) => {
      // A later attempt may succeed.
      this.#closing = null;
      throw error;
    });
    return this.#closing;
  }

  async #shutdown(): Promise<void> {
    const { table, settings, surroundings, teardowns } = this.#core;
    this.#lock.close();
    this.#over.abort();
    await within(surroundings.clock, settings.drainMs, Promise.allSettled([this.#started]));
    await this.#maintenance.stop();
    if (!(await within(surroundings.clock, settings.drainMs, Promise.allSettled([...this.#running]))))
      surroundings.logger.error('Sandboxes are still being started', { acquires: this.#running.size });
    // All that is active, then all that is warm; a failure of one keeps none of the others (SB-67).
    await each(table.ids('active'), STOPS_AT_ONCE, (id) => this.#stopLogged(id));
    await each(table.ids('warm'), STOPS_AT_ONCE, (id) => this.#stopLogged(id));
    await within(surroundings.clock, settings.teardownWaitMs, teardowns.settled());
    await within(surroundings.clock, STORE_OPERATION_MS, table.closed());
    await this.#storage.close();
    await this.#core.backend.close();
    await this.#parts.ownership.close();
  }

  async #stopLogged(id: string): Promise<void> {
    try {
      await this.destroy(id);
    } catch (error) {
      this.#core.surroundings.logger.error('A sandbox could not be stopped', { sandboxId: id, cause: String(error) });
    }
  }

  /** Runs to its end also when the caller gives up; what nobody wants then is parked before the thread's section opens again. */
  async #acquire(identity: SandboxIdentity, signal: AbortSignal): Promise<Sandbox> {
    const { table, meters } = this.#core;
    const begun = table.now;
    try {
      await this.#prepare(identity);
      const { client, path } = await this.#acquires.acquire(identity, signal);
      meters.acquired(path, table.now - begun);
      if (!signal.aborted) return client;
      if (path !== 'reuse') await this.release(client.id);
      throw aborted();
    } catch (error) {
      meters.failedAcquires += 1;
      if (this.#closing !== null) throw closed();
      if (ReindeerError.is(error)) throw error;
      throw new ReindeerError('sandbox_unavailable', 'The sandbox engine could not answer; is it running?', {
        cause: error,
        retryable: true,
      });
    }
  }

  async #prepare(identity: SandboxIdentity): Promise<void> {
    this.#refuseWhenClosing();
    await this.#storage.prepare(identity);
  }

  #refuseWhenClosing(): void {
    if (this.#closing !== null) throw closed();
  }
}
