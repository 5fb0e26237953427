import type { Logger, RelayedFrame, WantedRun } from '@reindeer/protocol';

/** Who in this process hears wishes and frames of peers. */
export class Listeners {
  readonly #logger: Logger;
  readonly #wishes = new Set<(runs: readonly WantedRun[]) => void>();
  readonly #watching = new Map<string, (frames: readonly RelayedFrame[]) => void>();

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  onWanted(listener: (runs: readonly WantedRun[]) => void): () => void {
    this.#wishes.add(listener);
    return () => this.#wishes.delete(listener);
  }

  watch(runId: string, listener: (frames: readonly RelayedFrame[]) => void): () => void {
    this.#watching.set(runId, listener);
    return () => {
      if (this.#watching.get(runId) === listener) this.#watching.delete(runId);
    };
  }

  watches(runId: string): boolean {
    return this.#watching.has(runId);
  }

  hearWishes(runs: readonly WantedRun[]): void {
    if (runs.length > 0) for (const listener of this.#wishes) this.#safely(() => listener(runs));
  }

  hearFrames(runId: string, frames: readonly RelayedFrame[]): void {
    const listener = this.#watching.get(runId);
    if (listener !== undefined && frames.length > 0) this.#safely(() => listener(frames));
  }

  #safely(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.#logger.error('A listener of relayed tokens failed', { error: String(error) });
    }
  }
}
