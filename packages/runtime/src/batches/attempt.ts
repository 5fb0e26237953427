import type {
  Batch,
  BatchExecutor,
  BatchItemStatus,
  BatchStore,
  ClaimedItem,
  ItemOutcome,
  ItemResult,
  ItemVerdict,
  PreparedItem,
  Surroundings,
} from '@reindeer/protocol';
import { NO_BATCH_USAGE, ReindeerError } from '@reindeer/protocol';
import { settledWithin } from '../common/waiting.ts';
import type { ItemScope } from './leases.ts';
import type { ResultKeeper } from './results.ts';
import type { BatchSettings } from './settings.ts';

export interface AttemptParts {
  readonly store: Pick<BatchStore, 'start' | 'finish' | 'release'>;
  readonly executor: BatchExecutor;
  readonly results: ResultKeeper;
  readonly surroundings: Surroundings;
  readonly settings: BatchSettings;
}

/** How an attempt left its item. */
export type AttemptEnd =
  /** Its end is stored. */
  | { readonly kind: 'finished'; readonly status: BatchItemStatus }
  /** It counts for nothing and waits again. */
  | { readonly kind: 'given_back' }
  /** Nothing was written: somebody else decides. */
  | { readonly kind: 'left' };

/** Tries of a write whose lease cannot run out, because a cancel has ended it already. */
const TRIES_AFTER_CANCEL = 8;
const LONGEST_PAUSE_MS = 2_000;
const LONGEST_ERROR = 4_000;

/**
 * One attempt of one item, from its claim to its real end.
 *
 *   claimed ─prepare→ ready ─start stored→ dispatched ─child ended→ finished
 *      │                 │                     │ stop, cancel, lease lost, fault of the store
 *      └── not admitted ─┴→ given back         └→ draining ─child ended→ finished | given back | left
 *                                                       └─ bound passed → left, and the item stays leased until its lease runs out
 *
 * The lease is renewed all along, the drain included (BT-23). Nothing that lets others repeat the item is written before the child has ended
 * (BT-21, BT-22); after a lost lease nothing is written at all (BT-25).
 */
export class ItemAttempt {
  readonly #parts: AttemptParts;
  readonly #item: ClaimedItem;
  readonly #batch: Batch;
  readonly #scope: ItemScope;
  readonly #stop: AbortSignal;
  readonly #signal: AbortSignal;
  readonly #failure = new AbortController();
  readonly #ended = Promise.withResolvers<void>();
  #child: Promise<unknown> = Promise.resolve();

  /** @param stop fires when this process wants the item back in the queue */
  constructor(parts: AttemptParts, item: ClaimedItem, batch: Batch, scope: ItemScope, stop: AbortSignal) {
    const { owner } = item.lease ?? {};
    // A worker's identity is no fence: without the token of its own claim nothing may act (SEED-004-04).
    if (typeof owner !== 'string' || owner === '')
      throw new ReindeerError('internal', 'A batch item can be worked on only under the lease owner of its claim.');
    this.#parts = parts;
    this.#item = item;
    this.#batch = batch;
    this.#scope = scope;
    this.#stop = stop;
    this.#signal = AbortSignal.any([scope.signal, stop, this.#failure.signal]);
  }

  /** Resolves when nothing of the child acts any more; later than `run` only when the drain took too long. */
  get ended(): Promise<void> {
    return this.#ended.promise;
  }

  /** Never rejects. */
  async run(): Promise<AttemptEnd> {
    try {
      return await this.#work();
    } catch (error) {
      this.#log('error', 'An attempt of a batch item broke off', error);
      return { kind: 'left' };
    } finally {
      await this.#scope.leave();
      const over = (): void => this.#ended.resolve();
      this.#child.then(over, over);
    }
  }

  async #work(): Promise<AttemptEnd> {
    const { executor, store, surroundings } = this.#parts;
    const { lease } = this.#item;
    const { probe, clock } = surroundings;
    // Heard of its claim too late: others may have it soon, and nothing has begun.
    if (this.#isOver()) return this.#giveBack('The claim was heard of too late.');
    let prepared: PreparedItem;
    const preparing = executor.prepare({ item: this.#item, batch: this.#batch, signal: this.#signal });
    this.#child = preparing;
    try {
      const outcome = await this.#whileDrained(preparing);
      if (outcome === null) return { kind: 'left' };
      prepared = outcome;
    } catch (error) {
      if (this.#scope.loss !== null) return this.#afterLoss();
      if (this.#stop.aborted) return this.#giveBack('The server stopped before the item began.');
      if (isNotAdmitted(error)) return this.#giveBack(textOf(error));
      return this.#finish(failure(textOf(error)), null);
    }
    await probe.at('batch.before-start', { itemId: lease.itemId });
    if (this.#isOver()) return this.#beforeStart();
    let begun: boolean | undefined;
    try {
      begun = await this.#write(() => store.start({ lease, now: clock.now() }));
    } catch (error) {
      return this.#finish(failure(textOf(error)), null);
    }
    if (begun !== true) {
      // Taken over or cancelled meanwhile (BT-07): nothing has begun, and nothing is ours.
      return this.#scope.loss === 'cancelled' ? this.#afterLoss() : { kind: 'left' };
    }
    if (this.#isOver()) return this.#beforeStart();
    const running = prepared.run();
    this.#child = running;
    let result: ItemResult | null;
    try {
      result = await this.#whileDrained(running);
    } catch (error) {
      result = failure(textOf(error));
    }
    if (result === null) return { kind: 'left' };
    await probe.at('batch.child-ended', { itemId: lease.itemId });
    return this.#end(result, prepared);
  }

  /** Waits for `child`; once the attempt is to end, no longer than the drain. Null = it goes on, and the item is left to its lease. */
  async #whileDrained<T>(child: Promise<T>): Promise<T | null> {
    const { clock } = this.#parts.surroundings;
    const { drainMs } = this.#parts.settings;
    if (!(await settledOrAborted(child, this.#signal)) && !(await settledWithin(clock, child, drainMs))) {
      this.#log(
        'error',
        'A batch item goes on after it was told to end; another instance may begin it meanwhile',
        null,
      );
      return null;
    }
    return child;
  }

  async #end(ended: ItemResult, prepared: PreparedItem): Promise<AttemptEnd> {
    const { result, verdict } = await this.#judged(ended, prepared);
    const { loss } = this.#scope;
    if (loss === 'refused' || loss === 'deadline') return { kind: 'left' };
    if (result.outcome === 'not_admitted') return this.#giveBack(result.error);
    // A stopped child has not failed; one that was done before it heard of the stop has succeeded.
    if (this.#stop.aborted && loss === null && result.outcome === 'failed')
      return this.#giveBack('The server stopped while the item was at work.');
    return this.#finish(result, prepared, verdict);
  }

  /** What the check says of a success, while the lease goes on being renewed. No answer, or none before the attempt is to end, is no verdict (BT-28). */
  async #judged(
    result: ItemResult,
    prepared: PreparedItem,
  ): Promise<{ readonly result: ItemResult; readonly verdict: ItemVerdict | null }> {
    if (result.outcome !== 'succeeded' || this.#item.acceptance === null || this.#isOver())
      return { result, verdict: null };
    try {
      const checking = prepared.check?.(result.result);
      if (checking === undefined || !(await settledOrAborted(checking, this.#signal))) return { result, verdict: null };
      const { verdict, usage } = await checking;
      const { inputTokens, outputTokens } = result.usage;
      return {
        result: {
          ...result,
          usage: {
            inputTokens: inputTokens + usage.inputTokens,
            outputTokens: outputTokens + usage.outputTokens,
          },
        },
        verdict: verdict === null ? null : { ...verdict, reason: verdict.reason.slice(0, LONGEST_ERROR) },
      };
    } catch (error) {
      this.#log('warn', 'The result of a batch item could not be checked; it stands without a verdict', error);
      return { result, verdict: null };
    }
  }

  async #finish(
    result: Exclude<ItemResult, { outcome: 'not_admitted' }>,
    prepared: PreparedItem | null,
    verdict: ItemVerdict | null = null,
  ) {
    const { store, surroundings, settings, results } = this.#parts;
    const { clock, random, probe } = surroundings;
    const { lease, attempt } = this.#item;
    const backoff = Math.min(settings.maxBackoffMs, settings.backoffMs * 2 ** (attempt - 1));
    const { stopReason, modelName, usage } = result;
    const shared = { lease, stopReason, modelName, usage };
    const ending: ItemOutcome =
      result.outcome === 'succeeded'
        ? { succeeded: true, verdict, ...(await results.keep(this.#batch, this.#item, result.result)) }
        : {
            succeeded: false,
            error: result.error.slice(0, LONGEST_ERROR),
            notBefore: clock.now() + Math.round(backoff * (0.5 + random.next() / 2)),
          };
    await probe.at('batch.before-finish', { itemId: lease.itemId });
    const status = await this.#write(() => store.finish({ ...ending, ...shared, now: clock.now() }));
    if (status == null) {
      // With its whole batch it ended already, and its child has ended too: nobody else will take what is left of it.
      if (this.#scope.loss === 'cancelled') await prepared?.forget();
      return { kind: 'left' } as const;
    }
    await prepared?.forget();
    return { kind: 'finished', status } as const;
  }

  async #giveBack(error: string): Promise<AttemptEnd> {
    const { store, surroundings, settings } = this.#parts;
    const { clock, random } = surroundings;
    const { lease } = this.#item;
    // A stop is no reason to wait; a refusal is.
    const pause = this.#stop.aborted ? 0 : settings.backoffMs * (0.5 + random.next());
    const back = await this.#write(() =>
      store.release({
        lease,
        error: error.slice(0, LONGEST_ERROR),
        notBefore: Math.round(clock.now() + pause),
        now: clock.now(),
      }),
    );
    return { kind: back === true ? 'given_back' : 'left' };
  }

  /** Is the attempt to end? Asked right before each act. */
  #isOver(): boolean {
    return this.#scope.loss !== null || this.#signal.aborted;
  }

  #beforeStart(): Promise<AttemptEnd> {
    return this.#scope.loss !== null ? this.#afterLoss() : this.#giveBack('The server stopped before the item began.');
  }

  /** A cancel is written by the holder that it was told to; after any other loss nothing is. */
  async #afterLoss(): Promise<AttemptEnd> {
    if (this.#scope.loss === 'cancelled') return this.#finish(failure('The item was cancelled.'), null);
    return { kind: 'left' };
  }

  /**
   * Repeats a write that the store could not answer, as long as the lease stands: repeated, it changes nothing a second time. Undefined = the
   * lease is gone. A store that breaks for good stops the child as well.
   */
  async #write<T>(work: () => Promise<T>): Promise<T | undefined> {
    const { clock } = this.#parts.surroundings;
    for (let tries = 1, pause = 100; ; tries += 1, pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
      const { loss } = this.#scope;
      if (tries > 1 && (loss === 'refused' || loss === 'deadline')) return undefined;
      try {
        return await work();
      } catch (error) {
        const passes = ReindeerError.is(error) && error.code === 'store_unavailable';
        if (!passes || (loss === 'cancelled' && tries >= TRIES_AFTER_CANCEL)) {
          this.#failure.abort(error);
          throw error;
        }
        await clock.sleep(pause);
      }
    }
  }

  #log(level: 'error' | 'warn', message: string, error: unknown): void {
    const { itemId } = this.#item.lease;
    this.#parts.surroundings.logger[level](message, {
      itemId,
      attempt: this.#item.attempt,
      ...(error === null ? {} : { error: String(error) }),
    });
  }
}

/** True when it settled first. Neither rejects nor leaves a listener. */
async function settledOrAborted(promise: Promise<unknown>, signal: AbortSignal): Promise<boolean> {
  if (signal.aborted) return false;
  const { promise: aborted, resolve } = Promise.withResolvers<boolean>();
  const onAbort = (): void => resolve(false);
  signal.addEventListener('abort', onAbort, { once: true });
  const settled = promise.then(
    () => true,
    () => true,
  );
  try {
    return await Promise.race([settled, aborted]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

/** The child could not begin now, through no fault of the item. */
const isNotAdmitted = (error: unknown): boolean =>
  ReindeerError.is(error) && ['over_capacity', 'conflict', 'shutting_down'].includes(error.code);

const textOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

const failure = (error: string) =>
  ({ outcome: 'failed', error, stopReason: null, modelName: null, usage: NO_BATCH_USAGE }) as const;
