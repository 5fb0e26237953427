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
  /** Memory of the thread in MiB. Default 384. */
  readonly memoryMib?: number;
}

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
 * Reads documents in a thread of its own: pages, and whatever else takes long to parse.
 *
 * States: `none` → (a job) `busy` ⇄ `idle` → (a minute) `none`. One job is on the way at a time. A job past its time, or one that needs more
 * memory than the thread may have, ends the thread and fails alone; what waits goes on in a new one. `close` leads to `closed`.
 */
export class Documents {
  readonly #options: Required<Omit<DocumentsOptions, 'logger'>>;
  readonly #logger: Surroundings['logger'];
  #worker: Worker | null = null;
  #loaded = false;
  #current: Waiting | null = null;
  #timer: NodeJS.Timeout | null = null;
  #queue: Waiting[] = [];
  #nextId = 1;
  #closed = false;

  constructor({ logger, ...options }: DocumentsOptions) {
    this.#logger = logger;
    this.#options = {
      workerUrl: new URL('./worker.ts', import.meta.url),
      maxQueued: 64,
      maxQueuedBytes: 200 * 1024 * 1024,
      timeoutMs: 20_000,
      memoryMib: 384,
      ...options,
    };
  }

  /** @throws ReindeerError `tool_failed` for a document that cannot be read in time and memory, `over_capacity`, `shutting_down` */
  read<Kind extends DocumentJob['kind']>(
    job: Extract<DocumentJob, { kind: Kind }>,
    signal?: AbortSignal,
  ): Promise<DocumentResults[Kind]> {
    if (this.#closed) return Promise.reject(new ReindeerError('shutting_down', 'The server is being stopped.'));
    const waits = this.#queue.reduce((sum, other) => sum + sizeOf(other.job), 0);
    const tooLarge = this.#queue.length > 0 && waits + sizeOf(job) > this.#options.maxQueuedBytes;
    if (tooLarge || this.#queue.length >= this.#options.maxQueued)
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

  /** Ends the thread; what is on the way or waits is answered `shutting_down`. Idempotent. */
  async close(): Promise<void> {
    this.#closed = true;
    const left = [...(this.#current === null ? [] : [this.#current]), ...this.#queue];
    this.#current = null;
    this.#queue = [];
    for (const waiting of left) waiting.reject(new ReindeerError('shutting_down', 'The server is being stopped.'));
    await this.#end();
  }

  #next(): void {
    if (this.#current !== null || this.#closed) return;
    const waiting = this.#queue.shift();
    this.#clearTimer();
    if (waiting === undefined) {
      this.#timer = setTimeout(() => void this.#end(), IDLE_MS).unref();
      return;
    }
    this.#current = waiting;
    const worker = this.#thread();
    this.#limit(this.#loaded ? this.#options.timeoutMs : START_MS);
    worker.postMessage({ id: waiting.id, job: waiting.job } satisfies ToDocumentWorker);
  }

  #limit(milliseconds: number): void {
    this.#clearTimer();
    this.#timer = setTimeout(() => this.#fail(`it takes more than ${milliseconds / 1000} s`), milliseconds);
  }

  #thread(): Worker {
    if (this.#worker !== null) return this.#worker;
    this.#loaded = false;
    const worker = new Worker(this.#options.workerUrl, {
      name: 'reindeer-documents',
      resourceLimits: { maxOldGenerationSizeMb: this.#options.memoryMib },
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
      this.#limit(this.#options.timeoutMs);
      return;
    }
    if (current.id !== message.id) return;
    this.#current = null;
    if ('failed' in message) {
      this.#logger.debug('A document could not be read', { reason: message.failed });
      current.reject(new ReindeerError('tool_failed', 'The document could not be read.', { cause: message.failed }));
    } else current.resolve(message.result as never);
    this.#next();
  }

  /** The job on the way fails and its thread goes; the next job starts a new one. */
  #fail(why: string, cause?: unknown): void {
    const current = this.#current;
    this.#current = null;
    current?.reject(new ReindeerError('tool_failed', `The document could not be read: ${why}.`, { cause }));
    void this.#end();
    this.#next();
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
