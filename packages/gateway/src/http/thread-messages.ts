import { z } from '@hono/zod-openapi';
import { notFound } from './errors.ts';
import type { HttpParts } from './parts.ts';
import { wholeNumber } from './query.ts';
import { type Api, route } from './route.ts';
import { idSchema, threadParams } from './run-request.ts';
import { factView, messageView } from './views.ts';

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
      answers: { 200: '{data, has_more, next_before_seq}', 404: 'No such thread.' },
    },
    async ({ c, params, query }) => {
      const page = await threads.messages({
        threadId: params.thread_id,
        userId: c.get('userId'),
        runId: null,
        before: query.before_seq ?? null,
        after: null,
        limit: query.limit,
      });
      if (page === null) throw notFound('thread', params.thread_id);
      const data = page.facts.map(messageView).filter((row) => row !== null);
      return c.json({
        data,
        has_more: page.hasMore,
        next_before_seq: page.hasMore ? (page.facts[0]?.seq ?? null) : null,
      });
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
      const page = await threads.messages({
        threadId: params.thread_id,
        userId: c.get('userId'),
        runId: null,
        before: null,
        after: null,
        limit: query.limit,
      });
      if (page === null) throw notFound('thread', params.thread_id);
      return c.json(page.facts.map(messageView).filter((row) => row !== null));
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
