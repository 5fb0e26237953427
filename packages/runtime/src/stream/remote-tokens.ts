import type { FramePosition, RelayedFrame } from '@reindeer/protocol';
import { type Delivery, FrameBuffer, type HubLimits, type TokenSource } from './frames.ts';

/**
 * The tokens of a run that is worked elsewhere, as they arrive. Frames may be lost, doubled, or come from an attempt that was overtaken;
 * each carries the number before it, so that a hole is seen: what was being written is then forgotten, and asked for anew.
 *
 * State: the attempt that is followed and the highest number of its frames, from which on nothing is missing. An older attempt is
 * ignored, a newer one starts over.
 */
export class RemoteTokens implements TokenSource {
  readonly closed = true;
  readonly punctual = false;
  readonly #buffer: FrameBuffer;
  #attempt = 0;
  #through = 0;
  /** Highest fact that a frame named. */
  #head = 0;

  constructor(limits?: HubLimits) {
    this.#buffer = new FrameBuffer(limits);
  }

  /** The highest fact that is known to exist from frames. */
  get head(): number {
    return this.#head;
  }

  /** Takes frames in; false = some are missing, ask for all. */
  accept(frames: readonly RelayedFrame[]): boolean {
    let complete = true;
    for (const frame of frames) if (!this.#take(frame)) complete = false;
    return complete;
  }

  noteHead(): void {
    // Positions are given by the instance that writes.
  }

  begunBy(position: FramePosition): readonly string[] {
    return this.#buffer.begunBy(position);
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

  #take(frame: RelayedFrame): boolean {
    const { attempt, after, position, first, whole } = frame;
    if (attempt < this.#attempt) return true;
    if (attempt > this.#attempt) {
      this.#attempt = attempt;
      this.#through = 0;
      this.#buffer.clear();
    }
    this.#head = Math.max(this.#head, position.seq);
    if (whole) {
      // Older than what is here: it crossed the frames after it.
      if (after < this.#through) return true;
      if (after > this.#through) this.#buffer.clear();
      this.#through = after;
      this.#buffer.replace(frame, first);
      return true;
    }
    if (position.n <= this.#through) return true;
    const begins = first.n === position.n;
    const complete = after <= this.#through;
    if (!complete) this.#buffer.clear();
    this.#through = position.n;
    if (begins || this.#buffer.has(frame.messageId)) {
      this.#buffer.add(frame, first);
      return complete;
    }
    return false;
  }
}
