import { z } from '@hono/zod-openapi';
import { ReindeerError, type Run } from '@reindeer/protocol';
import { notFound } from './errors.ts';
import type { HttpParts } from './parts.ts';
import { oneOrMore, wholeNumber } from './query.ts';
import { type Api, type RequestContext, route } from './route.ts';
import { runParams, threadParams } from './run-request.ts';
import { factView, messageView, runView } from './views.ts';

const tag = 'Runs';
const statuses = z.enum(['pending', 'running', 'success', 'error', 'timeout', 'interrupted']);

/** The run of the address, which must be of that thread and that user. */
export async function runOf(
  c: RequestContext,
  parts: HttpParts,
  params: { thread_id: string; run_id: string },
): Promise<Run> {
  const run = await parts.runs.get({ runId: params.run_id, threadId: params.thread_id, userId: c.get('userId') });
  if (run === null) throw notFound('run', params.run_id);
  return run;
}

/** Lists, rows, messages and events of runs; deleting a finished one. */
export function readingRoutes(api: Api, parts: HttpParts): void {
  route(
    api,
    {
      method: 'get',
      path: '/threads/:thread_id/runs',
      tag,
      summary: 'Runs of a thread, newest first.',
      params: threadParams,
      query: z.object({
        limit: wholeNumber(1, 1000, 10),
        offset: wholeNumber(0, Number.MAX_SAFE_INTEGER, 0),
        status: statuses.optional(),
        select: oneOrMore,
      }),
      answers: { 200: 'A list of runs.', 404: 'No such thread.' },
    },
    async ({ c, params, query }) => {
      const userId = c.get('userId');
      if ((await parts.threads.get({ threadId: params.thread_id, userId })) === null)
        throw notFound('thread', params.thread_id);
      const runs = await parts.runs.list({
        threadId: params.thread_id,
        userId,
        status: query.status ?? null,
        limit: query.limit,
        offset: query.offset,
      });
      const chosen = query.select === undefined ? [] : [query.select].flat();
      return c.json(
        runs
          .map(runView)
          .map((view) =>
            chosen.length === 0
              ? view
              : Object.fromEntries(Object.entries(view).filter(([key]) => chosen.includes(key))),
          ),
      );
    },
  );

  route(
    api,
    {
      method: 'get',
      path: '/threads/:thread_id/runs/:run_id',
      tag,
      summary: 'A run.',
      params: runParams,
      answers: { 200: 'The run.', 404: 'No such run in this thread.' },
    },
    async ({ c, params }) => c.json(runView(await runOf(c, parts, params))),
  );

  route(
    api,
    {
      method: 'delete',
      path: '/threads/:thread_id/runs/:run_id',
      tag,
      summary: 'Delete a finished run. Its messages stay.',
      params: runParams,
      answers: { 204: 'Deleted.', 404: 'No such run.', 409: 'The run is active.' },
    },
    async ({ c, params }) => {
      const outcome = await parts.runs.remove({
        runId: params.run_id,
        threadId: params.thread_id,
        userId: c.get('userId'),
      });
      if (outcome === 'not_found') throw notFound('run', params.run_id);
      if (outcome === 'active')
        throw new ReindeerError('conflict', 'The run is active. Cancel it, or wait for its end, then delete it.');
      return c.body(null, 204);
    },
  );

  route(
    api,
    {
      method: 'get',
      path: '/threads/:thread_id/runs/:run_id/messages',
      tag,
      summary: 'Messages of a run, oldest first.',
      params: runParams,
      query: z.object({
        limit: wholeNumber(1, 200, 200),
        before_seq: z.coerce.number().int().min(0).optional(),
        after_seq: z.coerce.number().int().min(0).optional(),
      }),
      answers: { 200: '{data, has_more}', 404: 'No such run.' },
    },
    async ({ c, params, query }) => {
      const run = await runOf(c, parts, params);
      const page = await parts.threads.messages({
        threadId: run.threadId,
        userId: c.get('userId'),
        runId: run.runId,
        before: query.before_seq ?? null,
        after: query.after_seq ?? null,
        limit: query.limit,
      });
      if (page === null) throw notFound('thread', params.thread_id);
      return c.json({ data: page.facts.map(messageView).filter((row) => row !== null), has_more: page.hasMore });
    },
  );

  route(
    api,
    {
      method: 'get',
      path: '/threads/:thread_id/runs/:run_id/events',
      tag,
      summary: 'Everything that the run did, in order.',
      params: runParams,
      query: z.object({
        limit: wholeNumber(1, 2000, 500),
        after_seq: wholeNumber(0, Number.MAX_SAFE_INTEGER, 0),
        event_types: z.string().max(500).optional(),
      }),
      answers: { 200: 'A list.', 404: 'No such run.' },
    },
    async ({ c, params, query }) => {
      const run = await runOf(c, parts, params);
      const page = await parts.threads.facts({
        threadId: run.threadId,
        userId: c.get('userId'),
        runId: run.runId,
        afterSeq: query.after_seq,
        limit: query.limit,
      });
      if (page === null) throw notFound('thread', params.thread_id);
      const types = query.event_types?.split(',') ?? [];
      return c.json(page.facts.filter((fact) => types.length === 0 || types.includes(fact.body.kind)).map(factView));
    },
  );
}
