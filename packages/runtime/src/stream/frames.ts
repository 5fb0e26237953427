import { comparePositions, type FramePosition, type JsonObject, type WireMessage } from '@reindeer/protocol';
import { mergeAll } from './chunks.ts';

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

interface Message {
  readonly id: string;
  readonly ns: string;
  metadata: JsonObject;
  readonly first: FramePosition;
  folded: Folded | null;
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

/** Ids of forgotten messages that are remembered, so that their later tokens are not taken for their beginning. */
const FORGOTTEN = 1_000;

/** A frame for a reader, or the advice that it must first take back what it has of the message (its frames were folded away). */
export interface Delivery {
  readonly frame: TokenFrame;
  readonly startOver: boolean;
}

/** What readers need of the tokens of one run, whoever writes it. */
export interface TokenSource {
  /** No more tokens come from here: whether the run has ended is a question for the store. */
  readonly closed: boolean;
  /** Every frame that stands before a fact was offered before that fact. Not so for frames that travel between instances. */
  readonly punctual: boolean;
  noteHead(seq: number): void;
  /** Messages of which a reader at `position` has frames already. */
  begunBy(position: FramePosition): readonly string[];
  has(messageId: string): boolean;
  /** Where a message begins; null when nothing of it is here. */
  firstOf(messageId: string): FramePosition | null;
  /** The next frame after `position`; a run of frames of one message up to fact `throughSeq` comes as one. */
  next(position: FramePosition, throughSeq: number): Delivery | null;
}

/** Characters of a chunk, roughly; plain text is by far the most frequent. */
function sizeOf(chunks: readonly WireMessage[]): number {
  let size = 0;
  for (const { content, ...rest } of chunks)
    size +=
      (typeof content === 'string' ? content.length : JSON.stringify(content).length) + JSON.stringify(rest).length;
  return size;
}

/**
 * The token frames of the messages that one run is writing, in the order of their positions. Any number of readers share it; each pulls
 * from its own position. Bounded by `HubLimits`: a reader that is too slow gets the folded text at once; of messages that are
 * forgotten it gets nothing before their fact.
 */
export class FrameBuffer {
  readonly #limits: HubLimits;
  readonly #messages = new Map<string, Message>();
  readonly #forgotten = new Set<string>();
  #frames: TokenFrame[] = [];
  #characters = 0;

  constructor(limits: HubLimits = LIMITS) {
    this.#limits = limits;
  }

  /** Adds a frame behind all others; `first`: where its message begins. A message that was forgotten takes no more. */
  add(frame: TokenFrame, first: FramePosition = frame.position): void {
    const message = this.#messageOf(frame, first);
    if (message === null) return;
    this.#count(message, sizeOf(frame.chunks));
    this.#frames.push(frame);
    if (this.#frames.length > this.#limits.frames) this.#fold();
    this.#forgetOldest();
  }

  /** Everything of a message up to its `position`, in place of what is here of it. */
  replace(frame: TokenFrame, first: FramePosition): void {
    const message = this.#messageOf(frame, first);
    if (message === null) return;
    this.#frames = this.#frames.filter(({ messageId }) => messageId !== frame.messageId);
    message.folded = { first, last: frame.position, chunks: frame.chunks };
    this.#count(message, sizeOf(frame.chunks) - message.size);
    this.#forgetOldest();
  }

  clear(): void {
    this.#messages.clear();
    this.#forgotten.clear();
    this.#frames = [];
    this.#characters = 0;
  }

  begunBy(position: FramePosition): readonly string[] {
    const begun: string[] = [];
    for (const { id, first } of this.#messages.values()) if (comparePositions(first, position) <= 0) begun.push(id);
    return begun;
  }

  has(messageId: string): boolean {
    return this.#messages.has(messageId);
  }

  /** Where a message begins; null when nothing of it is here. */
  firstOf(messageId: string): FramePosition | null {
    return this.#messages.get(messageId)?.first ?? null;
  }

  /** Each message as one frame, with the position of its beginning. */
  wholes(): readonly { readonly frame: TokenFrame; readonly first: FramePosition }[] {
    return [...this.#messages.values()].map((message) => {
      const frames = this.#frames.filter(({ messageId }) => messageId === message.id);
      const chunks = mergeAll([...(message.folded?.chunks ?? []), ...frames.flatMap((frame) => frame.chunks)]);
      const position = frames.at(-1)?.position ?? message.folded?.last ?? message.first;
      const { id, ns, metadata, first } = message;
      return { first, frame: { position, messageId: id, ns, metadata, chunks } };
    });
  }

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

  get size(): { readonly messages: number; readonly frames: number; readonly characters: number } {
    return { messages: this.#messages.size, frames: this.#frames.length, characters: this.#characters };
  }

  #messageOf({ messageId, ns, metadata }: TokenFrame, first: FramePosition): Message | null {
    if (this.#forgotten.has(messageId)) return null;
    let message = this.#messages.get(messageId);
    if (message === undefined) {
      message = { id: messageId, ns, metadata, first, folded: null, size: 0 };
      this.#messages.set(messageId, message);
    }
    message.metadata = metadata;
    return message;
  }

  #count(message: Message, more: number): void {
    message.size += more;
    this.#characters += more;
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
        first: before?.first ?? message.first,
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
      this.#forgotten.add(message.id);
      this.#characters -= message.size;
      this.#frames = this.#frames.filter((frame) => frame.messageId !== message.id);
      const oldest = this.#forgotten.size > FORGOTTEN ? this.#forgotten.values().next().value : undefined;
      if (oldest !== undefined) this.#forgotten.delete(oldest);
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
