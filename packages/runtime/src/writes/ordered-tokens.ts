import type { JsonObject, TokenSink, WireMessage } from '@reindeer/protocol';
import { mergeChunks } from '../stream/chunks.ts';

interface Held {
  /** How many writes of the attempt must be stored before it. */
  readonly after: number;
  chunk: WireMessage;
  readonly metadata: JsonObject;
  readonly ns: readonly string[] | undefined;
}

/**
 * Tokens in the place where they belong among the facts. A model may begin to speak while the step before it is still being stored;
 * its tokens wait for that, since a frame's position names the newest fact before it (D3). Pieces of one message are joined meanwhile,
 * so that what waits is at most the messages that are being written.
 */
export class OrderedTokens implements TokenSink {
  readonly #sink: TokenSink;
  readonly #writes: { readonly sent: number; readonly idle: boolean };
  #held: Held[] = [];

  constructor(sink: TokenSink, writes: { readonly sent: number; readonly idle: boolean }) {
    this.#sink = sink;
    this.#writes = writes;
  }

  /** Pieces that wait for a write. */
  get waiting(): number {
    return this.#held.length;
  }

  push(chunk: WireMessage, metadata: JsonObject, ns?: readonly string[]): void {
    if (this.#held.length === 0 && this.#writes.idle) {
      this.#sink.push(chunk, metadata, ns);
      return;
    }
    const after = this.#writes.sent;
    // The newest of its message, also where several are written at once. Before another write it stays as it is.
    const last = this.#held.findLast((held) => held.after < after || held.chunk.id === chunk.id);
    const merged = last?.after === after && last.chunk.id === chunk.id ? mergeChunks(last.chunk, chunk) : null;
    if (last !== undefined && merged !== null) last.chunk = merged;
    else this.#held.push({ after, chunk, metadata, ns });
  }

  /** The first `stored` writes are stored: tokens that came after them may go out. */
  release(stored: number): void {
    const due = this.#held.findIndex(({ after }) => after > stored);
    const ready = due < 0 ? this.#held : this.#held.slice(0, due);
    this.#held = due < 0 ? [] : this.#held.slice(due);
    for (const { chunk, metadata, ns } of ready) this.#sink.push(chunk, metadata, ns);
  }
}
