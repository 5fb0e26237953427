import { Worker } from 'node:worker_threads';
import { ReindeerError, type Surroundings } from '@reindeer/protocol';
import type { DocumentJob, DocumentResults, FromDocumentWorker, ToDocumentWorker } from './jobs.ts';

export interface DocumentsOptions {
  readonly logger: Surroundings['logger'];
  /** Entry of the thread; absent = the source beside this file. */
  readonly workerUrl?: URL;
  /** Jobs that wait, at most; past it a caller gets `over_capacity`. Default 64. */
  readonly maxQueued?: number;
  /** Bytes of the documents that wait, at most; one is always taken. Default 200 MiB. */
  readonly maxQueuedBytes?: number;
  /** Milliseconds that one job may take. Default 20,000. */
  readonly timeoutMs?: number;
  /** Memory of a thread in MiB. Default 384. */
  readonly memoryMib?: number;
  /** Threads, at most: a large document keeps no other one waiting. A second begins only when there is work for it. Default 2. */
  readonly threads?: number;
}

type Settings = Required<Omit<DocumentsOptions, 'logger'>>;

interface Waiting {
  readonly id: number;
  readonly job: DocumentJob;
  readonly resolve: (result: never) => void;
  readonly reject: (error: ReindeerError) => void;
}

/** What a job holds in memory until it is done, roughly. */
function sizeOf(job: DocumentJob): number {
  switch (job.kind) {
    case 'page':
    case 'convert':
      return job.body.length;
    case 'entries':
      return job.html.length;
    case 'scan':
      return job.files.reduce((sum, file) => sum + file.text.length, 0);
  }
}

/** An unused thread goes after this time: it holds tens of megabytes. */
const IDLE_MS = 60_000;
/** For a thread to load its libraries, on a busy machine. */
const START_MS = 30_000;

/**
 * Reads documents in threads of their own: pages, and whatever else takes long to parse. A job that finds no thread free waits for one.
 */
export class Documents {
  readonly #settings: Settings;
  readonly #readers: readonly Reader[];
  #queue: Waiting[] = [];
  #nextId = 1;
  #closed = false;

  constructor({ logger, ...options }: DocumentsOptions) {
    const settings: Settings = {
      workerUrl: new URL('./worker.ts', import.meta.url),
      maxQueued: 64,
      maxQueuedBytes: 200 * 1024 * 1024,
      timeoutMs: 20_000,
      memoryMib: 384,
      threads: 2,
      ...options,
    };
    this.#settings = settings;
    this.#readers = Array.from({ length: settings.threads }, () => new Reader(settings, logger, () => this.#next()));
  }

  /** @throws ReindeerError `tool_failed` for a document that cannot be read in time and memory, `over_capacity`, `shutting_down` */
  read<Kind extends DocumentJob['kind']>(
    job: Extract<DocumentJob, { kind: Kind }>,
    signal?: AbortSignal,
  ): Promise<DocumentResults[Kind]> {
    if (this.#closed) return Promise.reject(new ReindeerError('shutting_down', 'The server is being stopped.'));
    const waits = this.#queue.reduce((sum, other) => sum + sizeOf(other.job), 0);
    const tooLarge = this.#queue.length > 0 && waits + sizeOf(job) > this.#settings.maxQueuedBytes;
    if (tooLarge || this.#queue.length >= this.#settings.maxQueued)
      return Promise.reject(
        new ReindeerError('over_capacity', 'Too many documents are being read. Try again later.', { retryable: true }),
      );
    return new Promise<DocumentResults[Kind]>((resolve, reject) => {
      const waiting: Waiting = { id: this.#nextId++, job, resolve, reject };
      const leave = (): void => {
        this.#queue = this.#queue.filter((other) => other !== waiting);
        reject(new ReindeerError('aborted', 'The reading was cut short.'));
      };
      if (signal?.aborted === true) return leave();
      // One that is on the way already is left to end; its caller no longer waits.
      signal?.addEventListener('abort', leave, { once: true });
      this.#queue.push(waiting);
      this.#next();
    });
  }

  /** Ends the threads; what is on the way or waits is answered `shutting_down`. Idempotent. */
  async close(): Promise<void> {
    this.#closed = true;
    const left = this.#queue;
    this.#queue = [];
    for (const waiting of left) waiting.reject(new ReindeerError('shutting_down', 'The server is being stopped.'));
    await Promise.all(this.#readers.map((reader) => reader.close()));
  }

  #next(): void {
    if (this.#closed) return;
    const free = this.#readers.filter((reader) => !reader.busy);
    // One that has its libraries loaded comes before one that would have to begin.
    const reader = free.find((one) => one.started) ?? free[0];
    if (reader === undefined) return;
    const waiting = this.#queue.shift();
    if (waiting !== undefined) reader.take(waiting);
  }
}

/**
 * One thread. States: `none` → (a job) `busy` ⇄ `idle` → (a minute) `none`. One job is on the way at a time. A job past its time, or one that
 * needs more memory than the thread may have, ends the thread and fails alone; the next job starts a new one. `close` leads to `closed`.
 */
class Reader {
  readonly #settings: Settings;
  readonly #logger: Surroundings['logger'];
  /** Told when another job may come. */
  readonly #free: () => void;
  #worker: Worker | null = null;
  #loaded = false;
  #current: Waiting | null = null;
  #timer: NodeJS.Timeout | null = null;

  constructor(settings: Settings, logger: Surroundings['logger'], free: () => void) {
    this.#settings = settings;
    this.#logger = logger;
    this.#free = free;
  }

  get busy(): boolean {
    return this.#current !== null;
  }

  get started(): boolean {
    return this.#worker !== null;
  }

  /** For one that is not busy. */
  take(waiting: Waiting): void {
    this.#current = waiting;
    const worker = this.#thread();
    this.#limit(this.#loaded ? this.#settings.timeoutMs : START_MS);
    worker.postMessage({ id: waiting.id, job: waiting.job } satisfies ToDocumentWorker);
  }

  async close(): Promise<void> {
    const current = this.#current;
    this.#current = null;
    current?.reject(new ReindeerError('shutting_down', 'The server is being stopped.'));
    await this.#end();
  }

  #limit(milliseconds: number): void {
    this.#clearTimer();
    this.#timer = setTimeout(() => this.#fail(`it takes more than ${milliseconds / 1000} s`), milliseconds);
  }

  #thread(): Worker {
    if (this.#worker !== null) return this.#worker;
    this.#loaded = false;
    const worker = new Worker(this.#settings.workerUrl, {
      name: 'reindeer-documents',
      resourceLimits: { maxOldGenerationSizeMb: this.#settings.memoryMib },
      // Nothing of the server's environment is of use to it.
      env: {},
      stdin: false,
    });
    worker.unref();
    worker.on('message', (message: FromDocumentWorker) => this.#answered(worker, message));
    worker.on('error', (error) => {
      if (this.#worker === worker) this.#fail('it needs too much memory, or broke the reader', error);
    });
    worker.on('exit', () => {
      if (this.#worker === worker) this.#fail('the reader ended');
    });
    this.#worker = worker;
    return worker;
  }

  #answered(worker: Worker, message: FromDocumentWorker): void {
    const current = this.#current;
    if (this.#worker !== worker || current === null) return;
    if (message === 'ready') {
      // The time of a job begins when the thread can work on it.
      this.#loaded = true;
      this.#limit(this.#settings.timeoutMs);
      return;
    }
    if (current.id !== message.id) return;
    this.#current = null;
    if ('failed' in message) {
      this.#logger.debug('A document could not be read', { reason: message.failed });
      current.reject(new ReindeerError('tool_failed', 'The document could not be read.', { cause: message.failed }));
    } else current.resolve(message.result as never);
    this.#clearTimer();
    this.#timer = setTimeout(() => void this.#end(), IDLE_MS).unref();
    this.#free();
  }

  /** The job on the way fails and its thread goes; the next job starts a new one. */
  #fail(why: string, cause?: unknown): void {
    const current = this.#current;
    this.#current = null;
    current?.reject(new ReindeerError('tool_failed', `The document could not be read: ${why}.`, { cause }));
    void this.#end();
    this.#free();
  }

  async #end(): Promise<void> {
    this.#clearTimer();
    const worker = this.#worker;
    this.#worker = null;
    await worker?.terminate();
  }

  #clearTimer(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }
}
