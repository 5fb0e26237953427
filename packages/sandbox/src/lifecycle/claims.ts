import { type ClaimOptions, type OwnershipStore, ReindeerError, type Surroundings } from '@reindeer/protocol';
import type { Meters } from './meters.ts';
import type { SandboxTable } from './table.ts';

/** Claims whose answers came too late, before nobody can tell. */
const CLAIM_TRIES = 3;

/**
 * What this instance asks its ownership store, with the policy for "cannot tell" beside each question: closed where
 * something would be handed out, stopped or adopted; open where a sandbox is only kept.
 */
export class Claims {
  readonly #store: OwnershipStore;
  readonly #table: SandboxTable;
  readonly #surroundings: Surroundings;
  readonly #meters: Meters;
  readonly #ttlMs: number;

  /** @param ttlMs time to live of what the store grants, in milliseconds */
  constructor(store: OwnershipStore, table: SandboxTable, surroundings: Surroundings, meters: Meters, ttlMs: number) {
    this.#store = store;
    this.#table = table;
    this.#surroundings = surroundings;
    this.#meters = meters;
    this.#ttlMs = ttlMs;
  }

  get seesPeers(): boolean {
    return this.#store.seesPeers;
  }

  /**
   * Publishes ownership before a sandbox is handed out (SB-10), taking over from a live peer. The mark is set before the round trip and
   * the epoch after it: between the two the store may already say "ours".
   *
   * @throws ReindeerError `store_unavailable` when the store cannot tell
   */
  async publish(id: string): Promise<'published' | 'being_destroyed'> {
    await this.#surroundings.probe.at('sandbox.before-publish', { id });
    this.#table.apply(id, { type: 'publish-began' });
    let taken = false;
    try {
      taken = await this.#store.take(id);
    } catch (error) {
      throw this.#unavailable(error);
    } finally {
      this.#table.apply(id, { type: 'publish-ended', epoch: taken ? this.#table.nextEpoch() : null });
    }
    await this.#surroundings.probe.at('sandbox.published', { id, taken });
    return taken ? 'published' : 'being_destroyed';
  }

  /**
   * May this instance stop it? Only when granted: a store that cannot tell is no permission (SB-28). Nor is a marker that may have run out
   * before its answer was heard, since this process was stopped meanwhile: it is asked for again.
   */
  async claimForDestroy(id: string): Promise<'granted' | 'refused' | 'unknown'> {
    for (let tries = 0; tries < CLAIM_TRIES; tries += 1) {
      const asked = this.#table.now;
      const claim = await this.#claim(id, { forDestroy: true });
      if (claim !== 'granted' || this.#table.now - asked < this.#ttlMs / 2) return claim;
    }
    return 'unknown';
  }

  /** Gives back what this instance may have been granted, or marked, without knowing; a peer's stays. Never rejects. */
  async giveBack(id: string): Promise<void> {
    try {
      await this.#store.release(id);
    } catch (error) {
      // It expires by itself within one time to live (SO-15).
      this.#cannotTell('release', id, error);
    }
  }

  /**
   * May this instance adopt it? A store that cannot tell counts as no.
   *
   * @param memory the memory of the store in which it was seen without an owner; null = the store never forgets, or sees nobody else
   */
  async claimToAdopt(id: string, memory: string | null): Promise<boolean> {
    return (await this.#claim(id, { forDestroy: false, ...(memory === null ? {} : { memory }) })) === 'granted';
  }

  /** Who owns a container that is not ours? `unknown` defers an adoption (SB-56). */
  async seen(id: string): Promise<{ readonly owned: boolean; readonly memory: string | null } | 'unknown'> {
    try {
      if ((await this.#store.owner(id)) !== null) return { owned: true, memory: null };
      // Asked after the owner: what was forgotten before that answer is noticed.
      return { owned: false, memory: (await this.#store.memory?.()) ?? null };
    } catch (error) {
      this.#cannotTell('owner', id, error);
      return 'unknown';
    }
  }

  /**
   * Renews a lease. `lost` only when the store said so: a lapsed lease is claimed again, and what the store cannot answer is kept
   * (SB-48, SB-49). A lease that the store did renew makes void what it said of this sandbox before, if that is heard later (SB-61).
   */
  async refresh(id: string): Promise<'kept' | 'lost'> {
    try {
      const outcome = await this.#store.renew(id);
      if (outcome === 'lost') return 'lost';
      if (outcome === 'lapsed' && !(await this.#store.claim(id))) return 'lost';
      this.#table.apply(id, { type: 'kept', epoch: this.#table.nextEpoch() });
      return 'kept';
    } catch (error) {
      this.#cannotTell('renew', id, error);
      return 'kept';
    }
  }

  async #claim(id: string, options: ClaimOptions): Promise<'granted' | 'refused' | 'unknown'> {
    try {
      if (await this.#store.claim(id, options)) return 'granted';
      this.#meters.refusedClaims += 1;
      return 'refused';
    } catch (error) {
      this.#meters.refusedClaims += 1;
      this.#cannotTell('claim', id, error);
      return 'unknown';
    }
  }

  #cannotTell(operation: string, id: string, error: unknown): void {
    const cause = error instanceof Error ? error.message : String(error);
    this.#surroundings.logger.warn('The ownership store could not answer', { operation, sandboxId: id, cause });
  }

  #unavailable(error: unknown): ReindeerError {
    if (ReindeerError.is(error) && error.code === 'store_unavailable') return error;
    return new ReindeerError('store_unavailable', 'The ownership store of the sandboxes could not answer.', {
      cause: error,
      retryable: true,
    });
  }
}
