import { type Logger, ReindeerError } from '@reindeer/protocol';
import type pg from 'pg';
import { cut, endWithin } from './driver.ts';

/** The channel on which instances tell each other that a log has grown. */
const CHANNEL = 'reindeer_appended';
/** Tells locks of instances from others of the database. */
const INSTANCE_LOCK = 0x52_49_01;
/** A notification may hold 8,000 bytes. */
const MAX_PAYLOAD = 7_000;
/** Threads that wait to be told; the oldest is forgotten past it, and its readers find out by looking. */
const MAX_PENDING = 10_000;
/** The end may take this long, in milliseconds. */
const END_MS = 2_000;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5_000;

export interface HintsOptions {
  /** A new, unconnected client. */
  readonly createClient: () => pg.Client;
  readonly logger: Logger;
  /** Another instance's append. */
  readonly onHint: (threadId: string, head: number) => void;
  /** A quicker way to tell; false = it cannot be used now, and the database tells. */
  readonly tellOver?: (payloads: readonly string[]) => boolean;
}

/**
 * The connection on which an instance listens, tells, and stands for itself.
 *
 * States: connecting → listening → (the connection ends) waiting → connecting …, and closed from anywhere. Hints are told after the
 * commit, at most one NOTIFY on its way at a time with everything that has grown meanwhile: inside the append they would cut its
 * rate by half and fail at 8,000 bytes. They are hints: what is lost while there is no connection is found by readers that look.
 *
 * As long as the connection lives it holds the lock of the instance's id, so that two processes never stand for the same one,
 * and a restart knows that its predecessor is gone (D12).
 */
export class Hints {
  readonly #options: HintsOptions;
  readonly #pending = new Map<string, number>();
  /** Other channels, with who hears them. */
  readonly #channels = new Map<string, (payload: string) => void>();
  #client: pg.Client | null = null;
  #lock: number | null = null;
  #telling: Promise<void> | null = null;
  #pause = FIRST_PAUSE_MS;
  #timer: NodeJS.Timeout | null = null;
  #reconnecting: Promise<void> | null = null;
  #closed = false;

  constructor(options: HintsOptions) {
    this.#options = options;
  }

  /** Connects for the first time. @throws what the driver throws */
  async connect(): Promise<pg.Client> {
    const client = this.#options.createClient();
    client.on('error', () => this.#onEnd(client));
    client.on('end', () => this.#onEnd(client));
    client.on('notification', (message) => this.#hear(client, message));
    await client.connect();
    this.#client = client;
    for (const channel of [CHANNEL, ...this.#channels.keys()]) await client.query(`listen ${channel}`);
    this.#pause = FIRST_PAUSE_MS;
    return client;
  }

  /** Takes the lock of an instance for as long as this connection lives; false = a living process has it. */
  async take(instance: number): Promise<boolean> {
    if (!(await this.#tryLock(instance))) return false;
    this.#lock = instance;
    return true;
  }

  /** What other instances notify on a channel is heard from the next `connect` on. */
  hear(channel: string, listener: (payload: string) => void): void {
    this.#channels.set(channel, listener);
  }

  /** One statement on this connection, for what nobody waits for and may be lost. @throws when there is no connection */
  async ask<R extends pg.QueryResultRow>(name: string, text: string, values: readonly unknown[]): Promise<R[]> {
    if (this.#client === null) throw new ReindeerError('store_unavailable', 'There is no connection for hints.');
    return (await this.#client.query<R>({ name, text, values: [...values] })).rows;
  }

  /** Another instance told these over another way. */
  heard(payload: string): void {
    for (const [threadId, head] of unpack(payload)) this.#options.onHint(threadId, head);
  }

  /** Notes growth of logs; told soon. */
  tell(appended: ReadonlyMap<string, number>): void {
    for (const [threadId, head] of appended) {
      this.#pending.set(threadId, Math.max(head, this.#pending.get(threadId) ?? 0));
      const oldest = this.#pending.size > MAX_PENDING ? this.#pending.keys().next().value : undefined;
      if (oldest !== undefined) this.#pending.delete(oldest);
    }
    if (this.#closed || this.#telling !== null) return;
    this.#telling = this.#flush();
  }

  /** Tells what is noted, gives the lock back, ends the connection. Idempotent. */
  async close(): Promise<void> {
    this.#closed = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    await this.#reconnecting;
    const client = this.#client;
    if (client === null) return;
    const end = async (): Promise<void> => {
      await this.#telling;
      this.#client = null;
      await client.end();
    };
    await endWithin(END_MS, end, () => [client]);
  }

  async #flush(): Promise<void> {
    // Everything of this turn of the event loop goes together.
    await new Promise<void>((resolve) => setImmediate(resolve));
    while (this.#pending.size > 0 && this.#client !== null) {
      const payloads = pack(this.#pending);
      this.#pending.clear();
      if (this.#options.tellOver?.(payloads) === true) continue;
      const sql = `select pg_notify('${CHANNEL}', payload) from unnest($1::text[]) as payload`;
      await this.#client.query({ name: 'reindeer_tell', text: sql, values: [payloads] }).catch((error: unknown) => {
        this.#options.logger.debug('A hint was not told', { error: String(error) });
      });
    }
    this.#telling = null;
  }

  #hear(client: pg.Client, message: pg.Notification): void {
    // Listeners of this process have been told already.
    if (message.processId === processId(client)) return;
    if (message.channel === CHANNEL) this.heard(message.payload ?? '');
    else this.#channels.get(message.channel)?.(message.payload ?? '');
  }

  async #tryLock(instance: number): Promise<boolean> {
    const sql = 'select pg_try_advisory_lock($1::int, $2::int) as taken';
    const answer = await this.#client?.query<{ taken: boolean }>(sql, [INSTANCE_LOCK, instance]);
    return answer?.rows[0]?.taken === true;
  }

  #onEnd(client: pg.Client): void {
    if (client !== this.#client) return;
    this.#client = null;
    if (this.#closed) return;
    this.#options.logger.warn('The connection for hints ended; readers look by themselves until it is back');
    this.#reconnectLater();
  }

  #reconnectLater(): void {
    if (this.#closed || this.#timer !== null) return;
    this.#timer = setTimeout(() => {
      this.#timer = null;
      this.#reconnecting = this.#reconnect();
    }, this.#pause);
    this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE_MS);
  }

  async #reconnect(): Promise<void> {
    try {
      await this.connect();
      if (this.#lock !== null && !(await this.#tryLock(this.#lock)))
        this.#options.logger.error(
          'Another process took the id of this instance while the connection was lost. Give each instance an id of its own.',
        );
    } catch (error) {
      this.#options.logger.debug('The connection for hints is not back yet', { error: String(error) });
      const client = this.#client;
      this.#client = null;
      if (client !== null) cut(client);
      this.#reconnectLater();
    }
  }
}

const processId = (client: pg.Client): number | null =>
  'processID' in client && typeof client.processID === 'number' ? client.processID : null;

/** JSON lists of `thread id, head, …`, each short enough for one notification; an id too long for one is left out. */
function pack(pending: ReadonlyMap<string, number>): string[] {
  const payloads: string[] = [];
  let part = '';
  for (const [threadId, head] of pending) {
    const item = `${JSON.stringify(threadId)},${head}`;
    const bytes = Buffer.byteLength(item);
    if (bytes > MAX_PAYLOAD || threadId.includes('\0')) continue;
    if (Buffer.byteLength(part) + bytes > MAX_PAYLOAD) {
      payloads.push(`[${part}]`);
      part = '';
    }
    part = part === '' ? item : `${part},${item}`;
  }
  if (part !== '') payloads.push(`[${part}]`);
  return payloads;
}

/** The pairs of a payload; nothing when it is not one of ours. */
function unpack(payload: string): [string, number][] {
  let list: unknown;
  try {
    list = JSON.parse(payload);
  } catch {
    return [];
  }
  if (!Array.isArray(list)) return [];
  const pairs: [string, number][] = [];
  for (let at = 0; at + 1 < list.length; at += 2) {
    const [threadId, head]: readonly unknown[] = list.slice(at, at + 2);
    if (typeof threadId === 'string' && typeof head === 'number') pairs.push([threadId, head]);
  }
  return pairs;
}
