import type { BatchAddress, BatchProgress, BatchStore, Clock } from '@reindeer/protocol';
import { isBatchOver } from '@reindeer/protocol';
import { type Bell, settledWithin } from '../common/waiting.ts';

/** Between two looks; a change here wakes watchers earlier, but not more often than `SHORTEST_MS`. */
const LONGEST_MS = 1_000;
const SHORTEST_MS = 200;
/** A look counts the items, so it is dearer the more there are: all watchers of a batch together look one part of the time, and rest this many. */
const REST = 20;
const LONGEST_REST_MS = 10_000;

/** One look at a batch, for everybody who watches it here. */
interface Look {
  readonly answer: Promise<BatchProgress | null>;
  /** Resolves when something changed here after the look began. */
  readonly changed: Promise<void>;
  /** Monotonic time before which nobody looks again; null = it is under way. */
  restUntil: number | null;
}

interface Watched {
  watchers: number;
  look: Look | null;
}

/** Where batches stand, told to any number of watchers at the cost of one. */
export class BatchWatch {
  readonly #store: Pick<BatchStore, 'get'>;
  readonly #clock: Clock;
  readonly #changes: Bell;
  readonly #watched = new Map<string, Watched>();

  /** @param changes rings when something of a batch changed in this process */
  constructor(parts: { readonly store: Pick<BatchStore, 'get'>; readonly clock: Clock; readonly changes: Bell }) {
    this.#store = parts.store;
    this.#clock = parts.clock;
    this.#changes = parts.changes;
  }

  /** See `BatchService.watch`. */
  async *watch(input: BatchAddress, signal: AbortSignal): AsyncGenerator<BatchProgress> {
    const { batchId, userId, threadId } = input;
    // What one user may see is never another's answer.
    const key = JSON.stringify([batchId, userId, threadId ?? null]);
    const watched = this.#watched.get(key) ?? { watchers: 0, look: null };
    this.#watched.set(key, watched);
    watched.watchers += 1;
    const leaving = aborted(signal);
    let last = '';
    try {
      while (!signal.aborted) {
        const look = this.#look(watched, input);
        const progress = await look.answer;
        if (progress === null) return;
        const text = JSON.stringify(progress);
        if (text !== last) yield progress;
        last = text;
        if (isBatchOver(progress.batch.status)) return;
        const rest = (look.restUntil ?? 0) - this.#clock.monotonic();
        if (rest > 0) await this.#clock.sleep(rest, signal).catch(() => undefined);
        if (!signal.aborted) await settledWithin(this.#clock, Promise.race([look.changed, leaving]), LONGEST_MS);
      }
    } finally {
      watched.watchers -= 1;
      if (watched.watchers === 0 && this.#watched.get(key) === watched) this.#watched.delete(key);
    }
  }

  /** The look that is under way or was a moment ago, else a new one. */
  #look(watched: Watched, input: BatchAddress): Look {
    const known = watched.look;
    if (known !== null && (known.restUntil === null || this.#clock.monotonic() < known.restUntil)) return known;
    const begun = this.#clock.monotonic();
    const rest = (): number => {
      const now = this.#clock.monotonic();
      return now + Math.min(Math.max((now - begun) * REST, SHORTEST_MS), LONGEST_REST_MS);
    };
    const look: Look = {
      // Before the look, so that nothing is missed in between.
      changed: this.#changes.next(),
      answer: this.#store.get(input).finally(() => {
        look.restUntil = rest();
      }),
      restUntil: null,
    };
    watched.look = look;
    return look;
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
}
