import type { Api, StreamPart } from '../api/api.ts';
import type { Storage } from '../api/token.ts';
import { isActive } from './ended.ts';
import { isDictionary } from './wire.ts';

/** Delays in milliseconds before a broken stream is joined again. */
const REJOIN_DELAYS = [500, 1_000, 2_000, 4_000, 8_000] as const;

interface RunStreamParts {
  readonly api: Pick<Api, 'run' | 'joinRun'>;
  readonly storage: Storage;
  readonly threadId: string;
  readonly sleep: (milliseconds: number, signal: AbortSignal) => Promise<void>;
  /** Fires when nobody looks at the chat any more. */
  readonly signal: () => AbortSignal;
  readonly onPart: (part: StreamPart) => void;
  /** Something of the stream is lost: the state is to be read anew. */
  readonly onGap: () => Promise<void>;
  readonly onReconnecting: () => void;
}

/** What a run tells, read to its end: also over connections that break, and after a reload of the page. */
export class RunStream {
  readonly #parts: RunStreamParts;
  #lastEvent: { readonly runId: string; readonly id: string } | null = null;

  constructor(parts: RunStreamParts) {
    this.#parts = parts;
  }

  /** @param named is called with the run's id, should the stream tell it */
  async read(
    stream: AsyncIterable<StreamPart>,
    runId: () => string | null,
    named: (id: string) => void,
  ): Promise<void> {
    for await (const part of stream) {
      if (part.event === 'metadata' && isDictionary(part.data) && typeof part.data.run_id === 'string')
        named(part.data.run_id);
      const id = runId();
      if (part.id !== undefined && id !== null) this.#lastEvent = { runId: id, id: part.id };
      if (part.event === 'gap') await this.#parts.onGap();
      else this.#parts.onPart(part);
    }
  }

  /** Reads a run that is at work already. */
  async join(runId: string): Promise<void> {
    try {
      await this.#readAgain(runId);
    } catch {
      await this.rejoin(runId);
    }
  }

  /** The connection is gone; the run goes on without us. Joins it again where it was left, with growing delays. */
  async rejoin(runId: string): Promise<void> {
    const { api, threadId, sleep, signal, onReconnecting } = this.#parts;
    let last: unknown = null;
    for (const delay of REJOIN_DELAYS) {
      onReconnecting();
      await sleep(delay, signal());
      try {
        const run = await api.run(threadId, runId);
        if (run === null || !isActive(run)) return;
        await this.#readAgain(runId);
        return;
      } catch (error) {
        if (signal().aborted) throw error;
        last = error;
      }
    }
    throw last;
  }

  #readAgain(runId: string): Promise<void> {
    const { api, storage, threadId, signal } = this.#parts;
    const lastEventId =
      this.#lastEvent?.runId === runId ? this.#lastEvent.id : afterReload(storage.getItem(eventKey(runId)));
    return this.read(
      api.joinRun({ threadId, runId, lastEventId, signal: signal() }),
      () => runId,
      () => {},
    );
  }

  /** Keeps for a reload of the page how far the stream was read. */
  keep(): void {
    if (this.#lastEvent !== null) this.#parts.storage.setItem(eventKey(this.#lastEvent.runId), this.#lastEvent.id);
  }

  /** The run is over. */
  forget(runId: string): void {
    this.#parts.storage.removeItem(eventKey(runId));
    this.#lastEvent = null;
  }
}

function eventKey(runId: string): string {
  return `reindeer.event.${runId}`;
}

/**
 * A reload forgets the message that was being written: the reader goes back to the last fact, so that its pieces come again. An id is
 * `<epoch>-<fact>`, with `.<piece>` for what came after that fact.
 */
function afterReload(lastEventId: string | null): string | null {
  return lastEventId?.replace(/\.\d+$/, '') ?? null;
}
