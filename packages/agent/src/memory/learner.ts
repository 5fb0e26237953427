import {
  type CaptureRight,
  type ClaimedCapture,
  type MemoryStore,
  newId,
  newToken,
  ReindeerError,
  type Surroundings,
} from '@reindeer/protocol';
import type { AskModel } from '../skills/judge.ts';
import { parseAnswer } from './answer.ts';
import { unlearned } from './conversation.ts';
import { learn, reviewable } from './learn.ts';
import { questionFor } from './question.ts';
import type { Memory } from './service.ts';
import { isTrivial } from './signals.ts';

export interface LearnerParts {
  readonly store: MemoryStore;
  readonly memory: Memory;
  /** Asks the model that learns. */
  readonly ask: AskModel;
  /** Is anything learned now? What waits stays in the store while not. Default yes. */
  readonly active?: () => boolean;
  readonly surroundings: Surroundings;
}

export interface FlushReport {
  /** Did all that was under way end in time? */
  readonly complete: boolean;
  /** Conversations that go on after the next start; null = the store did not say. */
  readonly waiting: number | null;
}

export interface LearnerStatus {
  /** Conversations from which something is learned right now. */
  readonly active: number;
  readonly lastAt: number | null;
  readonly lastOutcome: 'learned' | 'nothing' | 'failed' | null;
}

const AT_ONCE = 2;
const POLL_MS = 5_000;
const LEASE_MS = 180_000;
/** Well before the lease ends. */
const WORK_MS = 150_000;
/** Failed tries after which a conversation is given up. */
const MAX_ATTEMPTS = 5;
const FIRST_PAUSE_MS = 30_000;
/** Times that the answer is worked out anew because the memory changed under it. */
const REWORKS = 3;

/**
 * Learns from conversations that became quiet. States:
 *
 *   idle → (`start`) running → (`flush`) stopping → (`close`) closed
 *
 * Running: claims what is due, a few at a time, each under a token; what is learned is written together with the end of the claim, so that a
 * process that dies, or a holder that was taken for dead, neither loses nor doubles anything. Stopping: nothing new is claimed, what is under
 * way gets the time that it is given, then it is cut short and given back. What waits stays in the store for the next start.
 */
export class Learner {
  readonly #parts: LearnerParts;
  readonly #stopping = new AbortController();
  readonly #cut = new AbortController();
  readonly #active = new Map<string, Promise<void>>();
  #loop: Promise<void> | null = null;
  #wake = Promise.withResolvers<void>();
  #last: { at: number; outcome: NonNullable<LearnerStatus['lastOutcome']> } | null = null;

  constructor(parts: LearnerParts) {
    this.#parts = parts;
    parts.memory.onUrgent(() => this.#wake.resolve());
  }

  get status(): LearnerStatus {
    return { active: this.#active.size, lastAt: this.#last?.at ?? null, lastOutcome: this.#last?.outcome ?? null };
  }

  /** Begins in the background and never fails: a store that is away is asked again (GW-02, GW-05). */
  start(): void {
    if (this.#loop === null && !this.#stopping.signal.aborted) this.#loop = this.#run();
  }

  /**
   * No new work; waits for what is under way, then cuts it short.
   * @param timeoutMs all of it is theirs, whatever else goes on
   */
  async flush(timeoutMs: number): Promise<FlushReport> {
    const { clock } = this.#parts.surroundings;
    this.#stopping.abort();
    const patience = new AbortController();
    const late = clock.sleep(timeoutMs, patience.signal).then(
      () => false,
      () => false,
    );
    const complete = await Promise.race([this.#ended().then(() => true), late]);
    patience.abort();
    this.#cut.abort();
    if (!complete) return { complete, waiting: null };
    const waiting = await this.#parts.store.pending({ userId: null }).catch(() => null);
    return { complete, waiting };
  }

  /** Cuts everything short and waits for its end. May be called twice. */
  async close(): Promise<void> {
    this.#stopping.abort();
    this.#cut.abort();
    await this.#ended();
  }

  async #ended(): Promise<void> {
    // A claim that is answered late may still begin something: until both are over.
    await this.#loop;
    while (this.#active.size > 0) await Promise.allSettled([...this.#active.values()]);
  }

  async #run(): Promise<void> {
    const { clock, logger } = this.#parts.surroundings;
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      const wake = Promise.withResolvers<void>();
      this.#wake = wake;
      try {
        await this.#claim();
      } catch (error) {
        logger.warn('Conversations that wait to be remembered could not be read; they are asked for again', {
          reason: reasonOf(error),
        });
      }
      const timer = new AbortController();
      const stop = (): void => timer.abort();
      signal.addEventListener('abort', stop, { once: true });
      if (signal.aborted) stop();
      const rest = clock.sleep(Math.min(POLL_MS, this.#parts.memory.settings.debounceMs), timer.signal).catch(() => {});
      await Promise.race([rest, wake.promise]);
      timer.abort();
      signal.removeEventListener('abort', stop);
    }
  }

  async #claim(): Promise<void> {
    const { store, surroundings, active } = this.#parts;
    if (active?.() === false) return;
    const free = AT_ONCE - this.#active.size;
    if (free <= 0) return;
    const now = surroundings.clock.now();
    const tokens = Array.from({ length: free }, () => newToken(surroundings.random));
    const claimed = await store.claim({ tokens, leaseUntil: now + LEASE_MS, now });
    for (const capture of claimed) {
      const work = this.#work(capture).finally(() => {
        this.#active.delete(capture.token);
        this.#wake.resolve();
      });
      this.#active.set(capture.token, work);
    }
  }

  /** Never rejects. */
  async #work(capture: ClaimedCapture): Promise<void> {
    const { clock, logger } = this.#parts.surroundings;
    const timer = new AbortController();
    const limit = new AbortController();
    clock.sleep(WORK_MS, timer.signal).then(
      () => limit.abort(),
      () => {},
    );
    const signal = AbortSignal.any([limit.signal, this.#cut.signal]);
    try {
      // The stop was asked for while the claim was on its way.
      if (this.#stopping.signal.aborted) await this.#giveBack(capture, clock.now(), false);
      else this.#last = { at: clock.now(), outcome: await this.#learnFrom(capture, signal) };
    } catch (error) {
      const cut = this.#cut.signal.aborted;
      if (!cut) {
        this.#last = { at: clock.now(), outcome: 'failed' };
        logger.warn('Nothing could be learned from a conversation', {
          threadId: capture.threadId,
          attempt: capture.attempts + 1,
          reason: reasonOf(error),
        });
      }
      await this.#failed(capture, cut).catch((failure: unknown) => {
        // Its lease ends by itself.
        logger.warn('A conversation could not be given back', {
          threadId: capture.threadId,
          reason: reasonOf(failure),
        });
      });
    } finally {
      timer.abort();
    }
  }

  async #failed(capture: ClaimedCapture, cut: boolean): Promise<void> {
    const { clock } = this.#parts.surroundings;
    if (cut) return this.#giveBack(capture, clock.now(), false);
    if (capture.attempts + 1 >= MAX_ATTEMPTS) return this.#giveUp(capture);
    await this.#giveBack(capture, clock.now() + FIRST_PAUSE_MS * 2 ** capture.attempts, true);
  }

  async #giveBack(capture: ClaimedCapture, dueAt: number, failed: boolean): Promise<void> {
    await this.#parts.store.postpone({ right: rightOf(capture), dueAt, failed });
  }

  async #giveUp(capture: ClaimedCapture): Promise<void> {
    const { store, surroundings, memory } = this.#parts;
    surroundings.logger.error('A conversation is given up: nothing could be learned from it', {
      threadId: capture.threadId,
      attempts: MAX_ATTEMPTS,
    });
    await store.settle({
      right: rightOf(capture),
      change: null,
      watermark: watermarkOf(capture),
      maxWatermarks: memory.settings.maxWatermarks,
      now: surroundings.clock.now(),
    });
  }

  async #learnFrom(capture: ClaimedCapture, signal: AbortSignal): Promise<NonNullable<LearnerStatus['lastOutcome']>> {
    const { store, memory, ask, surroundings } = this.#parts;
    const { clock, random, logger } = surroundings;
    const { settings } = memory;
    const { userId, agent, threadId } = capture;
    const messages = unlearned(capture);
    const silent = messages.every(({ role, text }) => role === 'assistant' || isTrivial(text));
    for (let turn = 0; turn < REWORKS; turn += 1) {
      const document = await store.read({ userId, agent });
      const now = clock.now();
      let change = null;
      if (!silent) {
        const review = reviewable(document, settings, now);
        const mark = newToken(random).slice(0, 12);
        const { signals } = capture;
        const question = questionFor({ document, messages, signals, review, settings, mark });
        const extraction = parseAnswer(await ask(question.text, signal));
        // The answer may have come after the stop cut it short.
        signal.throwIfAborted();
        if (extraction === null) throw new ReindeerError('model_failed', 'The model’s answer holds no JSON object.');
        change = learn({
          document,
          extraction,
          settings,
          reviewed: new Set(review.map((fact) => fact.id)),
          names: question.names,
          threadId,
          accessed: memory.accessed,
          now,
          newId: () => newId(random),
        });
      }
      const settled = await store.settle({
        right: rightOf(capture),
        change,
        watermark: watermarkOf(capture),
        maxWatermarks: settings.maxWatermarks,
        now,
      });
      if (settled.outcome === 'ok') {
        if (change !== null)
          logger.info('Learned from a conversation', {
            threadId,
            facts: change.put.length,
            removed: change.remove.length,
          });
        return change === null ? 'nothing' : 'learned';
      }
      if (settled.outcome === 'fenced') return 'nothing';
    }
    throw new ReindeerError('conflict', 'The memory changed again and again while this was learned.', {
      retryable: true,
    });
  }
}

/** Messages that left the conversation stand before those that were learned from: they do not move the mark. */
const watermarkOf = (capture: ClaimedCapture): string | null =>
  capture.partial ? capture.watermark : (capture.messages.at(-1)?.id ?? capture.watermark);

const rightOf = ({ userId, agent, threadId, token, version }: ClaimedCapture): CaptureRight => ({
  userId,
  agent,
  threadId,
  token,
  version,
});

const reasonOf = (error: unknown): string =>
  ReindeerError.is(error) ? error.code : error instanceof Error ? error.name : 'unknown';
