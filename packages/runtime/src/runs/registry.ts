import type { LocalRun } from './local-run.ts';

/**
 * The runs and reservations that this process holds, by run and by thread; nothing else. A record leaves when it is settled, and
 * from then on every answer comes from the store (RT-24), so the registry is as large as the work in hand (RT-25).
 */
export class RunRegistry {
  readonly #runs = new Map<string, LocalRun>();
  readonly #threads = new Map<string, Set<LocalRun>>();

  get size(): number {
    return this.#runs.size;
  }

  get threads(): number {
    return this.#threads.size;
  }

  get(runId: string): LocalRun | undefined {
    return this.#runs.get(runId);
  }

  add(run: LocalRun): void {
    this.#runs.set(run.run.runId, run);
    const bucket = this.#threads.get(run.run.threadId) ?? new Set();
    bucket.add(run);
    this.#threads.set(run.run.threadId, bucket);
  }

  /** Removes exactly this record; a newer one of the same id (taken over again) stays. */
  remove(run: LocalRun): void {
    if (this.#runs.get(run.run.runId) === run) this.#runs.delete(run.run.runId);
    const bucket = this.#threads.get(run.run.threadId);
    bucket?.delete(run);
    if (bucket?.size === 0) this.#threads.delete(run.run.threadId);
  }

  /** Records of a thread in order of arrival. */
  ofThread(threadId: string): readonly LocalRun[] {
    return [...(this.#threads.get(threadId) ?? [])];
  }

  all(): readonly LocalRun[] {
    return [...this.#runs.values()];
  }
}
