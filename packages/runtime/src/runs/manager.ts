import type {
  AdmissionResult,
  CancelAction,
  CancelResult,
  CreateRun,
  Fence,
  MultitaskStrategy,
  Run,
  RunService,
} from '@reindeer/protocol';
import { newId, ReindeerError } from '@reindeer/protocol';
import { EffectsRegistry } from '../effects/effects.ts';
import type { LeaseKeeper } from '../leases/keeper.ts';
import type { ClaimedRun } from '../leases/recovery.ts';
import type { RunStreams } from '../stream/streams.ts';
import { type Admissions, type Begun, payloadHash, shuttingDown } from './admission.ts';
import { cancelRun } from './cancel.ts';
import { LocalRun } from './local-run.ts';
import { Queues } from './queues.ts';
import type { RunRegistry } from './registry.ts';
import { callHook, type WorkerParts, work } from './worker.ts';

/** Queued runs whose secrets are kept. */
const MAX_KEPT_SECRETS = 1_000;
const STRATEGIES: readonly MultitaskStrategy[] = ['reject', 'interrupt', 'rollback', 'enqueue'];

/**
 * Admits runs, attaches their workers, cancels, and takes over what recovery claimed. Between an admission's answer and its worker there
 * is no `await` (RA-21).
 */
export class RunManager {
  readonly #parts: WorkerParts;
  readonly #registry: RunRegistry;
  readonly #keeper: LeaseKeeper;
  readonly #admissions: Admissions;
  readonly #queues: Queues;
  /** Of runs that wait for their turn; one that another process starts leaves its entry behind, so the oldest go. */
  readonly #secrets = new Map<string, Readonly<Record<string, string>>>();
  #order = 0;

  constructor(
    parts: Omit<WorkerParts, 'onThreadFree'> & {
      registry: RunRegistry;
      keeper: LeaseKeeper;
      streams: RunStreams;
      admissions: Admissions;
      sweep: () => Promise<number>;
    },
  ) {
    this.#parts = { ...parts, onThreadFree: (threadId) => void this.#queues.advance(threadId) };
    this.#registry = parts.registry;
    this.#keeper = parts.keeper;
    this.#admissions = parts.admissions;
    this.#queues = new Queues({
      ...parts,
      hasRoom: () => this.#registry.size < parts.settings.maxActiveRuns,
      attach: (run, fence, grantedAt) => {
        const secrets = this.#secrets.get(run.runId) ?? null;
        this.#secrets.delete(run.runId);
        this.#attach(run, fence, grantedAt, { secrets });
        void callHook(this.#parts, 'onAdmitted', () => this.#parts.hooks.onAdmitted?.(run));
      },
    });
  }

  /** Queued runs, and whose turn it is. */
  get queues(): Queues {
    return this.#queues;
  }

  create(input: CreateRun, signal?: AbortSignal): Promise<AdmissionResult> {
    return this.#admissions.track(this.#create(input, signal));
  }

  async #create(input: CreateRun, signal: AbortSignal | undefined): Promise<AdmissionResult> {
    this.#check(input);
    signal?.throwIfAborted();
    const { random } = this.#parts.surroundings;
    const { threadId, userId, assistantId, request, metadata, idempotencyKey, onDisconnect, multitaskStrategy } = input;
    const thread = threadId ?? newId(random);
    const answer = await this.#admissions.inTurn(thread, async () => {
      const { result, grantedAt, token, begun } = await this.#admissions.admit({
        runId: newId(random),
        threadId: thread,
        userId,
        assistantId,
        kind: 'run',
        multitaskStrategy,
        onDisconnect,
        crashPolicy: input.crashPolicy ?? this.#parts.settings.crashPolicy,
        queueLimit: this.#parts.settings.maxQueuedRuns,
        idempotencyKey,
        payloadHash: payloadHash({ threadId, assistantId, request, metadata, multitaskStrategy }),
        request,
        metadata,
        createThread: input.createThread || threadId === null,
      });
      if (result.outcome === 'queued' && signal?.aborted) {
        // A caller who left does not want it when its turn comes either (RA-17).
        await this.#admissions.close({ runId: result.run.runId, token });
        signal.throwIfAborted();
      }
      if (result.outcome === 'queued' && input.secrets !== undefined) this.#keepSecrets(result.run, input.secrets);
      if (result.outcome !== 'admitted') return result;
      for (const older of result.superseded)
        this.#supersede(older, multitaskStrategy === 'rollback' ? 'rollback' : 'interrupt');
      const fence = { runId: result.run.runId, token };
      if (signal?.aborted || this.#admissions.refusing) {
        await this.#admissions.close(fence);
        signal?.throwIfAborted();
        throw shuttingDown();
      }
      this.#attach(result.run, fence, grantedAt, { begun, secrets: input.secrets ?? null });
      void callHook(this.#parts, 'onAdmitted', () => this.#parts.hooks.onAdmitted?.(result.run));
      return result;
    });
    // Behind runs that have no holder: nobody would tell that the thread is free.
    if (answer.outcome === 'queued' && answer.free) void this.#queues.advance(thread);
    return answer;
  }

  /** Continues what recovery claimed; reservations of dead holders are released, they are not runs (RL-22). */
  async takeOver({ run, token, grantedAt }: ClaimedRun): Promise<void> {
    const fence = { runId: run.runId, token };
    if (run.kind !== 'run') {
      await this.#parts.stores.runs.release(fence);
      return;
    }
    if (this.#admissions.refusing) {
      // Claimed while the stop began: another process may have it at once.
      await this.#parts.stores.runs.relinquish(fence);
      return;
    }
    this.#parts.surroundings.logger.info('a run without a holder is taken over', {
      runId: run.runId,
      threadId: run.threadId,
      attempt: run.attempt,
    });
    this.#attach(run, fence, grantedAt, { recovered: true });
  }

  /** Records the cancel (first action wins, RL-12) and delivers it when the run is held here. */
  cancel(input: Parameters<RunService['cancel']>[0]): Promise<CancelResult> {
    return cancelRun(this.#parts, input);
  }

  #check(input: CreateRun): void {
    this.#admissions.throwIfRefusing();
    if (!STRATEGIES.includes(input.multitaskStrategy)) {
      throw new ReindeerError(
        'not_implemented',
        `There is no multitask_strategy "${input.multitaskStrategy}"; use one of: ${STRATEGIES.join(', ')}.`,
      );
    }
    if (!this.#parts.graphs.has(input.assistantId)) {
      const known = [...this.#parts.graphs.keys()].join(', ');
      throw new ReindeerError('not_found', `There is no assistant "${input.assistantId}"; choose one of: ${known}.`, {
        detail: { field: 'assistant_id' },
      });
    }
    if (this.#registry.size + this.#admissions.size >= this.#parts.settings.maxActiveRuns) {
      throw new ReindeerError('over_capacity', 'Too many runs are active on this server; try again later.', {
        retryable: true,
      });
    }
  }

  #supersede(older: Run, action: CancelAction): void {
    const local = this.#registry.get(older.runId);
    if (local !== undefined) local.stop({ kind: 'superseded', action: older.cancelAction ?? action });
    else void this.#parts.sweep();
  }

  #keepSecrets(run: Run, secrets: Readonly<Record<string, string>>): void {
    this.#secrets.set(run.runId, secrets);
    const [oldest] = this.#secrets.keys();
    if (this.#secrets.size > MAX_KEPT_SECRETS && oldest !== undefined) this.#secrets.delete(oldest);
  }

  #attach(
    run: Run,
    fence: Fence,
    grantedAt: number,
    more: {
      readonly recovered?: boolean;
      readonly begun?: Begun | null;
      readonly secrets?: Readonly<Record<string, string>> | null;
    },
  ): void {
    this.#order += 1;
    const effects = new EffectsRegistry(this.#parts.surroundings.clock, () => this.#keeper.check(fence));
    const { recovered = false, begun = null, secrets = null } = more;
    const local = new LocalRun({ run, fence, effects, order: this.#order, recovered, begun, secrets });
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
}
