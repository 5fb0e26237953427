import { createHash } from 'node:crypto';
import type {
  Admission,
  AdmissionResult,
  CancelAction,
  CancelResult,
  CreateRun,
  Fence,
  Json,
  Run,
  RunKind,
} from '@reindeer/protocol';
import { NO_USAGE, newId, newToken, ReindeerError } from '@reindeer/protocol';
import { KeyedQueue } from '../common/keyed-queue.ts';
import { retry } from '../common/retry.ts';
import { settledWithin } from '../common/waiting.ts';
import { EffectsRegistry } from '../effects/effects.ts';
import type { LeaseKeeper } from '../leases/keeper.ts';
import type { ClaimedRun } from '../leases/recovery.ts';
import type { RunStreams } from '../stream/streams.ts';
import { CANCELLED } from './ending.ts';
import { LocalRun } from './local-run.ts';
import type { RunParts } from './ports.ts';
import type { RunRegistry } from './registry.ts';
import { callHook, type WorkerParts, work } from './worker.ts';

/** What a reservation's body gets: its fence, and a signal that fires when the right is lost (RA-25). */
export interface Reservation {
  readonly fence: Fence;
  readonly runId: string;
  readonly signal: AbortSignal;
}

export type ReservationResult<T> =
  | { readonly outcome: 'done'; readonly value: T }
  | { readonly outcome: 'busy'; readonly active: Run | null }
  | { readonly outcome: 'not_found' };

/** SHA-256 (hex) of a request in canonical form: object keys sorted. */
export function payloadHash(value: unknown): string {
  const canonical = (part: unknown): unknown => {
    if (Array.isArray(part)) return part.map(canonical);
    if (typeof part !== 'object' || part === null) return part;
    return Object.fromEntries(
      Object.entries(part)
        .filter(([, item]) => item !== undefined)
        .sort(([a], [b]) => (a < b ? -1 : 1))
        .map(([key, item]) => [key, canonical(item)]),
    );
  };
  return createHash('sha256')
    .update(JSON.stringify(canonical(value)))
    .digest('hex');
}

/**
 * Admits runs and reservations, attaches their workers, cancels, and takes over what recovery claimed. Admissions of one thread go
 * one after the other, so that the answer to one is known here before the next can supersede it; between an admission's
 * answer and its worker there is no `await` (RA-21).
 */
export class RunManager {
  readonly #parts: WorkerParts;
  readonly #registry: RunRegistry;
  readonly #keeper: LeaseKeeper;
  readonly #admissions = new KeyedQueue();
  readonly #over = new AbortController();
  readonly #underWay = new Set<Promise<unknown>>();
  #order = 0;

  constructor(
    parts: RunParts & { registry: RunRegistry; keeper: LeaseKeeper; streams: RunStreams; sweep: () => Promise<number> },
  ) {
    this.#parts = parts;
    this.#registry = parts.registry;
    this.#keeper = parts.keeper;
  }

  /** No new run or reservation from now on (GW-20). */
  refuse(): void {
    this.#over.abort();
  }

  /** Resolves when the admissions and reservations that were under way at the call have ended. Never rejects. */
  async quiet(): Promise<void> {
    await Promise.allSettled([...this.#underWay]);
  }

  create(input: CreateRun, signal?: AbortSignal): Promise<AdmissionResult> {
    return this.#track(this.#create(input, signal));
  }

  async #create(input: CreateRun, signal: AbortSignal | undefined): Promise<AdmissionResult> {
    this.#check(input);
    signal?.throwIfAborted();
    const { random } = this.#parts.surroundings;
    const { threadId, userId, assistantId, request, metadata, idempotencyKey, onDisconnect, multitaskStrategy } = input;
    const thread = threadId ?? newId(random);
    return this.#admissions.run(thread, async () => {
      this.#refuseWhenOver();
      const { result, grantedAt, token } = await this.#admit({
        runId: newId(random),
        threadId: thread,
        userId,
        assistantId,
        kind: 'run',
        multitaskStrategy,
        onDisconnect,
        crashPolicy: input.crashPolicy ?? this.#parts.settings.crashPolicy,
        idempotencyKey,
        payloadHash: payloadHash({ threadId, assistantId, request, metadata, multitaskStrategy }),
        request,
        metadata,
        createThread: input.createThread || threadId === null,
      });
      if (result.outcome !== 'admitted') return result;
      for (const older of result.superseded)
        this.#supersede(older, multitaskStrategy === 'rollback' ? 'rollback' : 'interrupt');
      const fence = { runId: result.run.runId, token };
      if (signal?.aborted || this.#over.signal.aborted) {
        await this.#close(fence);
        signal?.throwIfAborted();
        throw shuttingDown();
      }
      this.#attach(result.run, fence, grantedAt, false);
      void callHook(this.#parts, 'onAdmitted', () => this.#parts.hooks.onAdmitted?.(result.run));
      return result;
    });
  }

  /** Continues what recovery claimed; reservations of dead holders are released, they are not runs (RL-22). */
  async takeOver({ run, token, grantedAt }: ClaimedRun): Promise<void> {
    const fence = { runId: run.runId, token };
    if (run.kind !== 'run') {
      await this.#parts.stores.runs.release(fence);
      return;
    }
    this.#parts.surroundings.logger.info('a run without a holder is taken over', {
      runId: run.runId,
      threadId: run.threadId,
      attempt: run.attempt,
    });
    this.#attach(run, fence, grantedAt, true);
  }

  /**
   * Holds the thread's only slot for the time of `body`. The slot is given back whatever happens; when that fails, it is left to
   * recovery, and the body's own outcome stands (RA-24).
   *
   * @throws what the body throws; `conflict` when the right was lost meanwhile (RA-25).
   */
  reserve<T>(
    input: { threadId: string; userId: string; kind: Exclude<RunKind, 'run'>; assistantId: string },
    body: (reservation: Reservation) => Promise<T>,
  ): Promise<ReservationResult<T>> {
    return this.#track(this.#reserve(input, body));
  }

  async #reserve<T>(
    input: { threadId: string; userId: string; kind: Exclude<RunKind, 'run'>; assistantId: string },
    body: (reservation: Reservation) => Promise<T>,
  ): Promise<ReservationResult<T>> {
    this.#refuseWhenOver();
    const { random, logger } = this.#parts.surroundings;
    const { threadId, userId, kind, assistantId } = input;
    const admitted = await this.#admissions.run(threadId, () =>
      this.#admit({
        runId: newId(random),
        threadId,
        userId,
        assistantId,
        kind,
        multitaskStrategy: 'reject',
        onDisconnect: 'continue',
        crashPolicy: 'error',
        idempotencyKey: null,
        payloadHash: '',
        request: EMPTY_REQUEST,
        metadata: {},
        createThread: false,
      }),
    );
    const { result } = admitted;
    if (result.outcome === 'thread_not_found') return { outcome: 'not_found' };
    if (result.outcome === 'conflict') return { outcome: 'busy', active: result.active };
    const fence = { runId: result.run.runId, token: admitted.token };
    const lost = new AbortController();
    this.#keeper.hold(fence, admitted.grantedAt, {
      allowInterrupted: () => false,
      onInterrupted: () => undefined,
      onCancel: () => undefined,
      onLost: () => lost.abort(takenOver()),
    });
    try {
      const value = await body({ fence, runId: fence.runId, signal: lost.signal });
      lost.signal.throwIfAborted();
      return { outcome: 'done', value };
    } catch (error) {
      if (lost.signal.aborted || (ReindeerError.is(error) && error.code === 'fenced')) throw takenOver(error);
      throw error;
    } finally {
      this.#keeper.drop(fence);
      if (!lost.signal.aborted) {
        await this.#parts.stores.runs.release(fence).catch((error: unknown) => {
          logger.warn('a reservation was not released; its lease runs out', { threadId, error: String(error) });
        });
      }
    }
  }

  /** Records the cancel (first action wins, RL-12) and delivers it when the run is held here. */
  async cancel(input: {
    runId: string;
    threadId: string;
    userId: string;
    action: CancelAction;
    wait: boolean;
    signal?: AbortSignal;
  }): Promise<CancelResult> {
    const { stores, surroundings, settings } = this.#parts;
    const { clock, logger } = surroundings;
    const { runId, action, wait } = input;
    const found = await stores.runs.get(runId);
    if (found === null || !belongs(found, input)) return { outcome: 'not_found' };
    let effective = action;
    let run = found;
    try {
      const answer = await stores.runs.requestCancel({ runId, action, now: clock.now() });
      if (answer.outcome === 'not_found') return { outcome: 'not_found' };
      run = answer.run;
      if (answer.outcome === 'terminal') {
        // Cancelling what was cancelled is a success (RL-15).
        if (run.status !== 'interrupted') return { outcome: 'terminal', run };
        return { outcome: 'accepted', run, stopped: true, stillRunning: [] };
      }
      effective = answer.action;
    } catch (error) {
      // A run of this process is stopped even when the intent cannot be stored (RL-25).
      if (this.#registry.get(runId) === undefined) throw error;
      logger.warn('a cancel could not be recorded; the run is stopped all the same', { runId, error: String(error) });
    }
    const local = this.#registry.get(runId);
    if (local !== undefined) {
      local.stop({ kind: 'cancelled', action: effective });
      if (!wait) return { outcome: 'accepted', run, stopped: false, stillRunning: local.effects.live() };
      const stopped = await this.#stopped(local.settled, input.signal);
      return {
        outcome: 'accepted',
        run: local.final ?? (await stores.runs.get(runId).catch(() => null)) ?? run,
        stopped: stopped && local.effects.live().length === 0,
        stillRunning: local.effects.live(),
      };
    }
    void this.#parts.sweep();
    if (!wait) return { outcome: 'accepted', run, stopped: false, stillRunning: [] };
    const deadline = clock.monotonic() + settings.cancelWaitMs;
    while (!run.acknowledged && clock.monotonic() < deadline && input.signal?.aborted !== true) {
      await clock.sleep(settings.pollRemoteMs, input.signal).catch(() => undefined);
      run = (await stores.runs.get(runId)) ?? run;
    }
    return { outcome: 'accepted', run, stopped: run.acknowledged, stillRunning: [] };
  }

  async #stopped(settled: Promise<void>, signal: AbortSignal | undefined): Promise<boolean> {
    const { clock } = this.#parts.surroundings;
    const { promise: left, resolve } = Promise.withResolvers<void>();
    let gone = false;
    const onAbort = () => {
      gone = true;
      resolve();
    };
    signal?.addEventListener('abort', onAbort, { once: true });
    if (signal?.aborted) onAbort();
    const inTime = await settledWithin(clock, Promise.race([settled, left]), this.#parts.settings.cancelWaitMs);
    signal?.removeEventListener('abort', onAbort);
    return inTime && !gone;
  }

  async #track<T>(work: Promise<T>): Promise<T> {
    this.#underWay.add(work);
    try {
      return await work;
    } finally {
      this.#underWay.delete(work);
    }
  }

  #check(input: CreateRun): void {
    this.#refuseWhenOver();
    if (input.multitaskStrategy === 'enqueue') {
      throw new ReindeerError(
        'not_implemented',
        'multitask_strategy "enqueue" is not supported; use reject, interrupt or rollback.',
      );
    }
    if (!this.#parts.graphs.has(input.assistantId)) {
      const known = [...this.#parts.graphs.keys()].join(', ');
      throw new ReindeerError('not_found', `There is no assistant "${input.assistantId}"; choose one of: ${known}.`, {
        detail: { field: 'assistant_id' },
      });
    }
    if (this.#registry.size + this.#underWay.size >= this.#parts.settings.maxActiveRuns) {
      throw new ReindeerError('over_capacity', 'Too many runs are active on this server; try again later.', {
        retryable: true,
      });
    }
  }

  #refuseWhenOver(): void {
    if (this.#over.signal.aborted) throw shuttingDown();
  }

  /**
   * One admission. When the answer is lost, the row tells whether it happened (the ids are ours); when that cannot be told either, what may
   * stand there is closed as soon as the store answers, so that nothing is left pending (RA-04).
   */
  async #admit(
    part: Omit<Admission, 'owner' | 'token' | 'leaseExpiresAt' | 'now'>,
  ): Promise<{ result: AdmissionResult; grantedAt: number; token: string }> {
    const { stores, surroundings, settings } = this.#parts;
    const { clock, random, logger } = surroundings;
    const token = newToken(random);
    const grantedAt = clock.monotonic();
    const now = clock.now();
    try {
      const result = await stores.runs.admit({
        ...part,
        owner: settings.instanceId,
        token,
        leaseExpiresAt: now + settings.leaseMs,
        now,
      });
      return { result, grantedAt, token };
    } catch (error) {
      if (ReindeerError.is(error) && error.code !== 'store_unavailable') throw error;
      logger.warn('the answer to an admission was lost', { runId: part.runId, error: String(error) });
      const plan = { tries: settings.writeTries, backoffMs: settings.writeBackoffMs };
      const run = await retry(clock, plan, () => stores.runs.get(part.runId)).catch(() => {
        void this.#close({ runId: part.runId, token }, part.kind);
        throw error;
      });
      if (run === null) throw error;
      const active = await stores.runs.active(part.threadId).catch(() => []);
      const superseded = active.filter((other) => other.runId !== part.runId && other.status === 'interrupted');
      return { result: { outcome: 'admitted', run, superseded }, grantedAt, token };
    }
  }

  #supersede(older: Run, action: CancelAction): void {
    const local = this.#registry.get(older.runId);
    if (local !== undefined) local.stop({ kind: 'superseded', action: older.cancelAction ?? action });
    else void this.#parts.sweep();
  }

  #attach(run: Run, fence: Fence, grantedAt: number, recovered: boolean): void {
    this.#order += 1;
    const effects = new EffectsRegistry(this.#parts.surroundings.clock);
    const local = new LocalRun({ run, fence, effects, order: this.#order, recovered });
    this.#registry.add(local);
    this.#keeper.hold(fence, grantedAt, {
      allowInterrupted: () => local.superseded,
      // The renewal that follows at once says which action was asked for.
      onInterrupted: () => {
        local.superseded = true;
      },
      onCancel: (action) =>
        local.stop({
          kind: local.superseded ? 'superseded' : 'cancelled',
          // A stored action that is not known counts as an interrupt (RL-33).
          action: action === 'rollback' ? 'rollback' : 'interrupt',
        }),
      onLost: (why) => {
        // A refusal that crosses our own terminal write is its consequence; that write's answer decides.
        if (why === 'refused' && local.writesEnd) return;
        local.stop({ kind: 'fenced' });
      },
    });
    void work(this.#parts, local);
  }

  /** Ends an admission that nobody will work on: the row is terminal, or gone, before this resolves (RA-17). */
  async #close(fence: Fence, kind: RunKind = 'run'): Promise<void> {
    const { stores, surroundings, settings } = this.#parts;
    const { clock, logger } = surroundings;
    const plan = { tries: settings.writeTries + 2, backoffMs: settings.writeBackoffMs };
    const end = () =>
      stores.runs.finalize({
        fence,
        status: 'interrupted',
        error: CANCELLED,
        stopReason: null,
        usage: NO_USAGE,
        unlessCancelled: false,
        now: clock.now(),
      });
    try {
      await retry<unknown>(clock, plan, () => (kind === 'run' ? end() : stores.runs.release(fence)));
    } catch (error) {
      logger.error('an admission could not be closed; recovery will', { runId: fence.runId, error: String(error) });
    }
  }
}

const EMPTY_REQUEST = {
  input: null as Json,
  command: null,
  config: {},
  context: {},
  streamModes: [],
  streamSubgraphs: false,
  checkpointId: null,
  interruptBefore: [],
  interruptAfter: [],
};

const takenOver = (cause?: unknown) =>
  new ReindeerError('conflict', 'The thread was taken over by another operation; try again.', {
    cause,
    retryable: true,
  });

const shuttingDown = () =>
  new ReindeerError('shutting_down', 'The server is stopping and takes no new work; try again in a moment.', {
    retryable: true,
  });

/** Is this run the caller's, and of the thread it names? Reservations are nobody's (RA-28). */
export function belongs(run: Run, caller: { readonly threadId: string; readonly userId: string }): boolean {
  return run.kind === 'run' && run.threadId === caller.threadId && run.userId === caller.userId;
}
