import type { CancelAction, Fence, LeaseHolder, RenewOutcome, RunStore, Surroundings } from '@reindeer/protocol';
import { LeaseLoops } from './loops.ts';

/** What a holder of a lease hears from its keeper. Every call is made at most once, except `onCancel`. */
export interface LeaseListener {
  /** Must the renewal be granted although the row reads `interrupted`? Asked at every beat (seed 003). */
  allowInterrupted(): boolean;
  /** The right is gone (a definite no, or no confirmation by the deadline): stop, and write nothing more. */
  onLost(why: 'refused' | 'deadline'): void;
  /** The row was superseded by a newer run. The lease goes on; the holder finalizes. */
  onInterrupted(): void;
  /** A cancel was recorded, by this instance or another one. */
  onCancel(action: CancelAction): void;
}

export interface LeaseSettings {
  readonly leaseMs: number;
  readonly beatMs: number;
}

/** What became of renewals since the start; an operator watches them. */
export interface LeaseCounts {
  renewed: number;
  /** The store said no. */
  refused: number;
  /** No confirmation came by the deadline. */
  expired: number;
  /** Requests that the store could not answer. */
  failed: number;
}

interface Held {
  readonly fence: Fence;
  readonly listener: LeaseListener;
  /** Monotonic time by which the next confirmation must have arrived. */
  deadline: number;
}

/** Renewals that may be under way at once, so that a hung one does not stop the beat. */
const IN_FLIGHT = 3;
const BUSY_PAUSE_MS = 250;

/**
 * Keeps the leases of everything that this process holds: one renewal for all of them per beat.
 *
 * State of a holder: held → lost | dropped. A holder stays held while it is confirmed before its deadline (the time of the request
 * plus the lease: never the time of the answer). It is lost, once, when the store says so (RL-07), or when the deadline
 * passes, whatever happened to the renewal (RL-04, RL-05); an answer after the deadline changes nothing (RL-06). A store that cannot answer
 * is not a no (RL-03). Dropped holders hear nothing any more (RA-26). Cancels are told after all outcomes of a beat (RL-11).
 */
export class LeaseKeeper {
  readonly #runs: Pick<RunStore, 'renew'>;
  readonly #surroundings: Surroundings;
  readonly #settings: LeaseSettings;
  readonly #held = new Map<string, Held>();
  readonly #loops: LeaseLoops;
  readonly #counts: LeaseCounts = { renewed: 0, refused: 0, expired: 0, failed: 0 };
  #inFlight = 0;

  constructor(parts: { runs: Pick<RunStore, 'renew'>; surroundings: Surroundings; settings: LeaseSettings }) {
    this.#runs = parts.runs;
    this.#surroundings = parts.surroundings;
    this.#settings = parts.settings;
    this.#loops = new LeaseLoops({
      clock: parts.surroundings.clock,
      beatMs: parts.settings.beatMs,
      longestMs: parts.settings.leaseMs,
      beat: () => this.beat(),
      expire: () => this.expire(),
      deadlines: () => [...this.#held.values()].map(({ deadline }) => deadline),
    });
  }

  get size(): number {
    return this.#held.size;
  }

  get counts(): Readonly<LeaseCounts> {
    return this.#counts;
  }

  /** Run ids that are held now. */
  get runIds(): readonly string[] {
    return [...this.#held.keys()];
  }

  /**
   * Takes charge of a lease that was just granted. `grantedAt`: monotonic time at which it was *asked for*, in milliseconds.
   * A holder of an older token of the same run is lost; after the stop, so is this one.
   */
  hold(fence: Fence, grantedAt: number, listener: LeaseListener): void {
    if (this.#loops.stopped.aborted) {
      listener.onLost('deadline');
      return;
    }
    const before = this.#held.get(fence.runId);
    this.#held.set(fence.runId, { fence, listener, deadline: grantedAt + this.#settings.leaseMs });
    before?.listener.onLost('refused');
    this.#loops.changed();
  }

  /**
   * Looks at one holder's deadline now, and tells it when it has passed. For whoever is about to act, or has just heard from the store:
   * a process that was stopped for a while may hear answers before the watch's timer.
   */
  check(fence: Fence): void {
    const held = this.#held.get(fence.runId);
    if (held === undefined || held.fence.token !== fence.token) return;
    if (this.#surroundings.clock.monotonic() >= held.deadline) this.#lose(held, 'deadline');
  }

  /** The right was given back, finalized or given up. */
  drop(fence: Fence): void {
    if (this.#held.get(fence.runId)?.fence.token === fence.token) this.#held.delete(fence.runId);
  }

  /** Starts the beat and the watch over deadlines. Idempotent. */
  start(): void {
    this.#loops.start();
  }

  /** Ends both; renewals under way are not waited for, their answers change nothing. Idempotent. */
  async stop(): Promise<void> {
    this.#loops.stop();
    this.#held.clear();
    await this.#loops.ended();
  }

  /** One renewal of everything that is held. Resolves when it is answered; never rejects. */
  async beat(): Promise<void> {
    this.expire();
    const asked = [...this.#held.values()];
    if (asked.length === 0 || this.#inFlight >= IN_FLIGHT) return;
    this.#inFlight += 1;
    try {
      const again = await this.#renew(asked, false);
      // Rows that read `interrupted` are renewed at once with the flag, so that a superseded run keeps its lease (seed 003).
      if (again.interrupted.length > 0) await this.#renew(again.interrupted, true);
      if (again.busy.length > 0) {
        await this.#surroundings.clock.sleep(BUSY_PAUSE_MS, this.#loops.stopped);
        await this.#renew(again.busy, false);
      }
    } catch (error) {
      if (!this.#loops.stopped.aborted) {
        this.#counts.failed += 1;
        this.#surroundings.logger.warn('leases could not be renewed; the next beat tries again', {
          held: asked.length,
          error: String(error),
        });
      }
    } finally {
      this.#inFlight -= 1;
    }
  }

  /** Tells every holder whose deadline has passed. Called by the watch; the simulator may call it itself. */
  expire(): void {
    const now = this.#surroundings.clock.monotonic();
    for (const held of [...this.#held.values()]) if (now >= held.deadline) this.#lose(held, 'deadline');
  }

  async #renew(asked: readonly Held[], flagged: boolean): Promise<{ interrupted: Held[]; busy: Held[] }> {
    const { clock } = this.#surroundings;
    const sentAt = clock.monotonic();
    const now = clock.now();
    const holders = asked.filter((held) => this.#isHeld(held)).map((held) => this.#holder(held, now, flagged));
    const interrupted: Held[] = [];
    const busy: Held[] = [];
    const cancels: [Held, CancelAction][] = [];
    if (holders.length === 0) return { interrupted, busy };
    const answers = await this.#runs.renew({ holders, now });
    this.expire();
    for (const held of asked) {
      const answer = answers.get(held.fence.runId);
      if (answer === undefined || !this.#isHeld(held)) continue;
      if (answer.outcome === 'interrupted') {
        if (!flagged) interrupted.push(held);
      } else if (answer.outcome === 'busy') busy.push(held);
      else this.#hear(held, answer, sentAt, cancels);
    }
    for (const held of interrupted) held.listener.onInterrupted();
    for (const [held, action] of cancels) if (this.#isHeld(held)) held.listener.onCancel(action);
    return { interrupted, busy };
  }

  #hear(
    held: Held,
    answer: Extract<RenewOutcome, { outcome: 'renewed' | 'lost' }>,
    sentAt: number,
    cancels: [Held, CancelAction][],
  ): void {
    if (answer.outcome === 'lost') {
      this.#lose(held, 'refused');
      return;
    }
    this.#counts.renewed += 1;
    held.deadline = Math.max(held.deadline, sentAt + this.#settings.leaseMs);
    if (answer.cancelAction !== null) cancels.push([held, answer.cancelAction]);
  }

  #holder(held: Held, now: number, flagged: boolean): LeaseHolder {
    return {
      runId: held.fence.runId,
      token: held.fence.token,
      expiresAt: now + this.#settings.leaseMs,
      allowInterrupted: flagged || held.listener.allowInterrupted(),
    };
  }

  #isHeld(held: Held): boolean {
    return this.#held.get(held.fence.runId) === held;
  }

  #lose(held: Held, why: 'refused' | 'deadline'): void {
    if (!this.#isHeld(held)) return;
    this.#held.delete(held.fence.runId);
    this.#counts[why === 'refused' ? 'refused' : 'expired'] += 1;
    held.listener.onLost(why);
  }
}
