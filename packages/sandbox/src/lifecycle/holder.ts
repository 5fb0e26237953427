import type { Logger } from '@reindeer/protocol';

/** The two ends of a provider's life that a holder needs. */
export interface HeldProvider {
  /** Forgets caches; stops no container. */
  reset?(): Promise<void>;
  shutdown(): Promise<void>;
}

/**
 * Holds the one provider of a process, made at first use.
 *
 * *empty* → `get` (made outside of any section; the swap of the reference is one step) → *holding* → `reset` or `shutdown` (detached
 * first, so that whoever calls `get` meanwhile gets a fresh one) → *empty*. Of several that are made at once one is installed and the
 * others are shut down. A shutdown that fails puts the provider back, so that it can be tried again.
 */
export class ProviderHolder<P extends HeldProvider> {
  readonly #make: () => Promise<P>;
  readonly #logger: Logger;
  #held: P | null = null;

  constructor(make: () => Promise<P>, logger: Logger) {
    this.#make = make;
    this.#logger = logger;
  }

  /** What is held now; makes nothing. */
  get current(): P | null {
    return this.#held;
  }

  /** The installed provider, made if there is none (SB-01). Rejects as the making does. */
  async get(): Promise<P> {
    if (this.#held !== null) return this.#held;
    const made = await this.#make();
    const installed = this.#install(made);
    // It may own timers, containers and connections (SB-02).
    if (installed !== made) await this.#end(made);
    return installed;
  }

  /** Installs this one; the one before is shut down. */
  async set(provider: P): Promise<void> {
    const before = this.#held;
    this.#held = provider;
    if (before !== null && before !== provider) await this.#end(before);
  }

  /** Detaches and forgets; containers go on (SB-05). */
  async reset(): Promise<void> {
    const detached = this.#detach();
    await detached?.reset?.();
  }

  /**
   * Detaches and shuts down what there is; makes nothing when there is none. A failure is logged and leaves the provider in place for
   * another try, unless a new one stands there by now.
   *
   * @returns did everything end well?
   */
  async shutdown(): Promise<boolean> {
    const detached = this.#detach();
    if (detached === null) return true;
    try {
      await detached.shutdown();
      return true;
    } catch (error) {
      this.#held ??= detached;
      this.#logger.error('Failed to shut down sandbox provider', { cause: String(error) });
      return false;
    }
  }

  #install(made: P): P {
    this.#held ??= made;
    return this.#held;
  }

  #detach(): P | null {
    const held = this.#held;
    this.#held = null;
    return held;
  }

  async #end(provider: P): Promise<void> {
    try {
      await provider.shutdown();
    } catch (error) {
      this.#logger.error('Failed to shut down sandbox provider', { cause: String(error) });
    }
  }
}
