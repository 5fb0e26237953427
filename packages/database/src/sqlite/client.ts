import { type Logger, ReindeerError } from '@reindeer/protocol';
import type { Call } from '../scripts.ts';
import type { OperationResult } from './connection.ts';
import type { Engine, StartEngine } from './engine.ts';
import type { FromWorker } from './worker.ts';

export interface ClientOptions {
  /** Starts the thread that has the connection. */
  readonly start: StartEngine;
  /** Can another thread go on where one ended? Not with a database in memory. */
  readonly restartable: boolean;
  readonly logger: Logger;
  /** Operations that wait, at most; past it a call is answered `store_unavailable` at once. Default 10,000. */
  readonly maxQueued?: number;
  /** Operations per transaction, at most. Default 256. */
  readonly maxBatch?: number;
  /** How long a batch may take before its callers are told `store_unavailable`, in milliseconds. Default 30,000. */
  readonly answerMs?: number;
}

interface Pending {
  readonly name: string;
  readonly input: unknown;
  readonly resolve: (value: never) => void;
  readonly reject: (error: ReindeerError) => void;
}

const MAX_FAILED_STARTS = 3;
const CLOSE_MS = 10_000;

/**
 * The calling side of the database's thread.
 *
 * Calls made together travel as one message and become one transaction; at most one such batch is on the way, and what comes meanwhile
 * forms the next (back-pressure and group commit in one). A call that finds nothing on the way is sent before the caller's turn of the
 * event loop ends: that turn may be long, and the thread works beside it.
 *
 * States: `down` → (first call, or `start`) `starting` → `ready`. From `ready`, the unexpected end of the thread leads back to `down`:
 * everything on the way or waiting is rejected with `store_unavailable` (for what was on the way the effect is unknown), and
 * the next call starts a new thread. A database that refuses to open three times in a row leads to `failed`, where every call
 * is rejected with the reason. `close` leads to `closed` from anywhere. A database that is not `restartable` goes to `failed` at once.
 */
export class SqliteClient {
  readonly #options: Required<ClientOptions>;
  readonly #logger: Logger;
  readonly #listeners = new Set<(threadId: string, head: number) => void>();
  #state: 'down' | 'starting' | 'ready' | 'failed' | 'closed' = 'down';
  #engine: Engine | null = null;
  #failure: ReindeerError | null = null;
  #failedStarts = 0;
  #queue: Pending[] = [];
  #inFlight: { readonly id: number; readonly operations: readonly Pending[] } | null = null;
  /** The batch on the way is past its time; its callers have been told. */
  #overdue = false;
  #timer: NodeJS.Timeout | null = null;
  #scheduled = false;
  #nextId = 1;
  #accepting = true;
  #whenIdle: (() => void)[] = [];
  #whenExited: (() => void) | null = null;
  #closing: Promise<void> | null = null;

  constructor(options: ClientOptions) {
    this.#options = { maxQueued: 10_000, maxBatch: 256, answerMs: 30_000, ...options };
    this.#logger = options.logger;
  }

  /** Runs a script in the database's thread. @throws ReindeerError `store_unavailable` when the effect is unknown or there was none */
  readonly call: Call = (name, input) => this.#enqueue(name, input, false);

  /** As `call`, ahead of what waits: heartbeats wait behind nothing but the batch on the way (D9). */
  readonly callFirst: Call = (name, input) => this.#enqueue(name, input, true);

  /** Listens to appended facts; see `Log.onAppend`. */
  onAppend(listener: (threadId: string, head: number) => void): () => void {
    const own = (threadId: string, head: number): void => listener(threadId, head);
    this.#listeners.add(own);
    return () => this.#listeners.delete(own);
  }

  /** Waits for what was called before, moves the log into the database file, ends the thread. Idempotent, bounded. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  #enqueue<T>(name: string, input: unknown, first: boolean): Promise<T> {
    const refusal = this.#refusal();
    return refusal === null ? this.#push(name, input, first) : Promise.reject(refusal);
  }

  #push<T>(name: string, input: unknown, first: boolean): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const pending = { name, input, resolve, reject };
      if (first) this.#queue.unshift(pending);
      else this.#queue.push(pending);
      this.#schedule();
    });
  }

  #refusal(): ReindeerError | null {
    if (!this.#accepting || this.#state === 'closed')
      return new ReindeerError('store_unavailable', 'The database is closed.');
    if (this.#state === 'failed') return this.#failure;
    if (this.#overdue)
      return new ReindeerError(
        'store_unavailable',
        'The database does not answer. Check the disk of the data folder.',
        {
          retryable: true,
        },
      );
    if (this.#queue.length >= this.#options.maxQueued)
      return new ReindeerError('store_unavailable', 'Too many database operations are waiting. Try again later.', {
        retryable: true,
        detail: { limit: this.#options.maxQueued },
      });
    return null;
  }

  #schedule(defer: (flush: () => void) => void = queueMicrotask): void {
    if (this.#scheduled || this.#inFlight !== null) return;
    this.#scheduled = true;
    defer(() => {
      this.#scheduled = false;
      this.#flush();
    });
  }

  #flush(): void {
    if (this.#inFlight !== null || this.#queue.length === 0) return;
    if (this.#state === 'down') this.#start();
    if (this.#state !== 'ready' || this.#engine === null) return;
    const operations = this.#queue.splice(0, this.#options.maxBatch);
    if (this.#post(this.#engine, operations)) return;
    // Something in the batch cannot be sent to another thread. Only its own caller is to blame.
    const sendable = operations.filter((operation) => {
      try {
        structuredClone(operation.input);
        return true;
      } catch (cause) {
        operation.reject(
          new ReindeerError('bad_request', `The input of ${operation.name} holds something that is not plain data.`, {
            cause,
          }),
        );
        return false;
      }
    });
    this.#queue.unshift(...sendable);
    this.#idle();
    this.#schedule();
  }

  #post(engine: Engine, operations: readonly Pending[]): boolean {
    const id = this.#nextId++;
    try {
      engine.post({ kind: 'batch', id, operations: operations.map(({ name, input }) => ({ name, input })) });
    } catch {
      return false;
    }
    this.#inFlight = { id, operations };
    this.#timer = setTimeout(() => this.#onOverdue(), this.#options.answerMs);
    return true;
  }

  #start(): void {
    this.#state = 'starting';
    let refused: ReindeerError | null = null;
    const engine: Engine = this.#options.start({
      onMessage: (message: FromWorker) => {
        if (message.kind === 'ready') {
          this.#state = 'ready';
          this.#flush();
        } else if (message.kind === 'refused') refused = ReindeerError.fromPlain(message.error);
        else if (message.kind === 'batch') this.#onAnswer(message.id, message.results, message.appended);
      },
      onError: (error) => this.#logger.error('The database thread failed', { error: String(error) }),
      onExit: () => this.#onExit(refused),
    });
    this.#engine = engine;
  }

  #onAnswer(
    id: number,
    results: readonly OperationResult[],
    appended: readonly (readonly [threadId: string, head: number])[],
  ): void {
    const batch = this.#inFlight;
    if (batch === null || batch.id !== id) return;
    this.#clearInFlight();
    this.#failedStarts = 0;
    for (const [index, operation] of batch.operations.entries()) {
      const result = results[index];
      if (result?.ok === true) operation.resolve(result.value as never);
      else if (result !== undefined) operation.reject(ReindeerError.fromPlain(result.error));
    }
    for (const [threadId, head] of appended) this.#tell(threadId, head);
    this.#idle();
    // What the callers ask for next goes along with what waits.
    if (this.#queue.length > 0) this.#schedule(setImmediate);
  }

  #tell(threadId: string, head: number): void {
    for (const listener of [...this.#listeners]) {
      try {
        listener(threadId, head);
      } catch (error) {
        this.#logger.error('A listener of appended facts failed', { error: String(error) });
      }
    }
  }

  #onOverdue(): void {
    this.#overdue = true;
    this.#logger.error('The database does not answer', { milliseconds: this.#options.answerMs });
    this.#rejectAll('The database does not answer; whether the change is stored is unknown.');
    this.#releaseWaiters();
  }

  #onExit(refused: ReindeerError | null): void {
    const wasStarting = this.#state === 'starting';
    this.#engine = null;
    if (this.#state === 'closed') {
      this.#whenExited?.();
      return;
    }
    this.#state = 'down';
    if (wasStarting) this.#failedStarts += 1;
    const permanent = refused !== null && !refused.retryable;
    if (permanent || this.#failedStarts >= MAX_FAILED_STARTS || !this.#options.restartable) {
      this.#state = 'failed';
      this.#failure =
        refused ??
        new ReindeerError(
          'store_unavailable',
          'The database thread ended and cannot be started again. Restart Reindeer.',
        );
    }
    this.#logger.error('The database thread ended', { state: this.#state, failedStarts: this.#failedStarts });
    this.#rejectAll('The database thread ended; whether the change is stored is unknown.', refused);
    this.#clearInFlight();
    this.#idle();
  }

  #rejectAll(reason: string, error?: ReindeerError | null): void {
    const rejected = [...(this.#inFlight?.operations ?? []), ...this.#queue];
    this.#queue = [];
    for (const operation of rejected)
      operation.reject(error ?? new ReindeerError('store_unavailable', reason, { retryable: true }));
  }

  #clearInFlight(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    this.#inFlight = null;
    this.#overdue = false;
  }

  #idle(): void {
    if (this.#inFlight === null && this.#queue.length === 0) this.#releaseWaiters();
  }

  #releaseWaiters(): void {
    for (const resolve of this.#whenIdle.splice(0)) resolve();
  }

  async #close(): Promise<void> {
    this.#accepting = false;
    if (this.#state === 'ready' && !this.#overdue) {
      // The last write of a clean stop, behind everything that was called before. When it fails the stop was not clean.
      await this.#push('database.close', {}, false).catch((error: unknown) => {
        this.#logger.error('The database was not stopped cleanly', { error: String(error) });
      });
    }
    if (!this.#overdue && (this.#inFlight !== null || this.#queue.length > 0))
      await new Promise<void>((resolve) => {
        this.#whenIdle.push(resolve);
      });
    const engine = this.#engine;
    this.#state = 'closed';
    this.#listeners.clear();
    this.#clearInFlight();
    if (engine === null) return;
    const exited = new Promise<void>((resolve) => {
      this.#whenExited = resolve;
    });
    const timer = setTimeout(() => {
      this.#logger.error('The database thread did not end in time');
      engine.terminate();
    }, CLOSE_MS);
    engine.post({ kind: 'close' });
    await exited;
    clearTimeout(timer);
  }
}
