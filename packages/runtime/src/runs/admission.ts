import { createHash } from 'node:crypto';
import type { Admission, AdmissionResult, FactPage, Fence, LoadedCheckpoint, Run, RunKind } from '@reindeer/protocol';
import { NO_USAGE, newToken, ReindeerError } from '@reindeer/protocol';
import { KeyedQueue } from '../common/keyed-queue.ts';
import { retry } from '../common/retry.ts';
import { CANCELLED } from './ending.ts';
import type { RunParts } from './ports.ts';

/** A run whose first attempt has begun in the store: the row as it is now, the head of its thread, and its facts so far. */
export interface Begun {
  readonly run: Run;
  readonly head: LoadedCheckpoint | null;
  readonly log: FactPage;
}

export interface Admitted {
  readonly result: AdmissionResult;
  /** Monotonic time of the request: the lease counts from here. */
  readonly grantedAt: number;
  readonly token: string;
  /** The run was started together with its admission; null = its worker starts it. */
  readonly begun: Begun | null;
}

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
 * Admissions of this process. Those of one thread go one after the other, so that the answer to one is known here before the next can
 * supersede it. States: open → refusing; once refusing nothing new is admitted, from whatever source (GW-20).
 */
export class Admissions {
  readonly #parts: Pick<RunParts, 'stores' | 'surroundings' | 'settings'>;
  readonly #queue = new KeyedQueue();
  readonly #refusing = new AbortController();
  readonly #underWay = new Set<Promise<unknown>>();

  constructor(parts: Pick<RunParts, 'stores' | 'surroundings' | 'settings'>) {
    this.#parts = parts;
  }

  get size(): number {
    return this.#underWay.size;
  }

  get refusing(): boolean {
    return this.#refusing.signal.aborted;
  }

  refuse(): void {
    this.#refusing.abort();
  }

  /** @throws ReindeerError `shutting_down` */
  throwIfRefusing(): void {
    if (this.refusing) throw shuttingDown();
  }

  /** Resolves when the admissions and reservations that were under way at the call have ended. Never rejects. */
  async quiet(): Promise<void> {
    await Promise.allSettled([...this.#underWay]);
  }

  /** Counts work that holds or asks for a thread's slot. */
  async track<T>(work: Promise<T>): Promise<T> {
    this.#underWay.add(work);
    try {
      return await work;
    } finally {
      this.#underWay.delete(work);
    }
  }

  /** Runs `work` when no other admission of the thread is under way. */
  inTurn<T>(threadId: string, work: () => Promise<T>): Promise<T> {
    return this.#queue.run(threadId, () => {
      this.throwIfRefusing();
      return work();
    });
  }

  /**
   * One admission. When the answer is lost, the row tells whether it happened (the ids are ours); when that cannot be told either, what may
   * stand there is closed as soon as the store answers, so that nothing is left pending (RA-04).
   */
  async admit(part: Omit<Admission, 'owner' | 'token' | 'leaseExpiresAt' | 'now'>): Promise<Admitted> {
    const { stores, surroundings, settings } = this.#parts;
    const { clock, random, logger } = surroundings;
    const token = newToken(random);
    const grantedAt = clock.monotonic();
    const now = clock.now();
    try {
      const admitting = stores.runs.admit({
        ...part,
        owner: settings.instanceId,
        token,
        leaseExpiresAt: now + settings.leaseMs,
        now,
      });
      const beginning = part.kind === 'run' ? this.#begin({ runId: part.runId, token }, part.threadId, now) : null;
      const result = await admitting;
      return { result, grantedAt, token, begun: result.outcome === 'admitted' ? await beginning : null };
    } catch (error) {
      if (ReindeerError.is(error) && error.code !== 'store_unavailable') throw error;
      logger.warn('the answer to an admission was lost', { runId: part.runId, error: String(error) });
      const plan = { tries: settings.writeTries, backoffMs: settings.writeBackoffMs };
      const run = await retry(clock, plan, () => stores.runs.get(part.runId)).catch(() => {
        void this.track(this.close({ runId: part.runId, token }, part.kind));
        throw error;
      });
      if (run === null) throw error;
      if (run.queued)
        return { result: { outcome: 'queued', run, ahead: 0, free: true }, grantedAt, token, begun: null };
      const active = await stores.runs.active(part.threadId).catch(() => []);
      const superseded = active.filter((other) => other.runId !== part.runId && other.status === 'interrupted');
      return { result: { outcome: 'admitted', run, superseded }, grantedAt, token, begun: null };
    }
  }

  /** Sent right behind the admission, in one transaction with it where the store has that. Whatever goes wrong, the worker starts the run. */
  async #begin(fence: Fence, threadId: string, now: number): Promise<Begun | null> {
    const answer = await this.#parts.stores.attempts?.begin({ fence, threadId, now }).catch(() => null);
    return answer?.outcome === 'begun' ? answer : null;
  }

  /** Ends an admission that nobody will work on: the row is terminal, or gone, before this resolves (RA-17). */
  async close(fence: Fence, kind: RunKind = 'run'): Promise<void> {
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
      if (kind !== 'run') await retry<unknown>(clock, plan, () => stores.runs.release(fence));
      else if ((await retry(clock, plan, end)).outcome === 'fenced')
        // It is queued, or somebody gave it its turn: nobody is to work on it either.
        await retry(clock, plan, () =>
          stores.runs.requestCancel({ runId: fence.runId, action: 'interrupt', now: clock.now() }),
        );
    } catch (error) {
      logger.error('an admission could not be closed; recovery will', { runId: fence.runId, error: String(error) });
    }
  }
}

export const shuttingDown = () =>
  new ReindeerError('shutting_down', 'The server is stopping and takes no new work; try again in a moment.', {
    retryable: true,
  });
