import type { Log, Surroundings } from '@reindeer/protocol';
import { Bell, NOT_NEEDED, settledWithin } from '../common/waiting.ts';
import type { RuntimeSettings } from '../settings.ts';
import { pollFeed, RunFeed } from './feed.ts';
import { TokenHub } from './token-hub.ts';

interface Channel {
  readonly threadId: string;
  readonly bell: Bell;
  hub: TokenHub | null;
  feed: RunFeed | null;
  poll: AbortController | null;
}

/** A reader's share in a run's channel; give it back with `leave`. */
export interface Seat {
  readonly feed: RunFeed;
  readonly hub: () => TokenHub | null;
  leave(): void;
}

/**
 * The live side of runs in this process: the token hub of a run that works here, and one feed per run that is being read. A channel
 * exists while either does; nothing is kept afterwards.
 */
export class RunStreams {
  readonly #log: Log;
  readonly #surroundings: Surroundings;
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
    surroundings: Surroundings;
    settings: Pick<RuntimeSettings, 'tokenFlushMs' | 'pollLocalMs' | 'pollRemoteMs'>;
  }) {
    this.#log = parts.log;
    this.#surroundings = parts.surroundings;
    this.#settings = parts.settings;
    this.#unsubscribe = parts.log.onAppend((threadId, head) => this.#onAppend(threadId, head));
  }

  get size(): number {
    return this.#channels.size;
  }

  /** Fires when streams must end because the process stops. */
  get over(): AbortSignal {
    return this.#over.signal;
  }

  /** The token hub of a run whose worker starts here. */
  openHub(runId: string, threadId: string): TokenHub {
    const channel = this.#channel(runId, threadId);
    const hub = new TokenHub({
      clock: this.#surroundings.clock,
      bell: channel.bell,
      flushMs: this.#settings.tokenFlushMs,
      head: this.#heads.get(threadId) ?? 0,
    });
    channel.hub = hub;
    return hub;
  }

  closeHub(runId: string, hub: TokenHub): void {
    hub.close();
    const channel = this.#channels.get(runId);
    if (channel?.hub !== hub) return;
    // Readers that are seated keep the hub until they leave; nobody else needs it: the facts say everything.
    if (channel.feed === null) {
      channel.hub = null;
      this.#sweep(runId, channel);
    }
    channel.bell.ring();
  }

  /** Sits a reader down; `from`: the sequence after which it begins. */
  join(runId: string, threadId: string, from: number): Seat {
    const channel = this.#channel(runId, threadId);
    channel.feed ??= new RunFeed({ log: this.#log, threadId, runId, from, bell: channel.bell });
    const feed = channel.feed;
    feed.readers += 1;
    if (channel.poll === null) {
      channel.poll = new AbortController();
      const every = () => (channel.hub === null ? this.#settings.pollRemoteMs : this.#settings.pollLocalMs);
      void pollFeed(feed, this.#surroundings.clock, every, channel.poll.signal);
    }
    let seated = true;
    return {
      feed,
      hub: () => channel.hub,
      leave: () => {
        if (!seated) return;
        seated = false;
        feed.readers -= 1;
        if (feed.readers > 0) return;
        channel.poll?.abort(NOT_NEEDED);
        channel.poll = null;
        channel.feed = null;
        this.#sweep(runId, channel);
        this.#left.ring();
      },
    };
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
    this.#unsubscribe();
    for (const channel of this.#channels.values()) channel.bell.ring();
  }

  #channel(runId: string, threadId: string): Channel {
    let channel = this.#channels.get(runId);
    if (channel === undefined) {
      channel = { threadId, bell: new Bell(), hub: null, feed: null, poll: null };
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

  #onAppend(threadId: string, head: number): void {
    const runs = this.#byThread.get(threadId);
    if (runs === undefined) return;
    this.#heads.set(threadId, Math.max(head, this.#heads.get(threadId) ?? 0));
    for (const runId of runs) {
      const channel = this.#channels.get(runId);
      channel?.hub?.noteHead(head);
      channel?.feed?.hint();
    }
  }
}
