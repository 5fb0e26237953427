import { graceElapsed, isSameContainer, type SandboxInfo } from '@reindeer/protocol';
import type { Core } from './parts.ts';
import { graceMs } from './settings.ts';
import type { Stops } from './stops.ts';

/** Store calls and stops of one pass that run at the same time. */
const AT_ONCE = 16;
const STOPS_AT_ONCE = 4;
/** Two looks at orphans that are further apart than so many sweeps say nothing about the time between. */
const GAP = 1.5;

/**
 * What happens without anybody asking: leases are renewed, orphans adopted, the idle stopped. Each pass can be called by hand and never
 * rejects; `start` runs them by the clock until `stop`.
 *
 * Three loops, since renewal must wait behind nothing (SB-47) and adoption behind no stop: *stopped* → `start` → *running* → `stop` (no store call begins after it
 * has resolved, ND-03) → *stopped*.
 */
export class Maintenance {
  readonly #core: Core;
  readonly #stops: Stops;
  readonly #over = new AbortController();
  #loops: Promise<unknown> | null = null;
  /** Monotonic milliseconds. */
  #lookedAt: number;

  constructor(core: Core, stops: Stops) {
    this.#core = core;
    this.#stops = stops;
    this.#lookedAt = core.table.now;
  }

  start(): void {
    if (this.#loops !== null || this.#over.signal.aborted) return;
    const { renewalIntervalMs, sweepMs } = this.#core.settings;
    this.#loops = Promise.all([
      this.#loop('renewal', renewalIntervalMs, () => this.renew()),
      this.#loop('reconcile', sweepMs, () => this.#look()),
      // A slow stop must not keep orphans waiting.
      this.#loop('reap', sweepMs, () => this.reap()),
    ]);
  }

  async stop(): Promise<void> {
    this.#over.abort();
    await this.#loops;
  }

  /** Renews what is active and what is warm. A lost lease lets go of the sandbox and leaves its container running (SB-50). */
  async renew(): Promise<void> {
    const { table, claims, surroundings } = this.#core;
    await each(table.ids('active', 'warm'), AT_ONCE, async (id) => {
      // The epoch of before the question: an acquire or another renewal in between makes the answer void (SB-61).
      const { epoch } = table.state(id);
      if ((await claims.refresh(id)) === 'kept') return;
      await surroundings.probe.at('sandbox.before-forget', { id });
      const forgotten = table.apply(id, { type: 'forget', epoch });
      if (forgotten.outcome !== 'changed') return;
      this.#core.meters.forgotten += 1;
      surroundings.logger.info('A sandbox has moved to another instance', { sandboxId: id });
    });
  }

  /** Adopts running containers that nobody owns into the warm pool; stops nothing. */
  async reconcile(): Promise<void> {
    const { backend, table, surroundings } = this.#core;
    let running: readonly SandboxInfo[];
    try {
      running = (await backend.listRunning?.()) ?? [];
    } catch (error) {
      surroundings.logger.warn('The running sandboxes could not be listed', { cause: String(error) });
      // Whatever was counted has a hole now, in which an owner may have come and gone (SB-53).
      table.vanishExcept(new Set());
      return;
    }
    table.vanishExcept(new Set(running.map((info) => info.id)));
    await each(running, AT_ONCE, (info) => this.#consider(info));
  }

  /** Stops what was idle, or warm, for longer than the idle timeout. */
  async reap(): Promise<void> {
    const { table, settings, surroundings } = this.#core;
    if (settings.idleTimeoutMs === 0) return;
    const before = table.now - settings.idleTimeoutMs;
    const idle = table.ids('active').filter((id) => table.state(id).activeAt <= before);
    await each(idle, STOPS_AT_ONCE, async (id) => {
      await surroundings.probe.at('sandbox.before-reserve', { id });
      try {
        await this.#stops.destroyTracked(id, { kind: 'idle', before });
      } catch (error) {
        surroundings.logger.error('An idle sandbox could not be stopped', { sandboxId: id, cause: String(error) });
      }
    });
    await each(table.ids('warm'), STOPS_AT_ONCE, async (id) => {
      const { info, parkedAt } = table.state(id);
      if (info === null || parkedAt > before) return;
      await surroundings.probe.at('sandbox.before-reserve', { id });
      await this.#stops.destroyWarm(id, info, { kind: 'expired', info, before });
    });
  }

  /**
   * A pass by the clock. After a pause of this process its earlier looks count no more: an owner may have come and, with the store's
   * memory, gone again.
   */
  async #look(): Promise<void> {
    const { table, settings } = this.#core;
    if (table.now - this.#lookedAt > GAP * settings.sweepMs) table.vanishExcept(new Set());
    this.#lookedAt = table.now;
    await this.reconcile();
  }

  async #consider(info: SandboxInfo): Promise<void> {
    const { table, claims, settings, surroundings } = this.#core;
    const { id } = info;
    const state = table.state(id);
    if (state.reserved || state.creating) return;
    if (state.phase === 'warm' && state.info !== null) return this.#release(state.info, info);
    if (state.phase !== 'absent') return;
    let memory: string | null = null;
    if (claims.seesPeers) {
      const seen = await claims.seen(id);
      if (seen === 'unknown') {
        // The grace is for what is without an owner all the time (SB-53): nobody knows about this moment.
        table.apply(id, { type: 'vanished' });
        return;
      }
      memory = seen.memory;
      table.apply(id, { type: 'seen', info, owned: seen.owned, now: table.now, memory });
      // A living owner publishes again within one renewal interval, which is shorter than the grace (SB-52).
      if (!graceElapsed(table.state(id), table.now, graceMs(settings))) return;
    }
    if (!(await claims.claimToAdopt(id, memory))) return;
    const adopted = table.apply(id, { type: 'adopt', info, now: table.now, epoch: table.nextEpoch() });
    if (adopted.outcome !== 'changed') return;
    this.#core.meters.adopted += 1;
    surroundings.logger.info('A running sandbox was adopted', { sandboxId: id });
  }

  /**
   * A parked sandbox has died, and another container runs under its id: the lease is of the id, so nobody else would ever look after that
   * one. The dead one is let go. The other may still be in the hands of who started it, and waits for its grace like any.
   */
  async #release(dead: SandboxInfo, info: SandboxInfo): Promise<void> {
    if (isSameContainer(dead, info)) return;
    try {
      if (await this.#core.backend.isAlive(dead)) return;
    } catch {
      // Cannot tell: it is kept (SB-20).
      return;
    }
    await this.#stops.dropUnhealthy(info.id, dead);
  }

  async #loop(name: string, interval: number, pass: () => Promise<void>): Promise<void> {
    const { clock, logger } = this.#core.surroundings;
    const { signal } = this.#over;
    while (!signal.aborted) {
      await clock.sleep(interval, signal).catch(() => {});
      if (signal.aborted) return;
      try {
        await pass();
      } catch (error) {
        logger.error('A pass over the sandboxes failed', { pass: name, cause: String(error) });
      }
    }
  }
}

/** Calls `work` for each item, at most `atOnce` of them at a time. */
export async function each<T>(items: readonly T[], atOnce: number, work: (item: T) => Promise<void>): Promise<void> {
  const left = items.values();
  const lane = async (): Promise<void> => {
    for (const item of left) await work(item);
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, items.length) }, lane));
}
