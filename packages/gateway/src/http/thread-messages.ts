import { z } from '@hono/zod-openapi';
import { notFound } from './errors.ts';
import type { HttpParts } from './parts.ts';
import { wholeNumber } from './query.ts';
import { type Api, route } from './route.ts';
import { idSchema, threadParams } from './run-request.ts';
import { messagePage, runsOf, threadUsage } from './thread-reading.ts';
import { factView } from './views.ts';

const tag = 'Threads';

/** Messages and the whole log of a thread. */
export function messageRoutes(api: Api, parts: HttpParts): void {
  const { threads } = parts;
  route(
    api,
    {
      method: 'get',
      path: '/threads/:thread_id/messages/page',
      tag,
      summary: 'One page of messages, oldest first within the page; `before_seq` turns to the page before.',
      params: threadParams,
      query: z.strictObject({ limit: wholeNumber(1, 200, 50), before_seq: z.coerce.number().int().min(0).optional() }),
      answers: {
        200: '{data, has_more, next_before_seq}; a message is `inherited` when its run is not one of this thread, as in a branch.',
        404: 'No such thread.',
      },
    },
    async ({ c, params, query }) => {
      const { rows, hasMore, nextBefore } = await messagePage(parts, {
        threadId: params.thread_id,
        userId: c.get('userId'),
        before: query.before_seq ?? null,
        limit: query.limit,
      });
      return c.json({ data: rows, has_more: hasMore, next_before_seq: nextBefore });
    },
  );

  route(
    api,
    {
      method: 'get',
      path: '/threads/:thread_id/messages',
      tag,
      summary: 'The newest messages, oldest first.',
      params: threadParams,
      query: z.object({ limit: wholeNumber(1, 200, 200) }),
      answers: { 200: 'A list.', 404: 'No such thread.' },
    },
    async ({ c, params, query }) => {
      const { rows } = await messagePage(parts, {
        threadId: params.thread_id,
        userId: c.get('userId'),
        before: null,
        limit: query.limit,
      });
      return c.json(rows);
    },
  );

  route(
    api,
    {
      method: 'get',
      path: '/threads/:thread_id/token-usage',
      tag,
      summary: 'Tokens that the thread has used, by model and by who asked.',
      params: threadParams,
      query: z.object({ include_active: z.enum(['true', 'false']).optional() }),
      answers: {
        200: '{thread_id, total_tokens, total_input_tokens, total_output_tokens, total_runs, by_model: {model: {tokens, runs, cache_read_tokens?, reasoning_tokens?, cost?: {amount, currency}}}, by_caller, context_usage}',
        404: 'No such thread.',
      },
    },
    async ({ c, params, query }) => {
      const threadId = params.thread_id;
      const runs = await runsOf(parts, { threadId, userId: c.get('userId') });
      if (runs === null) throw notFound('thread', threadId);
      const counted = query.include_active === 'true' ? runs : runs.filter((run) => run.acknowledged);
      return c.json(threadUsage(threadId, counted, parts.prices));
    },
  );

  route(
    api,
    {
      method: 'get',
      path: '/threads/:thread_id/facts',
      tag,
      summary: 'The log of the thread: everything that happened, in order, each fact once.',
      params: threadParams,
      query: z.object({
        after_seq: wholeNumber(0, Number.MAX_SAFE_INTEGER, 0),
        limit: wholeNumber(1, 2000, 500),
        run_id: idSchema.optional(),
      }),
      answers: {
        200: '{data, head}; read on with `after_seq` = the last `seq` until it equals `head`.',
        404: 'No such thread.',
      },
    },
    async ({ c, params, query }) => {
      const page = await threads.facts({
        threadId: params.thread_id,
        userId: c.get('userId'),
        runId: query.run_id ?? null,
        afterSeq: query.after_seq,
        limit: query.limit,
      });
      if (page === null) throw notFound('thread', params.thread_id);
      return c.json({ data: page.facts.map(factView), head: page.head });
    },
  );
}
