import { setTimeout as pause } from 'node:timers/promises';
import { isBatchOver, ReindeerError } from '@reindeer/protocol';
import { askServer, openOnServer, readEvents, type Server } from './attach.ts';
import type { Batches, NewBatchRequest } from './batch.ts';
import { calledAs, type Host } from './host.ts';
import type { ProgressView } from './progress.ts';

type Found = ProgressView & { readonly thread_id: string };

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
/** A server that was stopped may be started again: how often, and after how long, it is asked anew. */
const TRIES = 60;
const AGAIN_MS = 2_000;

/** Batches that a running server works on. Leaving stops nothing there. */
export class BatchesOnServer implements Batches {
  readonly #host: Host;
  readonly #server: Server;
  readonly #left = new AbortController();
  readonly #againMs: number;
  readonly #leave = () => this.#left.abort(new ReindeerError('aborted', 'Stopped.'));

  constructor(host: Host, server: Server, againMs = AGAIN_MS) {
    this.#host = host;
    this.#againMs = againMs;
    this.#server = server;
    for (const signal of SIGNALS) host.process.on(signal, this.#leave);
  }

  get leaving(): AbortSignal {
    return this.#left.signal;
  }

  async start(input: NewBatchRequest): Promise<ProgressView> {
    const started = await this.#ask('POST', `/api/threads/${input.threadId}/subagent-batches`, {
      title: input.title,
      items: input.items,
      subagent_type: input.subagentType,
      model_name: input.model,
      result_schema: input.schema,
      if_not_exists: input.createThread ? 'create' : 'reject',
      submission_key: crypto.randomUUID(),
      ...(input.maxRunning === undefined ? {} : { max_running: input.maxRunning }),
      ...(input.maxAttempts === undefined ? {} : { max_attempts: input.maxAttempts }),
    });
    return this.#find((started as Found).batch_id);
  }

  async list(): Promise<readonly Omit<ProgressView, 'counts'>[]> {
    return (await this.#ask('GET', '/api/subagent-batches?limit=100')) as Found[];
  }

  /** A batch outlives the connection, and the server: after a cut it is joined again. */
  async *watch(id: string, signal: AbortSignal): AsyncGenerator<ProgressView> {
    const { thread_id: threadId } = await this.#find(id);
    const path = `/api/threads/${threadId}/subagent-batches/${id}/stream`;
    for (let failed = 0; ; ) {
      try {
        for await (const event of readEvents(await openOnServer(this.#server, path, signal), signal)) {
          if (event.event !== 'progress') continue;
          failed = 0;
          const view = JSON.parse(event.data) as ProgressView;
          yield view;
          if (isBatchOver(view.status)) return;
        }
      } catch (error) {
        if (signal.aborted) return;
        const passes = ReindeerError.is(error) && error.retryable;
        // It went with its thread: nothing is left to watch.
        if (!passes && failed > 0 && ReindeerError.is(error) && error.code === 'not_found') return;
        if (!passes) throw error;
        if (failed >= TRIES)
          throw new ReindeerError(
            'store_unavailable',
            `The server at ${this.#server.url} is gone; the batch goes on when it is back. Then: ${calledAs(this.#host)} batch watch ${id} --attach`,
            { cause: error },
          );
        if (failed === 0) this.#host.say('\nThe connection to the server was cut. Waiting for it …\n');
      }
      if (signal.aborted) return;
      failed += 1;
      await pause(this.#againMs, undefined, { signal }).catch(() => undefined);
    }
  }

  async cancel(id: string): Promise<ProgressView> {
    const { thread_id: threadId } = await this.#find(id);
    return (await this.#ask('POST', `/api/threads/${threadId}/subagent-batches/${id}/cancel`, {})) as ProgressView;
  }

  async *results(id: string, format: 'csv' | 'jsonl', signal: AbortSignal): AsyncGenerator<Uint8Array> {
    const { thread_id: threadId } = await this.#find(id);
    yield* await openOnServer(
      this.#server,
      `/api/threads/${threadId}/subagent-batches/${id}/results.${format}`,
      signal,
    );
  }

  async close(code: number): Promise<number> {
    for (const signal of SIGNALS) this.#host.process.off(signal, this.#leave);
    return code;
  }

  async #find(id: string): Promise<Found> {
    return (await this.#ask('GET', `/api/subagent-batches/${id}`)) as Found;
  }

  #ask(method: string, path: string, body?: unknown): Promise<unknown> {
    return askServer(this.#server, method, path, body);
  }
}
