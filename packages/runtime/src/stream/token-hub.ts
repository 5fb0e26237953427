import type { Clock, JsonObject, TokenSink, WireMessage } from '@reindeer/protocol';
import { type Bell, NOT_NEEDED } from '../common/waiting.ts';
import { mergeAll, mergeChunks } from './chunks.ts';

/**
 * Where a token frame stands: after fact `seq`, the `n`-th frame of this process for the run. Ordered by `seq`, then `n`; a fact
 * itself is `n` = 0. Together with the facts this is one total order, so a reader can name where it was.
 */
export interface FramePosition {
  readonly seq: number;
  readonly n: number;
}

export const comparePositions = (a: FramePosition, b: FramePosition): number => a.seq - b.seq || a.n - b.n;

export interface TokenFrame {
  readonly position: FramePosition;
  readonly messageId: string;
  readonly ns: string;
  readonly metadata: JsonObject;
  /** At least one; more than one only where chunks cannot be merged with certainty. */
  readonly chunks: readonly WireMessage[];
}

/** What is left of a message's first frames once they were folded together. */
interface Folded {
  readonly first: FramePosition;
  readonly last: FramePosition;
  readonly chunks: readonly WireMessage[];
}

/** Characters of a chunk, roughly; plain text is by far the most frequent. */
function sizeOf(chunk: WireMessage): number {
  const { content, ...rest } = chunk;
  return (typeof content === 'string' ? content.length : JSON.stringify(content).length) + JSON.stringify(rest).length;
}

interface Message {
  readonly id: string;
  readonly ns: string;
  metadata: JsonObject;
  first: FramePosition | null;
  folded: Folded | null;
  pending: WireMessage[];
  size: number;
}

export interface HubLimits {
  /** Frames kept one by one; older ones are folded into one per message. */
  readonly frames: number;
  /** Messages remembered per run. */
  readonly messages: number;
  /** Characters kept per run; the oldest messages are forgotten beyond. */
  readonly characters: number;
}
const LIMITS: HubLimits = { frames: 512, messages: 64, characters: 4 * 1024 * 1024 };

/** A frame for a reader, or the advice that it must first take back what it has of the message (its frames were folded away). */
export interface Delivery {
  readonly frame: TokenFrame;
  readonly startOver: boolean;
}

/**
 * The tokens of the messages that one run is writing. Not facts: in memory, coalesced, gone with the process (D3).
 * Any number of readers share it; none of them can slow the writer, each pulls from its own position. Bounded by `HubLimits`:
 * a reader that is too slow gets the folded text at once.
 */
export class TokenHub implements TokenSink {
  readonly #clock: Clock;
  readonly #bell: Bell;
  readonly #flushMs: number;
  readonly #limits: HubLimits;
  readonly #messages = new Map<string, Message>();
  #frames: TokenFrame[] = [];
  #head: number;
  #count = 0;
  #characters = 0;
  #lastFlush = Number.NEGATIVE_INFINITY;
  #timer: AbortController | null = null;
  #closed = false;

  constructor(parts: { clock: Clock; bell: Bell; flushMs: number; head: number; limits?: HubLimits }) {
    this.#clock = parts.clock;
    this.#bell = parts.bell;
    this.#flushMs = parts.flushMs;
    this.#head = parts.head;
    this.#limits = parts.limits ?? LIMITS;
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
    let message = this.#messages.get(id);
    if (message === undefined) {
      message = { id, ns: ns.join('|'), metadata, first: null, folded: null, pending: [], size: 0 };
      this.#messages.set(id, message);
      this.#forgetOldest();
    }
    message.metadata = metadata;
    const last = message.pending.at(-1);
    const merged = last === undefined ? null : mergeChunks(last, chunk);
    if (merged === null) message.pending.push(chunk);
    else message.pending[message.pending.length - 1] = merged;
    this.#schedule();
  }

  /** Messages of which a reader at `position` has frames already. */
  begunBy(position: FramePosition): readonly string[] {
    const begun: string[] = [];
    for (const { id, first } of this.#messages.values()) {
      if (first !== null && comparePositions(first, position) <= 0) begun.push(id);
    }
    return begun;
  }

  get closed(): boolean {
    return this.#closed;
  }

  has(messageId: string): boolean {
    return this.#messages.has(messageId);
  }

  /** The next frame after `position`; a run of frames of one message up to fact `throughSeq` comes as one. */
  next(position: FramePosition, throughSeq: number): Delivery | null {
    const folded = this.#nextFolded(position);
    if (folded !== null) return folded;
    const at = this.#indexAfter(position);
    const first = this.#frames[at];
    if (first === undefined) return null;
    let last = first;
    const chunks = [...first.chunks];
    for (let i = at + 1; i < this.#frames.length && i < at + 64; i += 1) {
      const frame = this.#frames[i];
      if (frame === undefined || frame.messageId !== first.messageId || frame.position.seq > throughSeq) break;
      chunks.push(...frame.chunks);
      last = frame;
    }
    // The frame itself where there is only one, so that readers share its text.
    if (last === first) return { frame: first, startOver: false };
    return { frame: { ...first, position: last.position, chunks: mergeAll(chunks) }, startOver: false };
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
    this.#closed = true;
  }

  get size(): { readonly messages: number; readonly frames: number; readonly characters: number } {
    return { messages: this.#messages.size, frames: this.#frames.length, characters: this.#characters };
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
    let emitted = false;
    for (const message of this.#messages.values()) {
      for (const chunk of message.pending) {
        this.#count += 1;
        const position = { seq: this.#head, n: this.#count };
        message.first ??= position;
        const size = sizeOf(chunk);
        message.size += size;
        this.#characters += size;
        this.#frames.push({
          position,
          messageId: message.id,
          ns: message.ns,
          metadata: message.metadata,
          chunks: [chunk],
        });
        emitted = true;
      }
      message.pending = [];
    }
    if (emitted) {
      this.#lastFlush = this.#clock.monotonic();
      if (this.#frames.length > this.#limits.frames) this.#fold();
      this.#forgetOldest();
    }
    return emitted;
  }

  #fold(): void {
    const half = Math.ceil(this.#limits.frames / 2);
    const old = this.#frames.slice(0, -half);
    this.#frames = this.#frames.slice(-half);
    for (const frame of old) {
      const message = this.#messages.get(frame.messageId);
      if (message === undefined) continue;
      const before = message.folded;
      message.folded = {
        first: before?.first ?? frame.position,
        last: frame.position,
        chunks: mergeAll([...(before?.chunks ?? []), ...frame.chunks]),
      };
    }
  }

  #forgetOldest(): void {
    for (const message of this.#messages.values()) {
      const tooMany = this.#messages.size > this.#limits.messages || this.#characters > this.#limits.characters;
      if (!tooMany || this.#messages.size === 1) return;
      this.#messages.delete(message.id);
      this.#characters -= message.size;
      this.#frames = this.#frames.filter((frame) => frame.messageId !== message.id);
    }
  }

  #nextFolded(position: FramePosition): Delivery | null {
    let best: { message: Message; folded: Folded } | null = null;
    for (const message of this.#messages.values()) {
      const folded = message.folded;
      if (folded === null || comparePositions(folded.last, position) <= 0) continue;
      if (best === null || comparePositions(folded.last, best.folded.last) < 0) best = { message, folded };
    }
    if (best === null) return null;
    const { message, folded } = best;
    return {
      startOver: comparePositions(folded.first, position) <= 0,
      frame: {
        position: folded.last,
        messageId: message.id,
        ns: message.ns,
        metadata: message.metadata,
        chunks: folded.chunks,
      },
    };
  }

  #indexAfter(position: FramePosition): number {
    let low = 0;
    let high = this.#frames.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      const frame = this.#frames[middle];
      if (frame !== undefined && comparePositions(frame.position, position) <= 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
