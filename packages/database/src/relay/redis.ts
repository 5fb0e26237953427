import { type Logger, ReindeerError, type RelayedFrame, type TokenRelay, type WantedRun } from '@reindeer/protocol';
import { Listeners } from './listeners.ts';
import { framesOf, inPieces, Outbox, ofPiece, wishOf, wishText } from './outbox.ts';

/** The version that this program is tested with. */
const VERSION = '6.3.1';
const CONNECT_MS = 5_000;
const MAX_RECONNECT_MS = 2_000;
/** Messages on their way to the server; more are dropped. */
const MAX_QUEUED = 1_000;
const MAX_PAYLOAD = 512 * 1024;
const CLOSE_MS = 2_000;

/** The few methods of the client that are used. */
interface RedisConnection {
  readonly isReady: boolean;
  connect(): Promise<unknown>;
  publish(channel: string, message: string): Promise<unknown>;
  subscribe(channels: string[], listener: (message: string, channel: string) => void): Promise<unknown>;
  on(event: 'error' | 'ready', listener: (error: unknown) => void): unknown;
  close(): Promise<unknown>;
  destroy(): void;
}

export interface RedisRelayOptions {
  /** `redis://…` or `rediss://…`. May carry a password: never logged. */
  readonly url: string;
  /** Instances with the same one hear each other: the id of their database. */
  readonly group: string;
  /** Of this process, unlike any other. */
  readonly sender: string;
  readonly logger: Logger;
  /** A peer told that logs have grown. */
  readonly onHint: (payload: string) => void;
}

/**
 * Hints and tokens between instances through Redis, as messages that nobody keeps. Two connections, one of which only listens; they are made
 * again in the background whenever they break. While there is none, nothing is relayed and `tell` says so: facts do not need it.
 */
export class RedisRelay implements TokenRelay {
  readonly #options: RedisRelayOptions;
  readonly #speaker: RedisConnection;
  readonly #listener: RedisConnection;
  readonly #listeners: Listeners;
  readonly #outbox = new Outbox();
  #sending: Promise<void> | null = null;
  #closing: Promise<void> | null = null;
  #down = false;

  private constructor(options: RedisRelayOptions, speaker: RedisConnection, listener: RedisConnection) {
    this.#options = options;
    this.#speaker = speaker;
    this.#listener = listener;
    this.#listeners = new Listeners(options.logger);
    for (const connection of [speaker, listener]) {
      connection.on('error', () => this.#isDown());
      connection.on('ready', () => this.#isUp());
    }
    // The client takes up again what it has listened to; but its first time may have failed.
    listener.on('ready', () => void this.#listen());
  }

  /**
   * Begins to connect; a server that is not there yet is none later, and no error here.
   * @throws ReindeerError `configuration` when the `redis` package is not installed or the address is none
   */
  static async open(options: RedisRelayOptions): Promise<RedisRelay> {
    const { createClient } = await import('redis').catch((cause: unknown) => {
      throw new ReindeerError(
        'configuration',
        `stream_bridge.type is redis, which needs the package "redis". Run "npm install redis@${VERSION}" in the folder of Reindeer, ` +
          'or remove stream_bridge: Postgres does the same.',
        { cause },
      );
    });
    const connection = (): RedisConnection => {
      try {
        return createClient({
          url: options.url,
          // Nothing is kept for later: it would be old then.
          disableOfflineQueue: true,
          commandsQueueMaxLength: MAX_QUEUED,
          socket: {
            connectTimeout: CONNECT_MS,
            reconnectStrategy: (retries) => Math.min(MAX_RECONNECT_MS, 50 * 2 ** Math.min(retries, 6)),
          },
        }) as unknown as RedisConnection;
      } catch (cause) {
        throw new ReindeerError(
          'configuration',
          'stream_bridge.redis_url cannot be read. Write it as redis://host:6379/0.',
          {
            cause,
          },
        );
      }
    };
    const relay = new RedisRelay(options, connection(), connection());
    await relay.#connect();
    return relay;
  }

  /** Tells hints; false = it cannot now. */
  tell(payloads: readonly string[]): boolean {
    if (!this.#speaker.isReady || this.#closing !== null) return false;
    for (const payload of payloads) void this.#publish('appended', payload);
    return true;
  }

  want(runs: readonly WantedRun[]): void {
    this.#outbox.want(runs);
    this.#wake();
  }

  onWanted(listener: (runs: readonly WantedRun[]) => void): () => void {
    return this.#listeners.onWanted(listener);
  }

  send(runId: string, frames: readonly RelayedFrame[]): void {
    this.#outbox.send(runId, frames);
    this.#wake();
  }

  watch(runId: string, listener: (frames: readonly RelayedFrame[]) => void): () => void {
    return this.#listeners.watch(runId, listener);
  }

  close(): Promise<void> {
    this.#closing ??= (async () => {
      await this.#sending;
      for (const connection of [this.#speaker, this.#listener]) {
        if (connection.isReady) await within(CLOSE_MS, connection.close());
        try {
          connection.destroy();
        } catch {
          // Closed already.
        }
      }
    })();
    return this.#closing;
  }

  async #connect(): Promise<void> {
    const listening = this.#listener.connect().then(() => this.#listen());
    await within(CONNECT_MS, Promise.all([listening, this.#speaker.connect()]));
  }

  async #listen(): Promise<void> {
    const channels = ['appended', 'wanted', 'frames'].map((name) => this.#channel(name));
    await this.#listener.subscribe(channels, this.#hear).catch((error: unknown) => {
      this.#options.logger.debug('Redis does not let us listen yet', { error: String(error) });
    });
  }

  #channel(name: string): string {
    return `reindeer:${this.#options.group}:${name}`;
  }

  #wake(): void {
    if (this.#closing !== null) return;
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = null;
      if (!this.#outbox.empty && this.#closing === null) this.#wake();
    });
  }

  async #sendAll(): Promise<void> {
    await new Promise<void>((resolve) => setImmediate(resolve));
    const { frames, wishes } = this.#outbox.take();
    if (!this.#speaker.isReady) return;
    const pieces = inPieces(wishes.map(wishText), MAX_PAYLOAD);
    await Promise.all([
      ...pieces.map((piece) => this.#publish('wanted', piece)),
      ...frames.map(([runId, body]) => this.#publish('frames', `${runId} ${body}`)),
    ]);
  }

  async #publish(name: string, text: string): Promise<void> {
    await this.#speaker.publish(this.#channel(name), `${this.#options.sender} ${text}`).catch((error: unknown) => {
      this.#options.logger.debug('A message between instances was not sent', { error: String(error) });
    });
  }

  /** The same function each time: the client calls each listener once. */
  readonly #hear = (message: string, channel: string): void => {
    const [sender, text] = halves(message);
    if (sender === this.#options.sender || this.#closing !== null) return;
    if (channel === this.#channel('appended')) this.#options.onHint(text);
    else if (channel === this.#channel('wanted')) this.#listeners.hearWishes(ofPiece(text).map(wishOf));
    else {
      const [runId, body] = halves(text);
      if (this.#listeners.watches(runId)) this.#listeners.hearFrames(runId, framesOf(body));
    }
  };

  #isDown(): void {
    if (this.#down || this.#closing !== null) return;
    this.#down = true;
    this.#options.logger.warn(
      'Redis is out of reach: the database tells of new facts, and whole messages take the place of tokens between instances',
    );
  }

  #isUp(): void {
    if (this.#down && this.#speaker.isReady && this.#listener.isReady) {
      this.#down = false;
      this.#options.logger.info('Redis answers again');
    }
  }
}

const halves = (text: string): [string, string] => {
  const at = text.indexOf(' ');
  return at < 0 ? [text, ''] : [text.slice(0, at), text.slice(at + 1)];
};

/** Waits for `promise`, at most `milliseconds`. Never rejects. */
async function within(milliseconds: number, promise: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, milliseconds);
  });
  await Promise.race([promise.catch(() => undefined), late]);
  clearTimeout(timer);
}
