import type { BatchStore, ItemLease, Surroundings } from '@reindeer/protocol';
import { ReindeerError } from '@reindeer/protocol';
import { LeaseLoops } from '../leases/loops.ts';

/** Why a lease does not stand any more. Only after `cancelled` may the holder still write the end. */
export type LossOfItem = 'cancelled' | 'refused' | 'deadline';

/** One item's heartbeat, from its claim until its child has ended. */
export interface ItemScope {
  readonly lease: ItemLease;
  /** Fires once when the lease is lost; the reason is a `ReindeerError` whose `detail.loss` says how. */
  readonly signal: AbortSignal;
  /** null = it stands. Looks at the deadline: after a pause of the process this may be asked before the timer that watches it. */
  readonly loss: LossOfItem | null;
  /**
   * Ends the heartbeat: no renewal goes out any more, and one that is under way has been answered when this resolves, however often its caller
   * was told to stop meanwhile. Idempotent.
   */
  leave(): Promise<void>;
}

interface Held {
  readonly lease: ItemLease;
  readonly controller: AbortController;
  /** Monotonic time by which the next confirmation must have arrived. */
  deadline: number;
  loss: LossOfItem | null;
  /** Renewals under way that carry this lease. */
  readonly underWay: Set<Promise<unknown>>;
}

/** Renewals that may be under way at once, so that a hung one does not stop the beat. */
const IN_FLIGHT = 3;

/**
 * The heartbeats of all items that this process works on, as one statement per beat.
 *
 * A scope: held → lost (a definite no, a cancel, or no confirmation by the deadline; once) → left, or held → left. The deadline is the time of
 * the request plus the lease, less a part of it for clocks that differ: a holder has stopped before a peer may claim. A store that cannot
 * answer is no no. Whatever is answered to a scope that was left changes nothing.
 */
export class ItemLeases {
  readonly #store: Pick<BatchStore, 'renew'>;
  readonly #surroundings: Surroundings;
  readonly #leaseMs: number;
  readonly #held = new Map<string, Held>();
  readonly #loops: LeaseLoops;
  #inFlight = 0;

  constructor(parts: { store: Pick<BatchStore, 'renew'>; surroundings: Surroundings; leaseMs: number }) {
    this.#store = parts.store;
    this.#surroundings = parts.surroundings;
    this.#leaseMs = parts.leaseMs;
    this.#loops = new LeaseLoops({
      clock: parts.surroundings.clock,
      beatMs: this.beatMs,
      longestMs: parts.leaseMs,
      beat: () => this.beat(),
      expire: () => this.expire(),
      deadlines: () => [...this.#held.values()].flatMap(({ loss, deadline }) => (loss === null ? deadline : [])),
    });
  }

  get size(): number {
    return this.#held.size;
  }

  /** @param askedAt monotonic time at which the claim was *asked for* */
  hold(lease: ItemLease, askedAt: number): ItemScope {
    const held: Held = {
      lease,
      controller: new AbortController(),
      deadline: askedAt + this.#leaseMs - this.#margin,
      loss: null,
      underWay: new Set(),
    };
    // A claim of one's own item is impossible while it is held here; were it to happen, the older attempt must stop.
    const before = this.#held.get(lease.itemId);
    if (before !== undefined) this.#lose(before, 'refused');
    this.#held.set(lease.itemId, held);
    if (this.#loops.stopped.aborted) this.#lose(held, 'deadline');
    this.#loops.changed();
    const look = (): LossOfItem | null => {
      if (this.#surroundings.clock.monotonic() >= held.deadline) this.#lose(held, 'deadline');
      return held.loss;
    };
    look();
    return {
      lease,
      signal: held.controller.signal,
      get loss() {
        return look();
      },
      leave: async () => {
        if (this.#held.get(lease.itemId) === held) this.#held.delete(lease.itemId);
        await Promise.allSettled([...held.underWay]);
      },
    };
  }

  /** Idempotent. */
  start(): void {
    this.#loops.start();
  }

  /** Ends the beat; what is held is lost. Idempotent. */
  async stop(): Promise<void> {
    this.#loops.stop();
    for (const held of [...this.#held.values()]) this.#lose(held, 'deadline');
    this.#held.clear();
    await this.#loops.ended();
  }

  /** Milliseconds between two beats: `max(1 s, lease / 3)`. */
  get beatMs(): number {
    return Math.max(1_000, Math.floor(this.#leaseMs / 3));
  }

  /** One renewal of everything that is held. Resolves when it is answered; never rejects. */
  async beat(): Promise<void> {
    this.expire();
    const asked = [...this.#held.values()].filter((held) => held.loss === null);
    if (asked.length === 0 || this.#inFlight >= IN_FLIGHT) return;
    this.#inFlight += 1;
    const running = this.#renew(asked);
    for (const held of asked) held.underWay.add(running);
    try {
      await running;
    } catch (error) {
      this.#surroundings.logger.warn('Leases of batch items could not be renewed; the next beat tries again', {
        held: asked.length,
        error: String(error),
      });
    } finally {
      this.#inFlight -= 1;
      for (const held of asked) held.underWay.delete(running);
    }
  }

  /** Tells every holder whose deadline has passed. */
  expire(): void {
    const now = this.#surroundings.clock.monotonic();
    for (const held of [...this.#held.values()]) if (now >= held.deadline) this.#lose(held, 'deadline');
  }

  /** What a peer's clock may be ahead, and what a child needs to hear of its stop. */
  get #margin(): number {
    return Math.min(3_000, this.#leaseMs / 4);
  }

  async #renew(asked: readonly Held[]): Promise<void> {
    const { clock } = this.#surroundings;
    const sentAt = clock.monotonic();
    const answers = await this.#store.renew({
      leases: asked.map((held) => held.lease),
      leaseMs: this.#leaseMs,
      now: clock.now(),
    });
    this.expire();
    for (const held of asked) {
      const answer = answers.get(held.lease.itemId);
      if (answer === undefined || answer.busy || this.#held.get(held.lease.itemId) !== held) continue;
      if (answer.valid) held.deadline = Math.max(held.deadline, sentAt + this.#leaseMs - this.#margin);
      else this.#lose(held, answer.cancelRequested ? 'cancelled' : 'refused');
    }
  }

  #lose(held: Held, loss: LossOfItem): void {
    if (held.loss !== null) return;
    held.loss = loss;
    held.controller.abort(
      new ReindeerError(loss === 'cancelled' ? 'aborted' : 'fenced', WHY[loss], {
        detail: { loss, stop: loss === 'cancelled' ? 'cancelled' : 'fenced' },
      }),
    );
  }
}

const WHY: Readonly<Record<LossOfItem, string>> = {
  cancelled: 'The batch item was cancelled.',
  refused: 'Somebody else holds the batch item now.',
  deadline: 'The lease of the batch item could not be confirmed in time.',
};
