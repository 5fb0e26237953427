import type { Clock } from '@reindeer/protocol';
import { ChannelError } from './adapter.ts';
import { Bell, waitFor } from './waiting.ts';

/** A text that grew by so much is shown as soon as the provider lets it; what grew by less, after a second. */
const ENOUGH = 60;
const REST_MS = 1_000;
/** After a failure without a word about when to try again. */
const PAUSE_MS = 5_000;

/**
 * Shows a growing text by editing one message. Never two edits at once, never more often than the provider allows, always the newest text: what came
 * in between is skipped. A provider that refuses ends it; the answer itself goes another way.
 */
export class LiveText {
  readonly #clock: Clock;
  readonly #gapMs: number;
  readonly #publish: (text: string, signal: AbortSignal) => Promise<void>;
  readonly #closing = new AbortController();
  readonly #signal: AbortSignal;
  readonly #bell = new Bell();
  readonly #loop: Promise<void>;
  #wanted = '';
  #shown = '';
  /** Monotonic; no edit before it. */
  #notBefore: number;
  #shownAt: number;

  constructor(parts: {
    readonly clock: Clock;
    readonly gapMs: number;
    readonly publish: (text: string, signal: AbortSignal) => Promise<void>;
    readonly signal: AbortSignal;
  }) {
    this.#clock = parts.clock;
    this.#gapMs = parts.gapMs;
    this.#publish = parts.publish;
    this.#signal = AbortSignal.any([parts.signal, this.#closing.signal]);
    this.#shownAt = this.#clock.monotonic();
    this.#notBefore = this.#shownAt + this.#gapMs;
    this.#loop = this.#run();
  }

  show(text: string): void {
    this.#wanted = text;
    this.#bell.ring();
  }

  /** Ends it, and waits until an edit under way is over: nothing of it comes behind the answer. */
  async close(): Promise<void> {
    this.#closing.abort();
    this.#bell.ring();
    await this.#loop;
  }

  async #run(): Promise<void> {
    while (!this.#signal.aborted) {
      const rung = this.#bell.next();
      const wanted = this.#wanted;
      if (wanted === this.#shown || wanted === '') {
        await waitFor(this.#clock, 60_000, this.#signal, rung);
        continue;
      }
      const grown = Math.abs(wanted.length - this.#shown.length);
      const due = Math.max(this.#notBefore, grown >= ENOUGH ? 0 : this.#shownAt + REST_MS);
      const left = due - this.#clock.monotonic();
      if (left > 0) {
        await waitFor(this.#clock, left, this.#signal, rung);
        continue;
      }
      let pause = this.#gapMs;
      try {
        await this.#publish(wanted, this.#signal);
        this.#shown = wanted;
      } catch (error) {
        if (!(error instanceof ChannelError) || error.failure === 'refused') return;
        pause = error.retryAfterMs ?? PAUSE_MS;
      }
      this.#shownAt = this.#clock.monotonic();
      this.#notBefore = this.#shownAt + pause;
    }
  }
}
