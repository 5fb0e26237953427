import type { ReserveCondition, SandboxInfo } from '@reindeer/protocol';
import type { Core } from './parts.ts';
import { graceMs } from './settings.ts';

export type StopOutcome =
  | 'destroyed'
  /** Nothing was stopped: used meanwhile, being stopped already, or the claim was not granted. */
  | 'refused'
  /** The stop itself failed; it was logged, and the entry is kept. */
  | 'failed';

/**
 * Every way in which this instance stops a container. Each is: reservation and predicate in one step (SB-38) → claim for destroying
 * → the predicate once more, for what is active, since its turn may use it meanwhile → stop under the held marker (SB-26) → the reservation is lifted, on every way out (SB-36).
 */
export class Stops {
  readonly #core: Core;
  readonly #endings = new Map<string, Promise<void>>();

  constructor(core: Core) {
    this.#core = core;
  }

  /** Resolves when the stop of that id which runs in this instance has ended; undefined when there is none. */
  ending(id: string): Promise<void> | undefined {
    return this.#endings.get(id);
  }

  /** Stops an active sandbox, or whichever the condition names. Rejects when the stop fails (SB-33). */
  async destroyTracked(id: string, condition: ReserveCondition): Promise<StopOutcome> {
    const { table, claims, teardowns } = this.#core;
    return this.#reserved(id, condition, async () => {
      // Claimed before untracking: a refused claim leaves the entry where it is (SB-27).
      if ((await claims.claimForDestroy(id)) !== 'granted') return 'refused';
      const { info } = table.state(id);
      // A turn that holds it may have begun a command while the claim was on its way (SB-39): the marker goes, the sandbox stays.
      if (table.apply(id, { type: 'untrack', condition }).outcome === 'refused') {
        await claims.giveBack(id);
        return 'refused';
      }
      if (info !== null) await teardowns.hold(info, () => this.#stop(info));
      return 'destroyed';
    });
  }

  /** Stops a warm sandbox. Its entry goes under the reservation and only after a stop that succeeded (SB-35). Never rejects. */
  async destroyWarm(id: string, info: SandboxInfo, condition: ReserveCondition): Promise<StopOutcome> {
    const { table, claims, teardowns } = this.#core;
    return this.#reserved(id, condition, async () => {
      if ((await claims.claimForDestroy(id)) !== 'granted') return 'refused';
      try {
        await teardowns.hold(info, () => this.#stop(info));
      } catch (error) {
        this.#failed(id, error);
        return 'failed';
      }
      table.apply(id, { type: 'untrack' });
      return 'destroyed';
    });
  }

  /**
   * Lets go of a sandbox that is known to be dead, and stops what may be left of it. Untracked first, for it is of no use either way; a
   * refused claim leaves the container for reconciliation (SB-43). Never rejects.
   *
   * @param info what the health check looked at; another container of the same id is left alone (SB-41)
   */
  async dropUnhealthy(id: string, info: SandboxInfo): Promise<StopOutcome> {
    const { table, claims, teardowns, surroundings } = this.#core;
    return this.#reserved(id, { kind: 'same', info }, async () => {
      surroundings.logger.warn('A sandbox is dead and is replaced', { sandboxId: id });
      table.apply(id, { type: 'untrack' });
      if ((await claims.claimForDestroy(id)) !== 'granted') return 'refused';
      try {
        await teardowns.hold(info, () => this.#stop(info));
      } catch (error) {
        this.#failed(id, error);
        return 'failed';
      }
      return 'destroyed';
    });
  }

  /** Stops a new container that does not become ready, unless somebody tracks or owns it by now (SB-21). Never rejects. */
  async discardUnready(info: SandboxInfo): Promise<StopOutcome> {
    const { claims, teardowns } = this.#core;
    return this.#reserved(info.id, { kind: 'untracked' }, async () => {
      if ((await claims.claimForDestroy(info.id)) !== 'granted') return 'refused';
      try {
        await teardowns.hold(info, () => this.#stop(info));
      } catch (error) {
        this.#failed(info.id, error);
        return 'failed';
      }
      return 'destroyed';
    });
  }

  /**
   * Takes back a container that this instance has just started and could not publish (SB-11, SB-13). `being_destroyed`: a marker
   * stands on the id, so nobody can have been given it. `unknown`: the store could not answer; stopped as well, unless it answers by
   * now that a peer has found and taken it. This is the one stop that may begin without a marker, so only soon after the start: later a
   * peer may have found the container, and not even a marker would prove anything, since a publication whose answer was not heard may have
   * taken the sandbox from that peer. It is given back then, and left to reconciliation. A marker is
   * claimed as soon as the store grants one, for the stop may take longer than the marker that stands. Never rejects.
   *
   * @param askedAt monotonic milliseconds at which the container was asked for
   */
  async rollBack(info: SandboxInfo, why: 'being_destroyed' | 'unknown', askedAt: number): Promise<StopOutcome> {
    const { claims, teardowns, table, settings } = this.#core;
    return this.#reserved(info.id, { kind: 'untracked' }, async () => {
      const late = () => table.now - askedAt >= graceMs(settings);
      try {
        const claim = why === 'unknown' && !late() ? await claims.claimForDestroy(info.id) : null;
        if (claim === 'refused') return 'refused';
        if (late()) {
          if (why === 'unknown') await claims.giveBack(info.id);
          return 'refused';
        }
        await teardowns.hold(info, () => this.#stop(info), claim === 'granted');
      } catch (error) {
        this.#failed(info.id, error);
        return 'failed';
      }
      return 'destroyed';
    });
  }

  /** Gives up the oldest warm sandbox that this instance may stop; never an active one, never a peer's (SB-45). */
  async evictOldestWarm(): Promise<boolean> {
    const { table } = this.#core;
    const warm = table.ids('warm').map((id) => ({ id, state: table.state(id) }));
    warm.sort((a, b) => a.state.parkedAt - b.state.parkedAt);
    for (const { id, state } of warm) {
      const { info } = state;
      if (info === null) continue;
      if ((await this.destroyWarm(id, info, { kind: 'warm', info })) === 'destroyed') return true;
    }
    return false;
  }

  async #reserved(id: string, condition: ReserveCondition, body: () => Promise<StopOutcome>): Promise<StopOutcome> {
    const { table } = this.#core;
    if (table.apply(id, { type: 'reserve', condition }).outcome === 'refused') return 'refused';
    const ending = Promise.withResolvers<void>();
    this.#endings.set(id, ending.promise);
    try {
      return await body();
    } finally {
      table.apply(id, { type: 'teardown-ended', epoch: table.nextEpoch() });
      this.#endings.delete(id);
      ending.resolve();
    }
  }

  async #stop(info: SandboxInfo): Promise<void> {
    const { backend, meters } = this.#core;
    try {
      await backend.stop(info);
      meters.stopped += 1;
    } catch (error) {
      meters.failedStops += 1;
      throw error;
    }
  }

  #failed(id: string, error: unknown): void {
    const cause = error instanceof Error ? error.message : String(error);
    this.#core.surroundings.logger.error('A sandbox could not be stopped', { sandboxId: id, cause });
  }
}
