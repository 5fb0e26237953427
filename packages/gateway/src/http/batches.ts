import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { z } from '@hono/zod-openapi';
import { checkSchema, ROLE_KEY } from '@reindeer/agent';
import {
  BATCH_ITEM_STATUSES,
  type Batch,
  type BatchAddress,
  type BatchItem,
  type BatchProgress,
  type BatchService,
  isBatchOver,
  type JsonObject,
  ReindeerError,
  type StreamItem,
  type Surroundings,
  type ThreadService,
} from '@reindeer/protocol';
import { csvLines, itemsOf, jsonLines } from '@reindeer/runtime';
import { didYouMean } from '../nearest.ts';
import { notFound } from './errors.ts';
import { SECURITY_HEADERS } from './guards.ts';
import { wholeNumber } from './query.ts';
import { type Api, type RequestContext, route } from './route.ts';
import { idSchema, threadParams } from './run-request.ts';
import { disconnectSignal, writeEvents } from './sse.ts';

export interface BatchRouteParts {
  readonly batches: BatchService;
  readonly threads: ThreadService;
  readonly surroundings: Surroundings;
  readonly heartbeatMs: number;
  readonly stalledMs: number;
  /** Names of the models that items may use. */
  readonly models: readonly string[];
}

const tag = 'Batches';
const PATH = '/threads/:thread_id/subagent-batches';
const batchParams = threadParams.extend({ batch_id: idSchema });
const itemParams = batchParams.extend({ item_id: z.string().max(200) });

const newBatch = z.strictObject({
  title: z.string().min(1).max(200),
  items: z
    .array(
      z.strictObject({
        key: z.string().min(1).max(128),
        prompt: z.string().min(1).max(100_000),
        acceptance: z.string().min(1).max(100_000).optional(),
      }),
    )
    .min(1)
    .max(100_000),
  subagent_type: z.string().max(64).default('general-purpose'),
  model_name: z.string().max(200).nullish(),
  result_schema: z.record(z.string(), z.unknown()).nullish(),
  max_running: z.number().int().min(1).optional(),
  max_live: z.number().int().min(1).optional(),
  max_attempts: z.number().int().min(1).max(10).optional(),
  submission_key: z.string().min(1).max(200).optional(),
  notify: z.boolean().default(false),
  if_not_exists: z.enum(['create', 'reject']).default('reject'),
});

export function batchRoutes(api: Api, parts: BatchRouteParts): void {
  const { batches, surroundings } = parts;
  const addressOf = (c: RequestContext, params: { thread_id: string; batch_id: string }): BatchAddress => ({
    batchId: params.batch_id,
    threadId: params.thread_id,
    userId: c.get('userId'),
  });
  const found = async (address: BatchAddress): Promise<BatchProgress> =>
    (await batches.get(address)) ?? gone(address.batchId);
  const threadOf = async (threadId: string, userId: string): Promise<void> => {
    if ((await parts.threads.get({ threadId, userId })) === null) throw notFound('thread', threadId);
  };
  const answers = { 200: 'The batch.', 404: 'No such thread or batch.' };

  route(
    api,
    {
      method: 'post',
      path: PATH,
      tag,
      summary:
        'Start a batch: one sub-agent per item, with the files of the thread. `submission_key` makes a repeat the same batch.',
      params: threadParams,
      body: newBatch,
      answers: {
        201: 'The batch was created.',
        200: 'The batch of this submission key.',
        404: 'No such thread.',
        422: 'Bad items or limits; nothing was stored.',
        503: 'Nothing works on batches here.',
      },
    },
    async ({ c, params, body }) => {
      working(batches);
      const userId = c.get('userId');
      const { thread_id: threadId } = params;
      const model = body.model_name ?? null;
      if (model !== null && !parts.models.includes(model))
        throw new ReindeerError(
          'validation_failed',
          `model_name: there is no model "${model.slice(0, 80)}".${didYouMean(model, parts.models)} Configured: ${parts.models.join(', ')}.`,
        );
      if (body.result_schema != null) checkSchema(body.result_schema);
      const answer = await batches.submit({
        userId,
        threadId,
        runId: null,
        toolCallId: null,
        submissionKey: `client:${threadId}:${body.submission_key ?? surroundings.random.uuid()}`,
        title: body.title,
        subagentType: body.subagent_type,
        items: body.items,
        spec: {
          model_name: model,
          run_context: {
            ...(model === null ? {} : { model_name: model }),
            ...(c.get('role') === null ? {} : { [ROLE_KEY]: c.get('role') }),
          },
          ...(body.result_schema == null ? {} : { result_schema: body.result_schema as JsonObject }),
        },
        notify: body.notify,
        ...(body.if_not_exists === 'create'
          ? { makeThread: () => parts.threads.create({ threadId, userId, metadata: {}, ifExists: 'do_nothing' }) }
          : {}),
        ...(body.max_running === undefined ? {} : { maxRunning: body.max_running }),
        ...(body.max_live === undefined ? {} : { maxLive: body.max_live }),
        ...(body.max_attempts === undefined ? {} : { maxAttempts: body.max_attempts }),
      });
      if (answer.outcome === 'thread_not_found') throw notFound('thread', threadId);
      return c.json(batchView(answer.batch), answer.outcome === 'created' ? 201 : 200);
    },
  );

  route(
    api,
    {
      method: 'get',
      path: PATH,
      tag,
      summary: 'The batches of a thread, newest first.',
      params: threadParams,
      query: z.object({ limit: wholeNumber(1, 100, 100) }),
      answers: { 200: 'The batches.', 404: 'No such thread.' },
    },
    async ({ c, params, query }) => {
      const userId = c.get('userId');
      await threadOf(params.thread_id, userId);
      const list = await batches.list({ userId, threadId: params.thread_id, limit: query.limit });
      return c.json(list.map(batchView));
    },
  );

  // For the command line, which knows a batch by its id alone.
  route(
    api,
    {
      method: 'get',
      path: '/subagent-batches',
      tag,
      summary: 'The batches of all threads, newest first.',
      query: z.object({ limit: wholeNumber(1, 100, 20) }),
      answers: { 200: 'The batches.' },
    },
    async ({ c, query }) => {
      const list = await batches.list({ userId: c.get('userId'), threadId: null, limit: query.limit });
      return c.json(list.map(batchView));
    },
  );
  route(
    api,
    {
      method: 'get',
      path: '/subagent-batches/:batch_id',
      tag,
      summary: 'A batch and its counts, whatever its thread.',
      params: z.object({ batch_id: idSchema }),
      answers: { 200: 'The batch.', 404: 'No such batch.' },
    },
    async ({ c, params }) => c.json(progressView(await found({ batchId: params.batch_id, userId: c.get('userId') }))),
  );

  route(
    api,
    { method: 'get', path: `${PATH}/:batch_id`, tag, summary: 'A batch and its counts.', params: batchParams, answers },
    async ({ c, params }) => c.json(progressView(await found(addressOf(c, params)))),
  );

  route(
    api,
    {
      method: 'get',
      path: `${PATH}/:batch_id/items`,
      tag,
      summary: 'Items by position, with previews of their results.',
      params: batchParams,
      query: z.object({
        offset: wholeNumber(0, 1_000_000, 0),
        limit: wholeNumber(1, 500, 100),
        status: z.enum(BATCH_ITEM_STATUSES).optional(),
      }),
      answers: { 200: 'The items.', 404: 'No such thread or batch.' },
    },
    async ({ c, params, query }) => {
      const items = await batches.items({
        ...addressOf(c, params),
        status: query.status ?? null,
        offset: query.offset,
        limit: query.limit,
        results: false,
      });
      return c.json((items ?? gone(params.batch_id)).map(itemView));
    },
  );

  for (const action of ['pause', 'resume', 'cancel'] as const)
    route(
      api,
      {
        method: 'post',
        path: `${PATH}/:batch_id/${action}`,
        tag,
        summary: SUMMARIES[action],
        params: batchParams,
        answers: { ...answers, 503: 'Nothing works on batches here.' },
      },
      async ({ c, params }) => {
        working(batches);
        const address = addressOf(c, params);
        if ((await batches[action](address)).outcome === 'not_found') gone(address.batchId);
        return c.json(progressView(await found(address)));
      },
    );

  for (const action of ['retry', 'cancel'] as const)
    route(
      api,
      {
        method: 'post',
        path: `${PATH}/:batch_id/items/:item_id/${action}`,
        tag,
        summary: action === 'retry' ? 'Try a failed item again; the batch is open again.' : 'Cancel one item.',
        params: itemParams,
        answers: { ...answers, 409: 'The item has not failed.', 503: 'Nothing works on batches here.' },
      },
      async ({ c, params }) => {
        working(batches);
        const address = addressOf(c, params);
        const itemId = params.item_id;
        const answer = await (action === 'retry'
          ? batches.retryItem({ ...address, itemId })
          : batches.cancelItem({ ...address, itemId }));
        if (answer.outcome === 'not_found') throw notFound(`item of the batch ${address.batchId.slice(0, 80)}`, itemId);
        if (answer.outcome === 'conflict')
          throw new ReindeerError(
            'conflict',
            'The item has not failed, or its batch was cancelled. Only failed items of a batch that was not cancelled can be tried again.',
          );
        return c.json(progressView(await found(address)));
      },
    );

  for (const format of ['jsonl', 'csv'] as const)
    route(
      api,
      {
        method: 'get',
        path: `${PATH}/:batch_id/results.${format}`,
        tag,
        summary: `All results, by position, as ${format === 'csv' ? 'a table' : 'one JSON object per line'}; also while the batch runs.`,
        params: batchParams,
        produces: format === 'csv' ? 'text/csv' : 'application/x-ndjson',
        answers: { 200: 'The results.', 404: 'No such thread or batch.' },
      },
      async ({ c, params }) => {
        const address = addressOf(c, params);
        const { batch } = await found(address);
        const store = {
          items: (input: Parameters<BatchService['items']>[0]) =>
            batches.items({ ...input, threadId: params.thread_id }),
        };
        const all = itemsOf(store, batch);
        const lines = format === 'csv' ? csvLines(all, batch) : jsonLines(all);
        return c.body(streamOf(lines), 200, {
          'content-type': format === 'csv' ? 'text/csv; charset=utf-8' : 'application/x-ndjson; charset=utf-8',
          'content-disposition': `attachment; filename="results.${format}"`,
        });
      },
    );

  route(
    api,
    {
      method: 'get',
      path: `${PATH}/:batch_id/stream`,
      tag,
      summary:
        'Progress of a batch as server-sent events: `progress` after each change (coalesced), `end` when it is over.',
      params: batchParams,
      produces: 'text/event-stream',
      answers: { 200: 'Server-sent events.', 404: 'No such thread or batch.' },
    },
    async ({ c, params }) => {
      const address = addressOf(c, params);
      await found(address);
      await stream(c, parts, address);
      return RESPONSE_ALREADY_SENT;
    },
  );
}

const SUMMARIES = {
  pause: 'Begin no further items; those at work end.',
  resume: 'Go on after a pause.',
  cancel: 'End the batch: waiting items never begin, those at work are stopped.',
} as const;

async function stream(c: RequestContext, parts: BatchRouteParts, address: BatchAddress): Promise<void> {
  const { outgoing } = c.env;
  const client = disconnectSignal(outgoing);
  try {
    outgoing.writeHead(200, {
      ...SECURITY_HEADERS,
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache, no-transform',
      'x-accel-buffering': 'no',
    });
    outgoing.flushHeaders();
    await writeEvents(outgoing, events(parts, address, client.signal), {
      clock: parts.surroundings.clock,
      stalledMs: parts.stalledMs,
    });
  } finally {
    client.dispose();
  }
}

/** Progress, a comment while nothing changes, and the end. */
async function* events(
  { batches, surroundings, heartbeatMs }: BatchRouteParts,
  address: BatchAddress,
  signal: AbortSignal,
): AsyncGenerator<StreamItem> {
  const source = batches.watch(address, signal)[Symbol.asyncIterator]();
  try {
    let next = source.next();
    for (;;) {
      const timer = new AbortController();
      const beat = surroundings.clock.sleep(heartbeatMs, timer.signal).then(
        () => null,
        () => null,
      );
      const step = await Promise.race([next, beat]);
      timer.abort();
      if (step === null) {
        yield 'heartbeat';
        continue;
      }
      if (step.done === true) break;
      const { batch } = step.value;
      const data = JSON.stringify(progressView(step.value));
      yield { id: null, event: 'progress', data };
      if (isBatchOver(batch.status)) yield { id: null, event: 'end', data };
      next = source.next();
    }
  } finally {
    await source.return?.(undefined);
  }
}

function streamOf(lines: AsyncGenerator<string>): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  return new ReadableStream({
    async pull(controller) {
      const { value, done } = await lines.next();
      if (done === true) controller.close();
      else controller.enqueue(encoder.encode(value));
    },
    async cancel() {
      await lines.return(undefined);
    },
  });
}

const gone = (batchId: string): never => {
  throw notFound('batch', batchId);
};

function working(batches: BatchService): void {
  if (batches.working) return;
  throw new ReindeerError(
    'shutting_down',
    'Nothing works on batches here: subagent_batches.enabled is false, or the server is stopping.',
    { retryable: true },
  );
}

const time = (at: number | null): string | null => (at === null ? null : new Date(at).toISOString());

const batchView = (batch: Batch) => ({
  batch_id: batch.batchId,
  thread_id: batch.threadId,
  run_id: batch.runId,
  tool_call_id: batch.toolCallId,
  title: batch.title,
  subagent_type: batch.subagentType,
  status: batch.status,
  total_items: batch.totalItems,
  max_live_items: batch.maxLive,
  max_running_items: batch.maxRunning,
  max_attempts: batch.maxAttempts,
  created_at: time(batch.createdAt),
  updated_at: time(batch.updatedAt),
  started_at: time(batch.startedAt),
  ended_at: time(batch.endedAt),
});

export const progressView = ({ batch, counts }: BatchProgress) => ({ ...batchView(batch), counts });

const itemView = (item: BatchItem) => ({
  item_id: item.itemId,
  key: item.key,
  position: item.position,
  status: item.status,
  attempt: item.attempt,
  cancel_requested: item.cancelRequested,
  model_name: item.modelName,
  result_preview: item.resultPreview,
  result_truncated: item.resultTruncated,
  result_file: item.resultFile,
  acceptance: item.acceptance,
  verdict: item.verdict,
  error: item.error,
  stop_reason: item.stopReason,
  token_usage: {
    input_tokens: item.usage.inputTokens,
    output_tokens: item.usage.outputTokens,
    total_tokens: item.usage.inputTokens + item.usage.outputTokens,
  },
  started_at: time(item.startedAt),
  ended_at: time(item.endedAt),
  updated_at: time(item.updatedAt),
});
