import type { Fence, Run, RunStore, Surroundings } from '@reindeer/protocol';
import { newToken } from '@reindeer/protocol';

export interface RecoverySettings {
  readonly instanceId: string;
  readonly leaseMs: number;
  readonly graceMs: number;
  readonly sweepMs: number;
  /** Default: the own instance id. */
  readonly deadOwners?: readonly string[];
}

/** A run or reservation that was taken over. `grantedAt`: monotonic time of the request, for the lease keeper. */
export interface ClaimedRun {
  readonly run: Run;
  readonly token: string;
  readonly grantedAt: number;
}

/** Rows per claim; a sweep goes on while claims come back full. The first one is small: most sweeps find nothing. */
const FIRST_CLAIM = 8;
const CLAIM = 64;

/**
 * Takes over runs whose holder is gone: lease missing, or expired for longer than the grace (RL-17), at the moment of the write. The
 * claim is one conditional statement, so two sweeping instances never both get a row (RL-18), and a row that was renewed is
 * never taken (RL-19). What this process holds is left alone (RL-20).
 *
 * Nothing is taken over after `stop`: what a late answer brings is given back.
 *
 * One sweep at a time: a call during a sweep gets that sweep, and one more follows (RL-10). A failure of one recovered run is
 * logged and stops nothing (RL-24).
 */
export class Recovery {
  readonly #runs: Pick<RunStore, 'claimOrphans' | 'relinquish'>;
  readonly #surroundings: Surroundings;
  readonly #settings: RecoverySettings;
  readonly #held: () => readonly string[];
  readonly #onClaimed: (claimed: ClaimedRun) => void | Promise<void>;
  readonly #afterSweep: () => Promise<unknown>;
  readonly #stopped = new AbortController();
  #current: Promise<number> | null = null;
  #loop: Promise<void> | null = null;

  constructor(parts: {
    runs: Pick<RunStore, 'claimOrphans' | 'relinquish'>;
    surroundings: Surroundings;
    settings: RecoverySettings;
    /** Run ids that this process holds. */
    held: () => readonly string[];
    onClaimed: (claimed: ClaimedRun) => void | Promise<void>;
    /** Follows each sweep, as a part of it. */
    afterSweep?: () => Promise<unknown>;
  }) {
    this.#runs = parts.runs;
    this.#surroundings = parts.surroundings;
    this.#settings = parts.settings;
    this.#held = parts.held;
    this.#onClaimed = parts.onClaimed;
    this.#afterSweep = parts.afterSweep ?? (async () => undefined);
  }

  /**
   * Before the first admission: also claims, at once, what earlier processes that are known to have ended held (D12), whatever their
   * leases say.
   * @returns how many rows were taken over.
   * @throws ReindeerError `store_unavailable` when the store cannot answer; not any more once something was taken over.
   */
  async atStart(): Promise<number> {
    return this.#claimAll(this.#settings.deadOwners ?? [this.#settings.instanceId]);
  }

  /** Claims what has expired. Never rejects; answers how many rows were taken over. Single-flight. */
  sweep(): Promise<number> {
    if (this.#stopped.signal.aborted) return Promise.resolve(0);
    this.#current ??= this.#claimAll([])
      .catch((error: unknown) => {
        this.#surroundings.logger.warn('expired runs could not be looked for; the next sweep tries again', {
          error: String(error),
        });
        return 0;
      })
      .then(async (claimed) => {
        await this.#afterSweep();
        return claimed;
      })
      .finally(() => {
        this.#current = null;
      });
    return this.#current;
  }

  start(): void {
    this.#loop ??= this.#sweepLoop();
  }

  /** Ends the sweeps and waits for the one under way. Idempotent. */
  async stop(): Promise<void> {
    this.#stopped.abort();
    await this.#loop;
    await this.#current;
  }

  async #claimAll(deadOwners: readonly string[]): Promise<number> {
    const { clock, random } = this.#surroundings;
    const { instanceId, leaseMs, graceMs } = this.#settings;
    // A row is claimed once per pass, also when it could not be handed over.
    const seen = new Set<string>();
    for (let size = FIRST_CLAIM; !this.#stopped.signal.aborted; size = CLAIM) {
      const grantedAt = clock.monotonic();
      const now = clock.now();
      const claim = {
        owner: instanceId,
        tokens: Array.from({ length: size }, () => newToken(random)),
        leaseExpiresAt: now + leaseMs,
        graceMs,
        deadOwners,
        skipRunIds: [...new Set([...this.#held(), ...seen])],
        now,
      };
      const claimed = await this.#runs.claimOrphans(claim).catch((error: unknown) => {
        // What is worked on by now needs this process; the next sweeps find the rest when their leases have run out.
        if (seen.size === 0) throw error;
        this.#surroundings.logger.warn('not all expired runs could be looked for; the next sweep goes on', {
          takenOver: seen.size,
          error: String(error),
        });
        return [];
      });
      for (const { run } of claimed) seen.add(run.runId);
      for (const { run, token } of claimed) {
        if (this.#stopped.signal.aborted) await this.#giveBack({ runId: run.runId, token });
        else await this.#handOver({ run, token, grantedAt });
      }
      if (claimed.length < size) break;
    }
    return seen.size;
  }

  /** A claim that was answered after the stop: nobody works on it here, so any other process may have it at once. */
  async #giveBack(fence: Fence): Promise<void> {
    await this.#runs.relinquish(fence).catch((error: unknown) => {
      this.#surroundings.logger.warn('a claim was not given back; its lease runs out', {
        runId: fence.runId,
        error: String(error),
      });
    });
  }

  async #handOver(claimed: ClaimedRun): Promise<void> {
    try {
      await this.#onClaimed(claimed);
    } catch (error) {
      this.#surroundings.logger.error('a run that was taken over could not be continued', {
        runId: claimed.run.runId,
        threadId: claimed.run.threadId,
        error: String(error),
      });
    }
  }

  async #sweepLoop(): Promise<void> {
    const { clock } = this.#surroundings;
    try {
      while (!this.#stopped.signal.aborted) {
        await clock.sleep(this.#settings.sweepMs, this.#stopped.signal);
        // Not awaited: a hung store must not keep `stop` from ending the loop.
        void this.sweep();
      }
    } catch (error) {
      if (!this.#stopped.signal.aborted) throw error;
    }
  }
}
