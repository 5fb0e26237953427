import type { Clock, FramePosition, JsonObject, RelayedFrame, TokenSink, WireMessage } from '@reindeer/protocol';
import { type Bell, NOT_NEEDED } from '../common/waiting.ts';
import { mergeChunks } from './chunks.ts';
import { type Delivery, FrameBuffer, type HubLimits, type TokenSource } from './frames.ts';

/** Characters that are put together before they go out, whatever the time: arguments of a tool that writes a file come fast. */
const BATCH_CHARACTERS = 32 * 1024;

/** Tokens of one message that are not a frame yet. */
interface Pending {
  readonly ns: string;
  metadata: JsonObject;
  readonly chunks: WireMessage[];
}

/**
 * The tokens of the messages that one run is writing here. Not facts: in memory, coalesced, gone with the process (D3).
 * None of its readers can slow the writer. While a peer reads the run, frames are also told to it (`share`).
 */
export class TokenHub implements TokenSink, TokenSource {
  readonly punctual = true;
  readonly #clock: Clock;
  readonly #bell: Bell;
  readonly #flushMs: number;
  readonly #attempt: number;
  readonly #buffer: FrameBuffer;
  readonly #pending = new Map<string, Pending>();
  #head: number;
  #count = 0;
  #waiting = 0;
  #lastFlush = Number.NEGATIVE_INFINITY;
  #timer: AbortController | null = null;
  #tell: ((frames: readonly RelayedFrame[]) => void) | null = null;
  #closed = false;

  constructor(parts: {
    clock: Clock;
    bell: Bell;
    flushMs: number;
    head: number;
    /** Of the run, that writes here. */
    attempt?: number;
    limits?: HubLimits;
  }) {
    this.#clock = parts.clock;
    this.#bell = parts.bell;
    this.#flushMs = parts.flushMs;
    this.#head = parts.head;
    this.#attempt = parts.attempt ?? 1;
    this.#buffer = new FrameBuffer(parts.limits);
  }

  /** The thread's log is known to reach `seq`: later frames stand after it. Readers call this before they deliver the fact. */
  noteHead(seq: number): void {
    if (seq <= this.#head) return;
    if (this.#emitPending()) this.#bell.ring();
    this.#head = seq;
  }

  push(chunk: WireMessage, metadata: JsonObject, ns: readonly string[] = []): void {
    const id = chunk.id;
    if (this.#closed || id === undefined || id === null || id === '') return;
    let pending = this.#pending.get(id);
    if (pending === undefined) {
      pending = { ns: ns.join('|'), metadata, chunks: [] };
      this.#pending.set(id, pending);
    }
    pending.metadata = metadata;
    const last = pending.chunks.at(-1);
    const merged = last === undefined ? null : mergeChunks(last, chunk);
    if (merged === null) pending.chunks.push(chunk);
    else pending.chunks[pending.chunks.length - 1] = merged;
    this.#waiting += lengthOf(chunk);
    if (this.#waiting > BATCH_CHARACTERS) this.flush();
    else this.#schedule();
  }

  /** From now on every frame is told too; with `whole`, first what is there. null = no longer. */
  share(tell: ((frames: readonly RelayedFrame[]) => void) | null, whole = false): void {
    this.#tell = tell;
    if (tell === null || !whole) return;
    this.flush();
    const after = this.#count;
    const frames = this.#buffer
      .wholes()
      .map(({ frame, first }) => ({ ...frame, attempt: this.#attempt, first, after, whole: true }));
    if (frames.length > 0) tell(frames);
  }

  get shared(): boolean {
    return this.#tell !== null;
  }

  begunBy(position: FramePosition): readonly string[] {
    return this.#buffer.begunBy(position);
  }

  get closed(): boolean {
    return this.#closed;
  }

  has(messageId: string): boolean {
    return this.#buffer.has(messageId);
  }

  firstOf(messageId: string): FramePosition | null {
    return this.#buffer.firstOf(messageId);
  }

  next(position: FramePosition, throughSeq: number): Delivery | null {
    return this.#buffer.next(position, throughSeq);
  }

  /** Pending tokens become a frame now: the message is finished, or the run ends. */
  flush(): void {
    this.#timer?.abort(NOT_NEEDED);
    this.#timer = null;
    if (this.#emitPending()) this.#bell.ring();
  }

  /** No more tokens; what is there stays readable for those who hold the hub. */
  close(): void {
    this.flush();
    this.#tell = null;
    this.#closed = true;
  }

  get size(): { readonly messages: number; readonly frames: number; readonly characters: number } {
    return this.#buffer.size;
  }

  #schedule(): void {
    if (this.#timer !== null) return;
    const wait = this.#lastFlush + this.#flushMs - this.#clock.monotonic();
    if (wait <= 0) {
      // The first token after a pause goes out at once.
      this.flush();
      return;
    }
    const timer = new AbortController();
    this.#timer = timer;
    this.#clock.sleep(wait, timer.signal).then(
      () => {
        if (this.#timer === timer) this.flush();
      },
      () => undefined,
    );
  }

  #emitPending(): boolean {
    if (this.#pending.size === 0) return false;
    const told: RelayedFrame[] = [];
    for (const [messageId, { ns, metadata, chunks }] of this.#pending) {
      for (const chunk of chunks) {
        const after = this.#count;
        this.#count += 1;
        const position = { seq: this.#head, n: this.#count };
        const frame = { position, messageId, ns, metadata, chunks: [chunk] };
        this.#buffer.add(frame);
        if (this.#tell === null) continue;
        const first = this.#buffer.firstOf(messageId);
        if (first !== null) told.push({ ...frame, attempt: this.#attempt, first, after, whole: false });
      }
    }
    this.#pending.clear();
    this.#waiting = 0;
    this.#lastFlush = this.#clock.monotonic();
    if (told.length > 0) this.#tell?.(told);
    return true;
  }
}

/** Characters of a piece, as far as they count: its text and the arguments of its tool calls. */
function lengthOf({ content, tool_call_chunks: calls }: WireMessage): number {
  let length = typeof content === 'string' ? content.length : JSON.stringify(content).length;
  if (Array.isArray(calls)) for (const call of calls) length += argumentsOf(call).length;
  return length;
}

const argumentsOf = (call: unknown): string => {
  const { args } = (call ?? {}) as { args?: unknown };
  return typeof args === 'string' ? args : '';
};
