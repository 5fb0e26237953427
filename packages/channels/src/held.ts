import type { ChannelFence, ChannelStore, Clock, Surroundings } from '@reindeer/protocol';
import { waitFor } from './waiting.ts';

/** Thrown by whatever acts for a channel that is no longer held here: nothing more is written or sent, and the next holder goes on. */
export class Lost extends Error {
  constructor() {
    super('The channel is held by somebody else.');
    this.name = 'Lost';
  }
}

/**
 * The right to a channel, as long as it lasts here. A holder that cannot confirm it before its time is over ends by itself, before anybody else can have
 * it: the time is counted on this machine, from before the confirmation was asked for.
 */
export class Held {
  readonly fence: ChannelFence;
  readonly #store: Pick<ChannelStore, 'renew' | 'release'>;
  readonly #surroundings: Surroundings;
  readonly #leaseMs: number;
  readonly #over = new AbortController();
  #deadline: number;

  constructor(parts: {
    readonly fence: ChannelFence;
    readonly store: Pick<ChannelStore, 'renew' | 'release'>;
    readonly surroundings: Surroundings;
    readonly leaseMs: number;
    /** Monotonic, before the right was asked for. */
    readonly asked: number;
  }) {
    this.fence = parts.fence;
    this.#store = parts.store;
    this.#surroundings = parts.surroundings;
    this.#leaseMs = parts.leaseMs;
    this.#deadline = parts.asked + parts.leaseMs;
  }

  /** Fires when the right is lost or given up. */
  get signal(): AbortSignal {
    return this.#over.signal;
  }

  /** Called right before each act. A process that was paused finds out here. */
  check(): void {
    if (!this.#over.signal.aborted && this.#surroundings.clock.monotonic() < this.#deadline) return;
    this.end();
    throw new Lost();
  }

  /** Nothing acts under it from here on. */
  end(): void {
    if (!this.#over.signal.aborted) this.#over.abort(new Lost());
  }

  /** Confirms it again and again until it is over; `each` runs after each confirmation. */
  async keep(each: () => Promise<void>): Promise<void> {
    const { clock, logger } = this.#surroundings;
    while (!this.signal.aborted) {
      await waitFor(clock, this.#pause(clock), this.signal);
      if (this.signal.aborted) return;
      const asked = clock.monotonic();
      try {
        const held = await this.#store.renew({ fence: this.fence, leaseMs: this.#leaseMs, now: clock.now() });
        if (!held) {
          logger.warn('A channel was taken over', { channel: this.fence.channel });
          this.end();
          return;
        }
        this.#deadline = Math.max(this.#deadline, asked + this.#leaseMs);
        await each();
      } catch (error) {
        logger.warn('A channel could not be confirmed', { channel: this.fence.channel, error: String(error) });
        if (clock.monotonic() >= this.#deadline) this.end();
      }
    }
  }

  /** A third of the time; the rest of it at most, so that its end is not slept through. */
  #pause(clock: Clock): number {
    return Math.max(0, Math.min(this.#leaseMs / 3, this.#deadline - clock.monotonic()));
  }

  /** Lets the next one have it at once. */
  async release(): Promise<void> {
    this.end();
    await this.#store.release(this.fence).catch((error: unknown) => {
      this.#surroundings.logger.warn('A channel could not be given back; it is free when its time is over', {
        channel: this.fence.channel,
        error: String(error),
      });
    });
  }
}
