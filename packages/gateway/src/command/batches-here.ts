import { type BatchAddress, type BatchProgress, ReindeerError } from '@reindeer/protocol';
import { csvLines, itemsOf, jsonLines } from '@reindeer/runtime';
import type { Composed } from '../compose.ts';
import { progressView } from '../http/batches.ts';
import { didYouMean } from '../nearest.ts';
import type { Batches, NewBatchRequest } from './batch.ts';
import type { Host } from './host.ts';
import type { ProgressView } from './progress.ts';
import { openSession, type Prepared, type Session, start } from './start.ts';

/** Batches that are worked on in this process. */
export class BatchesHere implements Batches {
  readonly #composed: Composed;
  readonly #session: Session;
  readonly #left: AbortController;
  readonly #closing: { own: boolean };

  private constructor(composed: Composed, session: Session, left: AbortController, closing: { own: boolean }) {
    this.#composed = composed;
    this.#session = session;
    this.#left = left;
    this.#closing = closing;
  }

  static async open(host: Host, prepared: Prepared): Promise<BatchesHere> {
    const left = new AbortController();
    // A stop that did not come from here.
    const closing = { own: false };
    const session = openSession(host, prepared, async () => {
      if (!closing.own) left.abort(new ReindeerError('aborted', 'Stopped.'));
    });
    return new BatchesHere(await start(host, prepared, session, false), session, left, closing);
  }

  get leaving(): AbortSignal {
    return this.#left.signal;
  }

  async start(input: NewBatchRequest): Promise<ProgressView> {
    const { batches, threads, agents, userId } = this.#composed;
    const { threadId } = input;
    const names = agents.models.map(({ name }) => name);
    if (input.model !== null && !names.includes(input.model))
      throw new ReindeerError(
        'bad_request',
        `There is no model "${input.model}".${didYouMean(input.model, names)} Configured: ${names.join(', ')}.`,
      );
    const answer = await batches.submit({
      userId,
      threadId,
      runId: null,
      toolCallId: null,
      submissionKey: `command-line:${crypto.randomUUID()}`,
      title: input.title,
      subagentType: input.subagentType,
      items: input.items,
      spec: {
        model_name: input.model,
        ...(input.model === null ? {} : { run_context: { model_name: input.model } }),
        ...(input.schema === null ? {} : { result_schema: input.schema }),
      },
      notify: false,
      ...(input.createThread
        ? {
            makeThread: () =>
              threads.create({ threadId, userId, metadata: { source: 'command-line' }, ifExists: 'do_nothing' }),
          }
        : {}),
      ...(input.maxRunning === undefined ? {} : { maxRunning: input.maxRunning }),
      ...(input.maxAttempts === undefined ? {} : { maxAttempts: input.maxAttempts }),
    });
    if (answer.outcome === 'thread_not_found')
      throw new ReindeerError('not_found', `There is no thread "${threadId}". Leave --thread out for a new one.`);
    return progressView(await this.#found(answer.batch.batchId));
  }

  async list() {
    const { batches, userId } = this.#composed;
    const list = await batches.list({ userId, threadId: null, limit: 100 });
    return list.map((batch) => ({
      batch_id: batch.batchId,
      title: batch.title,
      status: batch.status,
      total_items: batch.totalItems,
    }));
  }

  async *watch(id: string, signal: AbortSignal): AsyncGenerator<ProgressView> {
    await this.#found(id);
    for await (const progress of this.#composed.batches.watch(this.#address(id), signal)) yield progressView(progress);
  }

  async cancel(id: string): Promise<ProgressView> {
    await this.#composed.batches.cancel(this.#address(id));
    return progressView(await this.#found(id));
  }

  async *results(id: string, format: 'csv' | 'jsonl'): AsyncGenerator<string> {
    const { batch } = await this.#found(id);
    const all = itemsOf(this.#composed.stores.batches, batch);
    yield* format === 'csv' ? csvLines(all, batch) : jsonLines(all);
  }

  close(code: number): Promise<number> {
    this.#closing.own = true;
    this.#session.stop(code);
    return this.#session.ended;
  }

  #address(batchId: string): BatchAddress {
    return { batchId, userId: this.#composed.userId };
  }

  async #found(id: string): Promise<BatchProgress> {
    const found = await this.#composed.batches.get(this.#address(id));
    if (found === null) throw new ReindeerError('not_found', `There is no batch "${id}". See reindeer batch list.`);
    return found;
  }
}
