import { isBatchOver, ReindeerError } from '@reindeer/protocol';
import { askServer, openOnServer, readEvents, type Server } from './attach.ts';
import type { Batches, NewBatchRequest } from './batch.ts';
import type { Host } from './host.ts';
import type { ProgressView } from './progress.ts';

type Found = ProgressView & { readonly thread_id: string };

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** Batches that a running server works on. Leaving stops nothing there. */
export class BatchesOnServer implements Batches {
  readonly #host: Host;
  readonly #server: Server;
  readonly #left = new AbortController();
  readonly #leave = () => this.#left.abort(new ReindeerError('aborted', 'Stopped.'));

  constructor(host: Host, server: Server) {
    this.#host = host;
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

  async *watch(id: string, signal: AbortSignal): AsyncGenerator<ProgressView> {
    const { thread_id: threadId } = await this.#find(id);
    const body = await openOnServer(this.#server, `/api/threads/${threadId}/subagent-batches/${id}/stream`, signal);
    for await (const event of readEvents(body, signal)) {
      if (event.event !== 'progress') continue;
      const view = JSON.parse(event.data) as ProgressView;
      yield view;
      if (isBatchOver(view.status)) return;
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
