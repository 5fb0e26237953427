import { createHash } from 'node:crypto';
import type { BatchExecutor, BatchStore, Surroundings } from '@reindeer/protocol';
import { ReindeerError } from '@reindeer/protocol';
import { Bell, settledWithin } from '../common/waiting.ts';
import { ItemAttempt } from './attempt.ts';
import { ItemLeases } from './leases.ts';
import type { ResultKeeper } from './results.ts';
import type { BatchSettings } from './settings.ts';

export interface WorkerParts {
  readonly store: BatchStore;
  readonly executor: BatchExecutor;
  readonly results: ResultKeeper;
  readonly surroundings: Surroundings;
  readonly settings: BatchSettings;
  /** Stable over restarts, one per living process: what its tokens begin with. */
  readonly instanceId: string;
  /** Something of a batch changed here. Must not throw. */
  readonly onChange: (batchId: string) => void;
}

interface Execution {
  readonly batchId: string;
  /** Its outcome is written. */
  readonly done: Promise<unknown>;
  /** Nothing of it acts any more. */
  readonly ended: Promise<void>;
}

/** Ends that come close together are one look for new work. */
const COALESCE_MS = 1;
/** After somebody else held the batch: a short, uneven pause. */
const AGAIN_MS = 20;

/**
 * Works on items of batches: claims what there is room for, supervises each, and says when it could take more.
 *
 * States: made → started → stopping → stopped. In `stopping` nothing is claimed; children get `drainMs` to end by themselves, then they are told to,
 * and their items go back to the queue. What has not ended at the hard bound keeps its lease until it runs out (BT-20).
 */
export class BatchWorker {
  readonly #parts: WorkerParts;
  readonly #leases: ItemLeases;
  readonly #prefix: string;
  readonly #executions = new Map<string, Execution>();
  readonly #stopping = new AbortController();
  readonly #giveUp = new AbortController();
  readonly #bell = new Bell();
  #loop: Promise<void> | null = null;
  #stopped: Promise<readonly string[]> | null = null;

  constructor(parts: WorkerParts) {
    this.#parts = parts;
    const { store, surroundings, settings } = parts;
    this.#leases = new ItemLeases({ store, surroundings, leaseMs: settings.leaseMs });
    this.#prefix = `${createHash('sha256').update(parts.instanceId).digest('hex').slice(0, 24)}:`;
  }

  /** Items that this process works on, those included that go on after their drain. */
  get size(): number {
    return this.#executions.size;
  }

  /** Items whose leases an earlier process of this instance left are free at once (BT-26); then the loop begins. Idempotent. */
  async start(): Promise<void> {
    if (this.#loop !== null || this.#stopping.signal.aborted) return;
    const { store, surroundings } = this.#parts;
    const forfeited = await store.forfeit({ prefix: this.#prefix, now: surroundings.clock.now() });
    if (forfeited > 0)
      surroundings.logger.info('Batch items of an earlier process are tried again', { items: forfeited });
    this.#leases.start();
    this.#loop ??= this.#run();
  }

  /** There may be new work. */
  wake(): void {
    this.#bell.ring();
  }

  /** Something at work here may have been cancelled: asks now, not at the next beat. Never rejects. */
  confirm(): Promise<void> {
    return this.#leases.beat();
  }

  /** One look for work. Answers whether another one soon may find more. */
  async pass(): Promise<boolean> {
    const { store, surroundings, settings } = this.#parts;
    const { clock, random, probe } = surroundings;
    const free = Math.max(settings.maxRunningHere - this.#executions.size, 0);
    // New at every claim: an identity that stays the same cannot tell an old holder from a new one (SEED-004-07).
    const owner = `${this.#prefix}${random.uuid()}`;
    const askedAt = clock.monotonic();
    const { items, batches, more } = await store.claim({
      owner,
      leaseMs: settings.leaseMs,
      limit: free,
      exclude: [...this.#executions.keys()],
      now: clock.now(),
    });
    await probe.at('batch.claimed', { items: items.length });
    for (const item of items) {
      const batch = batches.get(item.batchId);
      if (batch === undefined) throw new ReindeerError('internal', 'An item was claimed without its batch.');
      // The heartbeat begins before anything of the item does.
      const scope = this.#leases.hold(item.lease, askedAt);
      const attempt = new ItemAttempt(this.#parts, item, batch, scope, this.#giveUp.signal);
      if (this.#stopping.signal.aborted) this.#giveUp.abort(STOPPING);
      this.#track(item.lease.itemId, item.batchId, attempt);
    }
    if (items.length > 0) for (const batchId of batches.keys()) this.#parts.onChange(batchId);
    return more && items.length < free;
  }

  /**
   * Claims nothing any more; waits `drainMs` for children to end by themselves, stops the rest, waits for them until `hardMs` after the call.
   * Answers the items that still run. Calls share one execution, and nothing shortens it (BT-19).
   */
  stop({ drainMs, hardMs }: { readonly drainMs: number; readonly hardMs: number }): Promise<readonly string[]> {
    this.#stopped ??= this.#stop(drainMs, hardMs);
    return this.#stopped;
  }

  async #stop(drainMs: number, hardMs: number): Promise<readonly string[]> {
    const { clock, logger } = this.#parts.surroundings;
    const deadline = clock.monotonic() + hardMs;
    const left = () => Math.max(deadline - clock.monotonic(), 0);
    this.#stopping.abort(STOPPING);
    this.#bell.ring();
    if (this.#loop !== null) await settledWithin(clock, this.#loop, Math.min(1_000, left()));
    const all = () => Promise.all([...this.#executions.values()].flatMap(({ done, ended }) => [done, ended]));
    if (!(await settledWithin(clock, all(), Math.min(drainMs, left())))) {
      this.#giveUp.abort(STOPPING);
      await settledWithin(clock, all(), left());
    }
    const running = [...this.#executions.keys()];
    for (const itemId of running) logger.error('A batch item had not ended when the server stopped', { itemId });
    await this.#leases.stop();
    return running;
  }

  #track(itemId: string, batchId: string, attempt: ItemAttempt): void {
    const done = attempt.run().then((end) => {
      this.#parts.onChange(batchId);
      return end;
    });
    const ended = Promise.all([done, attempt.ended]).then(() => {
      this.#executions.delete(itemId);
      this.#bell.ring();
    });
    this.#executions.set(itemId, { batchId, done, ended });
  }

  async #run(): Promise<void> {
    const { surroundings, settings } = this.#parts;
    const { clock, logger, random } = surroundings;
    while (!this.#stopping.signal.aborted) {
      const next = this.#bell.next();
      let soon = false;
      try {
        soon = await this.pass();
      } catch (error) {
        logger.warn('Looking for batch items failed; the next look tries again', { error: String(error) });
      }
      if (this.#stopping.signal.aborted) return;
      const pause = soon ? AGAIN_MS * (0.5 + random.next()) : settings.pollMs;
      if (await settledWithin(clock, next, pause)) await clock.sleep(COALESCE_MS);
    }
  }
}

const STOPPING = new ReindeerError('aborted', 'Reindeer is stopping.', { detail: { stop: 'shutdown' } });
