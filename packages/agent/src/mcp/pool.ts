import { type Clock, type Logger, ReindeerError } from '@reindeer/protocol';

export interface PoolOptions<Session> {
  /** Opens a session; cleans up after itself when it fails. The signal fires when the session is no longer wanted. */
  readonly open: (server: string, scope: string, signal: AbortSignal) => Promise<Session>;
  readonly close: (session: Session) => Promise<void>;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Sessions at once, those being opened included (MC-11). Default 256. */
  readonly capacity?: number;
  /** How long one session may take to close, in milliseconds. Default 5,000. */
  readonly closeMs?: number;
  /** How long all of them may take together. Default 10,000. */
  readonly closeAllMs?: number;
}

interface Entry<Session> {
  readonly server: string;
  readonly scope: string;
  readonly stop: AbortController;
  readonly session: Promise<Session>;
  /** Calls that use it or wait for it. */
  uses: number;
  lastUse: number;
  opened: boolean;
  /** Settles when the session is gone. */
  readonly gone: Promise<void>;
  readonly leave: (reason: ReindeerError) => void;
}

/**
 * Sessions with MCP servers, kept between the calls of one conversation (MCP-3).
 *
 * An entry: `opening` → `open` → `closing` → gone; `opening` → gone when it fails. One function owns an entry from its first step to its last
 * (MC-04): it opens, waits for the wish to end, and closes. Others only use it, or wish its end with `leave`. The opening belongs to the
 * pool: callers share it, and one that gives up leaves the others alone (MC-01, MC-10). A wish that comes during the opening is kept:
 * what was opened is closed at once, and nobody gets it (MC-03). A failed opening is forgotten before anybody hears of it (MC-02).
 */
export class SessionPool<Session> {
  readonly #options: Required<PoolOptions<Session>>;
  readonly #entries = new Map<string, Entry<Session>>();
  /** Entries that were wished gone and are not yet: their processes still count. */
  readonly #leaving = new Set<Entry<Session>>();
  #closing: Promise<void> | null = null;

  constructor(options: PoolOptions<Session>) {
    this.#options = { capacity: 256, closeMs: 5_000, closeAllMs: 10_000, ...options };
  }

  /** Sessions that there are, those on their way in or out included. */
  get size(): number {
    return this.#entries.size + this.#leaving.size;
  }

  /**
   * Works with the session of a server for a scope, opening it when there is none.
   *
   * @throws ReindeerError `shutting_down` after `closeAll` (MC-09), `over_capacity` when every session is in use, `aborted`, and what `open` throws
   */
  async use<T>(
    server: string,
    scope: string,
    work: (session: Session) => Promise<T>,
    signal?: AbortSignal,
  ): Promise<T> {
    const entry = this.#entryOf(server, scope);
    entry.uses += 1;
    try {
      const session = await waitFor(entry.session, signal);
      return await work(session);
    } finally {
      entry.uses -= 1;
      entry.lastUse = this.#options.clock.monotonic();
    }
  }

  /** Closes the sessions of a scope, in-flight ones too (MC-08). */
  closeScope(scope: string): Promise<void> {
    return this.#leave((entry) => entry.scope === scope, CLOSED);
  }

  closeServer(server: string): Promise<void> {
    return this.#leave((entry) => entry.server === server, CLOSED);
  }

  /** Closes one session: of exactly this server and scope. A broken one is replaced at the next use. */
  closePair(server: string, scope: string): Promise<void> {
    return this.#leave((entry) => entry.server === server && entry.scope === scope, CLOSED);
  }

  /** Closes all there are; new ones may be opened. */
  reset(): Promise<void> {
    return this.#leave(() => true, CLOSED);
  }

  /** Closes sessions that nobody has used for `milliseconds`. */
  closeIdle(milliseconds: number): Promise<void> {
    const before = this.#options.clock.monotonic() - milliseconds;
    return this.#leave((entry) => entry.uses === 0 && entry.opened && entry.lastUse <= before, CLOSED);
  }

  /** Closes everything at once, within a bound, and takes no more (MC-06). Idempotent. */
  closeAll(): Promise<void> {
    this.#closing ??= this.#closeAll();
    return this.#closing;
  }

  async #closeAll(): Promise<void> {
    const gone = this.#leave(() => true, CLOSING);
    const late = new AbortController();
    const bound = this.#options.clock.sleep(this.#options.closeAllMs, late.signal).then(
      () => this.#options.logger.warn('MCP sessions did not close in time', { sessions: this.#leaving.size }),
      () => {},
    );
    await Promise.race([gone, bound]);
    late.abort();
  }

  async #leave(chosen: (entry: Entry<Session>) => boolean, reason: () => ReindeerError): Promise<void> {
    const entries = [...this.#entries.values(), ...this.#leaving].filter(chosen);
    for (const entry of entries) entry.leave(reason());
    await Promise.all(entries.map((entry) => entry.gone));
  }

  #entryOf(server: string, scope: string): Entry<Session> {
    if (this.#closing !== null) throw CLOSING();
    const key = JSON.stringify([server, scope]);
    const known = this.#entries.get(key);
    if (known !== undefined) return known;
    this.#makeRoom();
    const entry = this.#begin(server, scope, key);
    this.#entries.set(key, entry);
    return entry;
  }

  /** A session in use is never closed for another (MC-05). */
  #makeRoom(): void {
    if (this.size < this.#options.capacity) return;
    let oldest: Entry<Session> | null = null;
    for (const entry of this.#entries.values())
      if (entry.uses === 0 && entry.opened && (oldest === null || entry.lastUse < oldest.lastUse)) oldest = entry;
    if (oldest === null)
      throw new ReindeerError('over_capacity', 'All sessions with MCP servers are in use. Try again later.', {
        retryable: true,
        detail: { limit: this.#options.capacity },
      });
    oldest.leave(CLOSED());
  }

  #begin(server: string, scope: string, key: string): Entry<Session> {
    const stop = new AbortController();
    const opening = this.#options.open(server, scope, stop.signal);
    const wished = new Promise<ReindeerError>((resolve) =>
      stop.signal.addEventListener('abort', () => resolve(stop.signal.reason as ReindeerError), { once: true }),
    );
    const forget = (): void => {
      if (this.#entries.get(key) === entry) this.#entries.delete(key);
    };
    // What sharers get: the session, unless its end was wished before it was there.
    const session = Promise.race([opening, wished.then((reason) => Promise.reject(reason))]).then(
      (opened) => {
        // Both may come in one turn.
        stop.signal.throwIfAborted();
        return opened;
      },
      (error: unknown) => {
        forget();
        throw error;
      },
    );
    session.catch(() => {});
    const life = async (): Promise<void> => {
      try {
        const opened = await opening;
        entry.opened = true;
        await wished;
        await this.#close(opened, server);
      } catch (error) {
        this.#options.logger.debug('An MCP session could not be opened', {
          server,
          error: String(error).slice(0, 300),
        });
      } finally {
        forget();
        this.#leaving.delete(entry);
      }
    };
    const entry: Entry<Session> = {
      server,
      scope,
      stop,
      session,
      uses: 0,
      lastUse: this.#options.clock.monotonic(),
      opened: false,
      // One turn later, so that `entry` is there.
      gone: Promise.resolve().then(life),
      leave: (reason) => {
        if (this.#entries.get(key) === entry) {
          this.#entries.delete(key);
          this.#leaving.add(entry);
        }
        stop.abort(reason);
      },
    };
    return entry;
  }

  async #close(session: Session, server: string): Promise<void> {
    const late = new AbortController();
    const closing = this.#options.close(session).then(
      () => 'closed',
      () => 'closed',
    );
    const bound = this.#options.clock.sleep(this.#options.closeMs, late.signal).then(
      () => 'late',
      () => 'closed',
    );
    if ((await Promise.race([closing, bound])) === 'late')
      this.#options.logger.warn('An MCP session did not close in time', { server });
    late.abort();
  }
}

const CLOSED = (): ReindeerError =>
  new ReindeerError('tool_failed', 'The session with the MCP server was closed.', { retryable: true });
const CLOSING = (): ReindeerError =>
  new ReindeerError('shutting_down', 'Sessions with MCP servers are closing: the server is being stopped.');

/** A caller may stop waiting; what it waited for goes on. */
function waitFor<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise<T>((resolve, reject) => {
    const leave = (): void => reject(new ReindeerError('aborted', 'The call was cut short.'));
    if (signal.aborted) return leave();
    signal.addEventListener('abort', leave, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', leave));
  });
}
