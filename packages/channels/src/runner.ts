import { type ChannelEntry, type ChannelStore, newToken, type Surroundings } from '@reindeer/protocol';
import { type ChannelAdapter, ChannelError, type Sink } from './adapter.ts';
import { Held, Lost } from './held.ts';
import type { ChannelHost } from './host.ts';
import { MessageTask } from './message-task.ts';
import type { ChannelSettings, Provider } from './settings.ts';
import { Bell, settledWithin, waitFor } from './waiting.ts';

export type RunnerState =
  /** Nothing is configured, or it is switched off. */
  | 'off'
  | 'connecting'
  | 'running'
  /** Another instance has the channel; this one takes over when it ends. */
  | 'standby'
  /** It is tried again; the reason is told. */
  | 'failing';

export interface RunnerStatus {
  readonly state: RunnerState;
  readonly reason: string | null;
  readonly username: string | null;
}

/** Makes the adapter for what is configured now; null = nothing is. */
export type OpenAdapter = () => Promise<{ readonly adapter: ChannelAdapter; readonly revision: string } | null>;

export interface RunnerParts {
  readonly provider: Provider;
  readonly open: OpenAdapter;
  /** Tells what is configured now, to be compared with the adapter's; null = nothing. */
  readonly revision: () => Promise<string | null>;
  readonly store: ChannelStore;
  readonly host: ChannelHost;
  readonly settings: ChannelSettings;
  readonly surroundings: Surroundings;
  /** Names this process: only one living process has this name. */
  readonly owner: string;
  readonly leaseMs?: number;
  readonly graceMs?: number;
}

const LEASE_MS = 30_000;
/** What clocks may differ by. */
const GRACE_MS = 3_000;
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 60_000;
/** Wrong credentials do not mend by themselves. */
const UNAUTHORIZED_PAUSE_MS = 300_000;
const STANDBY_MS = 10_000;
/** Messages that one look reads. */
const PAGE = 100;
/** A look without a reason: finds what an earlier process postponed. */
const IDLE_MS = 30_000;
/** Ids of messages that are over are known for so long: longer than any provider delivers again. */
const REMEMBERED_MS = 48 * 60 * 60_000;
const FORGET_EVERY_MS = 60 * 60_000;
const ABORTED_MS = 2_000;

/**
 * One provider's bot in one process. States:
 *
 *   off ⇄ connecting → standby ⇄ running;  connecting, running → failing → connecting
 *
 * While it holds the channel it listens, works on a fixed number of messages at once, and confirms its right. Losing that ends all three.
 */
export class ChannelRunner {
  readonly #parts: RunnerParts;
  /** Fires at the stop: no message is begun, and what waits for a run ends. */
  readonly #closing = new AbortController();
  /** Ends the present hold, for a restart. */
  #restarting = new AbortController();
  readonly #bell = new Bell();
  #loop: Promise<void> | null = null;
  #held: Held | null = null;
  #tasks: Promise<unknown> = Promise.resolve();
  #status: RunnerStatus = { state: 'off', reason: null, username: null };

  constructor(parts: RunnerParts) {
    this.#parts = parts;
  }

  get status(): RunnerStatus {
    return this.#status;
  }

  /** Idempotent. Never waits for the provider. */
  start(): void {
    if (!this.#closing.signal.aborted) this.#loop ??= this.#run();
  }

  /** Reads the configuration again and connects anew. */
  restart(): void {
    this.#restarting.abort();
    this.#bell.ring();
    this.start();
  }

  /** No message is begun any more. */
  refuse(): void {
    this.#closing.abort();
    this.#bell.ring();
  }

  /** What is being sent has `graceMs`; then everything ends. Idempotent, never rejects. */
  async stop(graceMs: number): Promise<void> {
    this.refuse();
    const { clock } = this.#parts.surroundings;
    await settledWithin(clock, this.#tasks, graceMs);
    this.#held?.end();
    await settledWithin(clock, this.#loop ?? Promise.resolve(), ABORTED_MS);
  }

  #tell(part: Partial<RunnerStatus>): void {
    this.#status = { ...this.#status, ...part };
  }

  async #run(): Promise<void> {
    const { clock, logger } = this.#parts.surroundings;
    const { provider } = this.#parts;
    let failures = 0;
    while (!this.#closing.signal.aborted) {
      if (this.#restarting.signal.aborted) this.#restarting = new AbortController();
      const signal = AbortSignal.any([this.#closing.signal, this.#restarting.signal]);
      let pause: number | null;
      try {
        pause = await this.#once(signal);
        failures = 0;
        if (pause === null && !signal.aborted) {
          // Nothing is asked of anybody until something is configured.
          this.#loop = null;
          return;
        }
      } catch (error) {
        if (signal.aborted) continue;
        failures += 1;
        pause = Math.min(FIRST_PAUSE_MS * 2 ** Math.min(failures - 1, 10), LONGEST_PAUSE_MS);
        if (error instanceof ChannelError) {
          if (error.failure === 'unauthorized') pause = UNAUTHORIZED_PAUSE_MS;
          pause = Math.max(pause, error.retryAfterMs ?? 0);
        }
        this.#tell({ state: 'failing', reason: shownReason(error) });
        logger.warn('A channel does not work; it is tried again', { provider, error: told(error), pauseMs: pause });
      }
      await waitFor(clock, pause ?? 0, signal);
    }
    this.#tell({ state: 'off', reason: null });
  }

  /** Connects, takes the channel and holds it as long as it lasts. Answers how long to wait before the next try; null = nothing is configured. */
  async #once(signal: AbortSignal): Promise<number | null> {
    const { store, surroundings, owner, leaseMs = LEASE_MS, graceMs = GRACE_MS, provider } = this.#parts;
    const { clock, random, logger } = surroundings;
    const opened = await this.#parts.open();
    if (opened === null) {
      this.#tell({ state: 'off', reason: null, username: null });
      return null;
    }
    const { adapter, revision } = opened;
    if (this.#status.state === 'off') this.#tell({ state: 'connecting', reason: null });
    const { accountId, username } = await adapter.identify(signal);
    this.#tell({ username });
    const channel = `${provider}:${accountId}`;
    const token = newToken(random);
    const asked = clock.monotonic();
    const answer = await store.acquire({ channel, owner, token, leaseMs, graceMs, now: clock.now() });
    if (answer.outcome === 'busy') {
      this.#tell({ state: 'standby', reason: null });
      return Math.max(FIRST_PAUSE_MS, Math.min(answer.until - clock.now(), STANDBY_MS));
    }
    const held = new Held({ fence: { channel, token }, store, surroundings, leaseMs, asked });
    this.#held = held;
    this.#tell({ state: 'running', reason: null });
    logger.info('A channel is connected', { channel, username });
    const ending = (): void => held.end();
    this.#restarting.signal.addEventListener('abort', ending, { once: true });
    if (this.#restarting.signal.aborted) ending();
    // Ends with the process's stop only when what is being sent has had its time: `stop` ends the hold.
    const tasks = this.#dispatch(adapter, held);
    this.#tasks = tasks;
    try {
      await Promise.all([
        held.keep(async () => {
          if ((await this.#parts.revision()) !== revision) this.restart();
        }),
        this.#listen(adapter, held),
        tasks.finally(ending),
      ]);
    } finally {
      this.#restarting.signal.removeEventListener('abort', ending);
      held.end();
      await tasks.catch(() => {});
      await held.release();
      this.#held = null;
    }
    return 0;
  }

  /** Listens until the hold or the process ends. What fails is tried again, with the reason told. */
  async #listen(adapter: ChannelAdapter, held: Held): Promise<void> {
    const { store, settings, surroundings, provider } = this.#parts;
    const { clock, logger } = surroundings;
    const signal = AbortSignal.any([held.signal, this.#closing.signal]);
    let failures = 0;
    const sink: Sink = async (messages) => {
      failures = 0;
      if (this.#status.state === 'failing') this.#tell({ state: 'running', reason: null });
      for (let isTold = false; messages.length > 0; isTold = true) {
        signal.throwIfAborted();
        held.check();
        const answer = await store.receive({
          fence: held.fence,
          messages,
          limit: settings.maxQueued,
          now: clock.now(),
        });
        if (answer.outcome === 'fenced') {
          held.end();
          throw new Lost();
        }
        if (answer.outcome === 'taken') {
          if (answer.fresh > 0) this.#bell.ring();
          return;
        }
        // The provider keeps them meanwhile: nothing is dropped.
        if (!isTold) logger.warn('As many messages wait as may; no further ones are taken', { provider });
        await waitFor(clock, FIRST_PAUSE_MS, signal);
      }
    };
    while (!signal.aborted) {
      try {
        await adapter.listen(sink, signal);
      } catch (error) {
        if (signal.aborted || error instanceof Lost) return;
        if (error instanceof ChannelError && error.failure === 'unauthorized') throw error;
        failures += 1;
        const backoff = Math.min(FIRST_PAUSE_MS * 2 ** Math.min(failures - 1, 10), LONGEST_PAUSE_MS);
        const wanted = error instanceof ChannelError ? (error.retryAfterMs ?? 0) : 0;
        this.#tell({ state: 'failing', reason: shownReason(error) });
        logger.warn('A channel cannot be listened to; it is tried again', { provider, error: told(error), failures });
        await waitFor(clock, Math.max(backoff, wanted), signal);
      }
    }
  }

  /**
   * Gives messages to as many workers as there may be, oldest first. Of one conversation the next one is begun when the run of the one before is made
   * or refused: so the order in which somebody wrote is the order in which it counts.
   */
  async #dispatch(adapter: ChannelAdapter, held: Held): Promise<void> {
    const { store, settings, surroundings } = this.#parts;
    const { clock, logger } = surroundings;
    const working = new Map<number, Promise<void>>();
    const deciding = new Set<string>();
    const postponed = new Map<number, number>();
    const either = AbortSignal.any([held.signal, this.#closing.signal]);
    let forgetAt = clock.monotonic();
    const begin = (entry: ChannelEntry): void => {
      const conversation = conversationOf(entry);
      deciding.add(conversation);
      const admitted = (): void => {
        if (deciding.delete(conversation)) this.#bell.ring();
      };
      const task = new MessageTask({ ...this.#parts, adapter, held, closing: this.#closing.signal }, entry);
      const work = task
        .run(admitted)
        .then((again) => {
          if (again !== null) postponed.set(entry.key, again);
        })
        .finally(() => {
          admitted();
          working.delete(entry.key);
          this.#bell.ring();
        });
      working.set(entry.key, work);
    };
    try {
      while (!either.aborted) {
        const rung = this.#bell.next();
        const now = clock.now();
        for (const [key, at] of postponed) if (at <= now) postponed.delete(key);
        let pause = IDLE_MS;
        try {
          if (clock.monotonic() >= forgetAt) {
            forgetAt = clock.monotonic() + FORGET_EVERY_MS;
            await store.forget({ channel: held.fence.channel, before: now - REMEMBERED_MS });
          }
          if (working.size < settings.maxConcurrent)
            for (const entry of await store.due({ channel: held.fence.channel, limit: PAGE, now })) {
              if (working.size >= settings.maxConcurrent) break;
              if (either.aborted) break;
              if (working.has(entry.key) || postponed.has(entry.key) || deciding.has(conversationOf(entry))) continue;
              begin(entry);
            }
        } catch (error) {
          logger.warn('Waiting messages could not be read', { error: String(error) });
          pause = FIRST_PAUSE_MS;
        }
        for (const at of postponed.values()) pause = Math.min(pause, Math.max(0, at - clock.now()));
        await waitFor(clock, pause, either, rung);
      }
    } finally {
      await Promise.allSettled(working.values());
    }
  }
}

const told = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** Every user sees it: what failed on this machine may name its files, and stands in the log alone. */
const shownReason = (error: unknown): string =>
  error instanceof ChannelError ? error.message : 'Something failed on the server; its log says what.';

const conversationOf = ({ message }: ChannelEntry): string => JSON.stringify([message.chatId, message.topic]);
