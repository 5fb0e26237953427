import { Worker } from 'node:worker_threads';
import { ReindeerError } from '@reindeer/protocol';

/** A regular expression as plain data. */
export interface Expression {
  readonly source: string;
  readonly flags: string;
}

export interface LineMatch {
  readonly path: string;
  readonly line: number;
  readonly text: string;
}

export type MatchTask =
  | { readonly kind: 'paths'; readonly expression: Expression; readonly paths: readonly string[] }
  | {
      readonly kind: 'lines';
      readonly expression: Expression;
      readonly files: readonly { readonly path: string; readonly bytes: Uint8Array<ArrayBuffer> }[];
      readonly limit: number;
    };

export type MatchAnswer =
  | { readonly kind: 'paths'; readonly matches: readonly boolean[] }
  | { readonly kind: 'lines'; readonly matches: readonly LineMatch[]; readonly more: boolean; readonly binary: number };

/** Lines longer than this are not searched; they are data, not text. */
export const MAX_LINE = 2_000;

/**
 * The worker's whole program. It is text, not a module of its own, because the product is bundled into one file; it needs
 * nothing but the standard library. It only runs regular expressions: no path ever reaches it that it would open.
 */
const PROGRAM = `
const { parentPort } = require('node:worker_threads');
const decoder = new TextDecoder('utf-8');
function lines({ expression, files, limit }) {
  const pattern = new RegExp(expression.source, expression.flags);
  const matches = [];
  let binary = 0;
  for (const file of files) {
    if (file.bytes.includes(0)) { binary += 1; continue; }
    const all = decoder.decode(file.bytes).split('\\n');
    for (let index = 0; index < all.length; index += 1) {
      const text = all[index].endsWith('\\r') ? all[index].slice(0, -1) : all[index];
      if (text.length > ${MAX_LINE} || !pattern.test(text)) continue;
      if (matches.length >= limit) return { kind: 'lines', matches, more: true, binary };
      matches.push({ path: file.path, line: index + 1, text });
    }
  }
  return { kind: 'lines', matches, more: false, binary };
}
function paths({ expression, paths }) {
  const pattern = new RegExp(expression.source, expression.flags);
  return { kind: 'paths', matches: paths.map((path) => pattern.test(path)) };
}
parentPort.on('message', (task) => parentPort.postMessage(task.kind === 'lines' ? lines(task) : paths(task)));
`;

/** Milliseconds one batch may take; a sane pattern needs a few. */
const DEFAULT_BATCH_TIMEOUT_MS = 2_000;
const MAX_WORKERS = 2;
const MAX_WAITING = 64;

/**
 * Runs regular expressions in worker threads, so that none can block the event loop (D9). A task that passes its time is
 * ended by terminating its worker; nothing gentler stops a backtracking expression.
 *
 * States of a worker: *busy* (one task) → *idle* (at most one is kept, unreferenced) → busy … ; a late, failed or aborted task
 * terminates it. At most two run; further tasks wait in order, at most 64. After `close` every task is refused and all end.
 */
export class Matcher {
  readonly #batchTimeoutMs: number;
  readonly #waiting: (() => void)[] = [];
  readonly #busy = new Set<Worker>();
  #running = 0;
  #idle: Worker | null = null;
  #closed = false;

  constructor(batchTimeoutMs: number = DEFAULT_BATCH_TIMEOUT_MS) {
    this.#batchTimeoutMs = batchTimeoutMs;
  }

  /** Rejects with `bad_request` when the expression takes too long, `aborted` on the signal, `over_capacity` when too many wait. */
  async run(task: MatchTask, signal?: AbortSignal): Promise<MatchAnswer> {
    await this.#enter();
    try {
      if (signal?.aborted) throw aborted();
      const worker = this.#take();
      try {
        const answer = await this.#ask(worker, task, signal);
        this.#busy.delete(worker);
        await this.#keep(worker);
        return answer;
      } catch (error) {
        this.#busy.delete(worker);
        await worker.terminate();
        throw error;
      }
    } finally {
      this.#leave();
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    const workers = [...this.#busy, ...(this.#idle === null ? [] : [this.#idle])];
    this.#idle = null;
    for (const wake of this.#waiting.splice(0)) wake();
    await Promise.all(workers.map((worker) => worker.terminate()));
  }

  async #enter(): Promise<void> {
    if (this.#closed) throw closed();
    if (this.#running < MAX_WORKERS) {
      this.#running += 1;
      return;
    }
    if (this.#waiting.length >= MAX_WAITING) {
      throw new ReindeerError('over_capacity', 'Too many searches wait already; try again in a moment.', {
        retryable: true,
      });
    }
    // The slot passes over directly, so `#running` keeps its value.
    await new Promise<void>((resolve) => this.#waiting.push(resolve));
    if (this.#closed) {
      this.#leave();
      throw closed();
    }
  }

  #leave(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#running -= 1;
    else next();
  }

  #take(): Worker {
    const kept = this.#idle;
    this.#idle = null;
    const worker =
      kept ?? new Worker(PROGRAM, { eval: true, env: {}, resourceLimits: { maxOldGenerationSizeMb: 128 } });
    worker.ref();
    this.#busy.add(worker);
    return worker;
  }

  async #keep(worker: Worker): Promise<void> {
    if (this.#closed || this.#idle !== null) {
      await worker.terminate();
      return;
    }
    worker.unref();
    this.#idle = worker;
  }

  #ask(worker: Worker, task: MatchTask, signal: AbortSignal | undefined): Promise<MatchAnswer> {
    return new Promise<MatchAnswer>((resolve, reject) => {
      const finish = (settle: () => void) => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', onAbort);
        worker.off('message', onMessage).off('error', onError).off('exit', onExit);
        settle();
      };
      const onAbort = () => finish(() => reject(aborted()));
      const onMessage = (answer: MatchAnswer) => finish(() => resolve(answer));
      const onError = (cause: unknown) => {
        finish(() =>
          reject(new ReindeerError('bad_request', 'The pattern could not be searched; simplify it.', { cause })),
        );
      };
      const onExit = () => finish(() => reject(closed()));
      // A real timer: it bounds a real thread's work, whatever clock the rest of the program runs on.
      const timer = setTimeout(() => finish(() => reject(tooSlow(this.#batchTimeoutMs))), this.#batchTimeoutMs);
      signal?.addEventListener('abort', onAbort, { once: true });
      worker.on('message', onMessage).on('error', onError).on('exit', onExit);
      worker.postMessage(task, task.kind === 'lines' ? task.files.map((file) => file.bytes.buffer) : []);
    });
  }
}

function tooSlow(milliseconds: number): ReindeerError {
  return new ReindeerError(
    'bad_request',
    `The pattern takes too long (over ${milliseconds} ms for one batch of files); avoid nested repetition such as (a+)+, or search literally.`,
  );
}

function aborted(): ReindeerError {
  return new ReindeerError('aborted', 'The search was cancelled.');
}

function closed(): ReindeerError {
  return new ReindeerError('shutting_down', 'The search is shutting down.');
}
