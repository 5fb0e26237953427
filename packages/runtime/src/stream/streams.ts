import type { FactPage, Log, RelayedFrame, Run, RunStore, Surroundings, TokenRelay } from '@reindeer/protocol';
import { Bell, NOT_NEEDED, settledWithin } from '../common/waiting.ts';
import type { RuntimeSettings } from '../settings.ts';
import { pollFeed, RunFeed } from './feed.ts';
import type { TokenSource } from './frames.ts';
import { RemoteTokens } from './remote-tokens.ts';
import { TokenSharing } from './sharing.ts';
import { TokenHub } from './token-hub.ts';

interface Channel {
  readonly threadId: string;
  readonly bell: Bell;
  /** Of the worker here, also for a while after it has ended. */
  hub: TokenHub | null;
  /** What a peer that works the run tells; there once something was told. */
  remote: RemoteTokens | null;
  feed: RunFeed | null;
  poll: AbortController | null;
  /** The run's row as of a version of the feed: one question for all readers. */
  row: { readonly version: number; readonly run: Promise<Run | null> } | null;
  opening: FactPage | null;
}

const isOpen = (hub: TokenHub | null): hub is TokenHub => hub !== null && !hub.closed;

/** A reader's share in a run's channel; give it back with `leave`. */
export interface Seat {
  readonly feed: RunFeed;
  readonly hub: () => TokenSource | null;
  /** The run's row, not older than this version of the feed. */
  readonly row: (version: number) => Promise<Run | null>;
  leave(): void;
}

/**
 * The live side of runs in this process: the token hub of a run that works here, what a peer tells of one that works there, and one feed
 * per run that is being read. A channel exists while it has a worker or a reader; nothing is kept afterwards.
 */
export class RunStreams {
  readonly #log: Log;
  readonly #runs: RunStore;
  readonly #surroundings: Surroundings;
  readonly #sharing: TokenSharing | null;
  readonly #settings: Pick<RuntimeSettings, 'tokenFlushMs' | 'pollLocalMs' | 'pollRemoteMs'>;
  readonly #channels = new Map<string, Channel>();
  readonly #byThread = new Map<string, Set<string>>();
  readonly #heads = new Map<string, number>();
  readonly #unsubscribe: () => void;
  readonly #over = new AbortController();
  /** Rings when a run's last reader leaves. */
  readonly #left = new Bell();

  constructor(parts: {
    log: Log;
    runs: RunStore;
    surroundings: Surroundings;
    /** Between instances; null = this is the only one. */
    relay: TokenRelay | null;
    settings: Pick<RuntimeSettings, 'tokenFlushMs' | 'pollLocalMs' | 'pollRemoteMs'>;
  }) {
    this.#log = parts.log;
    this.#runs = parts.runs;
    this.#surroundings = parts.surroundings;
    this.#settings = parts.settings;
    const { relay, surroundings } = parts;
    this.#sharing =
      relay === null
        ? null
        : new TokenSharing({
            relay,
            surroundings,
            hubOf: (runId) => {
              const hub = this.#channels.get(runId)?.hub ?? null;
              return isOpen(hub) ? hub : null;
            },
            onFrames: (runId, frames) => this.#onFrames(runId, frames),
          });
    this.#unsubscribe = parts.log.onAppend((threadId, head) => this.#onAppend(threadId, head));
  }

  get size(): number {
    return this.#channels.size;
  }

  /** Readers that sit at a stream now. */
  get readers(): number {
    let readers = 0;
    for (const { feed } of this.#channels.values()) readers += feed?.readers ?? 0;
    return readers;
  }

  /** Fires when streams must end because the process stops. */
  get over(): AbortSignal {
    return this.#over.signal;
  }

  /** The token hub of a run whose worker starts here; `attempt`: the one that begins; `opening`: the facts of the run so far. */
  openHub(runId: string, threadId: string, attempt: number, opening: FactPage | null = null): TokenHub {
    const channel = this.#channel(runId, threadId);
    channel.opening = opening;
    if (opening !== null) this.#heads.set(threadId, Math.max(opening.head, this.#heads.get(threadId) ?? 0));
    const hub = new TokenHub({
      clock: this.#surroundings.clock,
      bell: channel.bell,
      flushMs: this.#settings.tokenFlushMs,
      head: this.#heads.get(threadId) ?? 0,
      attempt,
    });
    channel.hub = hub;
    this.#sharing?.unwatch(runId);
    return hub;
  }

  /** `over`: the run has ended, and does not go on elsewhere. */
  closeHub(runId: string, hub: TokenHub, over: boolean): void {
    hub.close();
    this.#sharing?.forget(runId, hub);
    const channel = this.#channels.get(runId);
    if (channel?.hub !== hub) return;
    channel.opening = null;
    // Readers that are seated keep the hub until they leave; nobody else needs it: the facts say everything.
    if (channel.feed === null) {
      channel.hub = null;
      this.#sweep(runId, channel);
    } else if (!over) this.#sharing?.watch(runId);
    channel.bell.ring();
  }

  /** Sits a reader down; `from`: the sequence after which it begins. */
  join(runId: string, threadId: string, from: number): Seat {
    const channel = this.#channel(runId, threadId);
    channel.feed ??= new RunFeed({
      log: this.#log,
      threadId,
      runId,
      from,
      bell: channel.bell,
      ...this.#known(channel),
    });
    const feed = channel.feed;
    feed.readers += 1;
    if (channel.poll === null) {
      channel.poll = new AbortController();
      const every = () => (isOpen(channel.hub) ? this.#settings.pollLocalMs : this.#settings.pollRemoteMs);
      void pollFeed(feed, this.#surroundings.clock, every, channel.poll.signal);
    }
    if (!isOpen(channel.hub)) this.#sharing?.watch(runId);
    let seated = true;
    return {
      feed,
      hub: () => (isOpen(channel.hub) ? channel.hub : (channel.remote ?? channel.hub)),
      row: (version) => {
        if (channel.row?.version !== version) {
          const row = { version, run: this.#runs.get(runId) };
          channel.row = row;
          row.run.catch(() => {
            // Unknown is asked again.
            if (channel.row === row) channel.row = null;
          });
        }
        return channel.row.run;
      },
      leave: () => {
        if (!seated) return;
        seated = false;
        feed.readers -= 1;
        if (feed.readers > 0) return;
        channel.poll?.abort(NOT_NEEDED);
        channel.poll = null;
        channel.feed = null;
        channel.remote = null;
        channel.row = null;
        this.#sharing?.unwatch(runId);
        this.#sweep(runId, channel);
        this.#left.ring();
      },
    };
  }

  /** The first facts of a run that began here, while it is at work; null = the log knows. */
  opening(runId: string): FactPage | null {
    return this.#channels.get(runId)?.opening ?? null;
  }

  /** What a feed need not read: every fact that came after `opening` was told, and counts in `told`. */
  #known({ threadId, opening }: Channel): { opening: FactPage; told: number } | object {
    return opening === null ? {} : { opening, told: this.#heads.get(threadId) ?? 0 };
  }

  /** Facts of a run are on their way to a store that carries out calls in their order: its readers get them right behind. */
  expect(runId: string): void {
    this.#channels.get(runId)?.feed?.expect();
  }

  readersOf(runId: string): number {
    return this.#channels.get(runId)?.feed?.readers ?? 0;
  }

  /** Lets the readers of runs that ended here hear the end, at most `timeoutMs`; those of other processes' runs are not waited for. */
  async drain(timeoutMs: number): Promise<void> {
    const { clock } = this.#surroundings;
    const deadline = clock.monotonic() + timeoutMs;
    const hearing = () => [...this.#channels.values()].some(({ hub, feed }) => hub?.closed === true && feed !== null);
    while (hearing() && clock.monotonic() < deadline) {
      await settledWithin(clock, this.#left.next(), deadline - clock.monotonic());
    }
  }

  /** Ends every reader and lets go of the log. Idempotent. */
  stop(): void {
    this.#over.abort();
    this.#sharing?.stop();
    this.#unsubscribe();
    for (const channel of this.#channels.values()) channel.bell.ring();
  }

  #channel(runId: string, threadId: string): Channel {
    let channel = this.#channels.get(runId);
    if (channel === undefined) {
      channel = {
        threadId,
        bell: new Bell(),
        hub: null,
        remote: null,
        feed: null,
        poll: null,
        row: null,
        opening: null,
      };
      this.#channels.set(runId, channel);
      const runs = this.#byThread.get(threadId) ?? new Set();
      runs.add(runId);
      this.#byThread.set(threadId, runs);
    }
    return channel;
  }

  #sweep(runId: string, channel: Channel): void {
    if (channel.feed !== null) return;
    if (channel.hub !== null && !channel.hub.closed) return;
    if (this.#channels.get(runId) !== channel) return;
    this.#channels.delete(runId);
    const runs = this.#byThread.get(channel.threadId);
    runs?.delete(runId);
    if (runs?.size === 0) {
      this.#byThread.delete(channel.threadId);
      this.#heads.delete(channel.threadId);
    }
  }

  #onFrames(runId: string, frames: readonly RelayedFrame[]): boolean {
    const channel = this.#channels.get(runId);
    if (channel === undefined || channel.feed === null || isOpen(channel.hub)) return true;
    channel.remote ??= new RemoteTokens();
    const complete = channel.remote.accept(frames);
    // A frame names the newest fact before it, whose own hint may be late or lost.
    if (channel.remote.head > channel.feed.known) channel.feed.hint();
    else channel.bell.ring();
    return complete;
  }

  #onAppend(threadId: string, head: number): void {
    const runs = this.#byThread.get(threadId);
    if (runs === undefined) return;
    this.#heads.set(threadId, Math.max(head, this.#heads.get(threadId) ?? 0));
    for (const runId of runs) {
      const channel = this.#channels.get(runId);
      channel?.hub?.noteHead(head);
      channel?.feed?.hint(head);
    }
  }
}
