import { fits, type SandboxClient, type SandboxIdentity, type SandboxInfo } from '@reindeer/protocol';
import { CountedClient } from './counted-client.ts';
import { aborted, beingDestroyed, identityCollision, notReady } from './errors.ts';
import { sandboxIdOf } from './identity.ts';
import type { Core } from './parts.ts';
import { takeRoom } from './room.ts';
import type { Stops } from './stops.ts';

export interface Acquired {
  readonly client: SandboxClient;
  readonly path: 'reuse' | 'reclaim' | 'discover' | 'create';
}

/** How often an acquire starts again after a stop of the same sandbox by this instance. */
const MAX_ROUNDS = 3;

/**
 * The ways to a sandbox, in this order: reuse the active one, reclaim the warm one, discover a running one, create one.
 * On each, ownership is published before anything is handed out, and what was true before a round trip is asked again after it.
 * Runs inside the section of its thread.
 */
export class Acquires {
  readonly #core: Core;
  readonly #stops: Stops;

  constructor(core: Core, stops: Stops) {
    this.#core = core;
    this.#stops = stops;
  }

  async acquire(identity: SandboxIdentity, signal: AbortSignal | undefined): Promise<Acquired> {
    const id = sandboxIdOf(identity);
    for (let round = 1; ; round += 1) {
      const found = (await this.#known(identity, id)) ?? (await this.#unknown(identity, id, signal));
      if (found !== 'being_destroyed') return found;
      // A stop of our own ends soon, and then there is room for a new container; a peer's is reported.
      const ending = this.#stops.ending(id);
      if (ending === undefined || round >= MAX_ROUNDS) throw beingDestroyed(id);
      await orAborted(ending, signal);
    }
  }

  /** The thread's active sandbox; null when there is none that may be handed out. */
  async reuse(identity: SandboxIdentity): Promise<SandboxClient | null> {
    const { table, claims } = this.#core;
    const id = table.idOf(identity);
    if (id === undefined) return null;
    const { info } = table.state(id);
    if (info === null || !this.#usable(id, info)) return null;
    if ((await this.#health(info)) === 'dead') {
      await this.#stops.dropUnhealthy(id, info);
      return null;
    }
    if (!this.#usable(id, info)) return null;
    table.apply(id, { type: 'touch', now: table.now });
    // The marker may be of an own stop, which may fail before the answer is heard: then the sandbox stays.
    const { epoch } = table.state(id);
    if ((await claims.publish(id)) === 'being_destroyed') {
      table.apply(id, { type: 'forget', epoch });
      return null;
    }
    // Both may have changed during the round trip: reserved for a stop (SB-15), or forgotten (SB-14).
    if (!this.#usable(id, info)) return null;
    return table.client(id) ?? null;
  }

  /** The thread's warm sandbox, made active again; null when there is none that may be handed out. */
  async reclaim(identity: SandboxIdentity, id: string): Promise<SandboxClient | null> {
    const { table, claims } = this.#core;
    const { phase, reserved, info } = table.state(id);
    // Before any round trip: a doomed entry costs neither a health check nor the store (SB-18).
    if (phase !== 'warm' || reserved || info === null) return null;
    if ((await this.#health(info)) === 'dead') {
      await this.#stops.dropUnhealthy(id, info);
      return null;
    }
    // The marker may be of an own stop, which may fail before the answer is heard: then the sandbox stays.
    const { epoch } = table.state(id);
    if ((await claims.publish(id)) === 'being_destroyed') {
      table.apply(id, { type: 'forget', epoch });
      return null;
    }
    const client = this.#connect(info, identity);
    const promoted = table.apply(id, { type: 'promote', info, identity, now: table.now }, client);
    if (promoted.outcome === 'changed') return client;
    table.closeLater(client);
    if (promoted.reason === 'identity') throw identityCollision(id);
    return null;
  }

  /** Takes over a running container, whoever started it. */
  async discovered(identity: SandboxIdentity, info: SandboxInfo): Promise<SandboxClient | 'being_destroyed'> {
    const { table, claims } = this.#core;
    const { id } = info;
    const client = this.#connect(info, identity);
    let tracked = false;
    try {
      if ((await claims.publish(id)) === 'being_destroyed') return 'being_destroyed';
      const transition = table.apply(
        id,
        { type: 'track', info, identity, now: table.now, epoch: table.nextEpoch() },
        client,
      );
      if (transition.outcome === 'refused') {
        if (transition.reason === 'identity') throw identityCollision(id);
        return 'being_destroyed';
      }
      tracked = true;
      return client;
    } finally {
      // The container stays as it is: it was not started here (SB-16).
      if (!tracked) table.closeLater(client);
    }
  }

  /**
   * Publishes and tracks a container that this acquire has started; takes it back when that fails.
   *
   * @param askedAt monotonic milliseconds at which it was asked for
   */
  async created(
    identity: SandboxIdentity,
    info: SandboxInfo,
    askedAt: number,
  ): Promise<SandboxClient | 'being_destroyed'> {
    const { table, claims } = this.#core;
    const { id } = info;
    const client = this.#connect(info, identity);
    const giveUp = async (why: 'being_destroyed' | 'unknown'): Promise<void> => {
      table.closeLater(client);
      await this.#stops.rollBack(info, why, askedAt);
    };
    let published: 'published' | 'being_destroyed';
    try {
      published = await claims.publish(id);
    } catch (error) {
      await giveUp('unknown');
      throw error;
    }
    if (published === 'being_destroyed') {
      await giveUp('being_destroyed');
      return 'being_destroyed';
    }
    const transition = table.apply(
      id,
      { type: 'track', info, identity, now: table.now, epoch: table.nextEpoch() },
      client,
    );
    if (transition.outcome === 'changed') return client;
    await giveUp('unknown');
    if (transition.reason === 'identity') throw identityCollision(id);
    return 'being_destroyed';
  }

  async #known(identity: SandboxIdentity, id: string): Promise<Acquired | null> {
    const reused = await this.reuse(identity);
    if (reused !== null) return { client: reused, path: 'reuse' };
    if (!fits(this.#core.table.state(id), identity)) throw identityCollision(id);
    const reclaimed = await this.reclaim(identity, id);
    return reclaimed === null ? null : { client: reclaimed, path: 'reclaim' };
  }

  async #unknown(
    identity: SandboxIdentity,
    id: string,
    signal: AbortSignal | undefined,
  ): Promise<Acquired | 'being_destroyed'> {
    // No lock between processes: the engine gives a name away once, and whoever loses is told which container has it (D1, for SB-23).
    const info = await this.#core.backend.discover(id);
    if (info !== null) return as('discover', await this.discovered(identity, info));
    if (signal?.aborted) throw aborted();
    return this.#create(identity, id, signal);
  }

  async #create(
    identity: SandboxIdentity,
    id: string,
    signal: AbortSignal | undefined,
  ): Promise<Acquired | 'being_destroyed'> {
    const { backend, settings, table } = this.#core;
    await takeRoom(this.#core, this.#stops, id, signal);
    try {
      for (let round = 1; ; round += 1) {
        const askedAt = table.now;
        const { outcome, info } = await backend.create({ id, ...identity });
        const withinMs = outcome === 'created' ? settings.readyMs : settings.discoveredReadyMs;
        if (await this.#ready(info, withinMs, signal)) {
          return outcome === 'created'
            ? as('create', await this.created(identity, info, askedAt))
            : as('discover', await this.discovered(identity, info));
        }
        let discarded = await this.#stops.discardUnready(info);
        if (signal?.aborted) throw aborted();
        if (outcome === 'existing' && discarded === 'refused' && (await this.#inherits(info)))
          discarded = await this.#stops.discardUnready(info);
        // A container that was there and is dead gives its name free for one that lives.
        if (outcome === 'created' || discarded !== 'destroyed' || round > 1) throw notReady(id);
      }
    } finally {
      table.apply(id, { type: 'create-ended' });
    }
  }

  /**
   * A thread that has moved here finds what is left of its sandbox, dead, while the other instance still counts it as its own. It takes that
   * over as it would a living one; else the name would stay taken for as long as the other one keeps it.
   */
  async #inherits(info: SandboxInfo): Promise<boolean> {
    const { table, claims } = this.#core;
    if (table.state(info.id).phase !== 'absent' || (await this.#health(info)) !== 'dead') return false;
    return (await claims.publish(info.id)) === 'published';
  }

  async #ready(info: SandboxInfo, withinMs: number, signal: AbortSignal | undefined): Promise<boolean> {
    try {
      return await this.#core.backend.ready(info, { withinMs, ...(signal === undefined ? {} : { signal }) });
    } catch (error) {
      this.#core.surroundings.logger.warn('A sandbox could not be asked whether it is ready', {
        sandboxId: info.id,
        cause: String(error),
      });
      return false;
    }
  }

  /** An engine that cannot be asked is no proof of a death (SB-20). */
  async #health(info: SandboxInfo): Promise<'alive' | 'dead' | 'unknown'> {
    try {
      return (await this.#core.backend.isAlive(info)) ? 'alive' : 'dead';
    } catch (error) {
      this.#core.surroundings.logger.warn('A sandbox could not be checked and is kept', {
        sandboxId: info.id,
        cause: String(error),
      });
      return 'unknown';
    }
  }

  #connect(info: SandboxInfo, identity: SandboxIdentity): CountedClient {
    const { table, backend } = this.#core;
    return new CountedClient(info.id, backend.connect(info, identity), table, async () => {
      if (this.#usable(info.id, info) && (await this.#health(info)) === 'dead')
        await this.#stops.dropUnhealthy(info.id, info);
    });
  }

  #usable(id: string, info: SandboxInfo): boolean {
    const state = this.#core.table.state(id);
    return state.phase === 'active' && !state.reserved && state.info === info;
  }
}

function as(path: Acquired['path'], client: SandboxClient | 'being_destroyed'): Acquired | 'being_destroyed' {
  return client === 'being_destroyed' ? client : { client, path };
}

/** Waits for `promise`, unless the signal fires first. */
async function orAborted(promise: Promise<void>, signal: AbortSignal | undefined): Promise<void> {
  if (signal === undefined) return promise;
  if (signal.aborted) throw aborted();
  const cut = Promise.withResolvers<void>();
  const onAbort = () => cut.reject(aborted());
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    await Promise.race([promise, cut.promise]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}
