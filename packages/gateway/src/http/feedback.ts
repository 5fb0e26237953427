import { z } from '@hono/zod-openapi';
import { type Feedback, type JsonObject, newId, ReindeerError } from '@reindeer/protocol';
import { notFound } from './errors.ts';
import type { HttpParts } from './parts.ts';
import { type Api, type RequestContext, route } from './route.ts';
import { runOf } from './run-reading.ts';
import { idSchema, runParams } from './run-request.ts';
import { isoTime } from './views.ts';

const tag = 'Feedback';
const comment = z.string().max(10_000).nullish();
const rating = z.number();

/** How a feedback looks on the wire. */
const feedbackView = (of: Feedback): JsonObject => ({
  feedback_id: of.feedbackId,
  run_id: of.runId,
  thread_id: of.threadId,
  user_id: of.userId,
  message_id: of.messageId,
  rating: of.rating,
  comment: of.comment,
  created_at: isoTime(of.createdAt),
});

/** What users think of answers: one per run and user. */
export function feedbackRoutes(api: Api, parts: HttpParts): void {
  const { feedback, surroundings } = parts;
  const path = '/threads/:thread_id/runs/:run_id/feedback';

  const put = async (
    c: RequestContext,
    params: { thread_id: string; run_id: string },
    body: { rating: number; comment?: string | null | undefined; message_id?: string | null | undefined },
  ) => {
    if (body.rating !== 1 && body.rating !== -1)
      throw new ReindeerError('bad_request', 'rating must be 1 (good) or -1 (bad).');
    const run = await runOf(c, parts, params);
    return await feedback.put({
      feedbackId: newId(surroundings.random),
      threadId: run.threadId,
      runId: run.runId,
      userId: c.get('userId'),
      messageId: body.message_id ?? null,
      rating: body.rating,
      comment: body.comment ?? null,
      createdAt: surroundings.clock.now(),
    });
  };

  for (const method of ['put', 'post'] as const)
    route(
      api,
      {
        method,
        path,
        tag,
        summary: 'Say what you think of a run; a second time replaces the first.',
        params: runParams,
        body: z.strictObject({ rating, comment, message_id: z.string().max(200).nullish() }),
        answers: { 200: 'The feedback.', 400: 'A rating that is not 1 or -1.', 404: 'No such run.' },
      },
      async ({ c, params, body }) => c.json(feedbackView(await put(c, params, body))),
    );

  route(
    api,
    {
      method: 'get',
      path,
      tag,
      summary: 'Feedback on a run.',
      params: runParams,
      answers: { 200: 'A list.', 404: 'No such run.' },
    },
    async ({ c, params }) => {
      const run = await runOf(c, parts, params);
      return c.json((await feedback.list(run)).map(feedbackView));
    },
  );

  route(
    api,
    {
      method: 'get',
      path: `${path}/stats`,
      tag,
      summary: 'How many like a run.',
      params: runParams,
      answers: { 200: '{run_id, total, positive, negative}', 404: 'No such run.' },
    },
    async ({ c, params }) => {
      const run = await runOf(c, parts, params);
      const all = await feedback.list(run);
      const positive = all.filter((one) => one.rating === 1).length;
      return c.json({ run_id: run.runId, total: all.length, positive, negative: all.length - positive });
    },
  );

  const removed = async (c: RequestContext, params: { thread_id: string; run_id: string }, id: string | null) => {
    const run = await runOf(c, parts, params);
    const own = { threadId: run.threadId, runId: run.runId, userId: c.get('userId') };
    if (!(await feedback.remove({ ...own, feedbackId: id }))) throw notFound('feedback', id ?? run.runId);
    return c.json({ success: true });
  };
  const answers = { 200: '{success}', 404: 'No such run, or no feedback of yours.' };
  route(
    api,
    { method: 'delete', path, tag, summary: 'Take your feedback back.', params: runParams, answers },
    ({ c, params }) => removed(c, params, null),
  );
  route(
    api,
    {
      method: 'delete',
      path: `${path}/:feedback_id`,
      tag,
      summary: 'Take your feedback back.',
      params: runParams.extend({ feedback_id: idSchema }),
      answers,
    },
    ({ c, params }) => removed(c, params, params.feedback_id),
  );
}
