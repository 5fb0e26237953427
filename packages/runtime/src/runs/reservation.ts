import type { Fence, Run, RunKind } from '@reindeer/protocol';
import { EMPTY_REQUEST, newId, ReindeerError } from '@reindeer/protocol';
import type { LeaseKeeper } from '../leases/keeper.ts';
import { type Admissions, shuttingDown } from './admission.ts';
import type { RunParts } from './ports.ts';

/** What a reservation's body gets: its fence, and a signal that fires when the right is lost (RA-25). */
export interface Reservation {
  readonly fence: Fence;
  readonly runId: string;
  readonly signal: AbortSignal;
  /** What the body did has taken the reservation along: there is nothing to give back. */
  gone(): void;
}

export type ReservationResult<T> =
  | { readonly outcome: 'done'; readonly value: T }
  | { readonly outcome: 'busy'; readonly active: Run | null }
  | { readonly outcome: 'not_found' };

/** Reservations: operations that take a thread's only slot without being runs. */
export class Reservations {
  readonly #parts: Pick<RunParts, 'stores' | 'surroundings'>;
  readonly #admissions: Admissions;
  readonly #keeper: LeaseKeeper;
  readonly #onThreadFree: (threadId: string) => void;

  constructor(
    parts: Pick<RunParts, 'stores' | 'surroundings'> & {
      admissions: Admissions;
      keeper: LeaseKeeper;
      /** A reservation is over, and runs are queued behind it. */
      onThreadFree: (threadId: string) => void;
    },
  ) {
    this.#parts = parts;
    this.#admissions = parts.admissions;
    this.#keeper = parts.keeper;
    this.#onThreadFree = parts.onThreadFree;
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
    return this.#admissions.track(this.#reserve(input, body));
  }

  async #reserve<T>(
    input: { threadId: string; userId: string; kind: Exclude<RunKind, 'run'>; assistantId: string },
    body: (reservation: Reservation) => Promise<T>,
  ): Promise<ReservationResult<T>> {
    this.#admissions.throwIfRefusing();
    const { random, logger } = this.#parts.surroundings;
    const { threadId, userId, kind, assistantId } = input;
    const admitted = await this.#admissions.inTurn(threadId, () =>
      this.#admissions.admit({
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
    if (this.#admissions.refusing) {
      await this.#admissions.close(fence, kind);
      throw shuttingDown();
    }
    const lost = new AbortController();
    this.#keeper.hold(fence, admitted.grantedAt, {
      allowInterrupted: () => false,
      onInterrupted: () => undefined,
      onCancel: () => undefined,
      onLost: () => lost.abort(takenOver()),
    });
    let gone = false;
    const reservation: Reservation = {
      fence,
      runId: fence.runId,
      signal: lost.signal,
      gone: () => {
        gone = true;
      },
    };
    try {
      const value = await body(reservation);
      lost.signal.throwIfAborted();
      return { outcome: 'done', value };
    } catch (error) {
      if (lost.signal.aborted || (ReindeerError.is(error) && error.code === 'fenced')) throw takenOver(error);
      throw error;
    } finally {
      this.#keeper.drop(fence);
      if (!lost.signal.aborted && !gone) {
        const released = await this.#parts.stores.runs.release(fence).catch((error: unknown) => {
          logger.warn('a reservation was not released; its lease runs out', { threadId, error: String(error) });
          return null;
        });
        if (released?.outcome === 'ok' && released.waiting) this.#onThreadFree(threadId);
      }
    }
  }
}

const takenOver = (cause?: unknown) =>
  new ReindeerError('conflict', 'The thread was taken over by another operation; try again.', {
    cause,
    retryable: true,
  });
